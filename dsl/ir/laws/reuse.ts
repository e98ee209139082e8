import { Heap } from './heap.js'
import type { Clock } from './clock.js'

/**
 * Freed bytes of one memory (a device's, or pinned), as L9 reuses them: an allocation on a lane takes those whose every
 * access is before the lane's present point, oldest free first, in part where that is enough.
 *
 * A freed chunk waits, for each allocating lane, at one of its accesses that the lane does not yet follow; when the lane's
 * frontier passes it, the next is looked for, and after the last the chunk is ready for that lane, for good (a frontier
 * never goes back). So each chunk is looked at once for each lane and access, however long it stays.
 */
export class Reuse {
  /** By chunk, in order of free: bytes left, the tick of the free, and where its accesses stand. */
  private readonly bytes: number[] = []
  private readonly freedIn: number[] = []
  private readonly start: number[] = [0]
  private readonly accessLane: number[] = []
  private readonly accessPoint: number[] = []
  private readonly seen: Int32Array
  private readonly ready: Heap[] = []
  private readonly waiting: Heap[][] = []
  private oldest = 0

  constructor(private readonly lanes: number) {
    this.seen = new Int32Array(lanes)
  }

  /** Adds a freed chunk; its accesses by `access` first. */
  free(bytes: number, tick: number): void {
    this.bytes.push(bytes)
    this.freedIn.push(tick)
    this.start.push(this.accessLane.length)
  }

  access(lane: number, point: number): void {
    this.accessLane.push(lane)
    this.accessPoint.push(point)
  }

  /** Takes up to `wanted` bytes for lane l; returns how many are missing. */
  take(wanted: number, l: number, clock: Clock): number {
    const ready = (this.ready[l] ??= new Heap())
    const waiting = (this.waiting[l] ??= Array.from({ length: this.lanes }, () => new Heap()))
    for (; this.seen[l]! < this.bytes.length; this.seen[l]!++) this.settle(this.seen[l]!, l, clock)
    for (let m = 0; m < this.lanes; m++) {
      const heap = waiting[m]!
      while (heap.size > 0 && clock.covers(l, m, heap.topKey())) {
        const chunk = heap.top()
        heap.pop()
        this.settle(chunk, l, clock)
      }
    }
    while (wanted > 0 && ready.size > 0) {
      const chunk = ready.top()
      const part = Math.min(wanted, this.bytes[chunk]!)
      wanted -= part
      this.bytes[chunk]! -= part
      if (this.bytes[chunk] === 0) ready.pop()
    }
    return wanted
  }

  private settle(chunk: number, l: number, clock: Clock): void {
    if (this.bytes[chunk] === 0) return
    for (let i = this.start[chunk]!; i < this.start[chunk + 1]!; i++) {
      const m = this.accessLane[i]!
      if (m === l || clock.covers(l, m, this.accessPoint[i]!)) continue
      this.waiting[l]![m]!.push(this.accessPoint[i]!, chunk)
      return
    }
    this.ready[l]!.push(chunk, chunk)
  }

  /**
   * What the coming ticks depend on, as a key: the chunks left, their accesses relative to the lanes' present points.
   * Those freed `inFlight` ticks ago or earlier are ready for every lane and older than all others: only their sum counts.
   */
  key(clock: Clock): string {
    const settled = clock.tick - clock.tables.plan.inFlight
    while (this.oldest < this.bytes.length && this.bytes[this.oldest] === 0) this.oldest++
    let common = 0
    let first = 0
    let second = 0
    const mix = (value: number) => {
      first = Math.imul(first ^ (value | 0), 0x85ebca6b) ^ (first >>> 13)
      second = Math.imul(second + ((value % 0x7fffffff) | 0), 0xc2b2ae35) ^ (second >>> 16)
    }
    for (let chunk = this.oldest; chunk < this.bytes.length; chunk++) {
      const bytes = this.bytes[chunk]!
      if (bytes === 0) continue
      if (this.freedIn[chunk]! <= settled) {
        common += bytes
        continue
      }
      mix(bytes)
      mix(bytes / 0x100000000)
      for (let i = this.start[chunk]!; i < this.start[chunk + 1]!; i++) {
        mix(this.accessLane[i]!)
        mix(this.accessPoint[i]! - clock.base[this.accessLane[i]!]!)
      }
    }
    return `${common} ${first} ${second}`
  }
}
