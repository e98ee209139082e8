import type { Command, Plan, PlanBuffer, PlanNode } from '../ir/plan.js'
import { commandLists, type FlatCommands } from './flat-commands.js'
import { type FlatGraphs, flatGraphsFrom, graphLists } from './graph-edges.js'

/*
 * A compiled plan keeps its commands flat, and makes its lists of commands, nodes and buffers when they are
 * first read: of a million operations the lists take most of the memory and a quarter of the time, and proof,
 * prediction and explanation use the flat arrays. All of it is frozen, so that a proof of it stays true.
 */

/** A list whose items are made one by one. An array is such a list. */
export interface Listing<A> {
  readonly length: number
  at(i: number): A | undefined
}

/** The parts of a compiled plan. */
interface Parts {
  readonly flat: FlatCommands
  readonly graphs: FlatGraphs | undefined
  nodes: Listing<PlanNode>
  buffers: Listing<PlanBuffer>
}

const partsOf = new WeakMap<Plan, Parts>()

/** A compiled plan's commands; undefined for any other plan. */
export const flatCommandsOf = (plan: Plan): FlatCommands | undefined => partsOf.get(plan)?.flat

/** A plan's graphs, undefined where it has none. The list of a compiled plan is not read, so not made. */
export const graphsIn = (plan: Plan): FlatGraphs | undefined => {
  const parts = partsOf.get(plan)
  if (parts !== undefined) return parts.graphs
  return plan.graphs && flatGraphsFrom(plan.graphs)
}

/** A plan's nodes one by one: where the list has not been read, each is made for the caller and not kept. */
export const eachNode = (plan: Plan): Listing<PlanNode> => partsOf.get(plan)?.nodes ?? plan.nodes

/** A plan's buffers likewise. */
export const eachBuffer = (plan: Plan): Listing<PlanBuffer> => partsOf.get(plan)?.buffers ?? plan.buffers

/** Freezes what the compiler has made, however deep. What is frozen already was frozen here. */
const deeply = <A>(value: A): A => {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value) || ArrayBuffer.isView(value))
    return value
  for (const key in value) deeply(value[key])
  return Object.freeze(value)
}

/** All items, frozen through and through: a change of a shape or of a kernel would make a proof untrue. */
export const allOf = <A extends object>(listing: Listing<A>): readonly A[] => {
  if (Array.isArray(listing) && Object.isFrozen(listing)) return listing
  const list = new Array<A>(listing.length)
  for (let i = 0; i < list.length; i++) list[i] = deeply(listing.at(i)!)
  return Object.freeze(list)
}

const frozen = (commands: Command[]): readonly Command[] => {
  for (const command of commands) {
    if (command[0] === 'run') {
      Object.freeze(command[3])
      Object.freeze(command[4])
    }
    Object.freeze(command)
  }
  return Object.freeze(commands)
}

/** A plan without its commands, with lists that may not be made yet. */
export type Outline = Omit<Plan, 'commands' | 'nodes' | 'buffers' | 'graphs'> & {
  readonly nodes: Listing<PlanNode>
  readonly buffers: Listing<PlanBuffer>
}

/** The frozen plan of these commands and graphs. */
export const compiledPlan = (outline: Outline, flat: FlatCommands, graphs?: FlatGraphs): Plan => {
  const { plan, name, devices, inFlight, storage, bound, arena, arenas, lanes, buffers, nodes, ...rest } =
    outline
  const parts: Parts = { flat, graphs, nodes, buffers }
  let commands: readonly Command[] | undefined
  const compiled: Plan = {
    ...{ plan, name, devices, inFlight, storage, bound },
    ...(arena === undefined ? {} : { arena }),
    ...(arenas === undefined ? {} : { arenas }),
    lanes,
    get buffers() {
      const list = allOf(parts.buffers)
      parts.buffers = list
      return list
    },
    get nodes() {
      const list = allOf(parts.nodes)
      parts.nodes = list
      return list
    },
    get commands() {
      return (commands ??= frozen(commandLists(flat)))
    },
    ...rest,
  }
  if (graphs !== undefined) {
    let list: Plan['graphs']
    const get = () => (list ??= graphLists(graphs))
    Object.defineProperty(compiled, 'graphs', { get, enumerable: true })
  }
  Object.freeze(compiled)
  partsOf.set(compiled, parts)
  return compiled
}
