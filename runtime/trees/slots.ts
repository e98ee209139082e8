import { type ByteRange, overlap } from '../../dsl/internal.js'
import type { Event } from '../device/event.js'
import type { Lane } from '../device/lane.js'

/** One output of one node: the only storage of its value. Handles name it, and the writing that they are of. */
export interface Slot extends ByteRange {
  readonly id: number
  readonly node: number
  readonly output: string
}

/** A value that is overwritten, for the sentence of whoever still asks for it. */
export interface Overwritten {
  readonly by: string
}

const words = (bits: number): number => (bits + 31) >>> 5

/**
 * What lies in the arena now: by slot, how often it was written, whether its value is alive, and who outside of
 * the tree still reads it. Numbers and bits only, since every launch asks.
 */
export class Slots {
  readonly all: Slot[] = []
  private live = new Int32Array(8)
  private readonly epochs: number[] = []
  private readonly ends: (Overwritten | undefined)[] = []
  private readonly uses: Event[][] = []
  private readonly reads: Set<Promise<void>>[] = []
  private pendingReads = 0
  private pendingUses = 0
  /** By node: the slots whose bytes it writes, as bits; made anew where there are more slots. */
  private readonly clobbers = new Map<number, { readonly slots: number; readonly bits: Int32Array }>()

  add(node: number, output: string, { from, to }: ByteRange): Slot {
    const slot = { id: this.all.length, node, output, from, to }
    this.all.push(slot)
    this.epochs.push(0)
    this.ends.push(undefined)
    this.uses.push([])
    this.reads.push(new Set())
    if (words(this.all.length) > this.live.length) {
      const longer = new Int32Array(2 * this.live.length)
      longer.set(this.live)
      this.live = longer
    }
    return slot
  }

  epoch(slot: number): number {
    return this.epochs[slot]!
  }

  isLive(slot: number): boolean {
    return (this.live[slot >>> 5]! & (1 << (slot & 31))) !== 0
  }

  /** How many values are alive. */
  get count(): number {
    return this.all.reduce((count, { id }) => count + (this.isLive(id) ? 1 : 0), 0)
  }

  overwritten(slot: number): Overwritten | undefined {
    return this.ends[slot]
  }

  /** A new value: the handles of the one before are stale from now on. */
  write(slot: number, by: string): number {
    if (this.isLive(slot)) this.end(slot, by)
    this.live[slot >>> 5]! |= 1 << (slot & 31)
    return this.epochs[slot]!
  }

  end(slot: number, by: string): void {
    this.live[slot >>> 5]! &= ~(1 << (slot & 31))
    this.epochs[slot]!++
    this.ends[slot] = { by }
  }

  /** Ends the values that lie where this node writes: nothing but an intersection of bits where there are none. */
  overwrite(node: number, ranges: readonly ByteRange[], by: string): void {
    const bits = this.bitsOf(node, ranges)
    for (let w = 0; w < bits.length; w++) {
      let hit = this.live[w]! & bits[w]!
      while (hit !== 0) {
        const bit = 31 - Math.clz32(hit & -hit)
        this.end(32 * w + bit, by)
        hit &= hit - 1
      }
    }
  }

  private bitsOf(node: number, ranges: readonly ByteRange[]): Int32Array {
    const known = this.clobbers.get(node)
    if (known?.slots === this.all.length) return known.bits
    const bits = new Int32Array(words(this.all.length))
    for (const { id, from, to } of this.all)
      if (ranges.some(range => overlap(range, { from, to }))) bits[id >>> 5]! |= 1 << (id & 31)
    this.clobbers.set(node, { slots: this.all.length, bits })
    return bits
  }

  private *touched(node: number, ranges: readonly ByteRange[]): Generator<number> {
    const bits = this.bitsOf(node, ranges)
    for (let w = 0; w < bits.length; w++)
      for (let left = bits[w]!; left !== 0; left &= left - 1) yield 32 * w + 31 - Math.clz32(left & -left)
  }

  /** A lane outside of the tree has read a slot up to this event. Of one lane the newest event says it all. */
  use(slot: number, lane: Lane, event: Event): void {
    const uses = this.uses[slot]!
    const older = uses.findIndex(other => other.lane === lane)
    if (older >= 0) uses.splice(older, 1)[0]![Symbol.dispose]()
    else this.pendingUses++
    uses.push(event)
  }

  /** A read that has been asked for and is not on its lane yet. */
  reading(slot: number, read: Promise<void>): void {
    const reads = this.reads[slot]!
    reads.add(read)
    this.pendingReads++
    const over = (): void => {
      reads.delete(read)
      this.pendingReads--
    }
    read.then(over, over)
  }

  /** The same, of any bytes: where values are copied into the arena before a launch. */
  overwriteRanges(ranges: readonly ByteRange[], by: string): void {
    for (const id of this.over(ranges)) if (this.isLive(id)) this.end(id, by)
  }

  private over(ranges: readonly ByteRange[]): readonly number[] {
    return this.all.filter(slot => ranges.some(range => overlap(range, slot))).map(({ id }) => id)
  }

  /** The reads that are not on their lanes yet, of all that a node writes over. */
  readsOver(node: number, ranges: readonly ByteRange[]): readonly Promise<void>[] {
    return this.pendingReads === 0
      ? []
      : [...this.touched(node, ranges)].flatMap(slot => [...this.reads[slot]!])
  }

  readsOverRanges(ranges: readonly ByteRange[]): readonly Promise<void>[] {
    return this.over(ranges).flatMap(slot => [...this.reads[slot]!])
  }

  /** Takes the uses of all that a node writes over: it comes after them. */
  takeUses(node: number, ranges: readonly ByteRange[]): Event[] {
    return this.pendingUses === 0 ? [] : [...this.touched(node, ranges)].flatMap(slot => this.take(slot))
  }

  takeUsesOver(ranges: readonly ByteRange[]): Event[] {
    return this.over(ranges).flatMap(slot => this.take(slot))
  }

  /** Every use: for what comes after everything. */
  takeAllUses(): Event[] {
    return this.all.flatMap(({ id }) => this.take(id))
  }

  private take(slot: number): Event[] {
    const uses = this.uses[slot]!.splice(0)
    this.pendingUses -= uses.length
    return uses
  }
}
