import type { Resource } from '../cost.js'

/** What a run waited for last before it started. */
export type Cause =
  | 'start' // nothing: it could begin at once
  | 'lane' // the run before it on its lane
  | 'wait' // an event: the last run before its record
  | 'engine' // a copy engine, or the host, that another run had
  | 'issue' // the issuing thread, which was not there earlier
  | 'queue' // the issuing thread, which a full lane had blocked
  | 'tick' // the host, which issues a tick only when an earlier one has completed
  | 'feed' // the program's own thread, which was still filling the tick's inputs

export const causes: readonly Cause[] = ['start', 'lane', 'wait', 'engine', 'issue', 'queue', 'tick', 'feed']

/**
 * What ran when, as columns: run i is `node[i]` on `lane[i]` in `tick[i]`, from `start[i]` to `end[i]` nanoseconds after the first tick was fed. Runs stand tick
 * by tick, in issue order.
 */
export interface Timeline {
  readonly runs: number
  readonly ticks: number
  readonly node: Int32Array
  readonly lane: Int32Array
  readonly tick: Int32Array
  readonly start: Float64Array
  readonly end: Float64Array
  /** Of each run, what bounds it. */
  readonly resource: readonly Resource[]
  /** What it waited for last: an index into `causes`, and the run that it was, as an index of this timeline; -1: none. */
  readonly cause: Uint8Array
  readonly after: Int32Array
  /** When each tick was begun by the issuing thread, and when its last run ended. */
  readonly issued: Float64Array
  readonly ended: Float64Array
}

/** One run of a timeline. `after` is another's index, undefined where it waited for no run. */
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
