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

/** A cause in a timeline's column. */
export const CauseCode = {
  start: 0,
  lane: 1,
  wait: 2,
  engine: 3,
  issue: 4,
  queue: 5,
  tick: 6,
  feed: 7,
} as const
