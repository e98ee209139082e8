import { heap } from '../../order/scratch-arena.js'
import type { Lowered, Operation } from './ir.js'

/**
 * What each operation touches, flat and by root: operation i reads `root[start[i] .. written[i]]` and writes
 * `root[written[i] .. start[i + 1]]`. Three passes ask for it; objects in the million are slow to walk.
 */
export interface Accesses {
  readonly start: Int32Array
  readonly written: Int32Array
  readonly root: Int32Array
  /** As `root`, but views as they are named; the same list where there are none. */
  readonly named: Int32Array
}

const latest = new WeakMap<readonly Operation[], Accesses>()

/** What a list of operations touches, told by who made it. */
export const known = (operations: readonly Operation[], accesses: Accesses): void => {
  latest.set(operations, accesses)
}

/** Kept with the list of operations, which passes hand on as it is. */
export const accessesOf = ({ operations, buffers }: Pick<Lowered, 'operations' | 'buffers'>): Accesses => {
  const found = latest.get(operations)
  if (found !== undefined) return found
  const start = heap.int32(operations.length + 1)
  const written = heap.int32(operations.length)
  for (let i = 0; i < operations.length; i++) {
    const { reads, writes } = operations[i]!
    written[i] = start[i]! + reads.length
    start[i + 1] = written[i]! + writes.length
  }
  const named = heap.int32(start[operations.length]!)
  for (let i = 0, next = 0; i < operations.length; i++) {
    const { reads, writes } = operations[i]!
    for (let r = 0; r < reads.length; r++) named[next++] = reads[r]!
    for (let w = 0; w < writes.length; w++) named[next++] = writes[w]!
  }
  const accesses = { start, written, named, root: rootsOf(named, buffers) }
  known(operations, accesses)
  return accesses
}

/** Of accesses by name those by root: the same list where there are no views. */
export const rootsOf = (named: Int32Array, buffers: Lowered['buffers']): Int32Array => {
  const rootOf = new Int32Array(buffers.length)
  let views = false
  for (let b = 0; b < buffers.length; b++) {
    // Parts of an output have nothing to do with each other: each is written once, and read when the tick is over.
    rootOf[b] = buffers[b]!.life === 'output' ? b : buffers[b]!.root
    if (rootOf[b] !== b) views = true
  }
  if (!views) return named
  const root = heap.int32(named.length)
  for (let a = 0; a < named.length; a++) root[a] = rootOf[named[a]!]!
  return root
}

/** Those of `operations`, which are the ones of `before` in another order. Operations in a new order lie all over memory: they are not walked again. */
export const reordered = (before: Accesses, order: Int32Array, operations: readonly Operation[]): void => {
  const start = heap.int32(order.length + 1)
  const written = heap.int32(order.length)
  const named = heap.int32(before.named.length)
  const views = before.root !== before.named
  const root = views ? heap.int32(named.length) : named
  for (let at = 0, next = 0; at < order.length; at++) {
    const i = order[at]!
    written[at] = next + before.written[i]! - before.start[i]!
    for (let a = before.start[i]!; a < before.start[i + 1]!; a++) {
      if (views) root[next] = before.root[a]!
      named[next++] = before.named[a]!
    }
    start[at + 1] = next
  }
  known(operations, { start, written, named, root })
}
