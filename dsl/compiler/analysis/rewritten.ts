import type { GraphNode } from '../../ir/graph.js'
import type { Checked } from './ir.js'

/** The graph of some of its nodes, in this order and numbered anew, each as `nodeOf` has it. */
export const rewritten = (
  ir: Checked,
  order: readonly number[],
  nodeOf: (id: number) => GraphNode,
): Checked => {
  const renumbered = new Int32Array(ir.nodes.length).fill(-1)
  order.forEach((id, at) => {
    renumbered[id] = at
  })
  const nodes = new Array<GraphNode>(order.length)
  const specs = new Array<Checked['specs'][number]>(order.length)
  for (const [at, id] of order.entries()) {
    const node = nodeOf(id)
    nodes[at] = { ...node, id: at, inputs: node.inputs.map(input => renumbered[input]!) }
    specs[at] = ir.specs[id]!
  }
  const { deviceOf, turnOf } = ir
  return {
    ...ir,
    nodes,
    specs,
    outputs: ir.outputs.map(({ parts, node, name }) => ({
      name,
      node: renumbered[node]!,
      ...(parts === undefined ? {} : { parts: { ...parts, nodes: parts.nodes.map(id => renumbered[id]!) } }),
    })),
    ...(deviceOf === undefined ? {} : { deviceOf: Array.from(order, id => deviceOf[id]!) }),
    ...(turnOf === undefined ? {} : { turnOf: Array.from(order, id => turnOf[id]!) }),
  }
}
