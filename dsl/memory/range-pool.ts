import { FreeRanges } from './free-ranges.js'
import { RangeIndex } from './range-index.js'
import type { ReleasePoints } from './release-points.js'
import type { SteadyState } from './steady-state.js'

/** Sizes of allocations are rounded up to a multiple of this. */
export const granule = 512
export const rounded = (bytes: number): number => Math.max(granule, Math.ceil(bytes / granule) * granule)

/** A free range. `owner` is what it was given back with. */
export interface FreeRange {
  readonly offset: number
  readonly size: number
  readonly owner: number
}

/** Free ranges beyond which they are found by an index: an index takes as long to keep, by lane. */
const fewFor = (lanes: number): number => Math.max(1024, 8 * lanes)
/** What a change of an index counts for, by lane, in ranges that are looked at one by one. */
const stepsPerLane = 1

/**
 * The pool of a session: one range of addresses, given out by order alone, byte for byte as
 * `native/memory/range_pool.cc` does (docs/internals/decisions/sessions.md, 5 and 10).
 *
 * Free ranges are disjoint, and all below `peak`; everything from `peak` on was never taken. Each keeps the
 * release points that a lane must happen-after to take it. Neighbours of equal release points and owner are
 * one range. A few free ranges are looked at one by one; of more there is an index, which chooses the same.
 * The frontiers of a lane only grow from call to call.
 */
export class RangePool {
  private readonly ranges: FreeRanges
  private index: RangeIndex | undefined
  /** Ranges that were looked at so far, and steps of an index that take as long. */
  work = 0

  constructor(
    lanes: number,
    public peak: number,
    private readonly few = fewFor(lanes),
  ) {
    this.ranges = new FreeRanges(lanes)
  }

  /**
   * Takes `size` bytes for a lane with this frontier: from the shortest usable range that is long enough,
   * else from the shortest run of adjacent usable ranges, else from the end. Returns their offset; -1, with
   * nothing taken, where they would reach beyond `limit`.
   */
  take(size: number, lane: number, frontier: Int32Array, limit = Number.POSITIVE_INFINITY): number {
    const index = this.indexed()
    const from = index?.find(size, lane, frontier, this.peak) ?? this.look(size, lane, frontier)
    const at = from < 0 ? this.peak : this.ranges.offset[from]!
    if (at + size > limit) return -1
    this.cut(from, size)
    if (at + size > this.peak) this.peak = at + size
    return at
  }

  /** Takes back a range, released at `release`, which is copied. */
  give(at: number, size: number, release: ReleasePoints, owner = 0): void {
    const { ranges } = this
    const index = this.indexed()
    const before = index === undefined ? ranges.below(at) : index.below(at)
    const behind = before < 0 ? ranges.first : ranges.next[before]!
    const joinsBefore = before >= 0 && ranges.end(before) === at && ranges.isLike(before, owner, release)
    if (behind >= 0 && ranges.offset[behind] === at + size && ranges.isLike(behind, owner, release)) {
      size += ranges.size[behind]!
      index?.remove(behind)
      ranges.drop(behind)
    }
    if (joinsBefore) {
      index?.remove(before)
      ranges.size[before]! += size
      index?.add(before)
    } else {
      const row = ranges.insert(before, at, size, release, owner)
      index?.add(row)
    }
  }

  /**
   * Every lane happens-after the points `all`: points up to them are retired, so that neighbours become equal
   * and merge.
   */
  retire(all: Int32Array): void {
    const { ranges } = this
    this.index = undefined
    for (let row = ranges.first, before = -1; row >= 0; row = ranges.next[row]!) {
      ranges.retire(row, all)
      if (before >= 0 && ranges.end(before) === ranges.offset[row] && ranges.areAlike(before, row)) {
        ranges.size[before]! += ranges.size[row]!
        ranges.drop(row)
      } else before = row
    }
  }

  /** Free ranges in order of offset. */
  get free(): FreeRange[] {
    const { offset, size, owner, next, first } = this.ranges
    const free: FreeRange[] = []
    for (let row = first; row >= 0; row = next[row]!)
      free.push({ offset: offset[row]!, size: size[row]!, owner: owner[row]! })
    return free
  }

  /** Puts all that later ticks depend on, with points counted from `base`. */
  put(state: SteadyState, base: Int32Array): void {
    const { offset, size, entries, points, width, next, first } = this.ranges
    for (let row = first; row >= 0; row = next[row]!) {
      state.put(offset[row]!)
      state.put(size[row]!)
      state.put(points[row]!)
      const from = 2 * row * width
      for (let e = from, end = from + 2 * points[row]!; e < end; e += 2) {
        state.put(entries[e]!)
        state.put(entries[e + 1]! - base[entries[e]!]!)
      }
    }
  }

  /** The index, where there are more ranges than a few. */
  private indexed(): RangeIndex | undefined {
    const { ranges, few } = this
    if (this.index === undefined && ranges.count > few) {
      this.index = new RangeIndex(ranges)
      this.work += ranges.count * ranges.lanes
    } else if (ranges.count < few / 4) this.index = undefined
    if (this.index !== undefined) this.work += stepsPerLane * ranges.lanes
    return this.index
  }

  /** The row of the first range to take bytes from; -1: none, from `peak` on. */
  private look(size: number, lane: number, frontier: Int32Array): number {
    const { ranges } = this
    const { next } = ranges
    const sizes = ranges.size
    let single = -1
    let length = Number.POSITIVE_INFINITY
    for (let row = ranges.first; row >= 0 && length !== size; row = next[row]!) {
      this.work++
      const own = sizes[row]!
      if (own < size || own >= length || !ranges.isUsable(row, lane, frontier)) continue
      single = row
      length = own
    }
    return single >= 0 ? single : this.run(size, lane, frontier)
  }

  // The first range of the shortest usable run that is long enough; else of the run that ends at `peak`, if
  // there is one.
  private run(size: number, lane: number, frontier: Int32Array): number {
    const { ranges } = this
    const { offset, next } = ranges
    let best = -1
    let bestLength = Number.POSITIVE_INFINITY
    let tail = -1
    this.work += ranges.count
    for (let row = ranges.first; row >= 0; ) {
      if (!ranges.isUsable(row, lane, frontier)) {
        row = next[row]!
        continue
      }
      const first = row
      let end = offset[first]!
      do {
        end += ranges.size[row]!
        row = next[row]!
      } while (row >= 0 && offset[row] === end && ranges.isUsable(row, lane, frontier))
      const length = end - offset[first]!
      if (end === this.peak) tail = first
      if (length >= size && length < bestLength) {
        best = first
        bestLength = length
      }
    }
    return best >= 0 ? best : tail
  }

  // Takes `size` bytes from the low end of adjacent ranges; the rest of the last one keeps its release.
  private cut(from: number, size: number): void {
    const { ranges, index } = this
    for (let row = from; row >= 0 && size > 0; ) {
      const own = ranges.size[row]!
      index?.remove(row)
      if (own > size) {
        ranges.offset[row]! += size
        ranges.size[row]! -= size
        index?.add(row)
        return
      }
      size -= own
      const next = ranges.next[row]!
      ranges.drop(row)
      row = next
    }
  }
}
