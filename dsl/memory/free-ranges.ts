/**
 * The free ranges of a pool, each in a row of its own: where it lies, whose it was, and its *release points*,
 * one a lane, 0 for none. Rows are linked in order of address; ranges are disjoint. A row keeps its number
 * until it is dropped.
 */
export class FreeRanges {
  offset = new Float64Array(64)
  size = new Float64Array(64)
  owner = new Int32Array(64)
  /** By row · lanes. */
  points: Int32Array
  /** By row, the row of the next range and of the one before it; -1: none. */
  next = new Int32Array(64)
  before = new Int32Array(64)
  first = -1
  count = 0
  /** By row, a lane whose point kept some lane from taking it: likely it keeps the next one too. */
  private missing = new Int32Array(64)
  private readonly spare: number[] = []
  private rows = 0

  constructor(readonly lanes: number) {
    this.points = new Int32Array(64 * lanes)
  }

  /** Whether a lane with this frontier happens-after all release points of a row; its own it always does. */
  isUsable(row: number, lane: number, frontier: Int32Array): boolean {
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

  end(row: number): number {
    return this.offset[row]! + this.size[row]!
  }

  /** Whether bytes with this owner and these release points would be one range with a row's. */
  isLike(row: number, owner: number, release: Int32Array, at = 0): boolean {
    if (this.owner[row] !== owner) return false
    const { lanes, points } = this
    const first = row * lanes
    for (let m = 0; m < lanes; m++) if (points[first + m] !== release[at + m]) return false
    return true
  }

  /** The last range below an address, found from the first range on; -1: none. */
  below(address: number): number {
    const { offset, next } = this
    let last = -1
    for (let row = this.first; row >= 0 && offset[row]! < address; row = next[row]!) last = row
    return last
  }

  /** A new range right behind the one in row `before`; -1: it is the first. Returns its row. */
  insert(before: number, offset: number, size: number, release: Int32Array, owner: number): number {
    if (this.count === this.offset.length) this.grow()
    const row = this.spare.pop() ?? this.rows++
    this.count++
    this.link(row, before < 0 ? this.first : this.next[before]!)
    this.link(before, row)
    this.offset[row] = offset
    this.size[row] = size
    this.owner[row] = owner
    const { lanes, points } = this
    for (let m = 0; m < lanes; m++) points[row * lanes + m] = release[m]!
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
    this.next = wider(this.next, new Int32Array(length))
    this.before = wider(this.before, new Int32Array(length))
    this.missing = wider(this.missing, new Int32Array(length))
    this.points = wider(this.points, new Int32Array(length * this.lanes))
  }
}
