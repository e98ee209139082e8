import type { GraphNode } from '../../ir/graph.js'
import type { BoundSpec } from '../../ir/tensor.js'
import type { Checked } from './ir.js'

/** A graph that is made anew from another one, node by node: of an old node there may be several, or none. */
export class GraphRebuild {
  readonly nodes: GraphNode[] = []
  readonly specs: BoundSpec[] = []
  readonly deviceOf: number[] = []
  private readonly turnOf: number[] = []
  /** By old node: the new one that stands for it; -1: none. */
  readonly renumbered: Int32Array

  constructor(private readonly ir: Checked) {
    this.renumbered = new Int32Array(ir.nodes.length).fill(-1)
  }

  /** Adds a node in the place of node `old` or beside it, in its turn and, unless another is given, on its device. */
  add(
    { op, name, attrs, spec, place, lane, at }: Omit<GraphNode, 'id' | 'inputs'>,
    inputs: readonly number[],
    bound: BoundSpec,
    old: number,
    device = this.ir.deviceOf?.[old] ?? 0,
  ): number {
    const id = this.nodes.length
    this.nodes.push({ id, op, name, inputs, attrs, spec, place, lane, at })
    this.specs.push(bound)
    this.deviceOf.push(device)
    this.turnOf.push(this.ir.turnOf?.[old] ?? 0)
    return id
  }

  /** Gives a state its next value, which may have been added after it. */
  close(state: number, next: number): void {
    this.nodes[state] = { ...this.nodes[state]!, inputs: [next] }
  }

  /** The graph; `now` yields the node that an output of an old one then is. */
  result(now = (old: number): number => this.renumbered[old]!): Checked {
    const { ir, nodes, specs, deviceOf, turnOf } = this
    return {
      ...ir,
      nodes,
      specs,
      outputs: ir.outputs.map(({ name, node, parts }) => ({
        name,
        node: now(node),
        ...(parts === undefined ? {} : { parts: { ...parts, nodes: parts.nodes.map(now) } }),
      })),
      ...(ir.deviceOf === undefined ? {} : { deviceOf }),
      ...(ir.turnOf === undefined ? {} : { turnOf }),
    }
  }
}
