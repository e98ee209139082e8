import { type ArrayAllocator, heap } from '../collections/scratch-arena.js'

/**
 * In which ticks an event happens. Only a plan that leaks, or that frees first, has events that are not in
 * every tick.
 */
export const When = { always: 0, firstTick: 1, laterTicks: 2 } as const

/**
 * Points that a lane must happen-after to take freed bytes: of free f, `point[r]` of `lane[r]` for r from
 * `start[f]` up to `start[f + 1]`.
 */
export interface Releases {
  readonly start: Int32Array
  readonly lane: Int32Array
  readonly point: Int32Array
}

/**
 * The allocation trace of one memory (a device's, or pinned): what a tick allocates and frees, in issue
 * order, with the frontier of each allocation and the release points of each free. Replays of many ticks read
 * it.
 *
 * From tick `inFlight` on, what lanes know of each other is the same in every tick, counted from the tick's
 * first points. Earlier ticks know less only of ticks that never were. So the frontiers of one tick, with
 * points counted from its start, stand for all ticks: point p of the trace is point p + n · length[lane] of
 * the run, n ticks later.
 */
export interface AllocationTrace {
  readonly lanes: number
  readonly inFlight: number
  /** Points of each lane in one tick. */
  readonly length: Int32Array
  /**
   * In issue order: a >= 0 is alloc number a, -1 - f is free number f. Allocs are numbered lane by lane, in
   * issue order on each lane; frees in issue order.
   */
  readonly event: Int32Array
  readonly when: Uint8Array
  readonly command: Int32Array
  readonly buffer: Int32Array
  readonly allocs: number
  readonly allocLane: Int32Array
  readonly allocBytes: Float64Array
  /** The frontier of its lane at alloc a: `frontier[a · lanes ..]`, counted from the start of the tick. */
  readonly frontier: Int32Array
  readonly frees: number
  readonly freeBytes: Float64Array
  /** Law L9 releases bytes at the last accesses of their buffer. */
  readonly accesses: Releases
  /** The session's pool releases them at the home lane's point at the free, and at the points of uses. */
  readonly uses: Releases
  /** Bytes that are still held when a tick ends: 0 unless the plan leaks. */
  readonly leaked: number
}

/** From counts by lane, where each lane's numbers begin; one entry more, where all of them end. */
export const prefixSums = (counts: Int32Array): Int32Array => {
  const starts = new Int32Array(counts.length + 1)
  for (let l = 0; l < counts.length; l++) starts[l + 1] = starts[l]! + counts[l]!
  return starts
}

/** Releases while they are written. */
class ReleaseRows {
  readonly start: Int32Array
  lane: Int32Array
  point: Int32Array
  length = 0

  constructor(allocator: ArrayAllocator, frees: number) {
    this.start = allocator.int32(frees + 1)
    this.lane = allocator.unset32(2 * frees)
    this.point = allocator.unset32(2 * frees)
  }

  put(lane: number, point: number): void {
    if (this.length === this.lane.length) {
      this.lane = longer(this.lane)
      this.point = longer(this.point)
    }
    this.lane[this.length] = lane
    this.point[this.length++] = point
  }
}

// From the heap: the recorder's own allocator may be a scratch arena in which others have allocated
// meanwhile.
const longer = (array: Int32Array): Int32Array => {
  const copy = heap.int32(2 * array.length + 2)
  copy.set(array)
  return copy
}

/** Writes down the allocation trace of one memory, in issue order. */
export class TraceRecorder {
  private readonly event: Int32Array
  private readonly when: Uint8Array
  private readonly command: Int32Array
  private readonly buffer: Int32Array
  private readonly allocLane: Int32Array
  private readonly allocBytes: Float64Array
  private readonly frontier: Int32Array
  private readonly freeBytes: Float64Array
  private readonly accesses: ReleaseRows
  private readonly uses: ReleaseRows
  /** By lane, the number of its next alloc. */
  private readonly next: Int32Array
  private readonly allocs: number
  private readonly lanes: number
  private events = 0
  private frees = 0

  /** For so many allocs of each lane, and so many frees. */
  constructor(allocs: Int32Array, frees: number, allocator: ArrayAllocator) {
    this.lanes = allocs.length
    this.next = prefixSums(allocs)
    this.allocs = this.next[this.lanes]!
    const events = this.allocs + frees
    this.event = allocator.int32(events)
    this.when = allocator.uint8(events)
    this.command = allocator.int32(events)
    this.buffer = allocator.int32(events)
    this.allocLane = allocator.int32(this.allocs)
    this.frontier = allocator.int32(this.allocs * this.lanes)
    this.allocBytes = allocator.float64(this.allocs)
    this.freeBytes = allocator.float64(frees)
    this.accesses = new ReleaseRows(allocator, frees)
    this.uses = new ReleaseRows(allocator, frees)
  }

  /**
   * Command `command` allocates on a lane whose frontier is `known[lane · lanes ..]`, counted from `base`.
   */
  alloc(
    buffer: number,
    command: number,
    when: number,
    bytes: number,
    lane: number,
    known: Int32Array,
    base: Int32Array,
  ): void {
    const { lanes, frontier } = this
    const a = this.next[lane]!++
    this.put(buffer, command, when, a)
    this.allocLane[a] = lane
    this.allocBytes[a] = bytes
    for (let m = 0, to = a * lanes, from = lane * lanes; m < lanes; m++)
      frontier[to + m] = known[from + m]! - base[m]!
  }

  /** A lane must happen-after this access to take what the next free gives back. */
  releaseByAccess(lane: number, point: number): void {
    this.accesses.put(lane, point)
  }

  /**
   * As `releaseByAccess`, for the session's pool: a point that a use marks, or the home lane's own at the
   * free.
   */
  releaseByUse(lane: number, point: number): void {
    this.uses.put(lane, point)
  }

  free(buffer: number, command: number, when: number, bytes: number): void {
    const f = this.frees++
    this.put(buffer, command, when, -1 - f)
    this.freeBytes[f] = bytes
    this.accesses.start[f + 1] = this.accesses.length
    this.uses.start[f + 1] = this.uses.length
  }

  private put(buffer: number, command: number, when: number, event: number): void {
    this.when[this.events] = when
    this.event[this.events] = event
    this.command[this.events] = command
    this.buffer[this.events++] = buffer
  }

  /** The trace, of ticks in which each lane has so many points. */
  trace(inFlight: number, length: Int32Array, leaked: number): AllocationTrace {
    const { lanes, event, when, command, buffer, allocs, allocLane, allocBytes, frontier } = this
    const { frees, freeBytes, accesses, uses } = this
    const releases = ({ start, lane, point }: ReleaseRows): Releases => ({ start, lane, point })
    return {
      ...{ lanes, inFlight, length, event, when, command, buffer },
      ...{ allocs, allocLane, allocBytes, frontier, frees, freeBytes, leaked },
      accesses: releases(accesses),
      uses: releases(uses),
    }
  }
}
