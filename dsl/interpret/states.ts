import type { GraphNode } from '../ir/graph.js'
import { show } from '../ir/show.js'
import type { HostArray } from '../language/values.js'
import { checked } from './evaluate.js'
import { fault, isState, type Prepared } from './prepare.js'

/** The states of an interpreted graph, by name, between two ticks. */
export interface InterpretedStates {
  readonly names: readonly string[]
  read(name: string): HostArray
  write(name: string, value: HostArray): void
  /** Sets every state to its first value. */
  reset(): void
}

/** Called before each tick, with its number from 0: what it writes, the tick sees. */
export type Between = (tick: number, states: InterpretedStates) => void

/** The states by name, over the values of one rank. */
export const statesOver = (
  { nodes, specs }: Prepared,
  values: Map<number, HostArray>,
  first: (node: GraphNode) => HostArray,
): InterpretedStates => {
  const states = new Map(nodes.filter(isState).map(node => [node.name, node]))
  const get = (name: string) => {
    const node = states.get(name)
    if (node !== undefined) return node
    throw fault({
      _tag: 'BadOption',
      at: 'between',
      subject: String(name),
      wanted: `the name of a state: ${[...states.keys()].join(', ') || 'this graph has none'}`,
      found: show(name),
      next: 'use one of the names; a state without a name that no output needs is left out',
    })
  }
  return {
    names: [...states.keys()],
    read: name => values.get(get(name).id)!.slice(),
    write(name, value) {
      const node = get(name)
      values.set(node.id, checked(value, specs[node.id]!, node, 'the state').slice())
    },
    reset() {
      for (const node of states.values()) values.set(node.id, first(node))
    },
  }
}
