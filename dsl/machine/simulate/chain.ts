import type { Resource } from '../cost.js'
import { runAt, type Timeline, type TimelineRun } from './timeline.js'
import type { Window } from './window.js'

/**
 * The kinds of time along a chain: a run's resource, or, where no run delays the next one, the cause of the
 * gap: the issuing thread, the program's own thread that fills inputs, an event on its way to another lane, a
 * full queue, or the host between a tick's end and the next issue.
 */
export type Bound = Resource | 'issue' | 'feed' | 'wait' | 'queue' | 'turnaround'

export interface Chain {
  /** The runs in order of time; each waited last for the one before it. */
  readonly runs: readonly TimelineRun[]
  /** Nanoseconds of the window by kind; their sum is the window. */
  readonly bounds: ReadonlyMap<Bound, number>
}

/**
 * The kind of the gap between a run and the run that it waited for last: an event on its way, or a thread at
 * work.
 */
const gapOf = ({ cause }: TimelineRun): Bound => {
  if (cause === 'wait' || cause === 'queue' || cause === 'feed') return cause
  if (cause === 'tick') return 'turnaround'
  return cause === 'lane' || cause === 'engine' ? 'wait' : 'issue'
}

/**
 * Goes from the last run of the window back over the runs that each one waited for last: the chain that
 * determines the window's length.
 */
export const chainOf = (timeline: Timeline, { from, to }: Window): Chain => {
  const bounds = new Map<Bound, number>()
  const runs: TimelineRun[] = []
  const put = (what: Bound, start: number, end: number): void => {
    const length = Math.min(to, end) - Math.max(from, start)
    if (length > 0) bounds.set(what, (bounds.get(what) ?? 0) + length)
  }
  let last = -1
  for (let i = 0; i < timeline.runs; i++)
    if (timeline.end[i]! <= to && (last < 0 || timeline.end[i]! >= timeline.end[last]!)) last = i
  let until = to
  for (let i = last; i >= 0 && until > from; ) {
    const run = runAt(timeline, i)
    runs.push(run)
    put(run.resource, run.start, run.end)
    const before = run.after === undefined ? from : timeline.end[run.after]!
    put(gapOf(run), before, run.start)
    until = before
    i = run.after ?? -1
  }
  return { runs: runs.reverse(), bounds }
}
