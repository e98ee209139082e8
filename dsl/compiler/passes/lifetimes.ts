import * as E from 'fp-ts/lib/Either.js'
import { type ArrayAllocator, heap, withScratchArena } from '../../order/scratch-arena.js'
import { byOperation } from '../analysis/by-operation.js'
import { homesOf } from '../analysis/device-of.js'
import type { Lifetimes, Synchronized } from '../analysis/ir.js'
import { LastAccesses } from '../analysis/last-accesses.js'
import { type Passed, pass } from '../analysis/pass.js'

// The memory of a window stays its own: each upload's is freed right before the next upload of its lane takes it, or at the end of the
// tick, for the next tick's. Freed at its last read, other lanes would take it first, and the next upload would have to grow the pool.
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
 * The first operation that touches each tick buffer (through its views too), the one after which it is freed, and the lane of the first of
 * all buffers: of its device, where it is in device memory.
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

const longer = (from: Int32Array, room: ArrayAllocator): Int32Array => {
  const grown = room.int32(2 * from.length)
  grown.set(from)
  return grown
}

/**
 * After this pass each tick buffer has a home lane, a first operation and one after which it is freed, and there a use for each foreign lane whose
 * last access neither the home lane nor another kept use is after. Of those there is one least set: taken latest first, a use is
 * dropped only for a later one, and being after is transitive.
 */
export const lifetimes = pass(
  'lifetimes',
  (ir: Synchronized): Passed<Lifetimes> => withScratchArena(room => E.right(lived(ir, room))),
)

const lived = (ir: Synchronized, room: ArrayAllocator): Lifetimes => {
  const { operations, buffers, laneOf, clocks, position } = ir
  const lanes = ir.lanes.length
  const count = operations.length
  const { start, root } = ir.accesses
  const { first, last, home } = spans(ir)
  const foreign = new LastAccesses(buffers.length, lanes, room)
  const ends = byOperation(last, count, room)
  const latest = new Int32Array(lanes).fill(-1)
  const accesses = new Int32Array(lanes)
  let useAfter = room.int32(count + lanes)
  let useOf = room.int32(count + lanes)
  let uses = 0
  let elidedUses = 0
  for (let i = 0; i < count; i++) {
    const lane = laneOf[i]!
    latest[lane] = i
    for (let a = start[i]!; a < start[i + 1]!; a++) {
      const r = root[a]!
      if (last[r]! >= 0 && home[r] !== lane) foreign.touch(r, lane, i)
    }
    for (let e = ends.start[i]!; e < ends.start[i + 1]!; e++) {
      const buffer = ends.items[e]!
      const length = foreign.drain(buffer, accesses)
      const kept = uses
      if (uses + length > useAfter.length) {
        useAfter = longer(useAfter, room)
        useOf = longer(useOf, room)
      }
      const onHome = latest[home[buffer]!]! * lanes
      for (let at = 0; at < length; at++) {
        const access = accesses[at]!
        const on = laneOf[access]!
        const point = position[access]!
        let covered = clocks[onHome + on]! > point
        for (let use = kept; use < uses && !covered; use++)
          covered = clocks[useAfter[use]! * lanes + on]! > point
        if (covered) {
          elidedUses++
          continue
        }
        useAfter[uses] = access
        useOf[uses++] = buffer
      }
    }
  }
  // By operation, and of one operation in order of id.
  const useBuffer = heap.int32(uses)
  const { start: useStart, items } = byOperation(useAfter.subarray(0, uses), count)
  for (let i = 0; i < count; i++)
    for (let u = useStart[i]!; u < useStart[i + 1]!; u++) {
      const buffer = useOf[items[u]!]!
      let at = u
      for (; at > useStart[i]! && useBuffer[at - 1]! > buffer; at--) useBuffer[at] = useBuffer[at - 1]!
      useBuffer[at] = buffer
    }
  return { ...ir, first, last, home, useStart, useBuffer, elidedUses }
}
