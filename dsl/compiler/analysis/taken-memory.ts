import type { GraphNode } from '../../ir/graph.js'
import { isShared } from '../../language/communicator.js'
import type { Checked, CopiedFor } from './ir.js'
import { donatedReads, operatorOf, ownersOf } from './operators.js'

// Some kernels change a value in its memory: the result of `append` is its first input, but for some rows.
// Where that value is read later in the graph, the kernel gets a copy of it: to write in place it would have
// to run after a reader that the graph has after it.

/** Whether the node's result is made in the memory of its first input. */
export const takesMemory = ({ op }: GraphNode): boolean => operatorOf(op)?.takesMemory === true

/** What the compiler decided for a node that takes memory: absent `copied`, it writes in place. */
export interface TakenMemory {
  readonly node: number
  readonly copied?: CopiedFor
  /** The reader because of which the value is copied. */
  readonly reader?: number
}

/** What reads a value last, and whether it is read when all nodes of the tick have been. */
class Readers {
  private readonly last: Int32Array
  private readonly end: (CopiedFor | undefined)[]

  constructor(
    { nodes, outputs }: Checked,
    private readonly owner: Int32Array,
  ) {
    this.last = new Int32Array(nodes.length).fill(-1)
    this.end = new Array(nodes.length)
    for (const { id, op, inputs } of nodes) {
      if (owner[id] !== id) continue
      // States are stored, and outputs leave, when all else is lowered.
      for (const input of inputs)
        if (op === 'delay') this.end[owner[input]!] = 'state'
        else if (op === 'download') this.end[owner[input]!] ??= 'output'
        else this.last[owner[input]!] = id
    }
    for (const { node, parts } of outputs)
      for (const id of parts?.nodes ?? [node]) this.end[owner[id]!] ??= 'output'
  }

  /** Why a node cannot have the memory of its first input. */
  against({ id, inputs }: GraphNode): Omit<TakenMemory, 'node'> {
    const value = this.owner[inputs[0]!]!
    const end = this.end[value]
    if (end !== undefined) return { copied: end }
    if (this.last[value]! > id) return { copied: 'later reader', reader: this.last[value]! }
    return inputs.some((input, i) => i > 0 && this.owner[input] === value) ? { copied: 'read twice' } : {}
  }
}

/**
 * Values that an operation of this tick, or of the tick before, makes as a whole buffer which nothing else
 * holds.
 */
const isOwn = (node: GraphNode): boolean =>
  node.op === 'delay' || node.op === 'fused' || (operatorOf(node.op) !== undefined && !isShared(node))

/**
 * Whether some reader of a donated value stands after the kernel in the program. It comes before the kernel
 * all the same, so edges in the order of the program could close a circle with that one.
 */
export const donatesBackwards = ({ nodes, specs }: Checked): boolean => {
  if (!nodes.some(node => node.op === 'kernel' && donatedReads(node).length > 0)) return false
  const owner = ownersOf(nodes, specs)
  const donated = new Map<number, number>()
  for (const node of nodes)
    if (node.op === 'kernel')
      for (const read of donatedReads(node)) donated.set(owner[node.inputs[read]!]!, node.id)
  return nodes.some(({ id, inputs }) => inputs.some(input => id > (donated.get(owner[input]!) ?? id)))
}

/** By node that takes memory, what is decided. Empty for most graphs. */
export const takenMemory = (ir: Checked): ReadonlyMap<number, TakenMemory> => {
  const { nodes, specs } = ir
  const takers = nodes.filter(takesMemory)
  const decided = new Map<number, TakenMemory>()
  if (takers.length === 0) return decided
  const owner = ownersOf(nodes, specs)
  const readers = new Readers(ir, owner)
  const isBackwards = donatesBackwards(ir)
  for (const node of takers) {
    const value = nodes[owner[node.inputs[0]!]!]!
    const why = isBackwards
      ? { copied: 'donations' as const }
      : isOwn(value)
        ? readers.against(node)
        : { copied: 'not a value of the tick' as const }
    decided.set(node.id, { node: node.id, ...why })
  }
  return decided
}
