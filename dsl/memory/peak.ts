import type { Plan } from '../ir/plan.js'
import { type CommandTable, commandTableOf } from '../order/command-table.js'
import { arenaBytes, ownBytesFrom } from './arenas.js'
import { growthOf } from './growth.js'
import { lastingBytes } from './lasting.js'
import { tracesOf } from './plan-trace.js'
import { mostTicks, poolPeakFrom } from './pool-peak.js'
import type { AllocationTrace } from './trace.js'

/**
 * Bytes that a plan holds at most, by law L9: they follow from the order of its commands alone, so they are
 * the same in every run.
 */
export interface Peak {
  readonly device: readonly number[]
  readonly pinned: number
  /** Ticks that were replayed: until the steady state, where that is asked. */
  readonly ticks: number
  /**
   * Whether `device` and `pinned` are the peak itself. Else the steady state is further away than the work
   * limit, or the peak is beyond `enough`: then they are what the replayed ticks hold.
   */
  readonly exact: boolean
  /**
   * By memory (devices, then pinned), the alloc command that first took the memory to its peak; -1: no alloc
   * did.
   */
  readonly reachedAt: readonly number[]
}

/**
 * Free chunks times lanes that are looked at. A large plan reaches its steady state within a few ticks, or
 * after more than are worth the wait.
 */
const workFor = (commands: number): number => (commands < 2 ** 17 ? 2 ** 26 : 2 ** 24)

/**
 * The peak of a plan. By its `boundKind`:
 *
 *   exact     what the session's pool takes over as many ticks as it takes to reach a steady state
 *   enforced  what the session's pool takes in one tick on an idle device
 *   absent    bytes, counted in issue order until the steady state, wherever they lie free; where that is
 *             further away than the work limit: as `enforced`
 *
 * `param` and `state` count once, `input` and `output` `inFlight` times; views count in their root. The pool
 * gives out whole granules; counted bytes are the buffers' own. Planned storage has its arena, and `arenas`
 * times what ticks in flight have for themselves.
 */
export const peakOf = (plan: Plan): Peak => {
  const table = commandTableOf(plan)
  return peakFrom(table, () => tracesOf(table))
}

/**
 * As `peakOf`, from traces that may leave out a command; a plan with planned storage needs none. Where only
 * the question is whether the peak is within a bound, `enough` is that bound, by memory: the replay stops as
 * soon as that is known.
 */
export const peakFrom = (
  table: CommandTable,
  traces: () => readonly AllocationTrace[],
  enough?: readonly number[],
): Peak => {
  const { storage, boundKind } = table.plan
  if (storage === 'planned') return arenaPeak(table)
  if (boundKind === 'exact') return poolPeakFrom(table, traces(), { enough })
  const counted = boundKind === 'enforced' ? undefined : countedPeak(table, traces(), { enough })
  if (counted !== undefined) return counted
  return { ...poolPeakFrom(table, traces(), { enough, ticks: 1 }), exact: true }
}

const arenaPeak = (table: CommandTable): Peak => {
  const fixed = lasting(table)
  const reachedAt = fixed.map(() => -1)
  return { device: fixed.slice(0, -1), pinned: fixed.at(-1)!, ticks: 1, exact: true, reachedAt }
}

/**
 * The peak by counted bytes; undefined where the steady state is further away than the work limit: `work`, or
 * the one that a plan without a `boundKind` is judged by.
 */
export const countedPeak = (
  table: CommandTable,
  traces: readonly AllocationTrace[],
  { enough, work = workFor(table.commands) }: { enough?: readonly number[] | undefined; work?: number } = {},
): Peak | undefined => {
  const ticks = mostTicks(table.commands)
  const fixed = lasting(table)
  const grown = traces.map((trace, m) => growthOf(trace, fixed[m]!, { ticks, work, enough: enough?.[m] }))
  const isBeyond = grown.some(({ bytes }, m) => bytes > (enough?.[m] ?? Number.POSITIVE_INFINITY))
  const exact = grown.every(({ exact }) => exact)
  if (!exact && !isBeyond) return undefined
  return {
    device: grown.slice(0, -1).map(({ bytes }) => bytes),
    pinned: grown.at(-1)!.bytes,
    ticks: grown.reduce((most, { ticks }) => Math.max(most, ticks), 0),
    exact,
    reachedAt: grown.map(({ reachedAt }) => reachedAt),
  }
}

/** By memory, the bytes that it holds whatever the commands do: with planned storage all of them. */
const lasting = (table: CommandTable): number[] => {
  const { plan } = table
  const held = lastingBytes(table)
  if (plan.storage === 'planned')
    for (let d = 0; d < plan.devices; d++) held[d]! += arenaBytes(plan, d, ownBytesFrom(plan, d))
  return held
}
