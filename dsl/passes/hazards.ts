import type { Ordered } from './ir.js'

/**
 * What each operation must come after, in compressed rows: `on[start[i] .. start[i + 1]]`, latest in issue order first. An entry below 0 is
 * operation `-1 - entry` of the tick before.
 */
export interface Hazards {
  readonly start: Int32Array
  readonly on: Int32Array
}

// Operations of this tick, latest first, then those of the tick before, latest first.
const isLater = (a: number, b: number): boolean => (a < 0 && b < 0 ? a < b : a > b)

/** A list of whole numbers that grows. */
class Row {
  on = new Int32Array(1024)
  length = 0

  push(entry: number): void {
    if (this.length === this.on.length) {
      const longer = new Int32Array(2 * this.length)
      longer.set(this.on)
      this.on = longer
    }
    this.on[this.length++] = entry
  }

  /** Sorts what was pushed since `from`, latest first: few entries, so each is put in its place among those before it. */
  sort(from: number): void {
    const { on, length } = this
    for (let i = from + 1; i < length; i++) {
      const entry = on[i]!
      let at = i
      for (; at > from && isLater(entry, on[at - 1]!); at--) on[at] = on[at - 1]!
      on[at] = entry
    }
  }
}

/** The readers of each buffer since its last write, as lists in one array. */
class Readers {
  private readonly head: Int32Array
  private readonly next: number[] = []
  private readonly operation: number[] = []

  constructor(buffers: number) {
    this.head = new Int32Array(buffers).fill(-1)
  }

  any(buffer: number): boolean {
    return this.head[buffer]! >= 0
  }

  add(buffer: number, operation: number): void {
    this.next.push(this.head[buffer]!)
    this.head[buffer] = this.operation.push(operation) - 1
  }

  clear(buffer: number): void {
    this.head[buffer] = -1
  }

  each(buffer: number, visit: (operation: number) => void): void {
    for (let at = this.head[buffer]!; at >= 0; at = this.next[at]!) visit(this.operation[at]!)
  }
}

/**
 * A read comes after the write it sees; a write after all reads since the write before it, or after that write. In issue order, so that
 * a read sees the last write before it. State lives on across ticks, so its hazards reach back into the tick before, unless the host
 * issues a tick only when the one before is complete.
 */
export const hazardsOf = ({ operations, buffers, settings, windows }: Ordered): Hazards => {
  const root = Int32Array.from(buffers, buffer => buffer.root)
  const carries = Uint8Array.from(buffers, ({ life }) => (life === 'state' && settings.inFlight > 1 ? 1 : 0))
  const writer = new Int32Array(buffers.length).fill(-1)
  const readers = new Readers(buffers.length)
  const within = new Row()
  const starts = new Int32Array(operations.length + 1)
  const push = (operation: number): void => within.push(operation)
  // Who touches state before this tick has written it: what that waits for is known at the end of the tick.
  const early: { readonly operation: number; readonly buffer: number; readonly writes: boolean }[] = []
  operations.forEach(({ reads, writes }, i) => {
    for (const buffer of reads) {
      const r = root[buffer]!
      if (writer[r]! >= 0) push(writer[r]!)
      else if (carries[r]) early.push({ operation: i, buffer: r, writes: false })
    }
    for (const buffer of writes) {
      const r = root[buffer]!
      if (writer[r] === -1 && carries[r]) early.push({ operation: i, buffer: r, writes: true })
      if (readers.any(r)) readers.each(r, push)
      else if (writer[r]! >= 0) push(writer[r]!)
    }
    for (const buffer of reads) readers.add(root[buffer]!, i)
    for (const buffer of writes) {
      writer[root[buffer]!] = i
      readers.clear(root[buffer]!)
    }
    starts[i + 1] = within.length
  })

  const more = new Map<number, number[]>()
  const also = (operation: number, entry: number): void => {
    const list = more.get(operation)
    if (list === undefined) more.set(operation, [entry])
    else list.push(entry)
  }
  for (const { operation, buffer, writes } of early) {
    if (writer[buffer]! >= 0 && (!writes || !readers.any(buffer))) also(operation, -1 - writer[buffer]!)
    if (writes) readers.each(buffer, reader => also(operation, -1 - reader))
  }
  for (const { later, earlier, tick } of windows) also(later, tick === 0 ? earlier : -1 - earlier)

  const all = new Row()
  const start = new Int32Array(operations.length + 1)
  for (let i = 0; i < operations.length; i++) {
    for (let e = starts[i]!; e < starts[i + 1]!; e++) all.push(within.on[e]!)
    for (const entry of more.get(i) ?? []) all.push(entry)
    all.sort(start[i]!)
    start[i + 1] = all.length
  }
  return { start, on: all.on.slice(0, all.length) }
}
