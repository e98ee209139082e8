import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { poolsPerDevice } from '../../../machine/usage.js'
import { accessesOf } from '../../analysis/accesses.js'
import { startsOf, withoutStartEdges } from '../../analysis/control-edges.js'
import { type Costs, costsOf } from '../../analysis/costs.js'
import { type Dependencies, dependenciesOf, remainingPath, topological } from '../../analysis/dependencies.js'
import type { Lowered, Operation } from '../../analysis/ir.js'
import { changed } from '../../analysis/operations.js'
import { predict } from '../../analysis/predict.js'
import { listSchedule } from '../order/list-schedule.js'
import { order } from '../order.js'
import { synchronize } from '../synchronize.js'
import { blocks, type Chains, fewestChains, greedyChains } from './chains.js'

/** Work that the user gave no lane: the compiler chooses. */
export const isChosen = ({ lane, kind }: Operation): boolean =>
  lane === undefined && (kind === 'compute' || kind === 'store')

/** How many lanes were looked at, and what each would make of the tick: nanoseconds, and waits, of the operations that were judged. */
export interface Tried {
  readonly lanes: number
  readonly tick: number
  readonly waits: number
}

export interface Spread {
  readonly lanes: number
  readonly laneOf: Int32Array
  readonly tried: readonly Tried[]
}

/** Operations by which lanes are judged: of a larger graph its beginning stands for the whole. */
const judged = 2 ** 13

/** Operations up to which the way that chains are given to lanes is judged by all of them: a beginning says little of neighbours. */
const judgedWhole = 2 ** 15

/** A lane more must make the tick shorter by so much of it, else it is not worth having. */
const worth = 0.01

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

/** Less than this no tick takes: what the issuing thread needs, and what is asked of each shared thing. */
const leastTick = ({ issue, work, demand, firstPool, pools, power }: Costs): number => {
  const asked = new Float64Array(pools + 1)
  work.forEach((own, i) => {
    asked[pools]! += issue[i]!
    for (let r = 0; r < poolsPerDevice; r++)
      asked[firstPool[i]! + r]! += demand[poolsPerDevice * i + r]! * own
  })
  return Math.max(...asked, power)
}

type Way = 'in time' | 'in blocks'

/** The chains of the work to be spread, and what becomes of them on so many lanes. */
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

  /** Lanes beyond which there is nothing to spread; 1 where operations wait for each other in a circle, which `order` tells. */
  get most(): number {
    return this.order.length < this.laneOf.length ? 1 : this.cut.chains
  }

  get least(): number {
    return leastTick(this.costs)
  }

  over(lanes: number, way: Way): Int32Array {
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

  judge(lanes: number, way: Way): Tried & { readonly way: Way } {
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
        () => ({ lanes, way, tick: Number.POSITIVE_INFINITY, waits: 0 }),
        ir => ({
          lanes,
          way,
          tick: predict(ir, costsOf(ir.operations, ir.settings)).tick,
          waits: ir.waitOn.length,
        }),
      ),
    )
  }
}

/** The shorter tick; of two that are as good as equal, that with fewer waits. */
const better = <A extends Tried>(a: A, b: A): A => {
  const alike = Math.max(a.tick, b.tick) <= Math.min(a.tick, b.tick) * (1 + worth)
  return (alike ? b.waits < a.waits : b.tick < a.tick) ? b : a
}

/**
 * Spreads what has no lane (-1) over at most `room` lanes beside the `fixed` ones: as many as make the predicted tick shorter, and no more. A chain is on one lane, so
 * what is a plain chain stays on one. Lanes take chains as they become idle, or neighbours together, whichever is better.
 */
export const spread = (ir: Lowered, fixed: number, laneOf: Int32Array, room: number): Spread => {
  const whole = new Spreading(ir, fixed, laneOf)
  const most = Math.min(room, whole.most)
  if (most <= 1) return { lanes: fixed + 1, laneOf: whole.over(1, 'in time'), tried: [] }
  const part = laneOf.length <= judged ? whole : new Spreading(beginning(ir), fixed, laneOf.slice(0, judged))
  const tried = [part.judge(1, 'in time')]
  let best = tried[0]!
  const look = (lanes: number): Tried & { readonly way: Way } => {
    const found = better(part.judge(lanes, 'in time'), part.judge(lanes, 'in blocks'))
    tried.push(found)
    return found
  }
  for (let lanes = 1; lanes < most && best.tick > part.least * (1 + worth); ) {
    lanes = Math.min(2 * lanes, most)
    const found = look(lanes)
    if (found.tick < best.tick * (1 - worth)) best = found
  }
  // Of the lanes between the last two that were looked at as many are folded back as gain nothing.
  const least = best.tick
  for (let fewer = best.lanes >> 1; best.lanes - fewer > 1; ) {
    const middle = (fewer + best.lanes) >> 1
    const found = look(middle)
    if (found.tick <= least * (1 + worth)) best = found
    else fewer = middle
  }
  if (part !== whole && best.lanes > 1)
    best =
      laneOf.length <= judgedWhole
        ? better(whole.judge(best.lanes, 'in time'), whole.judge(best.lanes, 'in blocks'))
        : { ...best, way: 'in time' }
  return { lanes: fixed + best.lanes, laneOf: whole.over(best.lanes, best.way), tried }
}
