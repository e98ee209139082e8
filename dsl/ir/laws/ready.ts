import { type Turnover, When } from './turnover.js'

/**
 * When freed bytes become ready for a lane: at the first of its allocs, of the tick of the free or of a later one, that is after all that they were
 * released at. Said as `ticks later · allocs + alloc`; `inFlight · allocs` where it is not before the host orders it. Since every tick knows
 * the same, this is decided once, for all ticks.
 */
export class Readiness {
  /** Frees by lane and point that they were released at: `frees[start[first[lane] + point] ..]`. */
  private readonly first: Int32Array
  private readonly start: Int32Array
  private readonly byPoint: Int32Array
  private readonly left: Int32Array
  private readonly reached: Int32Array

  constructor(private readonly turnover: Turnover) {
    const { lanes, length, frees, releaseStart, releaseLane, releasePoint } = turnover
    this.first = new Int32Array(lanes + 1)
    for (let m = 0; m < lanes; m++) this.first[m + 1] = this.first[m]! + length[m]! + 1
    const { first } = this
    this.start = new Int32Array(first[lanes]! + 1)
    const { start } = this
    const rows = releaseStart[frees]!
    for (let r = 0; r < rows; r++) start[first[releaseLane[r]!]! + releasePoint[r]! + 1]!++
    for (let i = 0; i < first[lanes]!; i++) start[i + 1]! += start[i]!
    const fill = start.slice()
    this.byPoint = new Int32Array(rows)
    for (let f = 0; f < frees; f++)
      for (let r = releaseStart[f]!; r < releaseStart[f + 1]!; r++)
        this.byPoint[fill[first[releaseLane[r]!]! + releasePoint[r]!]!++] = f
    this.left = new Int32Array(frees)
    this.reached = new Int32Array(lanes)
  }

  /** By free. The same array is filled each time where one is given. */
  of(lane: number, times = new Float64Array(this.turnover.frees)): Float64Array {
    const { turnover, left, reached } = this
    const { lanes, inFlight, length, event, allocs, allocLane, frontier, frees, releaseStart, releaseLane } = turnover
    times.fill(inFlight * allocs)
    reached.fill(-1)
    for (let f = 0; f < frees; f++) {
      let others = 0
      for (let r = releaseStart[f]!; r < releaseStart[f + 1]!; r++) if (releaseLane[r] !== lane) others++
      left[f] = others
    }
    let missing = frees
    /** Frees whose points are covered, but that come after the lane's last alloc so far. */
    let covered: number[] = []
    let freed = 0
    const mine: number[] = []
    const at = (a: number, later: number): void => {
      const now = later * allocs + a
      for (const f of covered) times[f] = now
      missing -= covered.length
      covered = []
      for (let m = 0; m < lanes; m++) {
        if (m === lane) continue
        const until = Math.min(length[m]!, frontier[a * lanes + m]! + later * length[m]!)
        while (reached[m]! < until) {
          const cell = this.first[m]! + ++reached[m]!
          for (let i = this.start[cell]!; i < this.start[cell + 1]!; i++) {
            const f = this.byPoint[i]!
            if (--left[f]! > 0 || f >= freed) continue
            times[f] = now
            missing--
          }
        }
      }
    }
    for (let e = 0; e < event.length; e++) {
      const a = event[e]!
      if (a < 0) {
        freed++
        if (left[-1 - a] === 0) covered.push(-1 - a)
      } else if (allocLane[a] === lane) {
        mine.push(a)
        at(a, 0)
      }
    }
    if (mine.length === 0) return times
    const last = mine[mine.length - 1]!
    for (let later = 1; later < inFlight && missing > 0; later++) {
      let more = covered.length > 0
      for (let m = 0; m < lanes && !more; m++)
        more = m !== lane && reached[m]! < Math.min(length[m]!, frontier[last * lanes + m]! + later * length[m]!)
      if (more) for (const a of mine) at(a, later)
    }
    return times
  }
}

/** The lanes that allocate, in order of id. */
export const takers = ({ lanes, allocLane }: Turnover): number[] => {
  const takes = new Uint8Array(lanes)
  for (const lane of allocLane) takes[lane] = 1
  return Array.from(takes.keys()).filter(lane => takes[lane] === 1)
}

/**
 * At each alloc of a settled tick, all that it cannot have: the bytes in use, itself among them, and those that are free but not ready for its
 * lane. An alloc that grows a memory has taken all that was ready, so none leaves it larger than this: the greatest
 * of them is a peak that is proved. In the first ticks there are fewer ticks before, so no more than this.
 */
export const unavailable = (turnover: Turnover, readiness: Readiness, visit: (bytes: number) => void): void => {
  const { event, when, allocs, allocLane, allocBytes, frees, freeBytes, inFlight, leaked } = turnover
  const times = new Float64Array(frees)
  const next = new Int32Array(frees)
  const becoming = new Int32Array(allocs)
  for (const lane of takers(turnover)) {
    readiness.of(lane, times)
    becoming.fill(-1)
    let bytes = leaked
    for (let f = 0; f < frees; f++) {
      const later = Math.min(inFlight, Math.floor(times[f]! / allocs))
      // Of the ticks before, those that are too near to be ready when a tick starts.
      const unready = Math.min(later, inFlight - 1)
      bytes += unready * freeBytes[f]!
      if (later >= inFlight) continue
      const a = times[f]! % allocs
      next[f] = becoming[a]!
      becoming[a] = f
    }
    for (let e = 0; e < event.length; e++) {
      const a = event[e]!
      // What is freed was in use and is not ready yet: that changes nothing.
      if (a < 0) continue
      if (allocLane[a] === lane) for (let f = becoming[a]!; f >= 0; f = next[f]!) bytes -= freeBytes[f]!
      if (when[e] !== When.firstTick) bytes += allocBytes[a]!
      if (allocLane[a] === lane) visit(bytes)
    }
  }
}
