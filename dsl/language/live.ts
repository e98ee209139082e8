import type { GraphIR, GraphNode, GraphOutput } from '../ir/graph.js'

/** Whether a node is a state that the program has named: it is kept, since it can be read and saved by its name. */
export const isNamedState = ({ op, attrs }: GraphNode): boolean =>
  op === 'delay' && attrs['name'] !== undefined

interface Read {
  readonly nodes: readonly GraphNode[]
  /** An output of several values has them as its parts. */
  readonly outputs: readonly (GraphOutput & { readonly parts?: { readonly nodes: readonly number[] } })[]
}

/**
 * Marks the nodes that are needed, in this tick or a later one: what an output or a needed delay reads, every
 * input, since its feed is read either way, every named state, and every node for which `stays` is true.
 * `standsFor(id)` is the node that is read in place of node `id`.
 */
export const markLive = (
  { nodes, outputs }: Read,
  standsFor: (id: number) => number = id => id,
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

/** The nodes that are needed. */
export const liveNodes = (graph: Pick<GraphIR, 'nodes' | 'outputs'>): readonly GraphNode[] => {
  const alive = markLive(graph)
  return graph.nodes.filter(({ id }) => alive[id] === 1)
}
