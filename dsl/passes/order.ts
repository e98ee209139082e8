import * as E from 'fp-ts/lib/Either.js'
import type { PlanLane } from '../ir/plan.js'
import { fail, fault } from './faults.js'
import type { Ordered, Passed, Placed } from './ir.js'
import { nanoseconds } from './place.js'
import { isLazy, windowed } from './windows.js'

/**
 * How the order is chosen: by critical path, or as the user wrote it; the most that any upload may run ahead; and whether a window
 * keeps its memory from one upload to the next.
 */
export interface Ordering {
  readonly by: 'critical path' | 'program'
  readonly ahead: number
  readonly keep: boolean
}

/** Successors in compressed rows: those of i are `to[start[i] .. start[i + 1]]`. */
const successors = (ir: Placed): { start: Int32Array; to: Int32Array; degree: Int32Array } => {
  const count = ir.operations.length
  const start = new Int32Array(count + 1)
  const degree = new Int32Array(count)
  ir.operations.forEach(({ after }, i) => {
    degree[i] = after.length
    for (const before of after) start[before + 1]!++
  })
  for (let i = 0; i < count; i++) start[i + 1]! += start[i]!
  const to = new Int32Array(start[count]!)
  const fill = start.slice()
  ir.operations.forEach(({ after }, i) => {
    for (const before of after) to[fill[before]!++] = i
  })
  return { start, to, degree }
}

/** Some topological order, or undefined where there is a cycle: `stuck` are the operations on it or behind it. */
const topological = (start: Int32Array, to: Int32Array, degree: Int32Array): { order: Int32Array; length: number } => {
  const left = degree.slice()
  const order = new Int32Array(left.length)
  let length = 0
  for (let i = 0; i < left.length; i++) if (left[i] === 0) order[length++] = i
  for (let next = 0; next < length; next++) {
    const i = order[next]!
    for (let e = start[i]!; e < start[i + 1]!; e++) if (--left[to[e]!]! === 0) order[length++] = to[e]!
  }
  return { order, length }
}

/**
 * What other lanes are waiting for behind each operation: the longest path from its first change of lane to the end of the tick. On one
 * lane nothing is gained by order, so there all are 0 and the user's order stands, which is kind to memory.
 */
const urgency = (ir: Placed, order: Int32Array, start: Int32Array, to: Int32Array): Float64Array => {
  const path = new Float64Array(order.length)
  const urgent = new Float64Array(order.length)
  for (let next = order.length - 1; next >= 0; next--) {
    const i = order[next]!
    let longest = 0
    let handover = 0
    for (let e = start[i]!; e < start[i + 1]!; e++) {
      const s = to[e]!
      longest = Math.max(longest, path[s]!)
      handover = Math.max(handover, ir.laneOf[s] === ir.laneOf[i] ? urgent[s]! : path[s]!)
    }
    path[i] = longest + nanoseconds(ir.operations[i]!)
    urgent[i] = handover
  }
  return urgent
}

/** A heap of small numbers, least first. */
class Ready {
  private readonly heap: Int32Array
  size = 0

  constructor(capacity: number) {
    this.heap = new Int32Array(capacity)
  }

  push(value: number): void {
    const { heap } = this
    let at = this.size++
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (heap[parent]! <= value) break
      heap[at] = heap[parent]!
      at = parent
    }
    heap[at] = value
  }

  pop(): number {
    const { heap } = this
    const least = heap[0]!
    const value = heap[--this.size]!
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= this.size) break
      if (child + 1 < this.size && heap[child + 1]! < heap[child]!) child++
      if (heap[child]! >= value) break
      heap[at] = heap[child]!
      at = child
    }
    heap[at] = value
    return least
  }
}

const listed = (ir: Placed, ordering: Ordering): Int32Array | undefined => {
  const { start, to, degree } = successors(ir)
  const { order, length } = topological(start, to, degree)
  if (length < order.length) return undefined
  const urgent = ordering.by === 'program' ? new Float64Array(order.length) : urgency(ir, order, start, to)
  // What nobody waits for only gives memory back: it goes first. Then what other lanes wait for; then as the user wrote it.
  const last = (i: number): number => (start[i] === start[i + 1] ? 0 : 1)
  const byUrgency = Array.from(order.keys()).sort((a, b) => last(a) - last(b) || urgent[b]! - urgent[a]! || a - b)
  const rank = new Int32Array(order.length)
  byUrgency.forEach((i, r) => {
    rank[i] = r
  })
  const ready = new Ready(order.length)
  const eager: number[] = []
  const free = (i: number): void => {
    for (let e = start[i]!; e < start[i + 1]!; e++) if (--degree[to[e]!]! === 0) ready.push(rank[to[e]!]!)
  }
  const sources = order.filter(i => ir.operations[i]!.after.length === 0)
  for (const i of sources) {
    if (isLazy(ir, i)) free(i)
    else ready.push(rank[i]!)
  }
  while (ready.size > 0) {
    const i = byUrgency[ready.pop()!]!
    eager.push(i)
    free(i)
  }
  return Int32Array.from(eager)
}

/** Lanes that are used, in order of first use. */
const used = (ir: Placed, order: Int32Array): { lanes: PlanLane[]; laneOf: Int32Array } => {
  const renumbered = new Int32Array(ir.lanes.length).fill(-1)
  const lanes: PlanLane[] = []
  const laneOf = order.map(i => {
    const lane = ir.laneOf[i]!
    if (renumbered[lane] === -1) {
      renumbered[lane] = lanes.length
      lanes.push({ ...ir.lanes[lane]!, id: lanes.length })
    }
    return renumbered[lane]!
  })
  return { lanes, laneOf }
}

/**
 * After this pass operation i is issued i-th: after all that it depends on, uploads where their window opens or right before their
 * reader, and what other lanes wait for the longest first.
 */
export const order =
  (ordering: Ordering) =>
  (ir: Placed): Passed<Ordered> => {
    const eager = listed(ir, ordering)
    if (eager === undefined) {
      const donor = ir.operations.find(operation => operation.op === 'kernel') ?? ir.operations[0]!
      return fail(
        fault(
          'UseAfterDonate',
          donor.at,
          donor.name,
          'every other use of a donated value before the kernel',
          'a use that cannot come before it',
          'do not donate it, or copy it first',
        ),
      )
    }
    const { order: issue, windows } = windowed(ir, eager, ordering.ahead)
    const renumbered = new Int32Array(issue.length)
    issue.forEach((i, at) => {
      renumbered[i] = at
    })
    const operations = Array.from(issue, i => ir.operations[i]!)
    const edges = windows.map(({ later, earlier, tick }) => ({
      later: renumbered[later]!,
      earlier: renumbered[earlier]!,
      tick,
    }))
    return E.right({ ...ir, operations, windows: edges, keep: ordering.keep, ...used(ir, issue) })
  }
