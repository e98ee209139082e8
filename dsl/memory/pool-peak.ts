import { type ArrayAllocator, withScratchArena } from '../collections/scratch-arena.js'
import type { Plan } from '../ir/plan.js'
import { type CommandTable, commandTableOf } from '../order/command-table.js'
import { lastingBytes } from './lasting.js'
import { tracesOf } from './plan-trace.js'
import { RangePool, rounded } from './range-pool.js'
import { ReleasePoints } from './release-points.js'
import { SteadyState } from './steady-state.js'
import { type AllocationTrace, When } from './trace.js'

export { granule, rounded } from './range-pool.js'

/** By memory: devices, then pinned. */
export interface PoolPeak {
  readonly device: readonly number[]
  readonly pinned: number
  /**
   * Whether the replay reached a steady state, so that no tick takes more. Else the figures are what the
   * replayed ticks take.
   */
  readonly exact: boolean
  /** Ticks that were replayed. */
  readonly ticks: number
  /**
   * By memory, what the first tick takes, which begins on an idle device; where the replay stopped in it,
   * until then.
   */
  readonly first: readonly number[]
  /** By memory, the alloc command that first took the pool to its peak; -1: no alloc did. */
  readonly reachedAt: readonly number[]
}

/** Ticks that are replayed at most until the steady state: some 2^26 commands. */
export const mostTicks = (commands: number): number =>
  Math.max(4, Math.floor(2 ** 26 / Math.max(1, commands)))

/** Free ranges that are looked at, at most. In a tick of a large plan there are more of them. */
const workFor = (commands: number): number => (commands < 2 ** 17 ? 2 ** 24 : 2 ** 26)

/**
 * The furthest byte that the session's pool ever takes for this plan, by the rule of the native executor:
 * each run and each wait is a point of its lane; a freed range is released at its home lane's point and at
 * the points of its uses; when tick t is issued, every lane is after all of tick t − inFlight. Ticks are
 * replayed until the free ranges recur, or until the work limit. Buffers that live on across ticks lie below
 * the pool's ranges, and count.
 */
export const poolPeakOf = (plan: Plan): PoolPeak => {
  const table = commandTableOf(plan)
  return poolPeakFrom(table, tracesOf(table))
}

export interface PoolLimits {
  /**
   * By memory: where only the question is whether the peak is beyond so many bytes, the replay stops there.
   */
  readonly enough?: readonly number[] | undefined
  /** Ticks that are replayed at most: 1 is what one tick takes on an idle device. */
  readonly ticks?: number
  /** Free ranges that are looked at, and events, before the last tick; without `ticks` it has a limit. */
  readonly work?: number
}

/** As `poolPeakOf`, from traces that may leave out a command. */
export const poolPeakFrom = (
  table: CommandTable,
  traces: readonly AllocationTrace[],
  { enough, ticks, work }: PoolLimits = {},
): PoolPeak => {
  const { plan, commands } = table
  const replayed = lastingBytes(table, rounded).map((bytes, memory) =>
    withScratchArena(allocator =>
      replay(traces[memory]!, bytes, allocator, {
        ticks: ticks ?? mostTicks(commands),
        work: work ?? (ticks === undefined ? workFor(commands) : Number.POSITIVE_INFINITY),
        enough: enough?.[memory] ?? Number.POSITIVE_INFINITY,
      }),
    ),
  )
  return {
    device: replayed.slice(0, plan.devices).map(({ peak }) => peak),
    pinned: replayed[plan.devices]!.peak,
    exact: replayed.every(({ exact }) => exact),
    ticks: replayed.reduce((most, { ticks }) => Math.max(most, ticks), 0),
    first: replayed.map(({ first }) => first),
    reachedAt: replayed.map(({ reachedAt }) => reachedAt),
  }
}

interface Replayed {
  readonly peak: number
  readonly exact: boolean
  readonly ticks: number
  readonly first: number
  readonly reachedAt: number
}

interface Limits {
  readonly ticks: number
  readonly work: number
  readonly enough: number
}

const replay = (
  trace: AllocationTrace,
  base: number,
  allocator: ArrayAllocator,
  limits: Limits,
): Replayed => {
  const { lanes, length, inFlight, event, when, command, buffer, allocs, frontier, uses } = trace
  const { allocLane, allocBytes, freeBytes } = trace
  if (allocs === 0) return { peak: base, exact: true, ticks: 0, first: base, reachedAt: -1 }
  const pool = new RangePool(lanes, base)
  const state = new SteadyState()
  const offset = allocator.float64(1 + buffer.reduce((most, b) => Math.max(most, b), 0))
  const start = new Int32Array(lanes)
  const done = new Int32Array(lanes)
  const known = new Int32Array(lanes)
  const release = new ReleasePoints()
  let first = base
  let reachedAt = -1
  let tick = 0
  const replayed = (exact: boolean): Replayed => ({ peak: pool.peak, exact, ticks: tick, first, reachedAt })
  for (; tick < limits.ticks && pool.work <= limits.work; tick++) {
    for (let m = 0; m < lanes; m++) start[m] = tick * length[m]!
    if (tick >= inFlight) {
      for (let m = 0; m < lanes; m++) done[m] = (tick - inFlight + 1) * length[m]!
      pool.retire(done)
      // What lanes know of each other is the same in every tick from here on, so the free ranges decide all
      // that follows.
      state.begin()
      pool.put(state, start)
      if (state.isReached()) return replayed(true)
    }
    for (let e = 0; e < event.length; e++) {
      const a = event[e]!
      if (a >= 0) {
        if (tick > 0 && when[e] === When.firstTick) continue
        const before = pool.peak
        for (let m = 0; m < lanes; m++) known[m] = Math.max(0, frontier[a * lanes + m]! + start[m]!)
        offset[buffer[e]!] = pool.take(rounded(allocBytes[a]!), allocLane[a]!, known)
        if (pool.peak > before) reachedAt = command[e]!
        if (pool.peak > limits.enough) {
          if (tick === 0) first = pool.peak
          return replayed(false)
        }
        continue
      }
      if (tick === 0 && when[e] === When.laterTicks) continue
      const f = -1 - a
      release.clear()
      for (let r = uses.start[f]!; r < uses.start[f + 1]!; r++)
        release.put(uses.lane[r]!, uses.point[r]! + start[uses.lane[r]!]!)
      pool.give(offset[buffer[e]!]!, rounded(freeBytes[f]!), release)
    }
    if (tick === 0) first = pool.peak
    pool.work += event.length
  }
  return replayed(false)
}
