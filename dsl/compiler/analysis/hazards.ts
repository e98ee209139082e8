import { type ArrayAllocator, heap } from '../../collections/scratch-arena.js'
import type { Ordered } from './ir.js'

/**
 * The operations that operation i must come after: `on[start[i] .. start[i + 1]]`, latest in issue order
 * first. An entry below 0 is operation `-1 - entry` of the tick before.
 */
export interface Hazards {
  readonly start: Int32Array
  readonly on: Int32Array
}

// Operations of this tick, latest first, then those of the tick before, latest first.
const isLater = (a: number, b: number): boolean => (a < 0 && b < 0 ? a < b : a > b)

/** Sorts `on[from .. end]`, latest first. Insertion sort: entries are few. */
const sort = (on: Int32Array, from: number, end: number): void => {
  for (let i = from + 1; i < end; i++) {
    const entry = on[i]!
    let at = i
    for (; at > from && isLater(entry, on[at - 1]!); at--) on[at] = on[at - 1]!
    on[at] = entry
  }
}

const longer = (on: Int32Array, allocator: ArrayAllocator): Int32Array => {
  const grown = allocator.int32(2 * on.length)
  grown.set(on)
  return grown
}

/** An access to state before this tick writes it: its hazard is with the last accesses of the tick before. */
interface Early {
  readonly operation: number
  readonly buffer: number
  readonly writes: boolean
}

/** Hazards within a tick, not sorted yet, and the last accesses to each buffer when it ends. */
class Tick {
  readonly start: Int32Array
  readonly on: Int32Array
  readonly early: Early[] = []
  /** By root: its last writer, and the first access in the chain of its readers since then. -1: none. */
  readonly writer: Int32Array
  private readonly reader: Int32Array
  private readonly next: Int32Array
  private readonly by: Int32Array

  constructor(ir: Ordered, allocator: ArrayAllocator) {
    const { start, written, root } = ir.accesses
    const { buffers, operations, settings } = ir
    const carries = allocator.uint8(buffers.length)
    if (settings.inFlight > 1)
      for (let b = 0; b < buffers.length; b++) carries[b] = buffers[b]!.life === 'state' ? 1 : 0
    const writer = allocator.int32(buffers.length).fill(-1)
    const reader = allocator.int32(buffers.length).fill(-1)
    const next = allocator.int32(root.length)
    const by = allocator.int32(root.length)
    // A read adds one hazard with its writer, and is itself in one hazard of a later write at most.
    let on = allocator.int32(root.length + 8)
    this.start = allocator.int32(operations.length + 1)
    let length = 0
    for (let i = 0; i < operations.length; i++) {
      // Space for one hazard an access; the readers before a write are counted one by one below.
      if (length + start[i + 1]! - start[i]! > on.length) on = longer(on, allocator)
      for (let a = start[i]!; a < written[i]!; a++) {
        const r = root[a]!
        if (writer[r]! >= 0) on[length++] = writer[r]!
        else if (carries[r] === 1) this.early.push({ operation: i, buffer: r, writes: false })
      }
      for (let a = written[i]!; a < start[i + 1]!; a++) {
        const r = root[a]!
        if (writer[r] === -1 && carries[r] === 1) this.early.push({ operation: i, buffer: r, writes: true })
        if (reader[r]! >= 0)
          for (let at = reader[r]!; at >= 0; at = next[at]!) {
            if (length + start[i + 1]! - a >= on.length) on = longer(on, allocator)
            on[length++] = by[at]!
          }
        else if (writer[r]! >= 0) on[length++] = writer[r]!
      }
      for (let a = start[i]!; a < written[i]!; a++) {
        const r = root[a]!
        by[a] = i
        next[a] = reader[r]!
        reader[r] = a
      }
      for (let a = written[i]!; a < start[i + 1]!; a++) {
        writer[root[a]!] = i
        reader[root[a]!] = -1
      }
      this.start[i + 1] = length
    }
    this.on = on.subarray(0, length)
    this.writer = writer
    this.reader = reader
    this.next = next
    this.by = by
  }

  readersOf(buffer: number): number[] {
    const found: number[] = []
    for (let at = this.reader[buffer]!; at >= 0; at = this.next[at]!) found.push(this.by[at]!)
    return found
  }
}

/**
 * Hazards beyond the tick's own: of state that lives on across ticks, and of windows, collectives and the
 * user.
 */
const furtherHazards = (
  { windows, collectiveEdges: orderingEdges = [], control = [] }: Ordered,
  before: Tick,
): Map<number, number[]> => {
  const more = new Map<number, number[]>()
  const also = (operation: number, entry: number): void => {
    const list = more.get(operation)
    if (list === undefined) more.set(operation, [entry])
    else list.push(entry)
  }
  for (const { operation, buffer, writes } of before.early) {
    const readers = before.readersOf(buffer)
    const writer = before.writer[buffer]!
    if (writer >= 0 && (!writes || readers.length === 0)) also(operation, -1 - writer)
    if (writes) for (const reader of readers) also(operation, -1 - reader)
  }
  for (const edges of [windows, orderingEdges])
    for (const { later, earlier, tick } of edges) also(later, tick === 0 ? earlier : -1 - earlier)
  for (const { later, earlier, when } of control) if (when === 'finish') also(later, earlier)
  return more
}

/**
 * A read comes after the write that it sees, which is the last before it in issue order. A write comes after
 * all reads since the write before it, or after that write. State lives on across ticks, so its hazards reach
 * back into the tick before, unless the host issues a tick only when the one before is complete (`inFlight:
 * 1`).
 */
export const hazardsOf = (ir: Ordered, allocator: ArrayAllocator = heap): Hazards => {
  const tick = new Tick(ir, allocator)
  const more = furtherHazards(ir, tick)
  const count = ir.operations.length
  if (more.size === 0) {
    for (let i = 0; i < count; i++) sort(tick.on, tick.start[i]!, tick.start[i + 1]!)
    return tick
  }
  let extra = 0
  for (const entries of more.values()) extra += entries.length
  const start = allocator.int32(count + 1)
  const on = allocator.int32(tick.on.length + extra)
  let length = 0
  for (let i = 0; i < count; i++) {
    for (let e = tick.start[i]!; e < tick.start[i + 1]!; e++) on[length++] = tick.on[e]!
    for (const entry of more.get(i) ?? []) on[length++] = entry
    sort(on, start[i]!, length)
    start[i + 1] = length
  }
  return { start, on }
}
