import type { Plan } from '../ir/plan.js'
import { type CommandTable, commandTableOf, Kind } from '../order/command-table.js'
import { tracesOf } from './plan-trace.js'
import { RangePool, rounded } from './range-pool.js'
import { SteadyState } from './steady-state.js'
import { type AllocationTrace, When } from './trace.js'

export { granule, rounded } from './range-pool.js'

export interface PoolPeak {
  /**
   * The furthest byte that the pool of each device ever takes; where that is not exact, that it takes in the
   * ticks that were replayed.
   */
  readonly device: readonly number[]
  /**
   * Whether the replay reached a steady state, so that no tick takes more. `device` is a bound all the same
   * where the work limit came first, since a session has no more than its bound: where its pool would take
   * more, a lane waits for bytes that are free but not ready.
   */
  readonly exact: boolean
  /** Ticks that were replayed: `device` is what the first so many take. */
  readonly ticks: number
}

/** Commands that are replayed at most, and free ranges that are looked at. */
const maxSteps = 2 ** 26
const workFor = (commands: number): number => (commands < 2 ** 17 ? 2 ** 24 : 2 ** 22)

/**
 * The furthest byte that the session's pool ever takes for this plan, by the rule of the native executor:
 * each run and each wait is a point of its lane; a freed range is released at its home lane's point and at
 * the points of its uses; when tick t is issued, every lane is after all of tick t − inFlight. Ticks are
 * replayed until the free ranges recur, or until the work limit.
 */
export const poolPeakOf = (plan: Plan): PoolPeak => {
  const table = commandTableOf(plan)
  return poolPeakFrom(table, tracesOf(table))
}

export interface PoolLimits {
  /**
   * By device: where only the question is whether the peak is beyond so many bytes, the replay stops there.
   */
  readonly enough?: readonly number[]
  /**
   * By device, bytes that it holds whatever its pool takes: once the work limit is reached, the replay stops
   * where the pool is sure to take no more.
   */
  readonly held?: readonly number[]
}

/** As `poolPeakOf`, from traces that may leave out a command. */
export const poolPeakFrom = (
  table: CommandTable,
  traces: readonly AllocationTrace[],
  { enough, held }: PoolLimits = {},
): PoolPeak => {
  const { plan, commands } = table
  const ticks = Math.max(4, Math.floor(maxSteps / Math.max(1, commands)))
  const replayed = lastingOf(table).map((bytes, device) =>
    replay(traces[device]!, bytes, {
      ticks,
      work: workFor(commands),
      enough: enough?.[device] ?? Number.POSITIVE_INFINITY,
      held: held?.[device] ?? 0,
    }),
  )
  return {
    device: replayed.slice(0, plan.devices).map(({ peak }) => peak),
    exact: replayed.every(({ exact }) => exact),
    ticks: replayed.reduce((most, { ticks }) => Math.max(most, ticks), 0),
  }
}

/** By device, the bytes of buffers that live on across ticks: they lie below the pool's ranges. */
export const lastingOf = ({ plan, buffers, root, kind, memory, bytes }: CommandTable): number[] => {
  const held = new Array<number>(plan.devices).fill(0)
  for (let b = 0; b < buffers; b++)
    if (root[b] === b && memory[b]! < plan.devices && (kind[b] === Kind.state || kind[b] === Kind.param))
      held[memory[b]!]! += rounded(bytes[b]!)
  return held
}

interface Replayed {
  readonly peak: number
  readonly exact: boolean
  readonly ticks: number
}

interface Limits {
  readonly ticks: number
  readonly work: number
  readonly enough: number
  readonly held: number
}

const replay = (trace: AllocationTrace, base: number, limits: Limits): Replayed => {
  const { lanes, length, inFlight, event, when, buffer, allocs, allocLane, frontier, uses } = trace
  if (allocs === 0) return { peak: base, exact: true, ticks: 0 }
  const allocBytes = trace.allocBytes.map(rounded)
  const freeBytes = trace.freeBytes.map(rounded)
  const pool = new RangePool(lanes, base)
  const state = new SteadyState()
  const offset = new Float64Array(1 + buffer.reduce((most, b) => Math.max(most, b), 0))
  /** What a tick takes where it reuses nothing. */
  const most = allocBytes.reduce((sum, bytes) => sum + bytes, 0)
  const start = new Int32Array(lanes)
  const done = new Int32Array(lanes)
  const known = new Int32Array(lanes)
  const release = new Int32Array(lanes)
  let tick = 0
  for (; tick < limits.ticks && pool.work <= limits.work; tick++) {
    for (let m = 0; m < lanes; m++) start[m] = tick * length[m]!
    if (tick >= inFlight) {
      for (let m = 0; m < lanes; m++) done[m] = (tick - inFlight + 1) * length[m]!
      pool.retire(done)
      // What lanes know of each other is the same in every tick from here on, so the free ranges decide all
      // that follows.
      state.begin()
      pool.put(state, start)
      if (state.isReached()) return { peak: pool.peak, exact: true, ticks: tick }
    }
    for (let e = 0; e < event.length; e++) {
      const a = event[e]!
      if (a >= 0) {
        if (tick > 0 && when[e] === When.firstTick) continue
        for (let m = 0; m < lanes; m++) known[m] = Math.max(0, frontier[a * lanes + m]! + start[m]!)
        offset[buffer[e]!] = pool.take(allocBytes[a]!, allocLane[a]!, known)
        // With the rest of this tick the pool takes no more than is held anyway.
        const isEnough = pool.work > limits.work && base + (tick + 1) * most <= limits.held
        if (pool.peak > limits.enough || isEnough) return { peak: pool.peak, exact: false, ticks: tick + 1 }
        continue
      }
      if (tick === 0 && when[e] === When.laterTicks) continue
      const f = -1 - a
      release.fill(0)
      for (let r = uses.start[f]!; r < uses.start[f + 1]!; r++)
        release[uses.lane[r]!] = uses.point[r]! + start[uses.lane[r]!]!
      pool.give(offset[buffer[e]!]!, freeBytes[f]!, release)
    }
    pool.work += event.length
  }
  return { peak: pool.peak, exact: false, ticks: tick }
}
