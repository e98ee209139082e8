import * as E from 'fp-ts/lib/Either.js'
import type { Lifetimes, Passed, Synchronized } from './ir.js'

// The memory of a window stays its own: each upload's is freed right before the next upload of its lane takes it, or at the end of the
// tick, for the next tick's. Freed at its last read, other lanes would take it first, and the next upload would have to grow the pool.
const keepWindows = ({ operations, laneOf, lanes }: Synchronized, first: Int32Array, last: Int32Array): void => {
  const next = new Int32Array(lanes.length).fill(operations.length)
  const following = new Int32Array(operations.length)
  for (let i = operations.length - 1; i >= 0; i--) {
    following[i] = next[laneOf[i]!]!
    if (operations[i]!.ahead !== undefined) next[laneOf[i]!] = i
  }
  first.forEach((upload, id) => {
    if (upload < 0 || operations[upload]!.ahead === undefined) return
    let taker = following[upload]!
    while (taker < operations.length && taker <= last[id]!) taker = following[taker]!
    last[id] = taker - 1
  })
}

/**
 * The first operation that touches each tick buffer (through its views too), the one after which it is freed, and the lane of the first of
 * all buffers.
 */
const spans = (ir: Synchronized): Pick<Lifetimes, 'first' | 'last' | 'home'> => {
  const { operations, buffers, laneOf } = ir
  const first = new Int32Array(buffers.length).fill(-1)
  const last = new Int32Array(buffers.length).fill(-1)
  const home = new Int32Array(buffers.length)
  const touch = (buffer: number, i: number): void => {
    const { root } = buffers[buffer]!
    if (first[root] === -1) {
      first[root] = i
      home[root] = laneOf[i]!
    }
    last[root] = i
  }
  operations.forEach(({ reads, writes }, i) => {
    for (const buffer of writes) touch(buffer, i)
    for (const buffer of reads) touch(buffer, i)
  })
  buffers.forEach(({ root, life }, id) => {
    home[id] = home[root]!
    if (life !== 'tick' || root !== id) first[id] = last[id] = -1
  })
  if (ir.keep) keepWindows(ir, first, last)
  return { first, last, home }
}

/** Buffers by an operation: those of operation i are `buffers[start[i] .. start[i + 1]]`, in order of id. */
export const byOperation = (at: Int32Array, count: number): { start: Int32Array; items: Int32Array } => {
  const start = new Int32Array(count + 1)
  for (const i of at) if (i >= 0) start[i + 1]!++
  for (let i = 0; i < count; i++) start[i + 1]! += start[i]!
  const items = new Int32Array(start[count]!)
  const fill = start.slice()
  at.forEach((i, id) => {
    if (i >= 0) items[fill[i]!++] = id
  })
  return { start, items }
}

/**
 * After this pass each tick buffer has a home lane, a first operation and one after which it is freed, and there a use for each foreign lane whose
 * last access neither the home lane nor another kept use is after. Of those there is one least set: taken latest first, a use is
 * dropped only for a later one, and being after is transitive.
 */
export const lifetimes = (ir: Synchronized): Passed<Lifetimes> => {
  const { operations, buffers, laneOf, lanes, clocks, position } = ir
  const count = operations.length
  const { first, last, home } = spans(ir)
  // A row of lanes for each buffer that foreign lanes have touched: 1 + the last access of each, 0 for none. Rows of freed buffers serve again.
  const rowOf = new Int32Array(buffers.length).fill(-1)
  const rows: number[] = []
  const spare: number[] = []
  const ends = byOperation(last, count)
  const latest = new Int32Array(lanes.length).fill(-1)
  const useAfter: number[] = []
  const useOf: number[] = []
  let elidedUses = 0
  const touch = (buffer: number, lane: number, i: number): void => {
    const { root } = buffers[buffer]!
    if (last[root] === -1 || home[root] === lane) return
    if (rowOf[root] === -1) {
      rowOf[root] = spare.pop() ?? rows.length
      if (rowOf[root] === rows.length) for (let m = 0; m < lanes.length; m++) rows.push(0)
    }
    rows[rowOf[root]! + lane] = i + 1
  }
  const covers = (after: number, access: number): boolean =>
    clocks[after * lanes.length + laneOf[access]!]! > position[access]!
  // The row's accesses, latest first, and the row as it was at the start.
  const accesses: number[] = []
  const drain = (row: number): void => {
    accesses.length = 0
    for (let m = 0; m < lanes.length; m++) {
      const access = rows[row + m]! - 1
      rows[row + m] = 0
      if (access < 0) continue
      let at = accesses.push(access) - 1
      for (; at > 0 && accesses[at - 1]! < access; at--) accesses[at] = accesses[at - 1]!
      accesses[at] = access
    }
  }
  for (let i = 0; i < count; i++) {
    const lane = laneOf[i]!
    latest[lane] = i
    const { reads, writes } = operations[i]!
    for (const buffer of reads) touch(buffer, lane, i)
    for (const buffer of writes) touch(buffer, lane, i)
    for (let e = ends.start[i]!; e < ends.start[i + 1]!; e++) {
      const buffer = ends.items[e]!
      const row = rowOf[buffer]!
      if (row === -1) continue
      drain(row)
      spare.push(row)
      const kept = useAfter.length
      const onHome = latest[home[buffer]!]!
      for (const access of accesses) {
        let covered = covers(onHome, access)
        for (let use = kept; use < useAfter.length && !covered; use++) covered = covers(useAfter[use]!, access)
        if (covered) {
          elidedUses++
          continue
        }
        useAfter.push(access)
        useOf.push(buffer)
      }
    }
  }
  const uses = byOperation(Int32Array.from(useAfter), count)
  const useBuffer = uses.items.map(use => useOf[use]!)
  for (let i = 0; i < count; i++)
    if (uses.start[i + 1]! - uses.start[i]! > 1) useBuffer.subarray(uses.start[i], uses.start[i + 1]).sort()
  return E.right({ ...ir, first, last, home, useStart: uses.start, useBuffer, elidedUses })
}
