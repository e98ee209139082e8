import { type ArrayAllocator, heap } from '../../collections/scratch-arena.js'
import type { Operation } from './ir.js'

/**
 * The successors of operation i are `to[start[i] .. start[i + 1]]`; `degree[i]` operations come before it.
 */
export interface Dependencies {
  readonly start: Int32Array
  readonly to: Int32Array
  readonly degree: Int32Array
}

export const dependenciesOf = (
  operations: readonly Operation[],
  allocator: ArrayAllocator = heap,
): Dependencies => {
  const count = operations.length
  const degree = allocator.int32(count)
  let edges = 0
  // Counts lie two places further on; while edges are put in place, each start moves to its final position.
  const start = allocator.int32(count + 2)
  // Each list is made when it is read, and read twice: a million lists at once would outlive their use.
  for (let i = 0; i < count; i++) {
    const { after } = operations[i]!
    degree[i] = after.length
    edges += after.length
    for (let a = 0; a < after.length; a++) start[after[a]! + 2]!++
  }
  for (let i = 0; i < count; i++) start[i + 2]! += start[i + 1]!
  const to = allocator.int32(edges)
  for (let i = 0; i < count; i++) {
    const { after } = operations[i]!
    for (let a = 0; a < after.length; a++) to[start[after[a]! + 1]!++] = i
  }
  return { start, to, degree }
}

/** Whether the program's order is topological. */
const isOrdered = ({ start, to, degree }: Dependencies): boolean => {
  for (let i = 0; i < degree.length; i++)
    for (let e = start[i]!; e < start[i + 1]!; e++) if (to[e]! <= i) return false
  return true
}

/** A topological order: the program's own, if it is one. Shorter than the graph where there is a cycle. */
export const topological = (dependencies: Dependencies, allocator: ArrayAllocator = heap): Int32Array => {
  const { start, to, degree } = dependencies
  const order = allocator.int32(degree.length)
  if (isOrdered(dependencies)) {
    for (let i = 0; i < order.length; i++) order[i] = i
    return order
  }
  const left = degree.slice()
  let length = 0
  for (let i = 0; i < left.length; i++) if (left[i] === 0) order[length++] = i
  for (let next = 0; next < length; next++) {
    const i = order[next]!
    for (let e = start[i]!; e < start[i + 1]!; e++) if (--left[to[e]!]! === 0) order[length++] = to[e]!
  }
  return order.subarray(0, length)
}

/**
 * The longest path from the start of each operation to the end of the tick, by the time that each takes
 * alone.
 */
export const remainingPath = (
  order: Int32Array,
  { start, to }: Dependencies,
  alone: Float64Array,
): Float64Array => {
  const path = new Float64Array(alone.length)
  for (let next = order.length - 1; next >= 0; next--) {
    const i = order[next]!
    let longest = 0
    for (let e = start[i]!; e < start[i + 1]!; e++) longest = Math.max(longest, path[to[e]!]!)
    path[i] = longest + alone[i]!
  }
  return path
}
