import type { GraphNode } from '../ir/graph.js'
import { instantsOf } from '../language/instants.js'
import { windowReference } from '../language/operators/window.js'
import type { Rates } from '../language/rates.js'
import type { HostArray } from '../language/values.js'
import { type Running, resultsOf } from './evaluate.js'

/** What flows are read as they come: windows gather them, holds hold them, outputs give them out. */
class Listeners {
  /** By window: the values that have come since it came itself. */
  private readonly gathered = new Map<number, HostArray[]>()
  /** By output's node: the values of this tick. */
  private readonly given = new Map<number, HostArray[]>()
  private readonly to = new Map<number, ((value: HostArray) => void)[]>()

  constructor({ graph, state }: Running) {
    for (const { id, op, inputs } of graph.nodes) {
      const [source] = inputs
      if (op === 'window') this.listen(source!, this.kept(this.gathered, id))
      if (op === 'hold') this.listen(source!, value => state.set(id, value))
    }
    for (const node of new Set(graph.ir.outputs.map(output => output.node)))
      this.listen(node, this.kept(this.given, node))
  }

  private kept(of: Map<number, HostArray[]>, id: number): (value: HostArray) => void {
    const list: HostArray[] = []
    of.set(id, list)
    return value => list.push(value)
  }

  private listen(node: number, listener: (value: HostArray) => void): void {
    const others = this.to.get(node)
    if (others === undefined) this.to.set(node, [listener])
    else others.push(listener)
  }

  came(node: number, value: HostArray): void {
    for (const listener of this.to.get(node) ?? []) listener(value)
  }

  /** The values of a window that is full. */
  window(id: number): HostArray {
    return windowReference(this.gathered.get(id)!.splice(0))
  }

  output(node: number): HostArray {
    return windowReference(this.given.get(node)!)
  }
}

/**
 * One tick of a graph with rates on all ranks, instant by instant as its flows come. A feed gives as many values as its input comes times, and an output's
 * values are one array, one after the other. `state` is moved on.
 */
export const period = (
  ranks: readonly Running[],
  { fires, constant }: Rates,
  fed: readonly Readonly<Record<string, readonly unknown[]>>[],
): Record<string, HostArray>[] => {
  const { ir, nodes } = ranks[0]!.graph
  const listeners = ranks.map(running => new Listeners(running))
  const come = (node: GraphNode, results: readonly HostArray[]): void => {
    for (const [rank, value] of results.entries()) {
      ranks[rank]!.values[node.id] = value
      listeners[rank]!.came(node.id, value)
    }
  }
  const results = (node: GraphNode, copy: number): readonly HostArray[] =>
    node.op === 'window'
      ? listeners.map(own => own.window(node.id))
      : resultsOf(ranks, node, rank => fed[rank]![node.name]?.[copy])
  // What depends on parameters alone is there from the beginning, as often as anybody asks for it.
  const fixed = (node: GraphNode): readonly HostArray[] => {
    const sources = ranks.map(({ values }) => values[node.inputs[0]!]!)
    const n = node.attrs['n'] as number
    if (node.op === 'window')
      return sources.map(source => windowReference(new Array<HostArray>(n).fill(source)))
    return node.op === 'hold' ? sources : resultsOf(ranks, node, () => undefined)
  }
  for (const node of nodes) if (constant[node.id] === 1) come(node, fixed(node))
  for (const coming of instantsOf(nodes.filter(({ id }) => constant[id] === 0).map(({ id }) => fires[id]!))) {
    const copies = new Map(coming.map(({ fires, copy }) => [fires, copy]))
    const now = nodes.filter(({ id }) => constant[id] === 0 && copies.has(fires[id]!))
    for (const node of now) come(node, results(node, copies.get(fires[node.id]!)!))
    // All at once: a delay that feeds a delay hands on what it had, not what it gets.
    for (const { state, values } of ranks)
      for (const { id, op, inputs } of now) if (op === 'delay') state.set(id, values[inputs[0]!]!)
  }
  return listeners.map(own =>
    Object.fromEntries(ir.outputs.map(({ name, node }) => [name, own.output(node)])),
  )
}
