import type { GraphNode } from '../../ir/graph.js'
import { isNamedState } from '../../language/live.js'
import type { Checked } from './ir.js'

/**
 * Marks the nodes that are needed: what an output or a needed delay reads, every input, every named state,
 * and every node for which `stays` is true. `standsFor(id)` is the node that is read in place of node `id`.
 */
export const liveNodes = (
  { nodes, outputs }: Checked,
  standsFor: (id: number) => number,
  stays: (node: GraphNode) => boolean = () => false,
): Uint8Array => {
  const alive = new Uint8Array(nodes.length)
  const stack: number[] = []
  const need = (id: number): void => {
    const node = standsFor(id)
    if (alive[node]) return
    alive[node] = 1
    stack.push(node)
  }
  for (const { node, parts } of outputs)
    for (const id of parts === undefined ? [node] : [node, ...parts.nodes]) alive[standsFor(id)] = 1
  // Readers come after what they read, except delays: one sweep from the last node back, then what delays
  // remember.
  for (let id = nodes.length - 1; id >= 0; id--) {
    const node = nodes[id]!
    const { op, inputs } = node
    if (op === 'input' || isNamedState(node) || stays(node)) alive[id] = 1
    if (alive[id] === 0) continue
    for (let i = 0; i < inputs.length; i++) {
      const input = standsFor(inputs[i]!)
      if (input < id) alive[input] = 1
      else need(inputs[i]!)
    }
  }
  while (stack.length > 0) for (const input of nodes[stack.pop()!]!.inputs) need(input)
  return alive
}
