import type { Plan } from '../ir/plan.js'
import { type CommandTable, latestCommandTable } from '../order/command-table.js'
import { RangePool, rounded } from './range-pool.js'
import { Snapshots } from './snapshots.js'
import { latestTurnovers, type Turnover, type Turnovers, When } from './turnover.js'

export { granule, rounded } from './range-pool.js'

export interface PoolPeak {
  /** The furthest byte that each device's pool ever takes; where it is not exact, that it takes in the ticks that were replayed. */
  readonly device: readonly number[]
  /**
   * Whether `device` can be a bound: not where the replay stopped beyond one that was asked for. It can even where it is not exact, since a session has
   * no more than its bound: where the pool would take more, a lane waits for bytes that are free but not ready.
   */
  readonly settled: boolean
  /** Whether the pools were seen in a state that they had been in before: no tick ever takes more. Else the limit on work came first. */
  readonly exact: boolean
  /** Ticks that were replayed: `device` is what the first so many take. */
  readonly ticks: number
}

/** Commands that are replayed at most, and ranges that are looked at. */
const maxSteps = 2 ** 26
const workFor = (commands: number): number => (commands < 2 ** 17 ? 2 ** 24 : 2 ** 22)

/**
 * The furthest byte that the session's pool ever takes for this plan. The rule is that of the native executor: each run and each wait is a
 * point of its lane; a freed range is released at its home lane's point and at the points of its uses; when tick t is issued, every lane
 * is after all of tick t − inFlight. Ticks are replayed until what lies free repeats itself, or the limit on work is reached.
 */
export const poolPeakOf = (plan: Plan): PoolPeak => {
  const tables = latestCommandTable(plan)
  return replayPool(tables, latestTurnovers(tables))
}

/**
 * As `poolPeakOf`, of turnovers that may leave out a command. Where all that is asked is whether the peak is within a bound,
 * `enough` is that bound, by device: the replay stops beyond it.
 */
export const replayPool = (
  tables: CommandTable,
  turnovers: Turnovers,
  enough?: readonly number[],
): PoolPeak => {
  const { plan } = tables
  const base = new Array<number>(plan.devices).fill(0)
  for (const { space, device, life, alias, bytes } of plan.buffers)
    if (alias === undefined && space === 'device' && (life === 'state' || life === 'param'))
      base[device]! += rounded(bytes)
  return poolOver(turnovers, base, tables.commands, enough)
}

/**
 * As `replayPool`, above what lives on in each device, of a plan of so many commands. Where a device holds `held` bytes whatever its pool takes, it is enough to know that
 * the pool does not take more.
 */
export const poolOver = (
  { uses }: Turnovers,
  base: readonly number[],
  commands: number,
  enough?: readonly number[],
  held?: readonly number[],
): PoolPeak => {
  const ticks = Math.max(4, Math.floor(maxSteps / Math.max(1, commands)))
  const grown = base.map((bytes, device) =>
    replay(uses[device]!, bytes, {
      ticks,
      work: workFor(commands),
      enough: enough?.[device] ?? Number.POSITIVE_INFINITY,
      held: held?.[device] ?? 0,
    }),
  )
  return {
    device: grown.map(({ peak }) => peak),
    settled: grown.every(({ peak }, device) => !(peak > (enough?.[device] ?? Number.POSITIVE_INFINITY))),
    exact: grown.every(({ exact }) => exact),
    ticks: grown.reduce((most, { replayed }) => Math.max(most, replayed), 0),
  }
}

interface Replayed {
  readonly peak: number
  readonly exact: boolean
  readonly replayed: number
}

interface Limits {
  readonly ticks: number
  readonly work: number
  readonly enough: number
  readonly held: number
}

const replay = (turnover: Turnover, base: number, { ticks, work, enough, held }: Limits): Replayed => {
  const { lanes, length, inFlight, event, when, buffer, allocs, allocLane, allocBytes, frontier, freeBytes } =
    turnover
  if (allocs === 0) return { peak: base, exact: true, replayed: 0 }
  const { releaseStart, releaseLane, releasePoint } = turnover
  const pool = new RangePool(lanes, base)
  const snapshots = new Snapshots()
  let highest = 0
  for (const b of buffer) highest = Math.max(highest, b)
  const offset = new Float64Array(highest + 1)
  // What a tick takes where nothing is ready for anybody.
  let each = 0
  for (let a = 0; a < allocs; a++) each += allocBytes[a]!
  const start = new Int32Array(lanes)
  const done = new Int32Array(lanes)
  const known = new Int32Array(lanes)
  const release = new Int32Array(lanes)
  let tick = 0
  for (; tick < ticks && pool.work <= work; tick++) {
    for (let m = 0; m < lanes; m++) start[m] = tick * length[m]!
    if (tick >= inFlight) {
      for (let m = 0; m < lanes; m++) done[m] = (tick - inFlight + 1) * length[m]!
      pool.settle(done)
      // From here on what lanes know of each other is the same in every tick: the rest follows from what lies free.
      snapshots.begin()
      pool.put(snapshots, start)
      if (snapshots.met()) return { peak: pool.peak, exact: true, replayed: tick }
    }
    for (let e = 0; e < event.length; e++) {
      const a = event[e]!
      if (a >= 0) {
        if (tick > 0 && when[e] === When.firstTick) continue
        for (let m = 0; m < lanes; m++) {
          const point = frontier[a * lanes + m]! + start[m]!
          known[m] = point > 0 ? point : 0
        }
        offset[buffer[e]!] = pool.take(allocBytes[a]!, allocLane[a]!, known)
        if (pool.peak > enough) return { peak: pool.peak, exact: false, replayed: tick + 1 }
        // This tick is the last one then, and with all of it the pool takes no more than is held anyway.
        if (pool.work > work && base + (tick + 1) * each <= held)
          return { peak: pool.peak, exact: false, replayed: tick + 1 }
        continue
      }
      if (tick === 0 && when[e] === When.laterTicks) continue
      const f = -1 - a
      release.fill(0)
      for (let r = releaseStart[f]!; r < releaseStart[f + 1]!; r++)
        release[releaseLane[r]!] = releasePoint[r]! + start[releaseLane[r]!]!
      pool.give(offset[buffer[e]!]!, freeBytes[f]!, release)
    }
    pool.work += event.length
  }
  return { peak: pool.peak, exact: false, replayed: tick }
}
