import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { peakOf } from '../ir/peak.js'
import { aliveAt } from './alive.js'
import { Attempts, type Found, freely, type Way } from './attempts.js'
import { nodesOf, outlineOf } from './emit.js'
import { fail, fault } from './faults.js'
import type { Attempt, Bounded, Lowered, Passed } from './ir.js'
import type { Ordering } from './order.js'
import { place } from './place.js'

/** Operations up to which an order's tick is predicted before it is chosen; of more, the order by critical path is taken. */
const mostPredicted = 2 ** 17

/** What makes a tick shorter by less than this part of it is not worth a stranger order. */
const worth = 0.01

/** Tries to hold less, and of windows between the widest that could fit and none. */
const maxTries = 4

/** All that is tried for one graph: its lanes are chosen at most twice, and each way is told in the end. */
class Fitting {
  private readonly placed = new Map<number, Passed<Attempts>>()
  readonly tried: Attempt[] = []

  constructor(private readonly ir: Lowered) {}

  /** The graph on its lanes, what the user gave none over `spread` of them at most. */
  on(spread: number): Passed<Attempts> {
    let attempts = this.placed.get(spread)
    if (attempts === undefined) {
      attempts = pipe(
        place(spread)(this.ir),
        E.map(ir => new Attempts(ir, spread)),
      )
      this.placed.set(spread, attempts)
    }
    return attempts
  }

  found(attempts: Attempts, way: Way, memory?: number): Passed<Found> {
    const found = attempts.found(way, memory)
    if (E.isRight(found)) this.tried.push(found.right.attempt)
    return found
  }

  /** The order with the shortest predicted tick, whatever it holds. */
  fast(): Passed<Found> {
    return pipe(
      this.on(Number.POSITIVE_INFINITY),
      E.chain(attempts => this.found(attempts, freely(fastest(attempts)))),
    )
  }

  /** The plan that holds least of those that are tried: nothing spread, nothing ahead, and waits for freed bytes where they help. */
  small(): Passed<Found> {
    return pipe(
      this.on(1),
      E.chain(attempts => {
        const windows = [new Map([...attempts.unwindowed.keys()].map(lane => [lane, 0] as const)), new Map()]
        const ways: Way[] = (windows[0]!.size === 0 ? windows.slice(1) : windows).map(window => ({
          by: 'program',
          ahead: 0,
          window,
        }))
        return ways.reduce<Passed<Found>>(
          (best, way) => {
            const found = this.least(attempts, way)
            return E.isLeft(best) || (E.isRight(found) && boundOf(found.right) < boundOf(best.right)) ? found : best
          },
          this.least(attempts, ways[0]!),
        )
      }),
    )
  }

  private least(attempts: Attempts, way: Way): Passed<Found> {
    let best = this.found(attempts, way)
    if (E.isLeft(best)) return best
    let low = attempts.live(way)
    for (let tries = 0, memory = low; tries < maxTries && boundOf(best.right) > low; tries++) {
      const found = this.found(attempts, way, memory)
      if (E.isRight(found) && boundOf(found.right) < boundOf(best.right)) best = found
      if (E.isRight(found) && boundOf(found.right) <= memory) break
      low = memory
      memory = Math.floor((low + boundOf(best.right)) / 2)
    }
    return best
  }

  /** The shortest predicted tick of those ways that fit, or undefined where none does. */
  within(memory: number): Found | undefined {
    for (const spread of [Number.POSITIVE_INFINITY, 1]) {
      const attempts = this.on(spread)
      if (E.isLeft(attempts)) return undefined
      const found = this.search(attempts.right, memory)
      if (found !== undefined) return found
    }
    return undefined
  }

  private fits(attempts: Attempts, way: Way, memory: number): Found | undefined {
    if (attempts.live(way) > memory) return undefined
    const found = this.found(attempts, way, memory)
    return E.isRight(found) && boundOf(found.right) <= memory ? found.right : undefined
  }

  private search(attempts: Attempts, memory: number): Found | undefined {
    const fitting: Found[] = []
    const orders: readonly Ordering['by'][] = [fastest(attempts), 'program']
    for (const by of orders) {
      const found = this.widest(attempts, by, memory)
      if (found !== undefined) fitting.push(found)
    }
    if (attempts.unwindowed.size > 0) {
      const found = this.fits(attempts, freely(orders[0]!), memory)
      if (found !== undefined) fitting.push(found)
    }
    if (fitting.length > 0) return fitting.reduce(shorter)
    // The user's own windows give way last.
    const window = new Map([...attempts.unwindowed.keys()].map(lane => [lane, 0]))
    const asked = attempts.ir.operations.reduce((most, { ahead }) => Math.max(most, ahead ?? 0), 0)
    for (let ahead = asked; ; ahead >>= 1) {
      const found = this.fits(attempts, { by: 'program', ahead, window }, memory)
      if (found !== undefined || ahead === 0) return found
    }
  }

  /** The widest windows that fit, for uploads that the user gave none: the same for all lanes, as far as each has uploads. */
  private widest(attempts: Attempts, by: Ordering['by'], memory: number): Found | undefined {
    const { unwindowed, ir } = attempts
    const most = Math.max(0, ...unwindowed.values()) * ir.settings.inFlight - 1
    const wayOf = (ahead: number): Way => ({
      by,
      ahead: Number.POSITIVE_INFINITY,
      window: new Map(
        Array.from(unwindowed, ([lane, count]) => [lane, Math.min(ahead, count * ir.settings.inFlight - 1)]),
      ),
    })
    if (unwindowed.size === 0) return this.fits(attempts, wayOf(0), memory)
    // More ahead holds more: the widest that could fit is found without a plan.
    let low = -1
    for (let high = most + 1; high - low > 1; ) {
      const middle = (low + high) >> 1
      if (attempts.live(wayOf(middle)) <= memory) low = middle
      else high = middle
    }
    for (let tries = 0; tries < maxTries && low >= 0; tries++) {
      const found = this.fits(attempts, wayOf(low), memory)
      if (found !== undefined) return found
      low = tries === 0 ? low - 1 : tries === maxTries - 2 ? Math.min(0, low - 1) : low >> 1
    }
    return undefined
  }
}

const fastest = (attempts: Attempts): Ordering['by'] => {
  const { operations, lanes } = attempts.ir
  if (lanes.length < 2 || operations.length > mostPredicted) return 'critical path'
  const plain = attempts.tick(freely('critical path'))
  return attempts.tick(freely('time')) < plain * (1 - worth) ? 'time' : 'critical path'
}

const boundOf = ({ ir }: Found): number => ir.bound.device[0]!

const shorter = (a: Found, b: Found): Found => (b.attempt.tick < a.attempt.tick * (1 - worth) ? b : a)

const mebibytes = (bytes: number): string =>
  bytes < 2 ** 20 ? `${bytes} bytes` : `${(bytes / 2 ** 20).toFixed(1)} MiB`

const overBudget = (ir: Bounded, memory: number): Passed<never> => {
  const plan = outlineOf(ir, nodesOf(ir))
  const alive = aliveAt(plan, peakOf(plan).reachedAt[0] ?? -1)
  const largest = [...alive].sort((a, b) => b.bytes - a.bytes || a.id - b.id).slice(0, 8)
  const names = largest.map(({ name, bytes }) => `${name} ${mebibytes(bytes)}`).join(', ')
  const more = alive.length > largest.length ? ` and ${alive.length - largest.length} more` : ''
  const [least] = ir.bound.device
  return fail(
    fault(
      'OverBudget',
      'options.memory',
      ir.settings.name,
      `at most ${memory} bytes of device memory`,
      `${least} bytes at the least; in memory at the peak: ${names}${more}`,
      `give at least ${least} bytes, fewer inFlight, or smaller dims`,
    ),
  )
}

/**
 * Lanes, order, waits and lifetimes: place, order, synchronize, lifetimes and bound, as often as it takes. `fast` is the shortest predicted tick, `small` the least
 * memory that is found; under `memory: BYTES` the shortest predicted tick of what fits, or an error that names the least.
 */
export const fit = (ir: Lowered): Passed<Bounded> => {
  const { memory } = ir.settings
  const fitting = new Fitting(ir)
  const chosen = ({ ir, attempt }: Found): Bounded => ({ ...ir, choice: { chosen: attempt, tried: fitting.tried } })
  if (memory === 'small') return pipe(fitting.small(), E.map(chosen))
  const fast = fitting.fast()
  if (memory === 'fast' || E.isLeft(fast) || boundOf(fast.right) <= memory) return pipe(fast, E.map(chosen))
  const found = fitting.within(memory)
  if (found !== undefined) return E.right(chosen(found))
  return pipe(
    fitting.small(),
    E.chain(small => (boundOf(small) <= memory ? E.right(chosen(small)) : overBudget(small.ir, memory))),
  )
}
