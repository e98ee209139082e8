import type { ArrayAllocator } from '../collections/scratch-arena.js'
import { type AllocationTrace, prefixSums } from './trace.js'

/**
 * Freed bytes become *ready* for a lane at the first of its allocs, in the tick of the free or a later one,
 * that happens-after everything that they were released at. That is the same in every tick, so it is found
 * once.
 */
export interface Readiness {
  /** By lane, its place among the lanes that allocate, in order of id; -1 where it does not. */
  readonly row: Int32Array
  /**
   * By alloc, a list of the frees that become ready for its lane there: its first, and `next[row · frees +
   * f]` after f; -1 ends it.
   */
  readonly head: Int32Array
  readonly next: Int32Array
  /**
   * By row and free, how many ticks later; `inFlight` where only the host orders it: then it is in no list.
   */
  readonly later: Uint16Array | Int32Array
}

const never = 2 ** 31 - 1

/**
 * Finds at which alloc of a lane each free becomes ready. Allocs are counted over `inFlight` ticks, as
 * *times*. What a lane knows only grows, so every point of another lane has one time from which it is known.
 * A free is ready at the latest time of its release points, and not before it has been issued.
 */
class ReadyTimes {
  /** By lane, the number of its first alloc, one entry more than lanes. */
  readonly start: Int32Array
  /** The lanes that allocate. */
  readonly lanes: readonly number[]
  /**
   * Of the lane that `of` was asked for, by free: the time at which it is ready; `inFlight` times its allocs,
   * or more, where it never is.
   */
  readonly ready: Int32Array | Float64Array
  /** By alloc, how many frees come before it. */
  private readonly freed: Int32Array
  /** The time at which point p of lane m is known: `known[first[m] + p]`. */
  private readonly known: Int32Array | Float64Array
  private readonly first: Int32Array
  /** By release, the place of its point in `known`. */
  private readonly at: Int32Array
  private readonly reached: Int32Array

  constructor(
    private readonly trace: AllocationTrace,
    allocator: ArrayAllocator,
  ) {
    const { lanes, length, event, allocs, allocLane, inFlight, frees, accesses } = trace
    const counts = new Int32Array(lanes)
    for (let a = 0; a < allocs; a++) counts[allocLane[a]!]!++
    this.start = prefixSums(counts)
    this.lanes = Array.from(counts.keys()).filter(lane => counts[lane]! > 0)
    this.freed = allocator.int32(allocs)
    for (let e = 0, frees = 0; e < event.length; e++) {
      const a = event[e]!
      if (a < 0) frees++
      else this.freed[a] = frees
    }
    const times = (count: number) =>
      inFlight * allocs < never ? allocator.int32(count) : allocator.float64(count)
    this.first = prefixSums(length.map(points => points + 1))
    this.known = times(this.first[lanes]!)
    this.ready = times(frees)
    this.reached = new Int32Array(lanes)
    this.at = allocator.unset32(accesses.start[frees]!)
    for (let r = 0; r < this.at.length; r++) this.at[r] = this.first[accesses.lane[r]!]! + accesses.point[r]!
  }

  /** Fills `ready` for a lane; returns how many allocs the lane has in a tick. */
  of(lane: number): number {
    this.learn(lane)
    const { known, at, ready, freed } = this
    const { frees } = this.trace
    const { start } = this.trace.accesses
    const own = this.start[lane]!
    const count = this.start[lane + 1]! - own
    for (let f = 0, issued = 0; f < frees; f++) {
      while (issued < count && freed[own + issued]! <= f) issued++
      let time = issued
      for (let r = start[f]!, end = start[f + 1]!; r < end; r++) {
        const point = known[at[r]!]!
        if (point > time) time = point
      }
      ready[f] = time
    }
    return count
  }

  /** Fills `known` for a lane. */
  private learn(lane: number): void {
    const { known: times, first, reached } = this
    const { lanes, inFlight, length, frontier } = this.trace
    const own = this.start[lane]!
    const count = this.start[lane + 1]! - own
    reached.fill(-1)
    // A lane happens-after all of its own points.
    times.fill(0, first[lane]!, first[lane + 1]!)
    reached[lane] = never
    let missing = lanes - 1
    for (let ticks = 0; ticks < inFlight && missing > 0; ticks++) {
      for (let i = 0; i < count && missing > 0; i++) {
        const from = (own + i) * lanes
        const time = ticks * count + i
        for (let m = 0; m < lanes; m++) {
          const known = frontier[from + m]! + ticks * length[m]!
          const before = reached[m]!
          if (known <= before) continue
          const until = Math.min(length[m]!, known)
          for (let at = first[m]! + before + 1, end = first[m]! + until; at <= end; at++) times[at] = time
          reached[m] = until < length[m]! ? until : never
          if (until === length[m]) missing--
        }
      }
    }
    for (let m = 0; m < lanes; m++)
      if (reached[m] !== never) times.fill(inFlight * count, first[m]! + reached[m]! + 1, first[m + 1]!)
  }
}

/** The arrays are the allocator's. */
export const readinessOf = (trace: AllocationTrace, allocator: ArrayAllocator): Readiness => {
  const { lanes, inFlight, allocs, frees } = trace
  const times = new ReadyTimes(trace, allocator)
  const { ready, start } = times
  const row = new Int32Array(lanes).fill(-1)
  const head = allocator.int32(allocs).fill(-1)
  const rows = times.lanes.length * frees
  const next = allocator.int32(rows)
  const later = (inFlight < 2 ** 16 ? allocator.uint16(rows) : allocator.int32(rows)).fill(inFlight)
  times.lanes.forEach((lane, at) => {
    row[lane] = at
    const base = at * frees
    const count = times.of(lane)
    for (let f = 0; f < frees; f++) {
      const time = ready[f]!
      if (time >= inFlight * count) continue
      const ticks = time < count ? 0 : Math.floor(time / count)
      const a = start[lane]! + time - ticks * count
      later[base + f] = ticks
      next[base + f] = head[a]!
      head[a] = f
    }
  })
  return { row, head, next, later }
}
