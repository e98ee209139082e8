import type { GraphIR, GraphNode } from '../ir/graph.js'

/** Whether a node is a state that the program has named: it is kept, since it can be read and saved by its name. */
export const isNamedState = ({ op, attrs }: GraphNode): boolean =>
  op === 'delay' && attrs['name'] !== undefined

/**
 * The nodes that some output, or some state with a name, depends on, in this tick or a later one; and every
 * input, since its feed is read either way.
 */
export const liveNodes = ({ nodes, outputs }: Pick<GraphIR, 'nodes' | 'outputs'>): readonly GraphNode[] => {
  const seen = new Set<number>()
  const visit = outputs.map(({ node }) => node)
  for (const node of nodes) if (isNamedState(node)) visit.push(node.id)
  for (let id = visit.pop(); id !== undefined; id = visit.pop())
    if (!seen.has(id)) {
      seen.add(id)
      visit.push(...nodes[id]!.inputs)
    }
  return nodes.filter(({ id, op }) => op === 'input' || seen.has(id))
}
