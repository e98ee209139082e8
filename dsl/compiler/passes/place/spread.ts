import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { poolsPerDevice } from '../../../machine/usage.js'
import { accessesOf } from '../../analysis/accesses.js'
import { startsOf, withoutStartEdges } from '../../analysis/control-edges.js'
import { type Costs, costsOf } from '../../analysis/costs.js'
import { type Dependencies, dependenciesOf, remainingPath, topological } from '../../analysis/dependencies.js'
import type { Lowered, Operation } from '../../analysis/ir.js'
import { changed } from '../../analysis/operations.js'
import { predict, worth } from '../../analysis/predict.js'
import { listSchedule } from '../order/list-schedule.js'
import { order } from '../order.js'
import { synchronize } from '../synchronize.js'
import { blocks, type Chains, fewestChains, greedyChains } from './chains.js'

/** Work without a lane of the user's: the compiler chooses its lane. */
export const isChosen = ({ lane, kind }: Operation): boolean =>
  lane === undefined && (kind === 'compute' || kind === 'store')

/** A number of lanes that was tried: the predicted nanoseconds a tick, and the waits. */
interface Tried {
  readonly lanes: number
  readonly tick: number
  /** Of one tick on an idle device. */
  readonly latency: number
  readonly waits: number
}

export interface Spread {
  readonly lanes: number
  readonly laneOf: Int32Array
  readonly tried: readonly Tried[]
}

/** Numbers of lanes are compared by so many operations: of a larger graph, by its first ones. */
const judged = 2 ** 13

/**
 * Up to so many operations ways of assigning chains are compared by the whole graph: its first operations say
 * little about which chains lie beside each other.
 */
const judgedWhole = 2 ** 15

const beginning = (ir: Lowered): Lowered => {
  const operations = ir.operations
    .slice(0, judged)
    .map(operation => changed(operation, { after: operation.after.filter(before => before < judged) }))
  const { settings, buffers, communicators } = ir
  const control = ir.control?.filter(({ later }) => later < judged)
  return {
    ...{ settings, buffers, operations, accesses: accessesOf(operations, buffers) },
    ...(communicators === undefined ? {} : { communicators }),
    ...(control === undefined ? {} : { control }),
  }
}

/** A lower bound of the tick: the time of the issuing thread, and of each shared resource. */
const leastTick = ({ issue, work, demand, firstPool, pools, power }: Costs): number => {
  const asked = new Float64Array(pools + 1)
  work.forEach((own, i) => {
    asked[pools]! += issue[i]!
    for (let r = 0; r < poolsPerDevice; r++)
      asked[firstPool[i]! + r]! += demand[poolsPerDevice * i + r]! * own
  })
  return Math.max(...asked, power)
}

/** Lanes take chains as they become idle, or blocks of neighbouring chains. */
type Assignment = 'in time' | 'in blocks'

/** The chains of the work to be spread, and predictions for numbers of lanes. */
class Spreading {
  private readonly cut: Chains
  private readonly dependencies: Dependencies
  private readonly costs: Costs
  private readonly urgency: Float64Array
  private readonly order: Int32Array

  constructor(
    private readonly ir: Lowered,
    private readonly fixed: number,
    private readonly laneOf: Int32Array,
  ) {
    const { operations, settings } = ir
    this.dependencies = dependenciesOf(operations)
    this.order = topological(this.dependencies)
    const chooses = (i: number): boolean => laneOf[i] === -1
    const chained = withoutStartEdges(operations, ir.control)
    this.cut =
      settings.placement === 'cover'
        ? fewestChains(
            chained,
            this.order,
            chained === operations ? this.dependencies : dependenciesOf(chained),
            chooses,
          )
        : greedyChains(chained, this.order, chooses)
    this.costs = costsOf(operations, settings)
    this.urgency = remainingPath(this.order, this.dependencies, this.costs.alone)
  }

  /** The most lanes of any use; 1 where operations form a cycle, which `order` reports. */
  get most(): number {
    return this.order.length < this.laneOf.length ? 1 : this.cut.chains
  }

  get least(): number {
    return leastTick(this.costs)
  }

  over(lanes: number, way: Assignment): Int32Array {
    const { fixed, laneOf, dependencies, costs, urgency, cut } = this
    const { operations } = this.ir
    if (lanes === 1) return laneOf.map(lane => (lane === -1 ? fixed : lane))
    if (way === 'in time')
      return listSchedule({
        ...{ operations, dependencies, costs, urgency, lanes: fixed + lanes, fixed, laneOf, ...cut },
        starts: startsOf(this.ir),
      }).laneOf
    const block = blocks(cut, lanes, costs.alone)
    return laneOf.map((lane, i) => (lane === -1 ? fixed + block[cut.chainOf[i]!]! : lane))
  }

  judge(lanes: number, way: Assignment): Tried & { readonly way: Assignment } {
    const named = Array.from({ length: this.fixed + lanes }, (_, id) => ({
      id,
      name: '',
      device: 0,
      priority: 0,
    }))
    const placed = { ...this.ir, lanes: named, laneOf: this.over(lanes, way) }
    return pipe(
      order({ by: 'time', ahead: Number.POSITIVE_INFINITY, keep: false })(placed),
      E.chain(synchronize),
      E.fold(
        () => ({ lanes, way, tick: Number.POSITIVE_INFINITY, latency: Number.POSITIVE_INFINITY, waits: 0 }),
        ir => {
          const { tick, latency } = predict(ir, costsOf(ir.operations, ir.settings))
          return { lanes, way, tick, latency, waits: ir.waitOn.length }
        },
      ),
    )
  }
}

/** Whether `a` is shorter than `b` by what is worth a lane. */
const isShorter = (a: number, b: number): boolean => a < b * (1 - worth)
/** Whether they are as good as equal. */
const alike = (a: number, b: number): boolean => Math.max(a, b) <= Math.min(a, b) * (1 + worth)

/**
 * Spreads operations without a lane (-1) over at most `mostNew` lanes beside the `fixed` ones: as many as
 * shorten the predicted tick, and no more. In a graph a lane costs the issuing thread nothing, so there lanes
 * that shorten the latency of a tick are taken too: the device then has more to choose from. A chain stays on
 * one lane.
 */
export const spread = (ir: Lowered, fixed: number, laneOf: Int32Array, mostNew: number): Spread => {
  const inGraph = ir.settings.mode === 'graph'
  /**
   * The shorter tick; of two that are as good as equal, in a graph that of less latency; then of fewer waits.
   */
  const better = <A extends Tried>(a: A, b: A): A => {
    if (!alike(a.tick, b.tick)) return b.tick < a.tick ? b : a
    if (inGraph && !alike(a.latency, b.latency)) return b.latency < a.latency ? b : a
    return b.waits < a.waits ? b : a
  }
  const pays = (more: Tried, fewer: Tried): boolean =>
    isShorter(more.tick, fewer.tick) ||
    (inGraph && alike(more.tick, fewer.tick) && isShorter(more.latency, fewer.latency))
  const whole = new Spreading(ir, fixed, laneOf)
  const most = Math.min(mostNew, whole.most)
  if (most <= 1) return { lanes: fixed + 1, laneOf: whole.over(1, 'in time'), tried: [] }
  const part = laneOf.length <= judged ? whole : new Spreading(beginning(ir), fixed, laneOf.slice(0, judged))
  const tried = [part.judge(1, 'in time')]
  let best = tried[0]!
  const look = (lanes: number): Tried & { readonly way: Assignment } => {
    const found = better(part.judge(lanes, 'in time'), part.judge(lanes, 'in blocks'))
    tried.push(found)
    return found
  }
  for (let lanes = 1; lanes < most && (inGraph || best.tick > part.least * (1 + worth)); ) {
    lanes = Math.min(2 * lanes, most)
    const found = look(lanes)
    if (pays(found, best)) best = found
  }
  // Bisection: the fewest lanes between the last two numbers that are as good as the best.
  const shortest = best
  for (let fewer = best.lanes >> 1; best.lanes - fewer > 1; ) {
    const middle = (fewer + best.lanes) >> 1
    const found = look(middle)
    if (pays(shortest, found) || isShorter(shortest.tick, found.tick)) fewer = middle
    else best = found
  }
  if (part !== whole && best.lanes > 1)
    best =
      laneOf.length <= judgedWhole
        ? better(whole.judge(best.lanes, 'in time'), whole.judge(best.lanes, 'in blocks'))
        : { ...best, way: 'in time' }
  return { lanes: fixed + best.lanes, laneOf: whole.over(best.lanes, best.way), tried }
}
