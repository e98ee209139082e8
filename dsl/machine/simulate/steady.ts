/** The pace at which ticks end once it repeats itself: nanoseconds a tick over the last `over` ticks. */
export interface Pace {
  readonly tick: number
  readonly over: number
  readonly settled: boolean
}

/**
 * From when each tick ended. Ticks may come in groups (all that are in flight end close together, then a gap), so it is settled where the last intervals are those
 * `p` before them again, more of them than are in flight, for the least such p; else it is what the second half of the ticks took.
 */
export const paceOf = (ended: Float64Array, inFlight: number): Pace => {
  const last = ended.length - 1
  const interval = (i: number): number => ended[i]! - ended[i - 1]!
  for (let p = 1; p + Math.max(p, inFlight + 1) < last; p++) {
    const tick = (ended[last]! - ended[last - p]!) / p
    let same = true
    for (let i = last; same && i > last - Math.max(p, inFlight + 1); i--)
      same = Math.abs(interval(i) - interval(i - p)) <= 1e-6 * Math.max(tick, 1)
    if (same) return { tick, over: p, settled: true }
  }
  if (last < 1) return { tick: ended[0] ?? 0, over: 1, settled: false }
  const over = Math.max(1, last >> 1)
  return { tick: (ended[last]! - ended[last - over]!) / over, over, settled: false }
}
