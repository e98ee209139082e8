import type { ArrayAllocator } from '../order/scratch-arena.js'
import { startsOf } from './ledger.js'
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

/** Where each lane's allocs begin, and how many frees come before each alloc. */
const allocsOf = ({ lanes, event, allocs, allocLane }: Turnover, room: ArrayAllocator) => {
  const counts = new Int32Array(lanes)
  for (let a = 0; a < allocs; a++) counts[allocLane[a]!]!++
  const freed = room.int32(allocs)
  for (let e = 0, frees = 0; e < event.length; e++) {
    const a = event[e]!
    if (a < 0) frees++
    else freed[a] = frees
  }
  return { start: startsOf(counts), freed }
}

const never = 2 ** 31 - 1

/**
 * Of one lane after the other: which free becomes ready for it at which of its allocs, of how many ticks later. What a lane knows only grows, so each point of
 * another lane has one *time* at which it is known: the first alloc that knows of it, counted over `inFlight` ticks. A free is ready at the last time of
 * what it was released at, and not before it has been issued.
 */
class Sweep {
  readonly allocs
  /** By lane and point, from `first` of the lane on. */
  private readonly first: Int32Array
  private readonly time: Int32Array | Float64Array
  /** By release, its point's place in `time`: what is asked once for each lane. */
  private readonly at: Int32Array
  private readonly reached: Int32Array

  constructor(
    private readonly turnover: Turnover,
    room: ArrayAllocator,
  ) {
    const { lanes, length, allocs, inFlight, frees, releaseStart, releaseLane, releasePoint } = turnover
    this.allocs = allocsOf(turnover, room)
    this.first = new Int32Array(lanes + 1)
    for (let m = 0; m < lanes; m++) this.first[m + 1] = this.first[m]! + length[m]! + 1
    const points = this.first[lanes]!
    this.time = inFlight * allocs < never ? room.int32(points) : room.float64(points)
    this.reached = new Int32Array(lanes)
    this.at = room.unset32(releaseStart[frees]!)
    for (let r = 0; r < this.at.length; r++) this.at[r] = this.first[releaseLane[r]!]! + releasePoint[r]!
  }

  get takers(): number[] {
    const { start } = this.allocs
    return Array.from(start.keys()).filter(lane => start[lane]! < (start[lane + 1] ?? 0))
  }

  /** By free: the alloc into `alloc`, and the ticks into `later`; what waits until the host orders it stays as it is there. */
  of(lane: number, alloc: Int32Array, later: Uint16Array | Int32Array): void {
    this.learn(lane)
    const { start, freed } = this.allocs
    const { inFlight, frees } = this.turnover
    const own = start[lane]!
    const count = start[lane + 1]! - own
    const end = inFlight * count
    for (let f = 0, issued = 0; f < frees; f++) {
      while (issued < count && freed[own + issued]! <= f) issued++
      const when = this.ready(f, issued)
      if (when >= end) continue
      const ticks = when < count ? 0 : Math.floor(when / count)
      alloc[f] = own + when - ticks * count
      later[f] = ticks
    }
  }

  /** Of the bytes freed: those that become ready at each alloc of the lane, added to `gain`, and those that are when a tick starts, of the ticks before. How many frees do. */
  gains(lane: number, gain: Float64Array): { readonly early: number; readonly ready: number } {
    this.learn(lane)
    const { start, freed } = this.allocs
    const { inFlight, frees, freeBytes } = this.turnover
    const own = start[lane]!
    const count = start[lane + 1]! - own
    const end = inFlight * count
    let early = 0
    let ready = 0
    for (let f = 0, issued = 0; f < frees; f++) {
      while (issued < count && freed[own + issued]! <= f) issued++
      const when = this.ready(f, issued)
      if (when >= end) continue
      const ticks = when < count ? 0 : Math.floor(when / count)
      gain[own + when - ticks * count]! += freeBytes[f]!
      early += (inFlight - 1 - ticks) * freeBytes[f]!
      ready++
    }
    return { early, ready }
  }

  /** The time at which free f is ready for the lane that `learn` was asked for, `issued` at the earliest. */
  private ready(f: number, issued: number): number {
    const { time, at } = this
    const { releaseStart } = this.turnover
    let when = issued
    for (let r = releaseStart[f]!, end = releaseStart[f + 1]!; r < end; r++) {
      const known = time[at[r]!]!
      if (known > when) when = known
    }
    return when
  }

  /** Fills `time` for a lane. */
  private learn(lane: number): void {
    const { time, first, reached } = this
    const { start } = this.allocs
    const { lanes, inFlight, length, frontier } = this.turnover
    const own = start[lane]!
    const count = start[lane + 1]! - own
    reached.fill(-1)
    // Its own points a lane is always after.
    time.fill(0, first[lane]!, first[lane + 1]!)
    reached[lane] = never
    let missing = lanes - 1
    for (let ticks = 0; ticks < inFlight && missing > 0; ticks++) {
      for (let i = 0; i < count && missing > 0; i++) {
        const from = (own + i) * lanes
        const when = ticks * count + i
        for (let m = 0; m < lanes; m++) {
          const known = frontier[from + m]! + ticks * length[m]!
          const before = reached[m]!
          if (known <= before) continue
          const until = Math.min(length[m]!, known)
          for (let at = first[m]! + before + 1, end = first[m]! + until; at <= end; at++) time[at] = when
          reached[m] = until < length[m]! ? until : never
          if (until === length[m]) missing--
        }
      }
    }
    for (let m = 0; m < lanes; m++)
      if (reached[m] !== never) time.fill(inFlight * count, first[m]! + reached[m]! + 1, first[m + 1]!)
  }
}

const ticksOf = (count: number, inFlight: number, room: ArrayAllocator): Uint16Array | Int32Array =>
  inFlight < 2 ** 16 ? room.uint16(count) : room.int32(count)

/** Made of `room`. */
export const readinessOf = (turnover: Turnover, room: ArrayAllocator): Readiness => {
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
export const unavailable = (turnover: Turnover, room: ArrayAllocator): Unavailable => {
  const { lanes, event, when, allocs, allocLane, allocBytes, frees, freeBytes, inFlight, leaked } = turnover
  const sweep = new Sweep(turnover, room)
  const gain = room.float64(allocs)
  let all = leaked
  // Of the ticks before, those that are too near to be ready when a tick starts.
  for (let f = 0; f < frees; f++) all += (inFlight - 1) * freeBytes[f]!
  /** By lane, what is not ready for it, but for what the tick allocates. */
  const held = new Float64Array(lanes).fill(all)
  let ready = 0
  for (const lane of sweep.takers) {
    const gained = sweep.gains(lane, gain)
    held[lane]! -= gained.early
    ready += gained.ready
  }
  let allocated = 0
  let most = 0
  for (let e = 0; e < event.length; e++) {
    const a = event[e]!
    // What is freed was in use and is not ready yet: that changes nothing.
    if (a < 0) continue
    if (when[e] !== When.firstTick) allocated += allocBytes[a]!
    const lane = allocLane[a]!
    held[lane]! -= gain[a]!
    if (held[lane]! + allocated > most) most = held[lane]! + allocated
  }
  return { bytes: most, ready }
}
