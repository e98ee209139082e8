import { type ArrayAllocator, heap } from '../order/scratch-arena.js'
import type { Releases, Turnover } from './turnover.js'

/** Where the numbers of each lane's allocs begin, and all of them end. */
export const startsOf = (counts: Int32Array): Int32Array => {
  const starts = new Int32Array(counts.length + 1)
  for (let l = 0; l < counts.length; l++) starts[l + 1] = starts[l]! + counts[l]!
  return starts
}

/** What a ledger has to hold: allocs by lane, frees, and about how many points those release at. */
export interface Extent {
  readonly allocs: Int32Array
  readonly frees: number
  readonly accesses: number
  readonly uses: number
}

/** Points that the takers of freed bytes must be after, those of a free from where it begins. More room for them is nobody's scratch, since it may be asked for within another's time. */
class Rows {
  readonly start: Int32Array
  lane: Int32Array
  point: Int32Array
  next = 0

  constructor(room: ArrayAllocator, frees: number, rows: number) {
    this.start = room.int32(frees + 1)
    this.lane = room.unset32(rows)
    this.point = room.unset32(rows)
  }

  put(lane: number, point: number): void {
    if (this.next === this.lane.length) this.grow()
    this.lane[this.next] = lane
    this.point[this.next++] = point
  }

  private grow(): void {
    const { lane, point } = this
    this.lane = heap.int32(2 * lane.length + 2)
    this.point = heap.int32(2 * point.length + 2)
    this.lane.set(lane)
    this.point.set(point)
  }
}

/** One memory's turnover while it is written down, in issue order. */
export class Ledger {
  /** The frontiers of allocs, in their order. */
  readonly frontier: Int32Array
  /** Where the numbers of each lane's allocs begin, and all of them end. */
  readonly starts: Int32Array
  private readonly event: Int32Array
  private readonly when: Uint8Array
  private readonly command: Int32Array
  private readonly buffer: Int32Array
  private readonly allocLane: Int32Array
  private readonly allocBytes: Float64Array
  private readonly freeBytes: Float64Array
  private readonly rows: Readonly<Record<Releases, Rows>>
  /** By lane, the number of its next alloc. */
  private readonly next: Int32Array
  private readonly allocs: number
  private readonly lanes: number
  private events = 0
  private frees = 0

  constructor({ allocs, frees, accesses, uses }: Extent, room: ArrayAllocator) {
    this.lanes = allocs.length
    this.starts = startsOf(allocs)
    this.next = this.starts.slice()
    this.allocs = this.starts[this.lanes]!
    const events = this.allocs + frees
    this.event = room.int32(events)
    this.when = room.uint8(events)
    this.command = room.int32(events)
    this.buffer = room.int32(events)
    this.allocLane = room.int32(this.allocs)
    this.frontier = room.int32(this.allocs * this.lanes)
    this.allocBytes = room.float64(this.allocs)
    this.freeBytes = room.float64(frees)
    this.rows = {
      accesses: new Rows(room, frees, accesses),
      uses: new Rows(room, uses > 0 ? frees : 0, uses),
    }
  }

  /** A buffer is allocated on a lane whose frontier is `known[lane · lanes ..]`, counted from `base`. */
  alloc(
    buffer: number,
    command: number,
    bytes: number,
    lane: number,
    known: Int32Array,
    base: Int32Array,
  ): void {
    const { lanes, frontier } = this
    const a = this.next[lane]!++
    this.note(buffer, command, a)
    this.allocLane[a] = lane
    this.allocBytes[a] = bytes
    for (let m = 0, to = a * lanes, from = lane * lanes; m < lanes; m++)
      frontier[to + m] = known[from + m]! - base[m]!
  }

  /** A point that whoever takes the coming free must be after. */
  release(of: Releases, lane: number, point: number): void {
    this.rows[of].put(lane, point)
  }

  free(buffer: number, command: number, bytes: number): void {
    const f = this.frees++
    const { accesses, uses } = this.rows
    this.note(buffer, command, -1 - f)
    this.freeBytes[f] = bytes
    accesses.start[f + 1] = accesses.next
    if (uses.next > 0) uses.start[f + 1] = uses.next
  }

  /** The event written last is not in every tick. */
  only(when: number): void {
    this.when[this.events - 1] = when
  }

  /** Whether as much has been written as there is room for, of each lane. */
  get isFull(): boolean {
    return (
      this.events === this.event.length && this.next.every((next, l) => next === (this.starts[l + 1] ?? next))
    )
  }

  private note(buffer: number, command: number, event: number): void {
    this.event[this.events] = event
    this.command[this.events] = command
    this.buffer[this.events++] = buffer
  }

  /** What has been written, of ticks in which each lane has so many points; `size` says what the memory makes of a buffer's bytes. */
  turnover(
    of: Releases,
    { inFlight, length, leaked = 0 }: { inFlight: number; length: Int32Array; leaked?: number },
    size?: (bytes: number) => number,
  ): Turnover {
    const { lanes, event, when, command, buffer, allocs, allocLane, frontier, frees, allocBytes, freeBytes } =
      this
    const { start, lane, point } = this.rows[of]
    return {
      lanes,
      inFlight,
      length,
      event,
      when,
      command,
      buffer,
      allocs,
      allocLane,
      frontier,
      frees,
      releaseStart: start,
      releaseLane: lane,
      releasePoint: point,
      allocBytes: size === undefined ? allocBytes : allocBytes.map(size),
      freeBytes: size === undefined ? freeBytes : freeBytes.map(size),
      leaked,
    }
  }
}
