import type { Usage } from '../usage.js'

/**
 * The kinds of a lane's steps: a run, the record of an event, or the wait for an event of this tick or of the
 * previous one.
 */
export const Step = { run: 0, record: 1, wait: 2, waitPrevious: 3 } as const

/**
 * One tick of a simulator's input: of a plan (`workloadOf`), or of the compiler's operations before there is
 * a plan. One thread issues the steps in order; each lane does its own steps in that order. Times are
 * nanoseconds.
 */
export interface Workload {
  readonly lanes: number
  /**
   * Sets of lanes that ticks take in turn: tick t has the lanes of tick t - `laneSets`, and no others.
   * Absent: 1, all ticks have the same lanes.
   */
  readonly laneSets?: number
  readonly events: number
  /** Ticks in flight: tick t is issued only when tick t - `inFlight` has ended. */
  readonly inFlight: number
  readonly steps: number
  readonly kind: Uint8Array
  readonly lane: Int32Array
  /** The number of a run, in issue order, or the event of another step. An event is recorded once a tick. */
  readonly subject: Int32Array
  /** Time of the issuing thread for each step, and after the last one of a tick. */
  readonly issue: Float64Array
  readonly trailing: number
  /** The resources that the runs occupy. */
  readonly runs: number
  readonly usage: Usage
  /** From an event's record to the start of a run that waits for it on another lane. */
  readonly waitLatency: number
  /**
   * Runs of one lane that may be issued and not ended: issuing one more blocks the thread until the oldest
   * ends.
   */
  readonly depth: number
  /** By run, 1 where it is a node of an executable graph, which takes no place in its lane's queue. */
  readonly inGraph?: Uint8Array
  /**
   * Time of the program's own thread to feed a tick, and from a tick's end until it may feed the tick that
   * reuses its slot.
   */
  readonly feed: number
  readonly turnaround: number
}
