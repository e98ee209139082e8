import type { GraphNode } from '../ir/graph.js'
import { windowReference } from '../language/operators/window.js'
import { countedBy } from '../language/rates.js'
import type { HostArray } from '../language/values.js'
import { type Rank, valuesOf } from './evaluate.js'
import type { Prepared } from './prepare.js'

/** Delivers the values of one rank to the windows, holds and outputs that read them. */
class Deliveries {
  /** By window: the values since its last result. By output's node: the values of this tick. */
  private readonly windows = new Map<number, HostArray[]>()
  private readonly outputs = new Map<number, HostArray[]>()
  private readonly readers = new Map<number, ((value: HostArray) => void)[]>()

  constructor({ nodes, ir, counting }: Prepared, { state }: Rank) {
    for (const { id, op, inputs } of nodes) {
      if (op === 'window') this.deliver(inputs[0]!, this.list(this.windows, id))
      if (op === 'hold' && !counting.has(id)) this.deliver(inputs[0]!, value => state.set(id, value))
    }
    for (const node of new Set(ir.outputs.map(output => output.node)))
      this.deliver(node, this.list(this.outputs, node))
  }

  private list(lists: Map<number, HostArray[]>, id: number): (value: HostArray) => void {
    const list: HostArray[] = []
    lists.set(id, list)
    return value => list.push(value)
  }

  private deliver(node: number, to: (value: HostArray) => void): void {
    const others = this.readers.get(node)
    if (others === undefined) this.readers.set(node, [to])
    else others.push(to)
  }

  came(node: number, value: HostArray): void {
    for (const deliver of this.readers.get(node) ?? []) deliver(value)
  }

  /** The values of a full window, which starts over. */
  window(id: number): HostArray {
    return windowReference(this.windows.get(id)!.splice(0))
  }

  output(node: number): HostArray {
    return windowReference(this.outputs.get(node)!)
  }
}

/** The values of a tick's feeds, by rank and input, in order. */
export type Fed = readonly Readonly<Record<string, readonly unknown[]>>[]

/**
 * One tick on all ranks, one instant and one node at a time, so that a collective has the values of all
 * ranks. Returns the outputs by rank: the values of one output are one array, one after the other. Updates
 * each rank's `state`.
 */
export const tick = (graph: Prepared, ranks: readonly Rank[], fed: Fed): Record<string, HostArray>[] => {
  const deliveries = ranks.map(rank => new Deliveries(graph, rank))
  const take = (node: GraphNode): void => {
    for (const [r, { values }] of ranks.entries()) deliveries[r]!.came(node.id, values[node.id]!)
  }
  const come = (node: GraphNode, values: readonly HostArray[], part?: 'computed'): void => {
    for (const [r, value] of values.entries()) ranks[r]!.values[node.id] = value
    if (part === undefined) take(node)
    for (const id of graph.lastRead[node.id]!) for (const rank of ranks) rank.values[id] = undefined
  }
  // A constant is computed before the first instant, as often as a window over it needs it.
  for (const node of graph.constants) {
    const sources = ranks.map(({ values }) => values[node.inputs[0]!]!)
    if (node.op === 'window') {
      const n = node.attrs['n'] as number
      come(
        node,
        sources.map(source => windowReference(new Array<HostArray>(n).fill(source))),
      )
    } else come(node, node.op === 'hold' ? sources : valuesOf(graph, ranks, node, () => undefined))
  }
  for (const instant of graph.instants) {
    for (const { node, copy, part } of instant) {
      // The value of a constant is there all the time; it is held from the last of each n instants on.
      if (graph.counting.has(node.id) && (copy + 1) % countedBy(node)! === 0)
        for (const { state, values } of ranks) state.set(node.id, values[node.inputs[0]!]!)
      if (part === 'taken') take(node)
      else
        come(
          node,
          node.op === 'window'
            ? deliveries.map(own => own.window(node.id))
            : valuesOf(graph, ranks, node, rank => fed[rank]![node.name]?.[copy]),
          part,
        )
    }
    // After all nodes of the instant: a delay that feeds a delay passes on its old value.
    for (const { node, part } of instant)
      if (node.op === 'delay' && part !== 'computed')
        for (const { state, values } of ranks) state.set(node.id, values[node.inputs[0]!]!)
  }
  return deliveries.map(own =>
    Object.fromEntries(graph.ir.outputs.map(({ name, node }) => [name, own.output(node)])),
  )
}
