import type { Lowered, Operation } from './ir.js'

/**
 * What each operation touches, flat and by root: operation i reads `root[start[i] .. written[i]]` and writes
 * `root[written[i] .. start[i + 1]]`. Three passes ask for it; objects in the million are slow to walk.
 */
export interface Accesses {
  readonly start: Int32Array
  readonly written: Int32Array
  readonly root: Int32Array
}

const latest = new WeakMap<readonly Operation[], Accesses>()

/** Kept with the list of operations, which passes hand on as it is. */
export const accessesOf = ({ operations, buffers }: Pick<Lowered, 'operations' | 'buffers'>): Accesses => {
  const known = latest.get(operations)
  if (known !== undefined) return known
  const start = new Int32Array(operations.length + 1)
  const written = new Int32Array(operations.length)
  for (let i = 0; i < operations.length; i++) {
    const { reads, writes } = operations[i]!
    written[i] = start[i]! + reads.length
    start[i + 1] = written[i]! + writes.length
  }
  const rootOf = new Int32Array(buffers.length)
  // Parts of an output have nothing to do with each other: each is written once, and read when the tick is over.
  for (let b = 0; b < buffers.length; b++) rootOf[b] = buffers[b]!.life === 'output' ? b : buffers[b]!.root
  const root = new Int32Array(start[operations.length]!)
  for (let i = 0, next = 0; i < operations.length; i++) {
    const { reads, writes } = operations[i]!
    for (let r = 0; r < reads.length; r++) root[next++] = rootOf[reads[r]!]!
    for (let w = 0; w < writes.length; w++) root[next++] = rootOf[writes[w]!]!
  }
  const accesses: Accesses = { start, written, root }
  latest.set(operations, accesses)
  return accesses
}
