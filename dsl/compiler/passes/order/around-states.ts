import { PriorityQueue } from '../../../collections/priority-queue.js'
import type { Lowered } from '../../analysis/ir.js'
import type { StateCores } from '../../analysis/state-cores.js'

/**
 * The same operations, each core of the states in one piece and as early as it can be: the next tick waits
 * for the graph of a core, and for nothing that stands before or behind it. All else keeps its order.
 */
export const aroundStates = (
  { operations }: Lowered,
  { coreOf, cores }: StateCores,
  order: Int32Array,
): Int32Array => {
  const count = operations.length
  // A piece is a core, or one operation; pieces of operations are numbered behind those of cores.
  const pieceOf = coreOf.map((core, i) => (core === -1 ? cores + i : core))
  const members: number[][] = Array.from({ length: cores }, () => [])
  const key = new Float64Array(cores + count).fill(-1)
  order.forEach((i, at) => {
    if (coreOf[i] === -1) key[cores + i] = at
    else members[coreOf[i]!]!.push(i)
  })
  const left = new Int32Array(cores + count)
  const next: number[][] = Array.from({ length: cores + count }, () => [])
  for (let i = 0; i < count; i++)
    for (const before of operations[i]!.after) {
      if (pieceOf[before] === pieceOf[i]) continue
      next[pieceOf[before]!]!.push(pieceOf[i]!)
      left[pieceOf[i]!]!++
    }
  const ready = new PriorityQueue(key)
  for (const piece of new Set(pieceOf)) if (left[piece] === 0) ready.push(piece)
  const isGiven = new Uint8Array(count)
  for (const i of order) isGiven[i] = 1
  const made: number[] = []
  while (ready.size > 0) {
    const piece = ready.pop()
    if (piece < cores) made.push(...members[piece]!)
    else if (isGiven[piece - cores] === 1) made.push(piece - cores)
    for (const later of next[piece]!) if (--left[later]! === 0) ready.push(later)
  }
  return Int32Array.from(made)
}
