import { type ArrayAllocator, heap } from '../../order/scratch-arena.js'
import type { Lowered, Operation } from './ir.js'

/** Who comes after whom, in compressed rows: the successors of i are `to[start[i] .. start[i + 1]]`; `degree[i]` operations come before it. */
export interface Dependencies {
  readonly start: Int32Array
  readonly to: Int32Array
  readonly degree: Int32Array
}

/** What each operation comes after, flat: operation i after `before[start[i] .. start[i + 1]]`. */
interface After {
  readonly start: Int32Array
  readonly before: Int32Array
}

const flat = new WeakMap<readonly Operation[], After>()

/** What those of a list come after, told by who made it. */
export const follows = (operations: readonly Operation[], after: After): void => {
  flat.set(operations, after)
}

const afterOf = (operations: readonly Operation[]): After => {
  const known = flat.get(operations)
  if (known !== undefined) return known
  const start = new Int32Array(operations.length + 1)
  const before = operations.flatMap(({ after }, i) => {
    start[i + 1] = start[i]! + after.length
    return after
  })
  return { start, before: Int32Array.from(before) }
}

export const dependenciesOf = (
  { operations }: Pick<Lowered, 'operations'>,
  room: ArrayAllocator = heap,
): Dependencies => {
  const count = operations.length
  const after = afterOf(operations)
  // Counted one place further on: once all are put where they belong, each start is where the one before it ends.
  const start = room.int32(count + 2)
  const degree = room.int32(count)
  const edges = after.start[count]!
  for (let e = 0; e < edges; e++) start[after.before[e]! + 2]!++
  for (let i = 0; i < count; i++) start[i + 2]! += start[i + 1]!
  const to = room.int32(edges)
  for (let i = 0; i < count; i++) {
    degree[i] = after.start[i + 1]! - after.start[i]!
    for (let e = after.start[i]!; e < after.start[i + 1]!; e++) to[start[after.before[e]! + 1]!++] = i
  }
  return { start, to, degree }
}

/** Whether every operation comes before its successors as the user wrote it. */
const isOrdered = ({ start, to, degree }: Dependencies): boolean => {
  for (let i = 0; i < degree.length; i++)
    for (let e = start[i]!; e < start[i + 1]!; e++) if (to[e]! <= i) return false
  return true
}

/** A topological order: as the user wrote it, if that is one. Shorter than the graph where there is a cycle. */
export const topological = (dependencies: Dependencies, room: ArrayAllocator = heap): Int32Array => {
  const { start, to, degree } = dependencies
  const order = room.int32(degree.length)
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

/** The longest path from the start of each operation to the end of the tick, by what each takes alone. */
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
