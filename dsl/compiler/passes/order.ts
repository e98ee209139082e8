import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import type { PlanLane } from '../../ir/plan.js'
import { type ArrayAllocator, withScratchArena } from '../../order/scratch-arena.js'
import { accessesOf, reordered } from '../analysis/accesses.js'
import { startsOf } from '../analysis/control-edges.js'
import { aloneOf, type Costs, costsOf } from '../analysis/costs.js'
import { type Dependencies, dependenciesOf, topological } from '../analysis/dependencies.js'
import { fail, fault } from '../analysis/faults.js'
import type { Operation, Ordered, Placed } from '../analysis/ir.js'
import type { Passed } from '../analysis/pass.js'
import { collectiveEdges } from './order/collective-edges.js'
import { deferralLevels } from './order/deferred.js'
import { listSchedule } from './order/list-schedule.js'
import { PriorityQueue } from './order/priority-queue.js'
import { insertDeferred } from './order/windows.js'

/**
 * How the order is chosen: by critical path, the same as lanes come to it in time, or as the user wrote it; the most that any upload may run ahead; and whether a
 * window keeps its memory from one upload to the next.
 */
export interface Ordering {
  readonly by: 'critical path' | 'time' | 'program'
  readonly ahead: number
  readonly keep: boolean
}

/**
 * What other lanes are waiting for behind each operation: the longest path from its first change of lane to the end of the tick. On one
 * lane nothing is gained by order, so there all are 0 and the user's order stands, which is kind to memory.
 */
const urgencyOf = (
  ir: Placed,
  order: Int32Array,
  { start, to }: Dependencies,
  alone: Float64Array,
  room: ArrayAllocator,
): Float64Array => {
  const path = room.float64(order.length)
  const urgent = room.float64(order.length)
  for (let next = order.length - 1; next >= 0; next--) {
    const i = order[next]!
    let longest = 0
    let handover = 0
    for (let e = start[i]!; e < start[i + 1]!; e++) {
      const s = to[e]!
      longest = Math.max(longest, path[s]!)
      handover = Math.max(handover, ir.laneOf[s] === ir.laneOf[i] ? urgent[s]! : path[s]!)
    }
    path[i] = longest + alone[i]!
    urgent[i] = handover
  }
  return urgent
}

/** The most urgent first of all that depends on nothing that is still to come, whatever lanes are doing meanwhile. */
const byUrgency = (
  ir: Placed,
  { start, to, degree }: Dependencies,
  urgent: Float64Array,
  room: ArrayAllocator,
): Int32Array => {
  const left = room.int32(degree.length)
  left.set(degree)
  // What nobody waits for only gives memory back: it goes first. Then what other lanes wait for; then as the user wrote it.
  const key = room.float64(urgent.length)
  for (let i = 0; i < key.length; i++)
    key[i] = start[i] === start[i + 1] ? Number.NEGATIVE_INFINITY : -urgent[i]!
  const ready = new PriorityQueue(key)
  const eager = new Int32Array(left.length)
  let length = 0
  const levels = deferralLevels(ir)
  const come = (i: number): void => {
    if (levels[i]! > 0) free(i)
    else ready.push(i)
  }
  const free = (i: number): void => {
    for (let e = start[i]!; e < start[i + 1]!; e++) if (--left[to[e]!]! === 0) come(to[e]!)
  }
  for (let i = 0; i < left.length; i++) if (degree[i] === 0) come(i)
  while (ready.size > 0) {
    const i = ready.pop()
    eager[length++] = i
    free(i)
  }
  return eager.subarray(0, length)
}

/** As lanes come to them: an operation is issued when it would begin, so that no lane's backlog stands before another lane's next. */
const byTime = (ir: Placed, dependencies: Dependencies, costs: Costs, urgency: Float64Array): Int32Array => {
  const none = new Int32Array(ir.operations.length).fill(-1)
  const lanes = ir.lanes.length
  const { operations, laneOf } = ir
  const { order } = listSchedule({
    operations,
    dependencies,
    costs,
    urgency,
    lanes,
    fixed: lanes,
    laneOf,
    chainOf: none,
    chains: 0,
    starts: startsOf(ir),
  })
  const levels = deferralLevels(ir)
  return order.filter(i => levels[i] === 0)
}

/** All but what waits to be asked for, in the order in which it is issued; undefined where there is a cycle. */
const eagerOf = (ir: Placed, by: Ordering['by'], room: ArrayAllocator): Int32Array | undefined => {
  const { operations, settings } = ir
  const dependencies = dependenciesOf(ir, room)
  const order = topological(dependencies, room)
  if (order.length < operations.length) return undefined
  if (by === 'program') return byUrgency(ir, dependencies, room.float64(order.length), room)
  if (by === 'critical path') {
    const urgency = urgencyOf(ir, order, dependencies, aloneOf(operations, settings, room), room)
    return byUrgency(ir, dependencies, urgency, room)
  }
  const costs = costsOf(operations, settings)
  return byTime(ir, dependencies, costs, urgencyOf(ir, order, dependencies, costs.alone, room))
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

const circle = (ir: Placed): Passed<never> => {
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

/** All but what waits to be asked for, in the order in which it is issued: whatever windows there are, the same. */
export const eagerOrder = (by: Ordering['by'], ir: Placed): Passed<Int32Array> => {
  const eager = withScratchArena(room => eagerOf(ir, by, room))
  return eager === undefined ? circle(ir) : E.right(eager)
}

/** The whole order, of one of all but what waits to be asked for. */
export const withDeferred = (ir: Placed, eager: Int32Array, ordering: Omit<Ordering, 'by'>): Ordered => {
  const { order: issue, windows } = insertDeferred(ir, eager, ordering.ahead)
  const renumbered = new Int32Array(issue.length)
  const operations = new Array<Operation>(issue.length)
  for (let at = 0; at < issue.length; at++) {
    renumbered[issue[at]!] = at
    operations[at] = ir.operations[issue[at]!]!
  }
  reordered(accessesOf(ir), issue, operations)
  const edges = windows.map(({ later, earlier, tick }) => ({
    later: renumbered[later]!,
    earlier: renumbered[earlier]!,
    tick,
  }))
  const control = ir.control?.map(({ later, earlier, when }) => ({
    later: renumbered[later]!,
    earlier: renumbered[earlier]!,
    when,
  }))
  const ordered = { ...ir, operations, windows: edges, keep: ordering.keep, ...used(ir, issue) }
  const meetings = collectiveEdges(ordered)
  return {
    ...ordered,
    ...(control === undefined ? {} : { control }),
    ...(meetings.length === 0 ? {} : { collectiveEdges: meetings }),
  }
}

/**
 * After this pass operation i is issued i-th: after all that it depends on, uploads and gathers where their window opens or right before
 * their reader, and what other lanes wait for the longest first.
 */
export const order =
  (ordering: Ordering) =>
  (ir: Placed): Passed<Ordered> =>
    pipe(
      eagerOrder(ordering.by, ir),
      E.map(eager => withDeferred(ir, eager, ordering)),
    )
