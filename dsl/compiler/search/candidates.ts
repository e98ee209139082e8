import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { costsOf } from '../analysis/costs.js'
import { fullest } from '../analysis/device-of.js'
import type { Bounded, Evaluation, Lifetimes, Ordered, Placed, Synchronized } from '../analysis/ir.js'
import { liveBytesOf } from '../analysis/live-ranges.js'
import { changed } from '../analysis/operations.js'
import type { Passed } from '../analysis/pass.js'
import { predict } from '../analysis/predict.js'
import { arena } from '../passes/arena.js'
import { bound, roughBound, withoutRedundantWaits } from '../passes/bound.js'
import { lifetimes } from '../passes/lifetimes.js'
import { deferralLevels } from '../passes/order/deferred.js'
import { eagerOrder, type Ordering, withDeferred } from '../passes/order.js'
import { synchronize } from '../passes/synchronize.js'
import { waitAtReuse } from './wait-at-reuse.js'

/**
 * One way to order a placed graph. `window`, by lane: how far uploads without a window of the user's run
 * ahead.
 */
export interface Candidate {
  readonly by: Ordering['by']
  readonly ahead: number
  readonly window: ReadonlyMap<number, number>
}

/** What became of a candidate. */
export interface Evaluated {
  readonly ir: Bounded
  readonly evaluation: Evaluation
}

const noWindows: Candidate['window'] = new Map()

/** Nothing is held back for memory. */
export const unlimited = (by: Ordering['by']): Candidate => ({
  by,
  ahead: Number.POSITIVE_INFINITY,
  window: noWindows,
})

/** Up to so many operations every candidate is tried, kept, and freed of redundant window waits. */
export const smallGraph = 256

/** Up to so many operations ticks are predicted; beyond, orders are not compared. */
export const mostPredicted = 2 ** 16

type Prediction = Pick<Evaluation, 'tick' | 'latency' | 'blocked'>

const predicted = (ir: Synchronized): Prediction => {
  if (ir.operations.length > mostPredicted)
    return { tick: Number.NaN, latency: Number.NaN, blocked: Number.NaN }
  return predict(ir, costsOf(ir.operations, ir.settings))
}

/**
 * Evaluates candidates for a graph on its lanes: orders it, and takes it through the passes down to its
 * bound.
 */
export class Evaluator {
  private readonly eager = new Map<Ordering['by'], Passed<Int32Array>>()
  /** Predictions of the unlimited candidates. */
  private readonly plain = new Map<Ordering['by'], Prediction>()
  private readonly levels: Int32Array
  /** By lane: how many uploads of parameters, and gathers, the user gave no window. */
  readonly unwindowed: ReadonlyMap<number, number>
  private readonly userWindows: boolean

  constructor(
    readonly ir: Placed,
    private readonly spread: number,
  ) {
    this.levels = deferralLevels(ir)
    this.userWindows = ir.operations.some(({ ahead }) => ahead !== undefined)
    const count = new Map<number, number>()
    for (let i = 0; i < ir.operations.length; i++)
      if (this.isUnwindowed(i)) count.set(ir.laneOf[i]!, 1 + (count.get(ir.laneOf[i]!) ?? 0))
    this.unwindowed = count
  }

  private isUnwindowed(i: number): boolean {
    if (this.levels[i] === 0) return false
    const { ahead, reads, kind } = this.ir.operations[i]!
    return ahead === undefined && (kind === 'collective' || this.ir.buffers[reads[0]!]!.life === 'param')
  }

  private hasWindows(window: Candidate['window']): boolean {
    return this.userWindows || window.size > 0
  }

  private withWindows(window: Candidate['window']): Placed {
    if (window.size === 0) return this.ir
    const operations = this.ir.operations.map((operation, i) => {
      const ahead = this.isUnwindowed(i) ? window.get(this.ir.laneOf[i]!) : undefined
      return ahead === undefined ? operation : changed(operation, { ahead })
    })
    return { ...this.ir, operations }
  }

  private eagerBy(by: Ordering['by']): Passed<Int32Array> {
    const eager = this.eager.get(by) ?? eagerOrder(by, this.ir)
    this.eager.set(by, eager)
    return eager
  }

  /** Whether two ways to order the graph come to the same order. */
  isSameOrder(by: Ordering['by'], other: Ordering['by']): boolean {
    const [one, two] = [this.eagerBy(by), this.eagerBy(other)]
    return E.isRight(one) && E.isRight(two) && one.right.every((i, at) => i === two.right[at])
  }

  private ordered({ by, ahead, window }: Candidate, keep: boolean): Passed<Ordered> {
    const eager = this.eagerBy(by)
    const ordering = { ahead, keep: keep && this.hasWindows(window) }
    return pipe(
      eager,
      E.map(order => withDeferred(this.withWindows(window), order, ordering)),
    )
  }

  /** Bytes that no plan of this candidate holds less than. */
  live(candidate: Candidate): number {
    return pipe(
      this.ordered(candidate, false),
      E.fold(() => Number.POSITIVE_INFINITY, liveBytesOf),
    )
  }

  /** Predicted nanoseconds from tick to tick, before memory asks for any wait. */
  tick(candidate: Candidate): number {
    return pipe(
      this.ordered(candidate, false),
      E.chain(synchronize),
      E.fold(
        () => Number.POSITIVE_INFINITY,
        ir => this.predicted(candidate, ir).tick,
      ),
    )
  }

  private predicted({ by, ahead, window }: Candidate, ir: Synchronized): Prediction {
    if (window !== noWindows || ahead !== Number.POSITIVE_INFINITY) return predicted(ir)
    const known = this.plain.get(by) ?? predicted(ir)
    this.plain.set(by, known)
    return known
  }

  /**
   * The plan of a candidate; under a bound (`memory`), with waits that make it fit if there are such. In a
   * pool, a window keeps its memory for itself unless it holds more than it would by sharing; of a large
   * graph, unless it holds a hundredth more than what is live at once. An arena shares all memory.
   */
  evaluate(candidate: Candidate, memory?: number): Passed<Evaluated> {
    const pooled = this.ir.settings.storage === 'pooled'
    const kept = this.bounded(candidate, pooled, memory)
    if (E.isLeft(kept) || !pooled || !this.hasWindows(candidate.window))
      return this.evaluated(candidate, kept, memory)
    const held = fullest(kept.right.bound)
    const isLarge = this.ir.operations.length > smallGraph
    const enough = memory ?? (isLarge ? Math.floor(1.01 * this.live(candidate)) : 0)
    if (held <= enough) return this.evaluated(candidate, kept, memory)
    const shared = this.bounded(candidate, false, memory)
    const sharesWin = E.isRight(shared) && fullest(shared.right.bound) < held
    return this.evaluated(candidate, sharesWin ? shared : kept, memory)
  }

  private bounded(candidate: Candidate, keep: boolean, memory: number | undefined): Passed<Bounded> {
    const within = (ir: Lifetimes): Lifetimes => (memory === undefined ? ir : waitAtReuse(ir, memory))
    // What a candidate holds depends on nothing that the user says of memory.
    const ordered = pipe(
      this.ordered(candidate, keep),
      E.map(ir => ({ ...ir, settings: { ...ir.settings, memory: memory ?? ('fast' as const) } })),
    )
    return this.ir.settings.storage === 'planned'
      ? pipe(ordered, E.chain(arena))
      : pipe(
          ordered,
          E.chain(synchronize),
          E.chain(lifetimes),
          E.map(within),
          E.chain(this.ir.operations.length > smallGraph ? roughBound : bound),
        )
  }

  private evaluated(
    candidate: Candidate,
    bounded: Passed<Bounded>,
    memory: number | undefined,
  ): Passed<Evaluated> {
    const { by, ahead, window } = candidate
    const { spread } = this
    return pipe(
      bounded,
      E.map(ir => {
        // An arena and a bound add waits, so the prediction of the unlimited candidate does not hold for
        // them.
        const unchanged = memory === undefined && ir.settings.storage === 'pooled'
        const prediction = unchanged ? this.predicted(candidate, ir) : predicted(ir)
        const windows = Array.from(window, ([lane, ahead]) => ({ lane: this.ir.lanes[lane]!.name, ahead }))
        const evaluation = { by, spread, ahead, windows, ...prediction, bound: fullest(ir.bound) }
        return { ir: { ...ir, settings: this.ir.settings }, evaluation }
      }),
    )
  }
}

/**
 * The chosen plan without redundant window waits, which no prediction tells from the one with them. Plans of
 * small graphs and planned storage have none.
 */
export const withoutRedundantWindowWaits = ({ ir, evaluation }: Evaluated): Evaluated => ({
  ir: ir.settings.storage === 'planned' ? ir : withoutRedundantWaits(ir),
  evaluation,
})
