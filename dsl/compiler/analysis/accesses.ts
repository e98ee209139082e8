import { heap } from '../../collections/scratch-arena.js'
import type { Accesses, Buffer, Operation } from './ir.js'

export const accessesOf = (operations: readonly Operation[], buffers: readonly Buffer[]): Accesses => {
  const start = heap.int32(operations.length + 1)
  const written = heap.int32(operations.length)
  const lists = operations.map(({ reads, writes }, i) => {
    written[i] = start[i]! + reads.length
    start[i + 1] = written[i]! + writes.length
    return [...reads, ...writes]
  })
  const named = heap.int32(start[operations.length]!)
  lists.forEach((list, i) => {
    named.set(list, start[i])
  })
  return { start, written, named, root: rootsOf(named, buffers) }
}

/** The roots of accesses by name: the same array where there are no views. */
export const rootsOf = (named: Int32Array, buffers: readonly Buffer[]): Int32Array => {
  const rootOf = new Int32Array(buffers.length)
  let views = false
  for (let b = 0; b < buffers.length; b++) {
    // Parts of an output are independent: each is written once, and read only after the tick.
    rootOf[b] = buffers[b]!.life === 'output' ? b : buffers[b]!.root
    if (rootOf[b] !== b) views = true
  }
  if (!views) return named
  const root = heap.int32(named.length)
  for (let a = 0; a < named.length; a++) root[a] = rootOf[named[a]!]!
  return root
}

/** The accesses of operations in another order: operation `order[at]` comes to be number `at`. */
export const reordered = (before: Accesses, order: Int32Array): Accesses => {
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
  return { start, written, named, root }
}
