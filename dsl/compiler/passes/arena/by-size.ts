import type { IntervalSet } from '../../../collections/interval-set.js'
import { StretchUnions } from '../../../collections/stretch-unions.js'
import type { LiveRanges } from '../../analysis/live-ranges.js'
import type { ReuseOrder } from './reuse-order.js'

/**
 * Intervals that are looked at at most, over all ranges: then no arena is found this way. A range needs some
 * hundred, unless lanes hardly meet.
 */
const maxIntervals = 2 ** 26

// Not `dsl/memory`'s range pool: a pool is played forward in time, while here ranges come by size, and each
// is placed between ranges of any time that it may not share bytes with.

/**
 * Best fit, in the order given (largest first, say): each range goes to the low end of the shortest gap that
 * is long enough between the ranges that it may not share bytes with, else above all of them. Undefined where
 * that would be too much work.
 *
 * A range that would reach beyond `limit` goes between those only that are live at the same time: waits then
 * order it.
 */
export const packedBySize = (
  ranges: LiveRanges,
  sizes: Float64Array,
  order: Int32Array,
  reuse: ReuseOrder,
  base: number,
  limit: number,
): Float64Array | undefined => {
  const offset = new Float64Array(sizes.length)
  const occupied = new Occupied(ranges, reuse)
  const gaps = new Gaps()
  for (const k of order) {
    const size = sizes[k]!
    occupied.live(k, gaps.cover)
    occupied.unordered(k, gaps.cover)
    let at = gaps.lowest(size, base)
    if (at + size > limit) {
      occupied.live(k, gaps.cover)
      at = Math.min(at, gaps.lowest(size, base))
    }
    if (gaps.work > maxIntervals) return undefined
    offset[k] = at
    occupied.add(k, at, at + size)
  }
  return offset
}

/** Gaps between intervals that are given in any order, and may overlap. */
class Gaps {
  private length = 0
  private starts: Float64Array = new Float64Array(64)
  private ends: Float64Array = new Float64Array(64)
  /** Intervals that were given so far, in all. */
  work = 0

  readonly cover = ({ starts, ends }: IntervalSet): void => {
    while (this.length + starts.length > this.starts.length) {
      this.starts = twice(this.starts)
      this.ends = twice(this.ends)
    }
    this.work += starts.length
    for (let i = 0; i < starts.length; i++) {
      this.starts[this.length] = starts[i]!
      this.ends[this.length++] = ends[i]!
    }
  }

  /**
   * The low end of the shortest gap of at least `size` above `base`; above all intervals there is one. The
   * intervals are then forgotten.
   */
  lowest(size: number, base: number): number {
    // A gap lies where as many intervals have ended as have begun, so each list is sorted by itself.
    const starts = this.starts.subarray(0, this.length).sort()
    const ends = this.ends.subarray(0, this.length).sort()
    this.length = 0
    let end = base
    let best = -1
    let shortest = Number.POSITIVE_INFINITY
    for (let i = 0; i < starts.length; i++) {
      const gap = starts[i]! - end
      if (gap >= size && gap < shortest) {
        best = end
        shortest = gap
      }
      end = ends[i]!
    }
    return best >= 0 ? best : end
  }
}

const twice = (list: Float64Array): Float64Array => {
  const copy = new Float64Array(2 * list.length)
  copy.set(list)
  return copy
}

/**
 * The bytes of ranges that have a place, by what keeps others from them. Two ranges may not share bytes where
 * they are live at the same time by issue order; and where the last access of the one, on some lane, is
 * among the operations there that the first access of the other is not known to be after: in the tick, or
 * around its end.
 */
class Occupied {
  private readonly byTime: StretchUnions
  /** By lane, over its operations: ranges by their last access there, and by what they are not known to be after. */
  private readonly ending: StretchUnions[] = []
  private readonly open: StretchUnions[] = []

  constructor(
    private readonly ranges: LiveRanges,
    private readonly reuse: ReuseOrder,
  ) {
    this.byTime = new StretchUnions(reuse.operations)
    for (const length of reuse.lengths) {
      this.ending.push(new StretchUnions(length))
      this.open.push(new StretchUnions(length))
    }
  }

  add(k: number, start: number, end: number): void {
    const { first, last } = this.ranges
    this.byTime.add(first[k]!, last[k]!, start, end)
    this.reuse.eachEnd(k, (lane, at) => this.ending[lane]!.add(at, at, start, end))
    this.reuse.eachOpen(first[k]!, (lane, from, to) => this.open[lane]!.add(from, to, start, end))
  }

  /** What is live at the same time as k. */
  live(k: number, visit: (union: IntervalSet) => void): void {
    this.byTime.visit(this.ranges.first[k]!, this.ranges.last[k]!, visit)
  }

  /** What k is not known to be after or before, in the tick and around its end. */
  unordered(k: number, visit: (union: IntervalSet) => void): void {
    this.reuse.eachEnd(k, (lane, at) => this.open[lane]!.visit(at, at, visit))
    this.reuse.eachOpen(this.ranges.first[k]!, (lane, from, to) => this.ending[lane]!.visit(from, to, visit))
  }
}
