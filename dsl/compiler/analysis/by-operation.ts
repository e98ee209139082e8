import { type ArrayAllocator, heap } from '../../collections/scratch-arena.js'

/**
 * Items grouped by operation: `at[id]` is the operation of item `id`, or -1. The items of operation i are
 * `items[start[i] .. start[i + 1]]`, in order of id.
 */
export const byOperation = (
  at: Int32Array,
  count: number,
  allocator: ArrayAllocator = heap,
): { start: Int32Array; items: Int32Array } => {
  // Counts lie two places further on; while items are put in place, each start moves to its final position.
  const start = allocator.int32(count + 2)
  let some = 0
  for (let id = 0; id < at.length; id++)
    if (at[id]! >= 0) {
      start[at[id]! + 2]!++
      some++
    }
  for (let i = 0; i < count; i++) start[i + 2]! += start[i + 1]!
  const items = allocator.int32(some)
  for (let id = 0; id < at.length; id++) if (at[id]! >= 0) items[start[at[id]! + 1]!++] = id
  return { start, items }
}
