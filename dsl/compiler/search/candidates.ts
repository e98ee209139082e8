import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { costsOf } from '../analysis/costs.js'
import { fullest } from '../analysis/device-of.js'
import type { Bounded, Evaluation, Lifetimes, Ordered, Placed, Synchronized } from '../analysis/ir.js'
import { changed } from '../analysis/operations.js'
import type { Passed } from '../analysis/pass.js'
import { predict } from '../analysis/predict.js'
import { arena } from '../passes/arena.js'
import { bound, roughBound } from '../passes/bound.js'
import { lifetimes } from '../passes/lifetimes.js'
import { deferralLevels } from '../passes/order/deferred.js'
import { eagerOrder, type Ordering, withDeferred } from '../passes/order.js'
import { synchronize } from '../passes/synchronize.js'
import { liveOf } from './live.js'
import { squeeze } from './squeeze.js'

/** One way to order a placed graph. `window`: how far uploads without a window of the user's run ahead, by lane. */
export interface Candidate {
  readonly by: Ordering['by']
  readonly ahead: number
  readonly window: ReadonlyMap<number, number>
}

export interface Evaluated {
  readonly ir: Bounded
  readonly attempt: Evaluation
}

const none: ReadonlyMap<number, number> = new Map()

/** The plain way, fastest where memory is no matter. */
export const unlimited = (by: Ordering['by']): Candidate => ({
  by,
  ahead: Number.POSITIVE_INFINITY,
  window: none,
})

/** Operations beyond which a plan's needless waits are looked for only when it is chosen: that is more work than all else. */
export const smallGraph = 256

/** The orders of a graph on its lanes, each found once, and what becomes of them under a bound. */
export class Evaluator {
  private readonly eager = new Map<Ordering['by'], Passed<Int32Array>>()
  /** What is predicted of the plain ways, without a bound. */
  private readonly plain = new Map<Ordering['by'], Prediction>()
  /** By lane: the uploads of parameters, and the gathers, to which the user gave no window. */
  readonly unwindowed: ReadonlyMap<number, number>
  /** Whether the user asked for windows. */
  private readonly asked: boolean

  constructor(
    readonly ir: Placed,
    private readonly spread: number,
  ) {
    const count = new Map<number, number>()
    let asked = false
    for (let i = 0; i < ir.operations.length; i++) {
      if (ir.operations[i]!.ahead !== undefined) asked = true
      else if (this.isUnwindowed(i)) count.set(ir.laneOf[i]!, 1 + (count.get(ir.laneOf[i]!) ?? 0))
    }
    this.unwindowed = count
    this.asked = asked
  }

  private get large(): boolean {
    return this.ir.operations.length > smallGraph
  }

  private isUnwindowed(i: number): boolean {
    const { operations, buffers } = this.ir
    if (deferralLevels(this.ir)[i] === 0) return false
    const { ahead, reads, kind } = operations[i]!
    return ahead === undefined && (kind === 'collective' || buffers[reads[0]!]!.life === 'param')
  }

  private hasWindows(window: Candidate['window']): boolean {
    return this.asked || window.size > 0
  }

  private windowed(window: ReadonlyMap<number, number>): Placed {
    if (window.size === 0) return this.ir
    const operations = this.ir.operations.map((operation, i) => {
      const ahead = this.isUnwindowed(i) ? window.get(this.ir.laneOf[i]!) : undefined
      return ahead === undefined ? operation : changed(operation, { ahead })
    })
    return { ...this.ir, operations }
  }

  ordered({ by, ahead, window }: Candidate, keep: boolean): Passed<Ordered> {
    let eager = this.eager.get(by)
    if (eager === undefined) {
      eager = eagerOrder(by, this.ir)
      this.eager.set(by, eager)
    }
    return pipe(
      eager,
      E.map(found =>
        withDeferred(this.windowed(window), found, { ahead, keep: keep && this.hasWindows(window) }),
      ),
    )
  }

  /** Bytes that no plan of this way holds less than. */
  live(way: Candidate): number {
    return pipe(
      this.ordered(way, false),
      E.fold(() => Number.POSITIVE_INFINITY, liveOf),
    )
  }

  /** Nanoseconds from tick to tick, before memory asks for any wait. */
  tick(way: Candidate): number {
    return pipe(
      this.ordered(way, false),
      E.chain(synchronize),
      E.fold(
        () => Number.POSITIVE_INFINITY,
        ir => this.predicted(way, ir).tick,
      ),
    )
  }

  private predicted(way: Candidate, ir: Synchronized): Prediction {
    if (way.window !== none || way.ahead !== Number.POSITIVE_INFINITY) return tickOf(ir)
    const known = this.plain.get(way.by) ?? tickOf(ir)
    this.plain.set(way.by, known)
    return known
  }

  /**
   * The plan of this way; where there is a bound, with waits that make it fit if there are such. With windows, their memory is their own unless that holds more than
   * sharing it; in an arena it is whoever's may have it.
   */
  found(way: Candidate, memory?: number): Passed<Evaluated> {
    const planned = this.ir.settings.storage === 'planned'
    const kept = this.scheduled(way, !planned, memory)
    if (E.isLeft(kept) || planned || !this.hasWindows(way.window)) return this.attempted(way, kept, memory)
    const held = fullest(kept.right.bound)
    if (memory !== undefined && held <= memory) return this.attempted(way, kept, memory)
    const shared = this.scheduled(way, false, memory)
    return this.attempted(
      way,
      E.isRight(shared) && fullest(shared.right.bound) < held ? shared : kept,
      memory,
    )
  }

  private scheduled(way: Candidate, keep: boolean, memory: number | undefined): Passed<Bounded> {
    const within = (ir: Lifetimes): Lifetimes => (memory === undefined ? ir : squeeze(ir, memory))
    const ordered = pipe(
      this.ordered(way, keep),
      E.map(ir => (memory === undefined ? ir : { ...ir, settings: { ...ir.settings, memory } })),
    )
    return this.ir.settings.storage === 'planned'
      ? pipe(ordered, E.chain(arena))
      : pipe(
          ordered,
          E.chain(synchronize),
          E.chain(lifetimes),
          E.map(within),
          E.chain(this.large ? roughBound : bound),
        )
  }

  private attempted(way: Candidate, bounded: Passed<Bounded>, memory: number | undefined): Passed<Evaluated> {
    const { by, ahead, window } = way
    return pipe(
      bounded,
      E.map(ir => {
        // An arena and a bound bring waits of their own.
        const plain = memory === undefined && ir.settings.storage === 'pooled'
        const predicted = plain ? this.predicted(way, ir) : tickOf(ir)
        const windows = Array.from(window, ([lane, ahead]) => ({ lane: this.ir.lanes[lane]!.name, ahead }))
        const attempt = { by, spread: this.spread, ahead, windows, ...predicted, bound: fullest(ir.bound) }
        return { ir: { ...ir, settings: this.ir.settings }, attempt }
      }),
    )
  }
}

/** Operations up to which ticks are predicted: of more, orders are not compared. */
export const mostPredicted = 2 ** 16

type Prediction = Pick<Evaluation, 'tick' | 'blocked'>

const tickOf = (ir: Synchronized): Prediction => {
  if (ir.operations.length > mostPredicted) return { tick: Number.NaN, blocked: Number.NaN }
  const { tick, blocked } = predict(ir, costsOf(ir.operations, ir.settings))
  return { tick, blocked }
}

/** A plan that is chosen, without the waits of its windows that nothing needs. */
export const withoutRedundantWindowWaits = (found: Evaluated): Passed<Evaluated> =>
  found.ir.settings.storage === 'planned' ||
  found.ir.operations.length <= smallGraph ||
  found.ir.windows.length === 0
    ? E.right(found)
    : pipe(
        bound(found.ir),
        E.map(ir => ({ ir, attempt: { ...found.attempt, ...tickOf(ir), bound: fullest(ir.bound) } })),
      )
