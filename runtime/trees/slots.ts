import { type ByteRange, overlap } from '../../dsl/internal.js'
import type { Where } from '../../dsl/ir/graph.js'
import type { Event } from '../device/event.js'
import type { Lane } from '../device/lane.js'
import type { TreeError } from './messages.js'

/** Which launch it is: its number, and what errors say of it. */
export class Origin {
  /** Why there are no values of it. */
  failure: TreeError | undefined

  constructor(
    /** From 1 on. */
    readonly serial: number,
    readonly plan: string,
    readonly at: Where,
  ) {}

  toString(): string {
    return `a launch of ${this.plan} at ${this.at}`
  }
}

/**
 * One output of one node: the only storage of its value. Handles name it, and the launch that they are of.
 */
export interface Slot extends ByteRange {
  readonly id: number
  readonly output: string
  readonly node: NodeSlots
}

/** The slots of a node's outputs, and the bytes that its launches write. */
export class NodeSlots {
  readonly slots: Slot[] = []
  /** The newest launch of the node: every slot of it was written then. */
  serial = 0
  /**
   * As bits, by slot: those that a launch writes over, and the node's own; of the first so many slots there
   * are.
   */
  over = new Int32Array(0)
  own = new Int32Array(0)
  covered = 0

  constructor(readonly clobbers: readonly ByteRange[]) {}
}

const words = (bits: number): number => (bits + 31) >>> 5
const set = (bits: Int32Array, bit: number): void => {
  bits[bit >>> 5]! |= 1 << (bit & 31)
}
const lowest = (word: number): number => 31 - Math.clz32(word & -word)

const nothing: readonly never[] = Object.freeze([])

/**
 * What lies in the arena now: by slot, whether its value is alive, and who outside of the tree still reads
 * it. A value is alive where its bit is set; a handle is current where the slot's node was not launched
 * since. Numbers and bits only, since every launch asks.
 */
export class Slots {
  readonly all: Slot[] = []
  private live = new Int32Array(8)
  private readonly ends: (Origin | undefined)[] = []
  /** Of each slot, the uses by lanes outside of the tree that no launch comes after yet. */
  readonly uses: Event[][] = []
  private readonly reads: Set<Promise<void>>[] = []
  private pendingReads = 0
  private pendingUses = 0

  /** A node that is launched for the first time. */
  add(clobbers: readonly ByteRange[], outputs: Iterable<{ readonly output: string } & ByteRange>): NodeSlots {
    const node = new NodeSlots(clobbers)
    for (const { output, from, to } of outputs) {
      const slot = { id: this.all.length, node, output, from, to }
      this.all.push(slot)
      node.slots.push(slot)
      this.ends.push(undefined)
      this.uses.push([])
      this.reads.push(new Set())
    }
    if (words(this.all.length) > this.live.length) {
      const longer = new Int32Array(2 * words(this.all.length))
      longer.set(this.live)
      this.live = longer
    }
    return node
  }

  /** Whether the value that this launch wrote is still there. */
  isCurrent({ id, node }: Slot, serial: number): boolean {
    return node.serial === serial && this.isLive(id)
  }

  private isLive(slot: number): boolean {
    return (this.live[slot >>> 5]! & (1 << (slot & 31))) !== 0
  }

  /** How many values are alive. */
  get count(): number {
    return this.all.reduce((count, { id }) => count + (this.isLive(id) ? 1 : 0), 0)
  }

  /** The launch that wrote over the slot's last value that is gone. */
  overwriter({ id }: Slot): Origin | undefined {
    return this.ends[id]
  }

  private end(slot: number, by: Origin): void {
    this.live[slot >>> 5]! &= ~(1 << (slot & 31))
    this.ends[slot] = by
  }

  /**
   * A launch of the node: the values that lie where it writes end, and those of its own slots begin. An
   * intersection of bits, and work for each value that ends.
   */
  launch(node: NodeSlots, by: Origin): void {
    this.cover(node)
    const { over, own } = node
    for (let w = 0; w < over.length; w++) {
      let hit = this.live[w]! & over[w]!
      while (hit !== 0) {
        this.end(32 * w + lowest(hit), by)
        hit &= hit - 1
      }
      this.live[w]! |= own[w]!
    }
    node.serial = by.serial
  }

  /** Brings back the values of now, after launches of which the first is of this node: the last one first. */
  takingBack(node: NodeSlots): () => void {
    const live = this.live.slice()
    const ends = this.ends.slice()
    const { serial } = node
    return () => {
      node.serial = serial
      this.live.fill(0)
      this.live.set(live)
      for (const id of this.ends.keys()) this.ends[id] = ends[id]
    }
  }

  /** The values that lie in these bytes end: something is copied there before the launch. */
  overwrite(ranges: readonly ByteRange[], by: Origin): void {
    for (const id of this.overlapping(ranges)) if (this.isLive(id)) this.end(id, by)
  }

  private cover(node: NodeSlots): void {
    if (node.covered === this.all.length) return
    node.covered = this.all.length
    node.over = new Int32Array(words(this.all.length))
    node.own = new Int32Array(words(this.all.length))
    for (const slot of this.all)
      if (node.clobbers.some(range => overlap(range, slot))) set(node.over, slot.id)
    for (const { id } of node.slots) set(node.own, id)
  }

  private touched(node: NodeSlots): readonly number[] {
    this.cover(node)
    const found: number[] = []
    for (let w = 0; w < node.over.length; w++)
      for (let left = node.over[w]!; left !== 0; left &= left - 1) found.push(32 * w + lowest(left))
    return found
  }

  private overlapping(ranges: readonly ByteRange[]): readonly number[] {
    return this.all.filter(slot => ranges.some(range => overlap(range, slot))).map(({ id }) => id)
  }

  // ---- readers outside of the tree ------------------------------------------------------------------------

  /**
   * A lane outside of the tree has read a slot up to this event. Of one lane the newest event says it all.
   */
  use({ id }: Slot, lane: Lane, event: Event): void {
    const uses = this.uses[id]!
    const older = uses.findIndex(other => other.lane === lane)
    if (older >= 0) uses.splice(older, 1)[0]![Symbol.dispose]()
    else this.pendingUses++
    uses.push(event)
  }

  /** A read that has been asked for and is not on its lane yet. */
  reading({ id }: Slot, read: Promise<void>): void {
    const reads = this.reads[id]!
    reads.add(read)
    this.pendingReads++
    const over = (): void => {
      reads.delete(read)
      this.pendingReads--
    }
    read.then(over, over)
  }

  /** The reads that are not on their lanes yet, of all that a node writes over, or of these bytes. */
  readsOver(node: NodeSlots, more: readonly ByteRange[]): readonly Promise<void>[] {
    if (this.pendingReads === 0) return nothing
    return [...this.touched(node), ...this.overlapping(more)].flatMap(slot => [...this.reads[slot]!])
  }

  /** Takes the uses of all that a node writes over, and of these bytes: the launch comes after them. */
  takeUses(node: NodeSlots, more: readonly ByteRange[]): readonly Event[] {
    if (this.pendingUses === 0) return nothing
    return [...this.touched(node), ...this.overlapping(more)].flatMap(slot => this.take(slot))
  }

  private take(slot: number): Event[] {
    const uses = this.uses[slot]!.splice(0)
    this.pendingUses -= uses.length
    return uses
  }
}
