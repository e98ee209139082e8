import type { ReleasePoints } from './release-points.js'

/**
 * The free ranges of a pool, each in a row of its own: where it lies, whose it was, and its release points.
 * Rows are linked in order of address; ranges are disjoint. A row keeps its number until it is dropped.
 */
export class FreeRanges {
  offset = new Float64Array(64)
  size = new Float64Array(64)
  owner = new Int32Array(64)
  /**
   * Release points: of a row, `points[row]` pairs of lane and point from `entries[2 · row · width]` on, in
   * order of lane.
   */
  entries = new Int32Array(64 * 4)
  points = new Int32Array(64)
  /** The most points of any row so far, or more. */
  width = 2
  /** By row, the row of the next range and of the one before it; -1: none. */
  next = new Int32Array(64)
  before = new Int32Array(64)
  first = -1
  count = 0
  private readonly spare: number[] = []
  private rows = 0

  constructor(readonly lanes: number) {}

  /** Whether a lane with this frontier happens-after all release points of a row; its own it always does. */
  isUsable(row: number, lane: number, frontier: Int32Array): boolean {
    const { entries } = this
    const from = 2 * row * this.width
    for (let e = from, end = from + 2 * this.points[row]!; e < end; e += 2) {
      const m = entries[e]!
      if (entries[e + 1]! > frontier[m]! && m !== lane) return false
    }
    return true
  }

  end(row: number): number {
    return this.offset[row]! + this.size[row]!
  }

  /** Whether bytes with this owner and these release points would be one range with a row's. */
  isLike(row: number, owner: number, release: ReleasePoints): boolean {
    if (this.owner[row] !== owner || this.points[row] !== release.count) return false
    const { entries } = this
    const from = 2 * row * this.width
    for (let e = 0; e < 2 * release.count; e++) if (entries[from + e] !== release.entries[e]) return false
    return true
  }

  /** Whether two rows have the same owner and the same release points. */
  areAlike(row: number, other: number): boolean {
    const { owner, points, entries, width } = this
    if (owner[row] !== owner[other] || points[row] !== points[other]) return false
    const [from, to] = [2 * row * width, 2 * other * width]
    for (let e = 0; e < 2 * points[row]!; e++) if (entries[from + e] !== entries[to + e]) return false
    return true
  }

  /** Forgets the release points of a row that are at or before the points `all`, one a lane. */
  retire(row: number, all: Int32Array): void {
    const { entries, points } = this
    const from = 2 * row * this.width
    let to = from
    for (let e = from, end = from + 2 * points[row]!; e < end; e += 2) {
      if (entries[e + 1]! <= all[entries[e]!]!) continue
      entries[to] = entries[e]!
      entries[to + 1] = entries[e + 1]!
      to += 2
    }
    points[row] = (to - from) / 2
  }

  /** The last range below an address, found from the first range on; -1: none. */
  below(address: number): number {
    const { offset, next } = this
    let last = -1
    for (let row = this.first; row >= 0 && offset[row]! < address; row = next[row]!) last = row
    return last
  }

  /** A new range right behind the one in row `before`; -1: it is the first. Returns its row. */
  insert(before: number, offset: number, size: number, release: ReleasePoints, owner: number): number {
    if (this.count === this.offset.length) this.grow()
    while (release.count > this.width) this.widen()
    const row = this.spare.pop() ?? this.rows++
    this.count++
    this.link(row, before < 0 ? this.first : this.next[before]!)
    this.link(before, row)
    this.offset[row] = offset
    this.size[row] = size
    this.owner[row] = owner
    this.points[row] = release.count
    const from = 2 * row * this.width
    for (let e = 0; e < 2 * release.count; e++) this.entries[from + e] = release.entries[e]!
    return row
  }

  drop(row: number): void {
    this.link(this.before[row]!, this.next[row]!)
    this.spare.push(row)
    this.count--
  }

  private link(before: number, next: number): void {
    if (before < 0) this.first = next
    else this.next[before] = next
    if (next >= 0) this.before[next] = before
  }

  // There are no more rows than ranges, so all grow together.
  private grow(): void {
    const wider = <A extends Float64Array | Int32Array>(from: A, to: A): A => {
      to.set(from)
      return to
    }
    const length = 2 * this.offset.length
    this.offset = wider(this.offset, new Float64Array(length))
    this.size = wider(this.size, new Float64Array(length))
    this.owner = wider(this.owner, new Int32Array(length))
    this.points = wider(this.points, new Int32Array(length))
    this.next = wider(this.next, new Int32Array(length))
    this.before = wider(this.before, new Int32Array(length))
    this.entries = wider(this.entries, new Int32Array(2 * length * this.width))
  }

  private widen(): void {
    const { entries, width, rows } = this
    this.width = 2 * width
    this.entries = new Int32Array(2 * entries.length)
    for (let row = 0; row < rows; row++)
      this.entries.set(entries.subarray(2 * row * width, 2 * (row + 1) * width), 2 * row * this.width)
  }
}
