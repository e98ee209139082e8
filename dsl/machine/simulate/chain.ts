import type { Resource } from '../cost.js'
import { runAt, type Timeline, type TimelineRun } from './timeline.js'
import type { Window } from './window.js'

/**
 * What a stretch of a tick goes to: a run's resource, or what a run waited for when no run was in its way: the issuing thread, the program's own that fills inputs, a mark on its way to another lane,
 * a full queue, the host from a tick's end to the issue of the one that it made room for.
 */
export type Bound = Resource | 'issue' | 'feed' | 'wait' | 'queue' | 'turnaround'

export interface Chain {
  /** The runs, in order of time, each of which waited last for the one before it. */
  readonly runs: readonly TimelineRun[]
  /** Nanoseconds of the window by what they went to: together they are the window. */
  readonly bounds: ReadonlyMap<Bound, number>
}

/** What the time between a run and the one that it waited for last is for: marks that travel between lanes, or a thread at work. */
const gapOf = ({ cause }: TimelineRun): Bound => {
  if (cause === 'wait' || cause === 'queue' || cause === 'feed') return cause
  if (cause === 'tick') return 'turnaround'
  return cause === 'lane' || cause === 'engine' ? 'wait' : 'issue'
}

/** From the last run of the window back over what each run waited for last: the reason why the window is not shorter. */
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
