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

/**
 * The pool of a session: one range of addresses, given out by order alone, byte for byte as
 * `native/memory/range_pool.cc` does (docs/internals/decisions, 5 and 10).
 *
 * Free ranges are disjoint, in order of offset, and all below `peak`; everything from `peak` on was never
 * taken. Each free range has a row of its own in the arrays: offset, size, owner, and the *release points*
 * that a lane must happen-after to take it, one a lane, 0 for none. Neighbours of equal release points and
 * owner are one range.
 */
export class RangePool {
  private count = 0
  private row = new Int32Array(64)
  private offset = new Float64Array(64)
  private size = new Float64Array(64)
  private owner = new Int32Array(64)
  private points: Int32Array
  /** By row, a lane whose point kept some lane from taking it: likely it keeps the next one too. */
  private missing = new Int32Array(64)
  private readonly spare: number[] = []
  private rows = 0
  /** Ranges that were looked at so far. */
  work = 0

  constructor(
    private readonly lanes: number,
    public peak: number,
  ) {
    this.points = new Int32Array(64 * lanes)
  }

  /** Whether a lane with this frontier happens-after all release points of a row. */
  private usable(row: number, lane: number, frontier: Int32Array): boolean {
    const { lanes, points } = this
    const at = row * lanes
    const likely = this.missing[row]!
    if (likely !== lane && points[at + likely]! > frontier[likely]!) return false
    for (let m = 0; m < lanes; m++) {
      if (m === lane || points[at + m]! <= frontier[m]!) continue
      this.missing[row] = m
      return false
    }
    return true
  }

  /**
   * Takes `size` bytes for a lane with this frontier: from the shortest usable range that is long enough,
   * else from the shortest run of adjacent usable ranges, else from the end. Returns their offset; -1, with
   * nothing taken, where they would reach beyond `limit`.
   */
  take(size: number, lane: number, frontier: Int32Array, limit = Number.POSITIVE_INFINITY): number {
    const { row, count } = this
    const sizes = this.size
    let single = -1
    let length = Number.POSITIVE_INFINITY
    let i = 0
    for (; i < count && length !== size; i++) {
      const own = sizes[row[i]!]!
      if (own < size || own >= length || !this.usable(row[i]!, lane, frontier)) continue
      single = i
      length = own
    }
    this.work += i
    const from = single >= 0 ? single : this.run(size, lane, frontier)
    const at = from < count ? this.offset[row[from]!]! : this.peak
    if (at + size > limit) return -1
    this.cut(from, size)
    if (at + size > this.peak) this.peak = at + size
    return at
  }

  // The first range of the shortest usable run that is long enough; else of the run that ends at `peak`, if
  // there is one.
  private run(size: number, lane: number, frontier: Int32Array): number {
    const { count, row, offset } = this
    const sizes = this.size
    let best = -1
    let bestLength = Number.POSITIVE_INFINITY
    let tail = count
    this.work += count
    for (let first = 0; first < count; ) {
      const begin = row[first]!
      if (!this.usable(begin, lane, frontier)) {
        first++
        continue
      }
      let end = offset[begin]! + sizes[begin]!
      let last = first + 1
      while (last < count && offset[row[last]!] === end && this.usable(row[last]!, lane, frontier))
        end += sizes[row[last++]!]!
      const length = end - offset[begin]!
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
  give(at: number, size: number, release: Int32Array, owner = 0): void {
    const { row, offset } = this
    const sizes = this.size
    let low = 0
    let high = this.count
    while (low < high) {
      const middle = (low + high) >> 1
      if (offset[row[middle]!]! < at) low = middle + 1
      else high = middle
    }
    const before = low > 0 ? row[low - 1]! : -1
    const behind = low < this.count ? row[low]! : -1
    const joinsBehind = behind >= 0 && offset[behind] === at + size && this.isEqual(behind, owner, release, 0)
    if (before >= 0 && offset[before]! + sizes[before]! === at && this.isEqual(before, owner, release, 0)) {
      sizes[before]! += size
      if (!joinsBehind) return
      sizes[before]! += sizes[behind]!
      this.drop(low, low + 1)
    } else if (joinsBehind) {
      offset[behind] = at
      sizes[behind]! += size
    } else this.insert(low, at, size, release, owner)
  }

  /**
   * Every lane happens-after the points `all`: points up to them are retired, so that neighbours become equal
   * and merge.
   */
  retire(all: Int32Array): void {
    const { lanes, points, offset, size, row } = this
    let kept = 0
    for (let i = 0; i < this.count; i++) {
      const own = row[i]!
      const first = own * lanes
      for (let m = 0; m < lanes; m++) if (points[first + m]! <= all[m]!) points[first + m] = 0
      const before = kept > 0 ? row[kept - 1]! : -1
      if (
        before >= 0 &&
        offset[before]! + size[before]! === offset[own] &&
        this.isEqual(before, this.owner[own]!, points, first)
      ) {
        size[before]! += size[own]!
        this.spare.push(own)
      } else row[kept++] = own
    }
    this.count = kept
  }

  /** Free ranges in order of offset. */
  get free(): FreeRange[] {
    const { row, offset, size, owner } = this
    return Array.from(row.subarray(0, this.count), r => ({
      offset: offset[r]!,
      size: size[r]!,
      owner: owner[r]!,
    }))
  }

  /** Puts all that later ticks depend on, with points counted from `base`. */
  put(state: SteadyState, base: Int32Array): void {
    const { lanes, points } = this
    for (let i = 0; i < this.count; i++) {
      const row = this.row[i]!
      state.put(this.offset[row]!)
      state.put(this.size[row]!)
      const first = row * lanes
      for (let m = 0; m < lanes; m++)
        state.put(points[first + m] === 0 ? Number.MIN_SAFE_INTEGER : points[first + m]! - base[m]!)
    }
  }

  private isEqual(row: number, owner: number, release: Int32Array, at: number): boolean {
    if (this.owner[row] !== owner) return false
    const { lanes, points } = this
    const first = row * lanes
    for (let m = 0; m < lanes; m++) if (points[first + m] !== release[at + m]) return false
    return true
  }

  private insert(at: number, offset: number, size: number, release: Int32Array, owner: number): void {
    if (this.count === this.offset.length) this.grow()
    const row = this.spare.pop() ?? this.rows++
    this.row.copyWithin(at + 1, at, this.count)
    this.count++
    this.row[at] = row
    this.offset[row] = offset
    this.size[row] = size
    this.owner[row] = owner
    const { lanes, points } = this
    for (let m = 0; m < lanes; m++) points[row * lanes + m] = release[m]!
  }

  private drop(from: number, to: number): void {
    if (from === to) return
    for (let i = from; i < to; i++) this.spare.push(this.row[i]!)
    this.row.copyWithin(from, to, this.count)
    this.count -= to - from
  }

  // There are no more rows than ranges, so both grow together.
  private grow(): void {
    const wider = <A extends Float64Array | Int32Array>(from: A, to: A): A => {
      to.set(from)
      return to
    }
    const length = 2 * this.offset.length
    this.offset = wider(this.offset, new Float64Array(length))
    this.size = wider(this.size, new Float64Array(length))
    this.owner = wider(this.owner, new Int32Array(length))
    this.row = wider(this.row, new Int32Array(length))
    this.missing = wider(this.missing, new Int32Array(length))
    this.points = wider(this.points, new Int32Array(length * this.lanes))
  }

  // Takes `size` bytes from the low end of adjacent ranges; the rest of the last one keeps its release.
  private cut(from: number, size: number): void {
    const { row, count } = this
    const sizes = this.size
    let whole = from
    while (whole < count && size > 0 && sizes[row[whole]!]! <= size) size -= sizes[row[whole++]!]!
    if (whole < count && size > 0) {
      this.offset[row[whole]!]! += size
      sizes[row[whole]!]! -= size
    }
    this.drop(from, whole)
  }
}
