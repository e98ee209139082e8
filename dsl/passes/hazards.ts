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
const latestFirst = (a: number, b: number): number => (a < 0 && b < 0 ? a - b : b - a)

const compressed = (rows: readonly (readonly number[])[]): Hazards => {
  const start = new Int32Array(rows.length + 1)
  rows.forEach((row, i) => {
    start[i + 1] = start[i]! + row.length
  })
  const on = new Int32Array(start[rows.length]!)
  rows.forEach((row, i) => {
    for (let e = 0; e < row.length; e++) on[start[i]! + e] = row[e]!
  })
  return { start, on }
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
  const readers: number[][] = buffers.map(() => [])
  const rows: number[][] = operations.map(() => [])
  // Who touches state before this tick has written it: what that waits for is known at the end of the tick.
  const early: { readonly operation: number; readonly buffer: number; readonly writes: boolean }[] = []
  operations.forEach(({ reads, writes }, i) => {
    const row = rows[i]!
    for (const buffer of reads) {
      const r = root[buffer]!
      if (writer[r]! >= 0) row.push(writer[r]!)
      else if (carries[r]) early.push({ operation: i, buffer: r, writes: false })
    }
    for (const buffer of writes) {
      const r = root[buffer]!
      if (writer[r] === -1 && carries[r]) early.push({ operation: i, buffer: r, writes: true })
      if (readers[r]!.length > 0) row.push(...readers[r]!)
      else if (writer[r]! >= 0) row.push(writer[r]!)
    }
    for (const buffer of reads) readers[root[buffer]!]!.push(i)
    for (const buffer of writes) {
      writer[root[buffer]!] = i
      readers[root[buffer]!] = []
    }
  })
  for (const { operation, buffer, writes } of early) {
    const row = rows[operation]!
    if (writer[buffer]! >= 0 && (!writes || readers[buffer]!.length === 0)) row.push(-1 - writer[buffer]!)
    if (writes) for (const reader of readers[buffer]!) row.push(-1 - reader)
  }
  for (const { later, earlier, tick } of windows) rows[later]!.push(tick === 0 ? earlier : -1 - earlier)
  for (const row of rows) if (row.length > 1) row.sort(latestFirst)
  return compressed(rows)
}
