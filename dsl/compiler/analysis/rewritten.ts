import type { GraphNode } from '../../ir/graph.js'
import type { Checked } from './ir.js'

/** The graph of some of its nodes, in this order and numbered anew, each as `nodeOf` has it. */
export const rewritten = (
  ir: Checked,
  order: readonly number[],
  nodeOf: (id: number) => GraphNode,
): Checked => {
  const renumbered = new Int32Array(ir.nodes.length).fill(-1)
  for (let i = 0; i < order.length; i++) renumbered[order[i]!] = i
  const renumber = (id: number): number => renumbered[id]!
  const nodes = new Array<GraphNode>(order.length)
  const specs = new Array<Checked['specs'][number]>(order.length)
  for (let i = 0; i < order.length; i++) {
    // Nodes of one hidden class, whatever they were made of, so that no later pass slows down.
    const { op, name, inputs, attrs, spec, place, lane, at } = nodeOf(order[i]!)
    nodes[i] = { id: i, op, name, inputs: inputs.map(renumber), attrs, spec, place, lane, at }
    specs[i] = ir.specs[order[i]!]!
  }
  const { deviceOf, turnOf } = ir
  return {
    ...ir,
    nodes,
    specs,
    outputs: ir.outputs.map(({ parts, node, name }) => ({
      name,
      node: renumber(node),
      ...(parts === undefined ? {} : { parts: { ...parts, nodes: parts.nodes.map(renumber) } }),
    })),
    ...(deviceOf === undefined ? {} : { deviceOf: Array.from(order, id => deviceOf[id]!) }),
    ...(turnOf === undefined ? {} : { turnOf: Array.from(order, id => turnOf[id]!) }),
  }
}
