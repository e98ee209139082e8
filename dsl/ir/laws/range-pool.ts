import type { Snapshots } from './snapshots.js'

/** What an allocation is rounded up to. */
export const granule = 512
export const rounded = (bytes: number): number => Math.max(granule, Math.ceil(bytes / granule) * granule)

/**
 * The pool of a session: one range of addresses, given out by order alone, as `native/allocator/session/range_pool.cc` does, byte for byte
 * (spec/decisions.md, 5 and 10).
 * Free ranges are disjoint, in order of offset, all below `peak`; everything from `peak` on was never taken. Each has a row of points that a taker
 * must be after, one for each lane, 0 for none. What a lane may take once it may take for good, since no lane's frontier goes back: so
 * a row remembers which lanes have been found after it (of the first 31), and else the lane whose point was missing last.
 */
export class RangePool {
  private count = 0
  private offset = new Float64Array(64)
  private size = new Float64Array(64)
  private row = new Int32Array(64)
  private points: Int32Array
  private after = new Int32Array(64)
  private missing = new Int32Array(64)
  private readonly spare: number[] = []
  private rows = 0
  /** Ranges that have been looked at. */
  work = 0

  constructor(
    private readonly lanes: number,
    public peak: number,
  ) {
    this.points = new Int32Array(64 * lanes)
  }

  private usable(i: number, lane: number, frontier: Int32Array): boolean {
    const { lanes, points, after, missing } = this
    const row = this.row[i]!
    const bit = lane < 31 ? 1 << lane : 0
    if ((after[row]! & bit) !== 0) return true
    const first = row * lanes
    const guess = missing[row]!
    if (guess !== lane && points[first + guess]! > frontier[guess]!) return false
    for (let m = 0; m < lanes; m++)
      if (m !== lane && points[first + m]! > frontier[m]!) {
        missing[row] = m
        return false
      }
    after[row] = after[row]! | bit
    return true
  }

  /** `size` bytes for a lane that is after `frontier`: from the shortest usable range, else run of adjacent ones, else from the end. */
  take(size: number, lane: number, frontier: Int32Array): number {
    const sizes = this.size
    let single = -1
    let length = Number.POSITIVE_INFINITY
    let i = 0
    for (; i < this.count && length !== size; i++) {
      if (sizes[i]! < size || sizes[i]! >= length || !this.usable(i, lane, frontier)) continue
      single = i
      length = sizes[i]!
    }
    this.work += i
    const from = single >= 0 ? single : this.run(size, lane, frontier)
    const at = from < this.count ? this.offset[from]! : this.peak
    this.cut(from, size)
    if (at + size > this.peak) this.peak = at + size
    return at
  }

  // The first range of the shortest usable run that is long enough; else of the one that touches the untouched end, if any.
  private run(size: number, lane: number, frontier: Int32Array): number {
    const { count, offset } = this
    const sizes = this.size
    let best = -1
    let bestLength = Number.POSITIVE_INFINITY
    let tail = count
    this.work += count
    for (let first = 0; first < count; ) {
      if (!this.usable(first, lane, frontier)) {
        first++
        continue
      }
      let end = offset[first]! + sizes[first]!
      let last = first + 1
      while (last < count && offset[last] === end && this.usable(last, lane, frontier)) end += sizes[last++]!
      const length = end - offset[first]!
      if (end === this.peak) tail = first
      if (length >= size && length < bestLength) {
        best = first
        bestLength = length
      }
      first = last
    }
    return best >= 0 ? best : tail
  }

  /** Takes back a range, released at `release`, which is copied. */
  give(at: number, size: number, release: Int32Array): void {
    const { offset } = this
    let low = 0
    let high = this.count
    while (low < high) {
      const middle = (low + high) >> 1
      if (offset[middle]! < at) low = middle + 1
      else high = middle
    }
    const joinsAfter = low < this.count && offset[low] === at + size && this.same(this.row[low]!, release, 0)
    if (low > 0 && offset[low - 1]! + this.size[low - 1]! === at && this.same(this.row[low - 1]!, release, 0)) {
      this.size[low - 1]! += size
      if (!joinsAfter) return
      this.size[low - 1]! += this.size[low]!
      this.drop(low, low + 1)
    } else if (joinsAfter) {
      offset[low] = at
      this.size[low]! += size
    } else this.insert(low, at, size, release)
  }

  /** Every lane is after `all`: points up to it are forgotten, so that neighbours become equal and merge. */
  settle(all: Int32Array): void {
    const { lanes, points, offset, size, row } = this
    let kept = 0
    for (let i = 0; i < this.count; i++) {
      const first = row[i]! * lanes
      for (let m = 0; m < lanes; m++) if (points[first + m]! <= all[m]!) points[first + m] = 0
      if (kept > 0 && offset[kept - 1]! + size[kept - 1]! === offset[i] && this.same(row[kept - 1]!, points, first)) {
        size[kept - 1]! += size[i]!
        this.spare.push(row[i]!)
        continue
      }
      offset[kept] = offset[i]!
      size[kept] = size[i]!
      row[kept++] = row[i]!
    }
    this.count = kept
  }

  /** What the coming ticks depend on, with points counted from `base`. */
  put(snapshot: Snapshots, base: Int32Array): void {
    const { lanes, points } = this
    for (let i = 0; i < this.count; i++) {
      snapshot.put(this.offset[i]!)
      snapshot.put(this.size[i]!)
      const first = this.row[i]! * lanes
      for (let m = 0; m < lanes; m++)
        snapshot.put(points[first + m] === 0 ? Number.MIN_SAFE_INTEGER : points[first + m]! - base[m]!)
    }
  }

  private same(row: number, release: Int32Array, at: number): boolean {
    const { lanes, points } = this
    const first = row * lanes
    for (let m = 0; m < lanes; m++) if (points[first + m] !== release[at + m]) return false
    return true
  }

  private insert(at: number, offset: number, size: number, release: Int32Array): void {
    if (this.count === this.offset.length) this.grow()
    const row = this.spare.pop() ?? this.rows++
    this.offset.copyWithin(at + 1, at, this.count)
    this.size.copyWithin(at + 1, at, this.count)
    this.row.copyWithin(at + 1, at, this.count)
    this.count++
    this.offset[at] = offset
    this.size[at] = size
    this.row[at] = row
    const { lanes, points } = this
    for (let m = 0; m < lanes; m++) points[row * lanes + m] = release[m]!
    this.after[row] = 0
    this.missing[row] = 0
  }

  private drop(from: number, to: number): void {
    if (from === to) return
    for (let i = from; i < to; i++) this.spare.push(this.row[i]!)
    this.offset.copyWithin(from, to, this.count)
    this.size.copyWithin(from, to, this.count)
    this.row.copyWithin(from, to, this.count)
    this.count -= to - from
  }

  // Rows are as many as ranges at most, so both grow together.
  private grow(): void {
    const wider = <A extends Float64Array | Int32Array>(from: A, to: A): A => {
      to.set(from)
      return to
    }
    const length = 2 * this.offset.length
    this.offset = wider(this.offset, new Float64Array(length))
    this.size = wider(this.size, new Float64Array(length))
    this.row = wider(this.row, new Int32Array(length))
    this.after = wider(this.after, new Int32Array(length))
    this.missing = wider(this.missing, new Int32Array(length))
    this.points = wider(this.points, new Int32Array(length * this.lanes))
  }

  // Takes from the low end of adjacent ranges; what is longer than `size` keeps its release.
  private cut(from: number, size: number): void {
    let whole = from
    while (whole < this.count && size > 0 && this.size[whole]! <= size) size -= this.size[whole++]!
    if (whole < this.count && size > 0) {
      this.offset[whole]! += size
      this.size[whole]! -= size
    }
    this.drop(from, whole)
  }
}
