import * as E from 'fp-ts/lib/Either.js'
import { type ArrayAllocator, heap, withScratchArena } from '../../collections/scratch-arena.js'
import { LastAccesses } from '../../order/last-accesses.js'
import { byOperation } from '../analysis/by-operation.js'
import { homesOf } from '../analysis/device-of.js'
import type { Lifetimes, Synchronized } from '../analysis/ir.js'
import { type Passed, pass } from '../analysis/pass.js'

//   run upload(w) on copy   run matmul(w) on math
//   → alloc w on copy · run upload · run matmul · use w on math, after matmul · free w
//
// After this pass each tick buffer has a home lane, a first operation and one after which it is freed. There
// it has a use for each foreign lane whose last access neither the home lane nor another kept use happens
// after. This set of uses is the least: they are examined latest first, a use is elided only for a later one,
// and the order is transitive.

/**
 * A window keeps its memory: what an upload of it fills is freed right before the next upload of its lane
 * takes it, or at the end of the tick for the next tick's. Freed at its last read, other lanes would take it
 * first, and the next upload would have to grow the pool.
 */
const keepWindows = (
  { operations, laneOf, lanes }: Synchronized,
  first: Int32Array,
  last: Int32Array,
): void => {
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
 * The first and the last operation that access each tick buffer, itself or through a view, and the home lane
 * of every buffer: the lane of its first access, on its own device if it is in device memory.
 */
const spans = (ir: Synchronized): Pick<Lifetimes, 'first' | 'last' | 'home'> => {
  const { operations, buffers, laneOf } = ir
  const { start, root } = ir.accesses
  const first = heap.int32(buffers.length).fill(-1)
  const last = heap.int32(buffers.length).fill(-1)
  const home = heap.int32(buffers.length)
  for (let i = 0; i < operations.length; i++)
    for (let a = start[i]!; a < start[i + 1]!; a++) {
      const r = root[a]!
      if (first[r] === -1) {
        first[r] = i
        home[r] = laneOf[i]!
        const whole = buffers[r]!.root
        if (first[whole] === -1) {
          first[whole] = i
          home[whole] = laneOf[i]!
        }
      }
      last[r] = i
    }
  for (let id = 0; id < buffers.length; id++) {
    const { root, life } = buffers[id]!
    home[id] = home[root]!
    if (life !== 'tick' || root !== id) first[id] = last[id] = -1
  }
  if (ir.keep) keepWindows(ir, first, last)
  return { first, last, home: homesOf(ir, home) }
}

/** Uses by operation; the uses of one operation in order of buffer. */
const usesByOperation = (
  after: Int32Array,
  buffers: Int32Array,
  operations: number,
): Pick<Lifetimes, 'useStart' | 'useBuffer'> => {
  const { start, items } = byOperation(after, operations)
  const useBuffer = heap.int32(buffers.length)
  for (let i = 0; i < operations; i++)
    for (let u = start[i]!; u < start[i + 1]!; u++) {
      const buffer = buffers[items[u]!]!
      let at = u
      for (; at > start[i]! && useBuffer[at - 1]! > buffer; at--) useBuffer[at] = useBuffer[at - 1]!
      useBuffer[at] = buffer
    }
  return { useStart: start, useBuffer }
}

const livedFor = (ir: Synchronized, allocator: ArrayAllocator): Lifetimes => {
  const { operations, buffers, laneOf, clocks, position } = ir
  const lanes = ir.lanes.length
  const count = operations.length
  const { start, root } = ir.accesses
  const { first, last, home } = spans(ir)
  const foreign = new LastAccesses(allocator, buffers.length, start[count]!)
  const ends = byOperation(last, count, allocator)
  /** By lane: its latest operation. */
  const latest = new Int32Array(lanes).fill(-1)
  const accesses = new Int32Array(lanes)
  // There are no more uses than accesses, since each is of one buffer and one lane.
  const useAfter = allocator.unset32(start[count]!)
  const useOf = allocator.unset32(start[count]!)
  let uses = 0
  let elidedUses = 0
  for (let i = 0; i < count; i++) {
    const lane = laneOf[i]!
    latest[lane] = i
    for (let a = start[i]!; a < start[i + 1]!; a++) {
      const r = root[a]!
      if (last[r]! >= 0 && home[r] !== lane) foreign.put(r, lane, i)
    }
    for (let e = ends.start[i]!; e < ends.start[i + 1]!; e++) {
      const buffer = ends.items[e]!
      // The last access of each foreign lane, latest first.
      let length = 0
      for (let entry = foreign.first(buffer); entry !== 0; entry = foreign.next(entry)) {
        const access = foreign.pointOf(entry)
        let at = length++
        for (; at > 0 && accesses[at - 1]! < access; at--) accesses[at] = accesses[at - 1]!
        accesses[at] = access
      }
      const kept = uses
      const onHome = latest[home[buffer]!]! * lanes
      for (let at = 0; at < length; at++) {
        const access = accesses[at]!
        const on = laneOf[access]!
        const point = position[access]!
        let dominated = clocks[onHome + on]! > point
        for (let use = kept; use < uses && !dominated; use++)
          dominated = clocks[useAfter[use]! * lanes + on]! > point
        if (dominated) elidedUses++
        else {
          useAfter[uses] = access
          useOf[uses++] = buffer
        }
      }
    }
  }
  const found = usesByOperation(useAfter.subarray(0, uses), useOf.subarray(0, uses), count)
  return { ...ir, first, last, home, ...found, elidedUses }
}

export const lifetimes = pass(
  'lifetimes',
  (ir: Synchronized): Passed<Lifetimes> => withScratchArena(allocator => E.right(livedFor(ir, allocator))),
)
