import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { fullest } from '../analysis/device-of.js'
import { fail } from '../analysis/faults.js'
import type { Bounded, Evaluation, Lowered } from '../analysis/ir.js'
import type { Passed } from '../analysis/pass.js'
import type { Ordering } from '../passes/order.js'
import { place } from '../passes/place.js'
import {
  type Candidate,
  type Evaluated,
  Evaluator,
  mostPredicted,
  smallGraph,
  unlimited,
  withoutRedundantWindowWaits,
} from './candidates.js'
import { overBudget } from './over-budget.js'

/** What makes a tick shorter by less than this part of it is not worth a stranger order, and less than predictions tell apart. */
const worth = 0.01

/** Tries to squeeze into less, and of ways in a larger graph. */
const maxTries = 4

/** All that is tried for one graph: its lanes are chosen at most twice, and each way is told in the end. */
class Search {
  private readonly placed = new Map<number, Passed<Evaluator>>()
  private readonly known = new Map<Evaluator, Map<string, Passed<Evaluated>>>()
  readonly tried: Evaluation[] = []
  private smallest: Passed<Evaluated> | undefined

  constructor(private readonly ir: Lowered) {}

  /** The graph on its lanes, what the user gave none over `spread` of them at most. */
  on(spread: number): Passed<Evaluator> {
    let attempts = this.placed.get(spread)
    if (attempts === undefined) {
      attempts = pipe(
        place(spread)(this.ir),
        E.map(ir => new Evaluator(ir, spread)),
      )
      this.placed.set(spread, attempts)
    }
    return attempts
  }

  /** Each way once, where that many plans are small enough to be kept. */
  found(attempts: Evaluator, way: Candidate, memory?: number): Passed<Evaluated> {
    const { by, ahead, window } = way
    const key = `${by} ${ahead} ${[...window]} ${memory}`
    const known = this.known.get(attempts)?.get(key)
    if (known !== undefined) return known
    const found = attempts.found(way, memory)
    if (E.isRight(found)) this.tried.push(found.right.attempt)
    if (this.ir.operations.length > smallGraph) return found
    const all = this.known.get(attempts) ?? new Map<string, Passed<Evaluated>>()
    this.known.set(attempts, all.set(key, found))
    return found
  }

  /** The order with the shortest predicted tick, nothing held back. */
  private plain(): Passed<Evaluated> {
    return pipe(
      this.on(Number.POSITIVE_INFINITY),
      E.chain(attempts => this.found(attempts, unlimited(fastest(attempts)))),
    )
  }

  /** The shortest predicted tick, whatever it holds. Uploads that nothing holds back can come before one that is needed sooner: windows are tried too, of few operations. */
  fast(): Passed<Evaluated> {
    const plain = this.plain()
    const attempts = this.on(Number.POSITIVE_INFINITY)
    if (E.isLeft(plain) || E.isLeft(attempts) || this.ir.operations.length > smallGraph) return plain
    const windowed = this.windowed(attempts.right).map(way => this.found(attempts.right, way))
    return E.right(shortest([plain.right, ...windowed.filter(E.isRight).map(({ right }) => right)])!)
  }

  /** The plan that holds least of those that are tried: nothing spread, nothing ahead, and waits for freed bytes where they help. */
  small(): Passed<Evaluated> {
    this.smallest ??= this.findSmall()
    return this.smallest
  }

  private findSmall(): Passed<Evaluated> {
    return pipe(
      this.on(1),
      E.chain(attempts => {
        const windows = [new Map([...attempts.unwindowed.keys()].map(lane => [lane, 0] as const)), new Map()]
        const ways: Candidate[] = (windows[0]!.size === 0 ? windows.slice(1) : windows).map(window => ({
          by: 'program',
          ahead: 0,
          window,
        }))
        return ways.reduce<Passed<Evaluated>>(
          (best, way) => {
            const found = this.least(attempts, way)
            return E.isLeft(best) || (E.isRight(found) && boundOf(found.right) < boundOf(best.right))
              ? found
              : best
          },
          this.least(attempts, ways[0]!),
        )
      }),
    )
  }

  private least(attempts: Evaluator, way: Candidate): Passed<Evaluated> {
    let best = this.found(attempts, way)
    if (E.isLeft(best)) return best
    let low = attempts.live(way)
    const most = this.ir.operations.length > smallGraph ? 1 : maxTries
    for (let tries = 0, memory = low; tries < most && boundOf(best.right) > low; tries++) {
      const found = this.found(attempts, way, memory)
      if (E.isRight(found) && boundOf(found.right) < boundOf(best.right)) best = found
      if (E.isRight(found) && boundOf(found.right) <= memory) break
      low = memory
      memory = Math.floor((low + boundOf(best.right)) / 2)
    }
    return best
  }

  /**
   * The shortest predicted tick of what fits, or undefined where nothing does. What is tried does not depend on the memory, up to `mostLean` operations, so
   * more of it is never slower by what predictions tell apart; in a larger graph the widest windows that fit are looked for, and little beside them.
   */
  within(memory: number): Evaluated | undefined {
    const plain = this.plain()
    if (E.isLeft(plain)) return undefined
    const fitting = isWithin(plain, memory) ? [plain.right] : []
    const attempts = this.on(Number.POSITIVE_INFINITY)
    const large = this.ir.operations.length > smallGraph
    if (E.isLeft(attempts) || (large && fitting.length > 0)) return fitting[0]
    for (const { way, most } of large ? this.near(attempts.right, memory) : this.all(attempts.right)) {
      if ((most ?? attempts.right.live(way)) > memory) continue
      const found = this.found(attempts.right, way, most)
      if (isWithin(found, memory)) fitting.push(found.right)
    }
    if (fitting.length === 0 || !large) {
      const small = this.small()
      if (isWithin(small, memory)) fitting.push(small.right)
    }
    return shortest(fitting)
  }

  /** Ways to hold less, the widest windows first: each as it comes, then squeezed into what it holds at the least. The same whatever memory there is. */
  private all(attempts: Evaluator): readonly Squeezed[] {
    const windowed = this.windowed(attempts)
    // Uploads right before their readers, held back by waits alone, in as much memory as each window needs.
    const free = unlimited(fastest(attempts))
    const least = attempts.live(free)
    const squeezed = windowed.map(way => ({ way: free, most: Math.max(least, attempts.live(way)) }))
    return [
      ...windowed.flatMap(way => [
        { way, most: undefined },
        { way, most: attempts.live(way) },
      ]),
      ...squeezed,
      ...this.narrower(attempts),
    ].filter(
      ({ way, most }, i, list) => list.findIndex(other => other.most === most && same(other.way, way)) === i,
    )
  }

  /** Windows of all uploads without one of the user's, the widest first. */
  private windowed(attempts: Evaluator): readonly Candidate[] {
    if (attempts.unwindowed.size === 0) return []
    const by = fastest(attempts)
    const widths = widthsOf(attempts, Math.max(4, Math.min(8, Math.floor(2048 / this.ir.operations.length))))
    return widths.map(ahead => windowsOf(attempts, by, ahead))
  }

  /** The widest windows that could fit, a little less, and the user's own windows made narrower: the first few of them. */
  private near(attempts: Evaluator, memory: number): readonly Squeezed[] {
    const by = fastest(attempts)
    const most = mostAhead(attempts)
    let low = -1
    for (let high = most + 1; high - low > 1; ) {
      const middle = (low + high) >> 1
      if (attempts.live(windowsOf(attempts, by, middle)) <= memory) low = middle
      else high = middle
    }
    const widths = low < 0 ? [] : [...new Set([low, Math.max(0, low - 1), low >> 1])]
    const ways = [...widths.map(ahead => windowsOf(attempts, by, ahead)), unlimited('program')]
    const narrower = this.narrower(attempts).map(({ way }) => way)
    return [...ways, ...narrower]
      .filter(way => attempts.live(way) <= memory)
      .slice(0, maxTries)
      .map(way => ({ way, most: memory }))
  }

  /** The user's own windows, half as wide again and again, in the user's order. */
  private narrower(attempts: Evaluator): readonly Squeezed[] {
    const asked = attempts.ir.operations.reduce((widest, { ahead }) => Math.max(widest, ahead ?? 0), 0)
    const ways: Candidate[] = []
    for (let ahead = asked; ahead > 0; ahead >>= 1) ways.push({ ...windowsOf(attempts, 'program', 0), ahead })
    if (asked > 0) ways.push({ ...windowsOf(attempts, 'program', 0), ahead: 0 })
    return ways.map(way => ({ way, most: attempts.live(way) }))
  }
}

interface Squeezed {
  readonly way: Candidate
  /** Undefined: as it comes. */
  readonly most: number | undefined
}

const same = (a: Candidate, b: Candidate): boolean =>
  a.by === b.by && a.ahead === b.ahead && JSON.stringify([...a.window]) === JSON.stringify([...b.window])

const isWithin = (found: Passed<Evaluated>, memory: number): found is E.Right<Evaluated> =>
  E.isRight(found) && boundOf(found.right) <= memory

/** No window is wider: beyond it no upload waits for another. */
const mostAhead = ({ unwindowed, ir }: Evaluator): number =>
  Math.max(0, ...unwindowed.values()) * ir.settings.inFlight - 1

/** The same window for all uploads without one, as far as each lane has uploads. */
const windowsOf = ({ unwindowed, ir }: Evaluator, by: Ordering['by'], ahead: number): Candidate => ({
  by,
  ahead: Number.POSITIVE_INFINITY,
  window: new Map(
    Array.from(unwindowed, ([lane, count]) => [lane, Math.min(ahead, count * ir.settings.inFlight - 1)]),
  ),
})

/** So many widths of windows at most, widest first: all of the narrow ones, of the others each half as wide again as the one before. */
const widthsOf = (attempts: Evaluator, most: number): readonly number[] => {
  const widest = mostAhead(attempts)
  const widths: number[] = []
  for (
    let ahead = 0;
    ahead <= widest && widths.length < most;
    ahead += Math.max(1, widths.length > most >> 1 ? ahead >> 1 : 1)
  )
    widths.push(ahead)
  return widths.reverse()
}

const fastest = (attempts: Evaluator): Ordering['by'] => {
  const { operations, lanes } = attempts.ir
  if (lanes.length < 2 || operations.length > mostPredicted) return 'critical path'
  const plain = attempts.tick(unlimited('critical path'))
  return attempts.tick(unlimited('time')) < plain * (1 - worth) ? 'time' : 'critical path'
}

const boundOf = ({ ir }: Evaluated): number => fullest(ir.bound)

/** Of those that no prediction tells apart the first: it is the one that holds least back, and so has most to spare where a machine is not quite as predicted. */
const shortest = (fitting: readonly Evaluated[]): Evaluated | undefined => {
  const least = fitting.reduce(
    (least, { attempt }) => Math.min(least, attempt.tick),
    Number.POSITIVE_INFINITY,
  )
  return fitting.find(({ attempt }) => attempt.tick <= least * (1 + worth)) ?? fitting[0]
}

/**
 * Lanes, order, waits and lifetimes: place, order, synchronize, lifetimes and bound, as often as it takes. `fast` is the shortest predicted tick, `small` the least
 * memory that is found; under `memory: BYTES` the shortest predicted tick of what fits, or an error that names the least.
 */
export const fitToMemory = (ir: Lowered): Passed<Bounded> => {
  const { memory } = ir.settings
  const fitting = new Search(ir)
  const chosen = (found: Evaluated): Passed<Bounded> =>
    pipe(
      withoutRedundantWindowWaits(found),
      E.map(({ ir, attempt }) => ({ ...ir, choice: { chosen: attempt, tried: fitting.tried } })),
    )
  if (memory === 'small') return pipe(fitting.small(), E.chain(chosen))
  if (memory === 'fast') return pipe(fitting.fast(), E.chain(chosen))
  const found = fitting.within(memory)
  if (found !== undefined) return chosen(found)
  return pipe(
    fitting.small(),
    E.chain(small => (boundOf(small) <= memory ? chosen(small) : fail(overBudget(small.ir, memory)))),
  )
}
