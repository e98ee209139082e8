import type { GraphNode } from '../../../ir/graph.js'
import { tensorBytes } from '../../../ir/tensor.js'
import type { Checked } from '../../analysis/ir.js'
import { operatorOf } from '../../analysis/operators.js'

/** Values that are computed again for one reader, at most. */
const mostRepeated = 16

/**
 * Finds the elementwise values that are computed once more for a reduction in parts, which reads all of them before the
 * next reader of any can begin: else they would be stored for that one.
 */
export class Repeated {
  /** By node: how many nodes read it; more where it is an output or the next value of a state. */
  private readonly readers: Int32Array

  constructor(private readonly ir: Checked) {
    const { nodes, outputs } = ir
    this.readers = new Int32Array(nodes.length)
    for (const { inputs } of nodes) for (const input of new Set(inputs)) this.readers[input]! += 1
    for (const { node, parts } of outputs) for (const id of parts?.nodes ?? [node]) this.readers[id]! += 1
  }

  /**
   * The elementwise values that a reduction is made of, if something else reads one of them too, and all that they
   * read takes fewer bytes than to store a value and to load it again. In the graph's order; empty: none.
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
    const { nodes, specs, deviceOf, turnOf } = this.ir
    const node = nodes[id]!
    const isBeside =
      node.place === 'device' && deviceOf?.[id] === deviceOf?.[reader] && turnOf?.[id] === turnOf?.[reader]
    const operator = isBeside && node.op !== 'after' ? operatorOf(node.op) : undefined
    if (operator === undefined) return false
    if (node.op === 'reshape') return true
    const given = node.inputs.map(input => specs[input]!)
    const lowered = operator.lower(given, specs[id]!, node.attrs)
    return (
      lowered.as === 'run' &&
      lowered.kernel.kind === 'map' &&
      node.lane?.name === lane?.name &&
      !lowered.kernel.code.some(([what]) => what === 'index')
    )
  }
}
