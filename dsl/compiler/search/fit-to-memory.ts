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
import { allWindows, type BoundedCandidate, holdingLess } from './windows.js'

/** Bounds that are tried for one candidate at most. */
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
   * Candidates that hold less than the shortest tick, with the lanes that were chosen freely; none of them
   * depends on the memory that there is.
   */
  private holdingLess(): readonly (BoundedCandidate & { readonly evaluator: Evaluator })[] {
    const [evaluator, plain] = [this.free, this.plain()]
    if (E.isLeft(evaluator) || E.isLeft(plain)) return []
    const { right: on } = evaluator
    return holdingLess(on, fastest(on), boundOf(plain.right)).map(one => ({ ...one, evaluator: on }))
  }

  /** The least memory of all candidates: no memory that is less is ever enough. */
  small(): Passed<Evaluated> {
    const frugal = this.frugal()
    if (E.isLeft(frugal)) return frugal
    const fast = this.fast()
    let best = isSmaller(fast, frugal.right) ? fast : frugal
    for (const { evaluator, candidate, memory } of this.holdingLess()) {
      if (evaluator.live(candidate) >= boundOf(best.right)) continue
      const found = this.evaluate(evaluator, candidate, memory)
      if (isSmaller(found, best.right)) best = found
    }
    return best
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
   * The shortest predicted tick that fits, or undefined where nothing does. The candidates do not depend on
   * the memory. So what `small` finds is the least memory that is enough, and more memory never makes a plan
   * of a small graph slower by what predictions tell apart. In a large graph the first that fits is taken: it
   * holds least back.
   */
  within(memory: number): Evaluated | undefined {
    const fast = this.fast()
    const fitting = isWithin(fast, memory) ? [fast.right] : []
    const plain = this.plain()
    if (isWithin(plain, memory)) fitting.unshift(plain.right)
    const isEnough = (): boolean => this.large && fitting.length > 0
    if (isEnough()) return shortest(fitting)
    for (const { evaluator, candidate, memory: most } of this.holdingLess()) {
      if (evaluator.live(candidate) > memory) continue
      const found = this.evaluate(evaluator, candidate, most)
      if (isWithin(found, memory)) fitting.push(found.right)
      if (isEnough()) return shortest(fitting)
    }
    const frugal = this.frugal()
    if (isWithin(frugal, memory)) fitting.push(frugal.right)
    return shortest(fitting)
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
    E.chain(small => fail(overBudget(small.ir, memory))),
  )
}
