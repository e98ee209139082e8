import { SortedPairs } from '../collections/sorted-pairs.js'
import type { FreeRanges } from './free-ranges.js'

/** A set of bytes, as the stretches that they make up. */
class Stretches {
  /** Pairs of start and end, and of length and start. */
  private readonly byStart = new SortedPairs()
  private readonly byLength = new SortedPairs()

  add(start: number, end: number): void {
    const { byStart } = this
    if (byStart.seekBefore(start, 0) && byStart.second === start) {
      const before = byStart.first
      this.drop(before, start)
      start = before
    }
    if (byStart.seek(end, 0) && byStart.first === end) {
      const behind = byStart.second
      this.drop(end, behind)
      end = behind
    }
    this.put(start, end)
  }

  /** Removes bytes of one stretch. */
  remove(start: number, end: number): void {
    const { byStart } = this
    byStart.seekBefore(start, Number.POSITIVE_INFINITY)
    const { first, second } = byStart
    this.drop(first, second)
    if (first < start) this.put(first, start)
    if (end < second) this.put(end, second)
  }

  /** Where the shortest stretch of so many bytes starts, the lowest of several; -1: there is none. */
  fit(bytes: number): number {
    return this.byLength.seek(bytes, 0) ? this.byLength.second : -1
  }

  /** Where the stretch that ends there starts; -1: the last one ends elsewhere. */
  endingAt(end: number): number {
    const { byStart } = this
    return byStart.seekBefore(end, 0) && byStart.second === end ? byStart.first : -1
  }

  private put(start: number, end: number): void {
    this.byStart.add(start, end)
    this.byLength.add(end - start, start)
  }

  private drop(start: number, end: number): void {
    this.byStart.remove(start, end)
    this.byLength.remove(end - start, start)
  }
}

/** What a lane may take. */
interface Usable {
  /** The frontier that the lane had when it last asked: the ranges usable by it are those below. */
  readonly known: Int32Array
  /** Pairs of size and offset. */
  readonly ranges: SortedPairs
  /** Made when no range alone was long enough for the first time. */
  stretches: Stretches | undefined
}

/**
 * Finds free ranges without looking at all of them. It relies on frontiers that only grow: a range that a
 * lane may take stays so. The ranges that each lane may take are kept in order of size. When the lane's
 * frontier has grown, the ranges with release points in between are looked at again, and no others.
 */
export class RangeIndex {
  /** Pairs of offset and row. */
  private readonly byOffset = new SortedPairs()
  /** By lane, pairs of its release point and row. */
  private readonly byPoint: readonly SortedPairs[]
  /** By lane, once it has asked. */
  private readonly usable: (Usable | undefined)[]
  private readonly asked: number[] = []

  constructor(private readonly ranges: FreeRanges) {
    this.byPoint = Array.from({ length: ranges.lanes }, () => new SortedPairs())
    this.usable = new Array<undefined>(ranges.lanes).fill(undefined)
    for (let row = ranges.first; row >= 0; row = ranges.next[row]!) this.add(row)
  }

  /** A range is there, or has changed its place: to be called after the change. */
  add(row: number): void {
    const { offset, entries, points, width } = this.ranges
    this.byOffset.add(offset[row]!, row)
    const from = 2 * row * width
    for (let e = from, end = from + 2 * points[row]!; e < end; e += 2)
      this.byPoint[entries[e]!]!.add(entries[e + 1]!, row)
    for (const lane of this.asked) {
      const usable = this.usable[lane]!
      if (this.ranges.isUsable(row, lane, usable.known)) this.allow(usable, row)
    }
  }

  /** A range is about to vanish, or to change its place. */
  remove(row: number): void {
    const { offset, size, entries, points, width } = this.ranges
    this.byOffset.remove(offset[row]!, row)
    const from = 2 * row * width
    for (let e = from, end = from + 2 * points[row]!; e < end; e += 2)
      this.byPoint[entries[e]!]!.remove(entries[e + 1]!, row)
    for (const lane of this.asked) {
      const { known, ranges, stretches } = this.usable[lane]!
      if (!this.ranges.isUsable(row, lane, known)) continue
      ranges.remove(size[row]!, offset[row]!)
      stretches?.remove(offset[row]!, this.ranges.end(row))
    }
  }

  /** The last range below an address; -1: none. */
  below(address: number): number {
    return this.byOffset.seekBefore(address, 0) ? this.byOffset.second : -1
  }

  /** As `RangePool.take`: the row of the first range to take bytes from; -1: none, up to `peak`. */
  find(bytes: number, lane: number, frontier: Int32Array, peak: number): number {
    const usable = this.usableBy(lane, frontier)
    if (usable.ranges.seek(bytes, 0)) return this.at(usable.ranges.second)
    usable.stretches ??= this.stretchesFor(lane, frontier)
    const start = usable.stretches.fit(bytes)
    return this.at(start >= 0 ? start : usable.stretches.endingAt(peak))
  }

  private at(offset: number): number {
    return offset >= 0 && this.byOffset.seek(offset, 0) ? this.byOffset.second : -1
  }

  private usableBy(lane: number, frontier: Int32Array): Usable {
    const usable = this.usable[lane]
    if (usable === undefined) return this.begin(lane, frontier)
    const { known } = usable
    for (let m = 0; m < known.length; m++)
      if (m !== lane && frontier[m]! > known[m]!) this.look(usable, lane, m, frontier)
    known.set(frontier)
    return usable
  }

  private begin(lane: number, frontier: Int32Array): Usable {
    const { ranges } = this
    const usable = { known: frontier.slice(), ranges: new SortedPairs(), stretches: undefined }
    for (let row = ranges.first; row >= 0; row = ranges.next[row]!)
      if (ranges.isUsable(row, lane, frontier)) this.allow(usable, row)
    this.usable[lane] = usable
    this.asked.push(lane)
    return usable
  }

  /** Looks again at the ranges whose points of lane m are known by now. */
  private look(usable: Usable, lane: number, m: number, frontier: Int32Array): void {
    const { ranges } = this
    const { known } = usable
    const released = this.byPoint[m]!
    for (let more = released.seek(known[m]! + 1, 0); more; more = released.next()) {
      if (released.first > frontier[m]!) return
      const row = released.second
      // Of several lanes whose points were missing, only at the first one.
      if (this.firstMissing(row, lane, known) === m && ranges.isUsable(row, lane, frontier))
        this.allow(usable, row)
    }
  }

  private firstMissing(row: number, lane: number, known: Int32Array): number {
    const { entries, points, width } = this.ranges
    const from = 2 * row * width
    for (let e = from, end = from + 2 * points[row]!; e < end; e += 2) {
      const m = entries[e]!
      if (m !== lane && entries[e + 1]! > known[m]!) return m
    }
    return -1
  }

  private allow({ ranges, stretches }: Usable, row: number): void {
    const { offset, size } = this.ranges
    ranges.add(size[row]!, offset[row]!)
    stretches?.add(offset[row]!, this.ranges.end(row))
  }

  private stretchesFor(lane: number, frontier: Int32Array): Stretches {
    const { ranges } = this
    const stretches = new Stretches()
    for (let row = ranges.first; row >= 0; row = ranges.next[row]!)
      if (ranges.isUsable(row, lane, frontier)) stretches.add(ranges.offset[row]!, ranges.end(row))
    return stretches
  }
}
