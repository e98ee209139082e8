import type { Room } from '../scratch.js'
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

/** Frees by lane and point that they were released at: `frees[start[first[lane] + point] ..]`. */
const releasesOf = ({ lanes, length, frees, releaseStart, releaseLane, releasePoint }: Turnover, room: Room) => {
  const first = new Int32Array(lanes + 1)
  for (let m = 0; m < lanes; m++) first[m + 1] = first[m]! + length[m]! + 1
  // Counted one place further on: once all are put where they belong, each start is where the one before it ends.
  const start = room.int32(first[lanes]! + 2)
  const rows = releaseStart[frees]!
  for (let r = 0; r < rows; r++) start[first[releaseLane[r]!]! + releasePoint[r]! + 2]!++
  for (let i = 0; i < first[lanes]!; i++) start[i + 2]! += start[i + 1]!
  const byPoint = room.int32(rows)
  for (let f = 0; f < frees; f++)
    for (let r = releaseStart[f]!; r < releaseStart[f + 1]!; r++)
      byPoint[start[first[releaseLane[r]!]! + releasePoint[r]! + 1]!++] = f
  return { first, start, byPoint }
}

/** Allocs of each lane, and how many frees come before each alloc. */
const allocsOf = ({ lanes, event, allocs, allocLane }: Turnover, room: Room) => {
  const start = new Int32Array(lanes + 1)
  for (let a = 0; a < allocs; a++) start[allocLane[a]! + 1]!++
  for (let l = 0; l < lanes; l++) start[l + 1]! += start[l]!
  const fill = start.slice()
  const byLane = room.int32(allocs)
  const freed = room.int32(allocs)
  for (let e = 0, frees = 0; e < event.length; e++) {
    const a = event[e]!
    if (a < 0) frees++
    else {
      byLane[fill[allocLane[a]!]!++] = a
      freed[a] = frees
    }
  }
  return { start, byLane, freed }
}

/** Of one lane after the other: which free becomes ready for it at which of its allocs, of how many ticks later. */
class Sweep {
  private readonly releases
  readonly allocs
  /** How many points of others each free still waits for, and how far along each of them the lane's allocs are so far. */
  private readonly left: Int32Array
  private readonly reached: Int32Array

  constructor(
    private readonly turnover: Turnover,
    room: Room,
  ) {
    this.releases = releasesOf(turnover, room)
    this.allocs = allocsOf(turnover, room)
    this.left = room.int32(turnover.frees)
    this.reached = new Int32Array(turnover.lanes)
  }

  get takers(): number[] {
    const { start } = this.allocs
    return Array.from(start.keys()).filter(lane => start[lane]! < (start[lane + 1] ?? 0))
  }

  /** By free: the alloc into `alloc`, and the ticks into `later`; what waits until the host orders it stays as it is there. How many do not. */
  of(lane: number, alloc: Int32Array, later: Uint16Array | Int32Array): number {
    const { left, reached } = this
    const { start: own, byLane, freed: freedBefore } = this.allocs
    const { first, start, byPoint } = this.releases
    const { lanes, inFlight, length, frontier, frees, releaseStart, releaseLane } = this.turnover
    for (let f = 0, r = 0; f < frees; f++) {
      let others = 0
      for (const end = releaseStart[f + 1]!; r < end; r++) if (releaseLane[r] !== lane) others++
      left[f] = others
    }
    reached.fill(-1)
    let freed = 0
    let missing = frees
    for (let ticks = 0; ticks < inFlight && missing > 0; ticks++) {
      for (let i = own[lane]!; i < own[lane + 1]!; i++) {
        const a = byLane[i]!
        const before = ticks === 0 ? freedBefore[a]! : frees
        // Freed since the lane's last alloc, and waiting for nothing else.
        for (; freed < before; freed++) {
          if (left[freed]! > 0) continue
          alloc[freed] = a
          later[freed] = ticks
          missing--
        }
        for (let m = 0; m < lanes; m++) {
          if (m === lane) continue
          const until = Math.min(length[m]!, frontier[a * lanes + m]! + ticks * length[m]!)
          if (reached[m]! >= until) continue
          const end = start[first[m]! + until + 1]!
          for (let at = start[first[m]! + reached[m]! + 1]!; at < end; at++) {
            const f = byPoint[at]!
            if (--left[f]! > 0 || f >= freed) continue
            alloc[f] = a
            later[f] = ticks
            missing--
          }
          reached[m] = until
        }
      }
    }
    return frees - missing
  }
}

const ticksOf = (count: number, inFlight: number, room: Room): Uint16Array | Int32Array =>
  inFlight < 2 ** 16 ? room.uint16(count) : room.int32(count)

/** Made of `room`. */
export const readinessOf = (turnover: Turnover, room: Room): Readiness => {
  const { lanes, inFlight, allocs, frees } = turnover
  const sweep = new Sweep(turnover, room)
  const { takers } = sweep
  const row = new Int32Array(lanes).fill(-1)
  const head = room.int32(allocs).fill(-1)
  const next = room.int32(takers.length * frees)
  const later = ticksOf(takers.length * frees, inFlight, room).fill(inFlight)
  const alloc = room.int32(frees)
  takers.forEach((lane, at) => {
    row[lane] = at
    const base = at * frees
    sweep.of(lane, alloc.fill(-1), later.subarray(base, base + frees))
    for (let f = 0; f < frees; f++) {
      const a = alloc[f]!
      if (a < 0) continue
      next[base + f] = head[a]!
      head[a] = f
    }
  })
  return { takers, row, head, next, later }
}

export interface Unavailable {
  readonly bytes: number
  /** Frees that become ready at an alloc before the host orders them, counted for each lane. */
  readonly ready: number
}

/**
 * At each alloc of a settled tick, all that it cannot have: the bytes in use, itself among them, and those that are free but not ready for its
 * lane. An alloc that grows a memory has taken all that was ready, so none leaves it larger than the greatest of them: a peak that is
 * proved. In the first ticks there are fewer ticks before, so no more than this. It keeps no list of frees, only what each alloc gains.
 */
export const unavailable = (turnover: Turnover, room: Room): Unavailable => {
  const { event, when, allocs, allocLane, allocBytes, frees, freeBytes, inFlight, leaked } = turnover
  const sweep = new Sweep(turnover, room)
  const gain = room.float64(allocs)
  const alloc = room.int32(frees)
  const later = ticksOf(frees, inFlight, room)
  let all = leaked
  // Of the ticks before, those that are too near to be ready when a tick starts.
  for (let f = 0; f < frees; f++) all += (inFlight - 1) * freeBytes[f]!
  let most = 0
  let ready = 0
  for (const lane of sweep.takers) {
    let bytes = all
    gain.fill(0)
    ready += sweep.of(lane, alloc.fill(-1), later)
    for (let f = 0; f < frees; f++) {
      if (alloc[f]! < 0) continue
      gain[alloc[f]!]! += freeBytes[f]!
      bytes -= (inFlight - 1 - later[f]!) * freeBytes[f]!
    }
    for (let e = 0; e < event.length; e++) {
      const a = event[e]!
      // What is freed was in use and is not ready yet: that changes nothing.
      if (a < 0) continue
      const mine = allocLane[a] === lane
      if (mine) bytes -= gain[a]!
      if (when[e] !== When.firstTick) bytes += allocBytes[a]!
      if (mine && bytes > most) most = bytes
    }
  }
  return { bytes: most, ready }
}
