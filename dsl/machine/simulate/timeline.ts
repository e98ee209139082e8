import type { Resource } from '../cost.js'
import { type Cause, causes } from './cause.js'
import type { PlanWorkload } from './plan-workload.js'
import { play } from './simulator.js'

/**
 * The simulated runs as columns: run i is `node[i]` on `lane[i]` in `tick[i]`, from `start[i]` to `end[i]`
 * nanoseconds after the first tick was fed. Ordered by tick, then in issue order.
 */
export interface Timeline {
  readonly runs: number
  readonly ticks: number
  readonly node: Int32Array
  readonly lane: Int32Array
  readonly tick: Int32Array
  readonly start: Float64Array
  readonly end: Float64Array
  /** The resource that bounds each run. */
  readonly resource: readonly Resource[]
  /** What each run waited for last: an index into `causes`, and the index of a run; -1: no run. */
  readonly cause: Uint8Array
  readonly after: Int32Array
  /** When the issuing thread began each tick, and when its last run ended. */
  readonly issued: Float64Array
  readonly ended: Float64Array
}

/** Simulates a plan and keeps the times of each run. */
export const timelineOf = (workload: PlanWorkload, ticks: number): Timeline => {
  const { runs, usage } = workload
  const all = runs * ticks
  const repeated = (column: Int32Array): Int32Array =>
    Int32Array.from({ length: all }, (_, i) => column[i % runs]!)
  const start = new Float64Array(all)
  const end = new Float64Array(all)
  const cause = new Uint8Array(all)
  const after = new Int32Array(all).fill(-1)
  const issued = new Float64Array(ticks)
  const { ended } = play(workload, ticks, {
    begin: (tick, time) => {
      issued[tick] = time
    },
    start: (run, time, why, before) => {
      start[run] = time
      cause[run] = why
      after[run] = before
    },
    end: (run, time) => {
      end[run] = time
    },
  })
  return {
    runs: all,
    ticks,
    node: repeated(workload.node),
    lane: repeated(workload.laneOf),
    tick: Int32Array.from({ length: all }, (_, i) => Math.floor(i / runs)),
    start,
    end,
    resource: Array.from({ length: all }, (_, i) => usage.resource[i % runs]!),
    cause,
    after,
    issued,
    ended,
  }
}

/** One run of a timeline. `after` is the index of another run, undefined where it waited for no run. */
export interface TimelineRun {
  readonly index: number
  readonly node: number
  readonly lane: number
  readonly tick: number
  /** Nanoseconds. */
  readonly start: number
  readonly end: number
  readonly resource: Resource
  readonly cause: Cause
  readonly after: number | undefined
}

export const runAt = (timeline: Timeline, index: number): TimelineRun => {
  const { node, lane, tick, start, end, resource, cause, after } = timeline
  return {
    index,
    node: node[index]!,
    lane: lane[index]!,
    tick: tick[index]!,
    start: start[index]!,
    end: end[index]!,
    resource: resource[index]!,
    cause: causes[cause[index]!]!,
    after: after[index]! < 0 ? undefined : after[index]!,
  }
}

/** The runs of one tick, or of all, in issue order. */
export const runsOf = (timeline: Timeline, tick?: number): readonly TimelineRun[] => {
  const perTick = timeline.ticks === 0 ? 0 : timeline.runs / timeline.ticks
  const from = tick === undefined ? 0 : tick * perTick
  const count = tick === undefined ? timeline.runs : perTick
  return Array.from({ length: count }, (_, i) => runAt(timeline, from + i))
}
