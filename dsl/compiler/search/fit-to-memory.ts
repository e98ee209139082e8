import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { fullest } from '../analysis/device-of.js'
import { fail } from '../analysis/faults.js'
import type { Bounded, Evaluation, Lowered } from '../analysis/ir.js'
import type { Passed } from '../analysis/pass.js'
import { worth } from '../analysis/predict.js'
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
import {
  allWindows,
  type BoundedCandidate,
  fittingWidths,
  holdingLess,
  narrowed,
  windowed,
} from './windows.js'

/** Bounds that are tried for one candidate at most, and candidates of a large graph. */
const mostTries = 4

const boundOf = ({ ir }: Evaluated): number => fullest(ir.bound)

const isWithin = (found: Passed<Evaluated>, memory: number): found is E.Right<Evaluated> =>
  E.isRight(found) && boundOf(found.right) <= memory

const isSmaller = (found: Passed<Evaluated>, best: Evaluated): found is E.Right<Evaluated> =>
  E.isRight(found) && boundOf(found.right) < boundOf(best)

/** Of candidates that no prediction tells apart the first: it holds least back, so it has most to spare. */
const shortest = (fitting: readonly Evaluated[]): Evaluated | undefined => {
  const ticks = fitting.map(({ evaluation }) => evaluation.tick)
  const least = ticks.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY)
  return fitting.find(({ evaluation }) => evaluation.tick <= least * (1 + worth)) ?? fitting[0]
}

/** The unlimited candidate with the shorter predicted tick. */
const fastest = (evaluator: Evaluator): Candidate => {
  const { operations, lanes } = evaluator.ir
  const [path, time] = [unlimited('critical path'), unlimited('time')]
  if (lanes.length < 2 || operations.length > mostPredicted) return path
  if (evaluator.isSameOrder(path.by, time.by)) return path
  const plain = evaluator.tick(path)
  return evaluator.tick(time) < plain * (1 - worth) ? time : path
}

/**
 * The search of one graph. Its lanes are chosen at most twice: freely, and with all chosen work on one lane.
 */
class Search {
  private readonly evaluators = new Map<number, Passed<Evaluator>>()
  private readonly known = new Map<Evaluator, Map<string, Passed<Evaluated>>>()
  readonly tried: Evaluation[] = []
  private smallest: Passed<Evaluated> | undefined
  private readonly large: boolean

  constructor(private readonly ir: Lowered) {
    this.large = ir.operations.length > smallGraph
  }

  /** The graph on its lanes, work without a lane of the user's spread over at most `spread` of them. */
  private on(spread: number): Passed<Evaluator> {
    const evaluator =
      this.evaluators.get(spread) ??
      pipe(
        place(spread)(this.ir),
        E.map(ir => new Evaluator(ir, spread)),
      )
    this.evaluators.set(spread, evaluator)
    return evaluator
  }

  private get free(): Passed<Evaluator> {
    return this.on(Number.POSITIVE_INFINITY)
  }

  /** Evaluates a candidate; of a small graph once. */
  private evaluate(evaluator: Evaluator, candidate: Candidate, memory?: number): Passed<Evaluated> {
    const { by, ahead, window } = candidate
    const key = `${by} ${ahead} ${[...window]} ${memory}`
    const known = this.known.get(evaluator)?.get(key)
    if (known !== undefined) return known
    const found = evaluator.evaluate(candidate, memory)
    if (E.isRight(found)) this.tried.push(found.right.evaluation)
    if (this.large) return found
    const all = this.known.get(evaluator) ?? new Map<string, Passed<Evaluated>>()
    this.known.set(evaluator, all.set(key, found))
    return found
  }

  /** The shortest predicted tick with nothing held back. */
  private plain(): Passed<Evaluated> {
    return pipe(
      this.free,
      E.chain(evaluator => this.evaluate(evaluator, fastest(evaluator))),
    )
  }

  /**
   * The shortest predicted tick, whatever it holds. In a small graph windows are tried too: an upload that
   * nothing holds back may stand before one that is needed sooner.
   */
  fast(): Passed<Evaluated> {
    const plain = this.plain()
    const evaluator = this.free
    if (E.isLeft(plain) || E.isLeft(evaluator) || this.large) return plain
    const windows = allWindows(evaluator.right, fastest(evaluator.right).by)
    const found = windows.map(candidate => this.evaluate(evaluator.right, candidate)).filter(E.isRight)
    return E.right(shortest([plain.right, ...found.map(({ right }) => right)])!)
  }

  /**
   * The least memory that is found, no more than the shortest tick holds: the program may make a value long
   * before it is read.
   */
  small(): Passed<Evaluated> {
    const frugal = this.frugal()
    if (E.isLeft(frugal)) return frugal
    const fast = this.fast()
    return isSmaller(fast, frugal.right) ? fast : frugal
  }

  /** Nothing spread, nothing ahead, and waits for freed bytes where they help. */
  private frugal(): Passed<Evaluated> {
    this.smallest ??= pipe(
      this.on(1),
      E.chain(evaluator => this.smallestOn(evaluator)),
    )
    return this.smallest
  }

  private smallestOn(evaluator: Evaluator): Passed<Evaluated> {
    const inProgramOrder = (window: Candidate['window']): Candidate => ({ by: 'program', ahead: 0, window })
    const windows = new Map([...evaluator.unwindowed.keys()].map(lane => [lane, 0] as const))
    const first = this.least(evaluator, inProgramOrder(windows))
    if (windows.size === 0) return first
    const other = this.least(evaluator, inProgramOrder(new Map()))
    return E.isLeft(first) || isSmaller(other, first.right) ? other : first
  }

  /** Bisects between the bytes that are live at once and the bytes that the candidate holds. */
  private least(evaluator: Evaluator, candidate: Candidate): Passed<Evaluated> {
    let best = this.evaluate(evaluator, candidate)
    if (E.isLeft(best)) return best
    let low = evaluator.live(candidate)
    const most = this.large ? 1 : mostTries
    for (let tries = 0, memory = low; tries < most && boundOf(best.right) > low; tries++) {
      const found = this.evaluate(evaluator, candidate, memory)
      if (isSmaller(found, best.right)) best = found
      if (isWithin(found, memory)) break
      low = memory
      memory = Math.floor((low + boundOf(best.right)) / 2)
    }
    return best
  }

  /**
   * The shortest predicted tick that fits, or undefined where nothing does. The candidates of a small graph
   * do not depend on the memory, so more memory never makes a plan slower by what predictions tell apart. In
   * a large graph the widest windows that fit are tried, and little beside them.
   */
  within(memory: number): Evaluated | undefined {
    const plain = this.plain()
    if (E.isLeft(plain)) return undefined
    const fitting = isWithin(plain, memory) ? [plain.right] : []
    const free = this.free
    if (E.isLeft(free) || (this.large && fitting.length > 0)) return fitting[0]
    const evaluator = free.right
    const candidates = this.large ? this.near(evaluator, memory) : holdingLess(evaluator, fastest(evaluator))
    for (const { candidate, memory: most } of candidates) {
      if ((most ?? evaluator.live(candidate)) > memory) continue
      const found = this.evaluate(evaluator, candidate, most)
      if (isWithin(found, memory)) fitting.push(found.right)
    }
    if (fitting.length === 0 || !this.large) {
      const frugal = this.frugal()
      if (isWithin(frugal, memory)) fitting.push(frugal.right)
    }
    return shortest(fitting)
  }

  /**
   * The first few of: the widest windows that could fit, the program's order, and the user's windows
   * narrowed.
   */
  private near(evaluator: Evaluator, memory: number): readonly BoundedCandidate[] {
    const { by } = fastest(evaluator)
    const widths = fittingWidths(evaluator, by, memory)
    return [
      ...widths.map(width => windowed(evaluator, by, width)),
      unlimited('program'),
      ...narrowed(evaluator),
    ]
      .filter(candidate => evaluator.live(candidate) <= memory)
      .slice(0, mostTries)
      .map(candidate => ({ candidate, memory }))
  }
}

/**
 * Searches over place, order, synchronize, lifetimes and bound. `memory: 'fast'` asks for the shortest
 * predicted tick, `'small'` for the least memory that is found, and a number of bytes for the shortest
 * predicted tick that fits: else an error that names the least.
 */
export const fitToMemory = (ir: Lowered): Passed<Bounded> => {
  const { memory } = ir.settings
  const search = new Search(ir)
  const chosen = (found: Evaluated): Passed<Bounded> => {
    const { ir, evaluation } = withoutRedundantWindowWaits(found)
    return E.right({ ...ir, choice: { chosen: evaluation, tried: search.tried } })
  }
  if (memory === 'small') return pipe(search.small(), E.chain(chosen))
  if (memory === 'fast') return pipe(search.fast(), E.chain(chosen))
  const found = search.within(memory)
  if (found !== undefined) return chosen(found)
  return pipe(
    search.small(),
    E.chain(small => (boundOf(small) <= memory ? chosen(small) : fail(overBudget(small.ir, memory)))),
  )
}
