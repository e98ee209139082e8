import { type Turnover, When } from './turnover.js'

/**
 * When freed bytes become ready for a lane: at the first of its allocs, of the tick of the free or of a later one, that is after all that they were
 * released at. Since every tick knows the same, this is decided once, for all ticks.
 */
export interface Readiness {
  /** The lanes that allocate, in order of id: `row` of a lane is its place here, -1 for any other. */
  readonly takers: readonly number[]
  readonly row: Int32Array
  /** By alloc: the first of a list of frees that become ready for its lane there, chained by `next[row · frees + f]`. -1 ends it. */
  readonly head: Int32Array
  readonly next: Int32Array
  /** How many ticks later; inFlight where it is not before the host orders it: then it is in no list. */
  readonly later: Uint16Array | Int32Array
}

const takersOf = ({ lanes, allocLane }: Turnover): number[] => {
  const takes = new Uint8Array(lanes)
  for (let a = 0; a < allocLane.length; a++) takes[allocLane[a]!] = 1
  return Array.from(takes.keys()).filter(lane => takes[lane] === 1)
}

/** Frees by lane and point that they were released at: `frees[start[first[lane] + point] ..]`. */
const releasesOf = ({ lanes, length, frees, releaseStart, releaseLane, releasePoint }: Turnover) => {
  const first = new Int32Array(lanes + 1)
  for (let m = 0; m < lanes; m++) first[m + 1] = first[m]! + length[m]! + 1
  const start = new Int32Array(first[lanes]! + 1)
  const rows = releaseStart[frees]!
  for (let r = 0; r < rows; r++) start[first[releaseLane[r]!]! + releasePoint[r]! + 1]!++
  for (let i = 0; i < first[lanes]!; i++) start[i + 1]! += start[i]!
  const fill = start.slice()
  const byPoint = new Int32Array(rows)
  for (let f = 0; f < frees; f++)
    for (let r = releaseStart[f]!; r < releaseStart[f + 1]!; r++)
      byPoint[fill[first[releaseLane[r]!]! + releasePoint[r]!]!++] = f
  return { first, start, byPoint }
}

export const readinessOf = (turnover: Turnover): Readiness => {
  const { lanes, inFlight, length, event, allocs, allocLane, frontier } = turnover
  const { frees, releaseStart, releaseLane } = turnover
  const { first, start, byPoint } = releasesOf(turnover)
  const takers = takersOf(turnover)
  const row = new Int32Array(lanes).fill(-1)
  takers.forEach((lane, at) => {
    row[lane] = at
  })
  const head = new Int32Array(allocs).fill(-1)
  const next = new Int32Array(takers.length * frees)
  const later = inFlight < 2 ** 16 ? new Uint16Array(takers.length * frees) : new Int32Array(takers.length * frees)
  later.fill(inFlight)

  // Of one lane: how many points a free still waits for, how far along each lane it is, and frees that wait for no more than its next alloc.
  const left = new Int32Array(frees)
  const reached = new Int32Array(lanes)
  const covered = new Int32Array(frees)
  const mine = new Int32Array(allocs)
  for (const lane of takers) {
    const base = row[lane]! * frees
    let missing = frees
    let freed = 0
    let waiting = 0
    let own = 0
    const become = (f: number, a: number, ticks: number): void => {
      later[base + f] = ticks
      next[base + f] = head[a]!
      head[a] = f
      missing--
    }
    const at = (a: number, ticks: number): void => {
      for (let i = 0; i < waiting; i++) become(covered[i]!, a, ticks)
      waiting = 0
      for (let m = 0; m < lanes; m++) {
        if (m === lane) continue
        const until = Math.min(length[m]!, frontier[a * lanes + m]! + ticks * length[m]!)
        if (reached[m]! >= until) continue
        const last = start[first[m]! + until + 1]!
        for (let i = start[first[m]! + reached[m]! + 1]!; i < last; i++) {
          const f = byPoint[i]!
          if (--left[f]! === 0 && f < freed) become(f, a, ticks)
        }
        reached[m] = until
      }
    }
    reached.fill(-1)
    for (let f = 0; f < frees; f++) {
      let others = 0
      for (let r = releaseStart[f]!; r < releaseStart[f + 1]!; r++) if (releaseLane[r] !== lane) others++
      left[f] = others
    }
    for (let e = 0; e < event.length; e++) {
      const a = event[e]!
      if (a < 0) {
        freed++
        if (left[-1 - a] === 0) covered[waiting++] = -1 - a
      } else if (allocLane[a] === lane) {
        mine[own++] = a
        at(a, 0)
      }
    }
    const last = mine[own - 1]!
    for (let ticks = 1; ticks < inFlight && missing > 0; ticks++) {
      let more = waiting > 0
      for (let m = 0; m < lanes && !more; m++)
        more = m !== lane && reached[m]! < Math.min(length[m]!, frontier[last * lanes + m]! + ticks * length[m]!)
      if (more) for (let i = 0; i < own; i++) at(mine[i]!, ticks)
    }
  }
  return { takers, row, head, next, later }
}

/**
 * At each alloc of a settled tick, all that it cannot have: the bytes in use, itself among them, and those that are free but not ready for its
 * lane. An alloc that grows a memory has taken all that was ready, so none leaves it larger than the greatest of them: a peak that is
 * proved. In the first ticks there are fewer ticks before, so no more than this.
 */
export const unavailable = (turnover: Turnover, { takers, row, head, next, later }: Readiness): number => {
  const { event, when, allocLane, allocBytes, frees, freeBytes, inFlight, leaked } = turnover
  let most = 0
  for (const lane of takers) {
    const base = row[lane]! * frees
    let bytes = leaked
    // Of the ticks before, those that are too near to be ready when a tick starts.
    for (let f = 0; f < frees; f++) bytes += Math.min(later[base + f]!, inFlight - 1) * freeBytes[f]!
    for (let e = 0; e < event.length; e++) {
      const a = event[e]!
      // What is freed was in use and is not ready yet: that changes nothing.
      if (a < 0) continue
      const mine = allocLane[a] === lane
      if (mine) for (let f = head[a]!; f >= 0; f = next[base + f]!) bytes -= freeBytes[f]!
      if (when[e] !== When.firstTick) bytes += allocBytes[a]!
      if (mine && bytes > most) most = bytes
    }
  }
  return most
}
