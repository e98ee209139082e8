import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { PriorityQueue } from '../../collections/priority-queue.js'
import { type ArrayAllocator, withScratchArena } from '../../collections/scratch-arena.js'
import type { PlanLane } from '../../ir/plan.js'
import { reordered } from '../analysis/accesses.js'
import { startsOf } from '../analysis/control-edges.js'
import { aloneOf, type Costs, costsOf } from '../analysis/costs.js'
import { type Dependencies, dependenciesOf, topological } from '../analysis/dependencies.js'
import { devicesWithBuffers } from '../analysis/device-of.js'
import { fail, fault } from '../analysis/faults.js'
import type { Operation, Ordered, Placed } from '../analysis/ir.js'
import { type Passed, pass } from '../analysis/pass.js'
import { stateCoresOf } from '../analysis/state-cores.js'
import { aroundStates } from './order/around-states.js'
import { collectiveEdges } from './order/collective-edges.js'
import { deferralLevels } from './order/deferred.js'
import { listSchedule } from './order/list-schedule.js'
import { insertDeferred } from './order/windows.js'

//   copy: upload a, upload b    math: relu(a), add(b)
//   → upload a · relu(a) · upload b · add(b)
//
// After this pass operation i is issued i-th: after all that it depends on; deferred uploads and gathers
// where their window opens or right before their reader; and first the operations that other lanes wait for
// the longest.

/**
 * How the order is chosen: by critical path; by the time at which lanes come to each operation; or as the
 * program has it. `ahead`: the most that any upload may run ahead. `keep`: a window keeps its memory from one
 * upload to the next.
 */
export interface Ordering {
  readonly by: 'critical path' | 'time' | 'program'
  readonly ahead: number
  readonly keep: boolean
}

/**
 * The time for which other lanes wait for each operation: the longest path to the end of the tick, from the
 * first change of lane behind the operation. On one lane all are 0 and the program's order stands, which is
 * kind to memory.
 */
const urgencyOf = (
  ir: Placed,
  order: Int32Array,
  { start, to }: Dependencies,
  alone: Float64Array,
  allocator: ArrayAllocator,
): Float64Array => {
  const path = allocator.float64(order.length)
  const urgent = allocator.float64(order.length)
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

/** Whenever several operations depend on nothing that is still to come, the most urgent first. */
const byUrgency = (
  ir: Placed,
  { start, to, degree }: Dependencies,
  urgent: Float64Array,
  allocator: ArrayAllocator,
): Int32Array => {
  const left = allocator.int32(degree.length)
  left.set(degree)
  // An operation without successors only gives memory back, so it goes first. Then by urgency, then by
  // program order.
  const key = allocator.float64(urgent.length)
  for (let i = 0; i < key.length; i++)
    key[i] = start[i] === start[i + 1] ? Number.NEGATIVE_INFINITY : -urgent[i]!
  const ready = new PriorityQueue(key)
  const eager = new Int32Array(left.length)
  let length = 0
  const levels = deferralLevels(ir)
  const arrive = (i: number): void => {
    if (levels[i]! > 0) release(i)
    else ready.push(i)
  }
  const release = (i: number): void => {
    for (let e = start[i]!; e < start[i + 1]!; e++) if (--left[to[e]!]! === 0) arrive(to[e]!)
  }
  for (let i = 0; i < left.length; i++) if (degree[i] === 0) arrive(i)
  while (ready.size > 0) {
    const i = ready.pop()
    eager[length++] = i
    release(i)
  }
  return eager.subarray(0, length)
}

/**
 * Each operation is issued when its lane would begin it, so no lane's backlog stands before another lane's
 * next one.
 */
const byTime = (ir: Placed, dependencies: Dependencies, costs: Costs, urgency: Float64Array): Int32Array => {
  const { operations, laneOf, lanes } = ir
  const { order } = listSchedule({
    ...{ operations, dependencies, costs, urgency, laneOf, starts: startsOf(ir) },
    lanes: lanes.length,
    fixed: lanes.length,
    chainOf: new Int32Array(operations.length).fill(-1),
    chains: 0,
  })
  const levels = deferralLevels(ir)
  return order.filter(i => levels[i] === 0)
}

/** Undefined where there is a cycle. */
const eagerOf = (ir: Placed, by: Ordering['by'], allocator: ArrayAllocator): Int32Array | undefined => {
  const { operations, settings } = ir
  const dependencies = dependenciesOf(operations, allocator)
  const order = topological(dependencies, allocator)
  if (order.length < operations.length) return undefined
  if (by === 'program') return byUrgency(ir, dependencies, allocator.float64(order.length), allocator)
  if (by === 'critical path') {
    const urgency = urgencyOf(ir, order, dependencies, aloneOf(operations, settings, allocator), allocator)
    return byUrgency(ir, dependencies, urgency, allocator)
  }
  const costs = costsOf(operations, settings)
  return byTime(ir, dependencies, costs, urgencyOf(ir, order, dependencies, costs.alone, allocator))
}

/** Only a donation can close a cycle: `check` has found every other one. */
const cycle = (ir: Placed): Passed<never> => {
  const donor = ir.operations.find(operation => operation.op === 'kernel') ?? ir.operations[0]!
  const wanted = 'every other use of a donated value before the kernel'
  const next = 'do not donate it, or copy it first'
  return fail(fault('UseAfterDonate', donor.at, donor.name, wanted, 'a use that cannot come before it', next))
}

/** The order of all operations but deferred ones: it is the same for all windows. */
export const eagerOrder = (by: Ordering['by'], ir: Placed): Passed<Int32Array> => {
  const eager = withScratchArena(allocator => eagerOf(ir, by, allocator))
  if (eager === undefined) return cycle(ir)
  const cores = ir.settings.arenas > 1 ? stateCoresOf(ir) : undefined
  return E.right(cores === undefined ? eager : aroundStates(ir, cores, eager))
}

/**
 * The lanes that are used, numbered in order of first use; then one of each device with buffers on which
 * nothing runs.
 */
const usedLanes = (ir: Placed, order: Int32Array): Pick<Ordered, 'lanes' | 'laneOf'> => {
  const renumbered = new Int32Array(ir.lanes.length).fill(-1)
  const lanes: PlanLane[] = []
  const take = (lane: number): number => {
    if (renumbered[lane] === -1) {
      renumbered[lane] = lanes.length
      lanes.push({ ...ir.lanes[lane]!, id: lanes.length })
    }
    return renumbered[lane]!
  }
  const laneOf = order.map(i => take(ir.laneOf[i]!))
  for (const device of devicesWithBuffers(ir))
    if (!lanes.some(lane => lane.device === device)) take(ir.lanes.findIndex(lane => lane.device === device))
  return { lanes, laneOf }
}

/** The whole order: the eager one, with the deferred operations inserted. */
export const withDeferred = (ir: Placed, eager: Int32Array, ordering: Omit<Ordering, 'by'>): Ordered => {
  const { order: issue, windows } = insertDeferred(ir, eager, ordering.ahead)
  const renumbered = new Int32Array(issue.length)
  const operations = new Array<Operation>(issue.length)
  for (let at = 0; at < issue.length; at++) {
    renumbered[issue[at]!] = at
    operations[at] = ir.operations[issue[at]!]!
  }
  const renumber = <A extends { readonly later: number; readonly earlier: number }>(edge: A): A => ({
    ...edge,
    later: renumbered[edge.later]!,
    earlier: renumbered[edge.earlier]!,
  })
  const ordered = {
    ...ir,
    ...usedLanes(ir, issue),
    operations,
    accesses: reordered(ir.accesses, issue),
    windows: windows.map(renumber),
    keep: ordering.keep,
  }
  const edges = collectiveEdges(ordered)
  return {
    ...ordered,
    ...(ir.control === undefined ? {} : { control: ir.control.map(renumber) }),
    ...(edges.length === 0 ? {} : { collectiveEdges: edges }),
  }
}

export const order = (ordering: Ordering): ((ir: Placed) => Passed<Ordered>) =>
  pass('order', (ir: Placed) =>
    pipe(
      eagerOrder(ordering.by, ir),
      E.map(eager => withDeferred(ir, eager, ordering)),
    ),
  )
