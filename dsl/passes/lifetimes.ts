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
  operations.forEach(({ reads, writes }, i) => {
    for (const list of [writes, reads])
      for (const buffer of list) {
        const { root } = buffers[buffer]!
        if (first[root] === -1) {
          first[root] = i
          home[root] = laneOf[i]!
        }
        last[root] = i
      }
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
  const foreign: (Int32Array | undefined)[] = new Array(buffers.length)
  const ends = byOperation(last, count)
  const latest = new Int32Array(lanes.length).fill(-1)
  const useAfter: number[] = []
  const useOf: number[] = []
  let elidedUses = 0
  const covers = (after: number, access: number): boolean => {
    const lane = laneOf[access]!
    return clocks[after * lanes.length + lane]! > position[access]!
  }
  for (let i = 0; i < count; i++) {
    const lane = laneOf[i]!
    latest[lane] = i
    const { reads, writes } = operations[i]!
    for (const list of [reads, writes])
      for (const buffer of list) {
        const { root } = buffers[buffer]!
        if (last[root] === -1 || home[root] === lane) continue
        foreign[root] ??= new Int32Array(lanes.length).fill(-1)
        foreign[root][lane] = i
      }
    for (let e = ends.start[i]!; e < ends.start[i + 1]!; e++) {
      const buffer = ends.items[e]!
      const accesses = foreign[buffer]
      if (accesses === undefined) continue
      const kept: number[] = []
      const onHome = latest[home[buffer]!]!
      for (const access of accesses.filter(at => at >= 0).sort((a, b) => b - a)) {
        if (covers(onHome, access) || kept.some(use => covers(use, access))) elidedUses++
        else kept.push(access)
      }
      for (const access of kept) {
        useAfter.push(access)
        useOf.push(buffer)
      }
      foreign[buffer] = undefined
    }
  }
  const uses = byOperation(Int32Array.from(useAfter), count)
  const useBuffer = uses.items.map(use => useOf[use]!)
  for (let i = 0; i < count; i++) useBuffer.subarray(uses.start[i], uses.start[i + 1]).sort()
  return E.right({ ...ir, first, last, home, useStart: uses.start, useBuffer, elidedUses })
}
