import { play, type Summary } from './simulator.js'
import type { Workload } from './workload.js'

/** The pace of ticks: nanoseconds a tick over the last `over` ticks, and whether it is steady. */
export interface Pace {
  readonly tick: number
  readonly over: number
  readonly steady: boolean
}

/**
 * The pace from the ends of ticks. Ticks may come in groups (all ticks in flight end close together, then a
 * gap), so the pace is steady where the last intervals repeat those `p` before them, more of them than are in
 * flight, for the least such p. Otherwise the pace is the average of the second half, over whole groups of as
 * many ticks as are in flight.
 */
export const paceOf = (ended: Float64Array, inFlight: number): Pace => {
  const last = ended.length - 1
  const interval = (i: number): number => ended[i]! - ended[i - 1]!
  for (let p = 1; p + Math.max(p, inFlight + 1) < last; p++) {
    const tick = (ended[last]! - ended[last - p]!) / p
    let same = true
    for (let i = last; same && i > last - Math.max(p, inFlight + 1); i--)
      same = Math.abs(interval(i) - interval(i - p)) <= 1e-6 * Math.max(tick, 1)
    if (same) return { tick, over: p, steady: true }
  }
  if (last < 1) return { tick: ended[0] ?? 0, over: 1, steady: false }
  const half = last >> 1
  const over = half >= inFlight ? half - (half % inFlight) : Math.min(inFlight, last)
  return { tick: (ended[last]! - ended[last - over]!) / over, over, steady: false }
}

export interface Played extends Summary {
  readonly pace: Pace
  /**
   * Ticks from which the pace was taken; `inFlight` more were simulated, since the last ticks have no
   * successors.
   */
  readonly ticks: number
}

export const playTicks = (workload: Workload, ticks: number): Played => {
  const { inFlight } = workload
  const summary = play(workload, ticks + Math.min(inFlight, ticks))
  return { ...summary, pace: paceOf(summary.ended.subarray(0, ticks), inFlight), ticks }
}

/** Doubles the number of simulated ticks, up to `most`, until the pace is steady. */
export const playUntilSteady = (workload: Workload, most: number): Played => {
  let ticks = Math.min(most, workload.inFlight + 4)
  for (;;) {
    const played = playTicks(workload, ticks)
    if (played.pace.steady || ticks >= most) return played
    ticks = Math.min(most, 2 * ticks)
  }
}
