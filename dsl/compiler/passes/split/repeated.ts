import type { GraphNode } from '../../../ir/graph.js'
import { tensorBytes } from '../../../ir/tensor.js'
import type { Checked } from '../../analysis/ir.js'
import { operatorOf } from '../../analysis/operators.js'
import { changedMemory } from '../fuse/values.js'

/** Readers that a value of their own may be computed for. */
const reductions: ReadonlySet<string> = new Set(['sum', 'mean', 'max', 'min'])

/** Values that are computed again for one reader, at most. */
const mostRepeated = 16

/**
 * Finds the elementwise values that are computed once more for a reduction in parts, which reads all of them
 * before the next reader of any can begin: else they would be stored for that one.
 */
export class Repeated {
  /** By node: how many nodes read it. */
  private readonly readers: Int32Array
  /**
   * By node: 1 where it is in memory anyway, as an output, a state's next value, or for a reader that is no
   * map.
   */
  private readonly stored: Uint8Array
  /**
   * By node: 1 where a kernel changes the value in its memory. A later reader would make it change a copy.
   */
  private readonly changed: Uint8Array | undefined

  constructor(private readonly ir: Checked) {
    const { nodes, outputs } = ir
    this.readers = new Int32Array(nodes.length)
    this.stored = new Uint8Array(nodes.length)
    this.changed = changedMemory(ir)
    for (const { node, parts } of outputs) for (const id of parts?.nodes ?? [node]) this.stored[id] = 1
    for (const { id, op, inputs } of nodes)
      for (const input of new Set(inputs)) {
        this.readers[input]! += 1
        if (!reductions.has(op) && !this.isMap(id)) this.stored[input] = 1
      }
    // What a view is of is stored where the view is.
    for (let id = nodes.length - 1; id >= 0; id--)
      if (this.stored[id] === 1 && nodes[id]!.op === 'reshape') this.stored[nodes[id]!.inputs[0]!] = 1
  }

  /**
   * The elementwise values that a reduction is made of, if something else reads one of them too, and all that
   * they read takes fewer bytes than to store a value and to load it again. In the graph's order; empty:
   * none.
   */
  for(reduction: GraphNode): readonly number[] {
    const { specs } = this.ir
    const root = reduction.inputs[0]!
    const members = new Set<number>()
    const read = new Set<number>()
    const stack = [root]
    while (stack.length > 0) {
      const id = stack.pop()!
      if (members.has(id)) continue
      if (!this.isElementwise(id, reduction)) {
        if (this.changed?.[id] === 1) return []
        read.add(id)
        continue
      }
      members.add(id)
      if (members.size > mostRepeated) return []
      stack.push(...this.ir.nodes[id]!.inputs)
    }
    if (![...members].some(id => this.readers[id]! > 1)) return []
    const bytes = [...read].reduce((sum, id) => sum + tensorBytes(specs[id]!), 0)
    return bytes < 2 * tensorBytes(specs[root]!) ? [...members].sort((a, b) => a - b) : []
  }

  private isElementwise(id: number, { lane, id: reader }: GraphNode): boolean {
    const { nodes, deviceOf, turnOf } = this.ir
    const node = nodes[id]!
    const isBeside =
      this.stored[id] === 0 &&
      node.place === 'device' &&
      deviceOf?.[id] === deviceOf?.[reader] &&
      turnOf?.[id] === turnOf?.[reader]
    return isBeside && (node.op === 'reshape' || (node.lane?.name === lane?.name && this.isMap(id)))
  }

  /** Whether a node is a view of all elements in their order, or an elementwise kernel. */
  private isMap(id: number): boolean {
    const { nodes, specs } = this.ir
    const node = nodes[id]!
    const operator = node.place === 'device' && node.op !== 'after' ? operatorOf(node.op) : undefined
    if (operator === undefined || node.op === 'reshape') return operator !== undefined
    const lowered = operator.lower(
      node.inputs.map(input => specs[input]!),
      specs[id]!,
      node.attrs,
    )
    return (
      lowered.as === 'run' &&
      lowered.kernel.kind === 'map' &&
      !lowered.kernel.code.some(([what]) => what === 'index')
    )
  }
}
