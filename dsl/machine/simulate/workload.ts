import type { Usage } from '../usage.js'

/** What a lane does in one step: it runs something, records an event, or waits for an event of this tick or of the tick before. */
export const Step = { run: 0, record: 1, wait: 2, waitPrevious: 3 } as const

/**
 * One tick of anything that the simulator can play: a plan (`workloadOf`), or the compiler's operations before there is a plan. One thread issues the steps in
 * order; each lane does its own steps in that order. Times are nanoseconds.
 */
export interface Workload {
  readonly lanes: number
  readonly events: number
  /** Ticks in flight: tick t is issued only when tick t - `inFlight` has ended. */
  readonly inFlight: number
  readonly steps: number
  readonly kind: Uint8Array
  readonly lane: Int32Array
  /** Of a run its number, in issue order; of the other steps their event. An event is recorded once a tick. */
  readonly subject: Int32Array
  /** What the issuing thread takes for each step, and after the last one of a tick. */
  readonly issue: Float64Array
  readonly trailing: number
  /** What the runs ask of the devices. */
  readonly runs: number
  readonly usage: Usage
  /** From an event's record to what waits for it on another lane. */
  readonly waitLatency: number
  /** Runs that may be issued and not ended on one lane: the issuing thread is blocked until the oldest ends. */
  readonly depth: number
  /** What the program's own thread takes to feed a tick, and how long after a tick's end it may feed the tick that reuses its slot. */
  readonly feed: number
  readonly turnaround: number
}
