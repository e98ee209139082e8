import type { GraphIR, GraphNode } from '../ir/graph.js'

/**
 * The nodes that some output depends on, in this tick or a later one; and every input, since its feed is read
 * either way.
 */
export const liveNodes = ({ nodes, outputs }: Pick<GraphIR, 'nodes' | 'outputs'>): readonly GraphNode[] => {
  const seen = new Set<number>()
  const visit = outputs.map(({ node }) => node)
  for (let id = visit.pop(); id !== undefined; id = visit.pop())
    if (!seen.has(id)) {
      seen.add(id)
      visit.push(...nodes[id]!.inputs)
    }
  return nodes.filter(({ id, op }) => op === 'input' || seen.has(id))
}
