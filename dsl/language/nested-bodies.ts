import type { GraphNode, GraphOutput } from '../ir/graph.js'

/** Bodies that run within one another; each takes some 700 bytes of the stack, which often has a million. */
const deepest = 256

interface Waiting {
  /** The node that stands for the result until the body has run. */
  readonly id: number
  readonly run: () => number
}

/**
 * The bodies of `scan` while a graph is described. One within `deepest` others does not run at once, which
 * would overflow the stack of a program that nests them by the thousand: a node without inputs stands for its
 * result, and the body runs when the graph's own body has returned. In the end each such node is replaced by
 * the result, and the nodes are numbered anew, inputs before their readers.
 */
export class NestedBodies {
  private depth = 0
  private readonly waiting: Waiting[] = []
  private readonly results = new Map<number, number>()

  get isTooDeep(): boolean {
    return this.depth >= deepest
  }

  /** Runs a body. */
  run<A>(body: () => A): A {
    this.depth++
    try {
      return body()
    } finally {
      this.depth--
    }
  }

  /** Keeps a body, which yields its result's node, for later. */
  postpone(id: number, run: () => number): void {
    this.waiting.push({ id, run })
  }

  /** Runs all bodies that were kept, and those that these keep. */
  finish(): void {
    for (let next = this.waiting.pop(); next !== undefined; next = this.waiting.pop())
      this.results.set(next.id, next.run())
  }

  /** Whether the result of a body that was kept would stand for itself. */
  isCircle(id: number, result: number): boolean {
    return this.resultOf(result) === id
  }

  private resultOf(id: number): number {
    let at = id
    for (let next = this.results.get(at); next !== undefined; next = this.results.get(at)) at = next
    return at
  }

  /** The graph's nodes and outputs without nodes that stand for results. */
  resolved(
    nodes: readonly GraphNode[],
    outputs: readonly GraphOutput[],
  ): { readonly nodes: readonly GraphNode[]; readonly outputs: readonly GraphOutput[] } {
    if (this.results.size === 0) return { nodes, outputs }
    const order = this.inOrder(nodes)
    const place = new Int32Array(nodes.length)
    order.forEach((id, at) => {
      place[id] = at
    })
    const numberOf = (id: number): number => place[this.resultOf(id)]!
    return {
      nodes: order.map((id, at) => ({ ...nodes[id]!, id: at, inputs: nodes[id]!.inputs.map(numberOf) })),
      outputs: outputs.map(({ name, node }) => ({ name, node: numberOf(node) })),
    }
  }

  /**
   * Nodes as they were made, but inputs before their readers. In a circle that crosses no delay some node
   * comes before an input of it, which `check` reports.
   */
  private inOrder(nodes: readonly GraphNode[]): number[] {
    const order: number[] = []
    const next = new Int32Array(nodes.length)
    const seen = new Uint8Array(nodes.length)
    const stack: number[] = []
    for (let id = 0; id < nodes.length; id++) {
      if (seen[id] === 1 || this.results.has(id)) continue
      seen[id] = 1
      stack.push(id)
      while (stack.length > 0) {
        const top = stack[stack.length - 1]!
        const { op, inputs } = nodes[top]!
        const input = op === 'delay' ? undefined : inputs[next[top]!++]
        if (input === undefined) order.push(stack.pop()!)
        else {
          const made = this.resultOf(input)
          if (seen[made] === 1) continue
          seen[made] = 1
          stack.push(made)
        }
      }
    }
    return order
  }
}
