// Conditions, which the nodes of a kind read on the device, and kernels set there.
import type { NativeNode } from '../addon.js'
import { badArgument, badUse, wholeNumber } from '../device/allocator-error.js'
import type { Block } from '../device/block.js'
import { DisposedError } from '../errors.js'
import type { GraphPlace, Views } from './hierarchy.js'
import { type Memory, operandFor } from './operands.js'

/**
 * A condition that a conditional node of its graph reads. Kernels of the graph, and of the graphs inside it,
 * set it. `initial`: its value at the start of each launch; without one it keeps its value from launch to
 * launch.
 */
export interface GraphCondition {
  readonly graph: Views['graph']
  readonly handle: bigint
}

/** Kinds of conditional nodes, by CUgraphConditionalNodeType's numbers. */
export const conditionals = { if: 0, while: 1, switch: 2 } as const

/** The most bodies that the addon takes. */
export const mostBodies = 1 << 16

/** The graphs that conditions were made for. */
const made = new WeakMap<object, GraphPlace>()

/** What a condition was made for. Throws unless it is a condition whose graph is alive. */
const madeFor = (condition: unknown, at: string): GraphPlace & { readonly handle: bigint } => {
  const place = typeof condition === 'object' && condition !== null ? made.get(condition) : undefined
  if (place === undefined)
    throw badArgument(
      at,
      'condition',
      'a GraphCondition, as definition.condition() gave it',
      condition,
      'make one: definition.condition()',
    )
  const { hierarchy, id } = place
  if (hierarchy.closed || !hierarchy.graphs.has(id))
    throw new DisposedError('a condition', `its graph was disposed of; call ${at} before that`)
  return { ...place, handle: (condition as GraphCondition).handle }
}

/** What the addon knows a condition by, for a conditional node of the graph. */
export const conditionFor = (condition: unknown, { hierarchy, id }: GraphPlace, at: string): bigint => {
  const { handle, ...place } = madeFor(condition, at)
  if (place.hierarchy === hierarchy && place.id === id) return handle
  throw badUse(
    at,
    'condition',
    'a condition of the graph that the node is added to',
    'one of another graph',
    'make one there: definition.condition()',
  )
}

export const conditionOf = (
  graph: Views['graph'],
  place: GraphPlace,
  initial: number | undefined,
  at: string,
): GraphCondition => {
  if (initial !== undefined) wholeNumber(at, 'initial', initial, 0, 0xffff_ffff)
  const { hierarchy, id } = place
  const handle = hierarchy.tried(at, () => hierarchy.native.condition(id, initial))
  hierarchy.hasCondition = true
  const condition = Object.freeze({
    get graph() {
      hierarchy.taken = true
      return graph
    },
    handle,
  })
  made.set(condition, { hierarchy, id })
  return condition
}

/** Work of a graph that sets a condition to the 32-bit word at the start of `from`. */
export interface ConditionWork {
  readonly node: NativeNode
  /** Memory of the graph's own that the node uses. */
  readonly memory: readonly Block[]
  /** The graph that the condition was made for. */
  readonly of: number
}

export const conditionWork = (
  condition: GraphCondition,
  from: Memory,
  { hierarchy, id }: GraphPlace,
  at: string,
  graph?: Views['graph'],
): ConditionWork => {
  const { handle, ...place } = madeFor(condition, at)
  if (place.hierarchy !== hierarchy || !hierarchy.within(id, place.id))
    throw badUse(
      at,
      'condition',
      'a condition of this graph, or of a graph around it',
      'one of another graph, which launches of this one do not set',
      'make one: definition.condition()',
    )
  const { address, bytes, owner, memory } = operandFor(from, undefined, hierarchy.core, at, 'from', graph)
  if (bytes < 4 || address % 4 !== 0)
    throw badUse(at, 'from', 'a whole word of 4 bytes', `${bytes} bytes`, 'pass block.at(offset, 4)')
  return { node: { kind: 'condition', condition: handle, from: address, owner }, memory, of: place.id }
}

/** Throws where a copy of the graph would set conditions of the original, or have the addresses of its memory. */
export const copyable = ({ hierarchy, id }: GraphPlace, at: string): void => {
  if (hierarchy.hasMemory(id))
    throw badUse(
      at,
      'graph',
      'a graph without memory nodes',
      'one with malloc nodes: the driver does not copy them, since their addresses are fixed',
      'add the nodes to each graph that needs them, or use a block: lane.malloc(bytes)',
    )
  if (hierarchy.hasSetter(id, 'any'))
    throw badUse(
      at,
      'graph',
      'a graph whose nodes set no condition',
      'a node that sets a condition: a copy of it would set the condition of the original graph',
      'add the nodes and a condition of its own to the graph that needs them',
    )
}

/** Throws where launches of the graph alone would set conditions of a graph around it. */
export const setsOwnConditions = ({ hierarchy, id }: GraphPlace, at: string): void => {
  if (hierarchy.hasSetter(id, 'outside'))
    throw badUse(
      at,
      'definition',
      'a graph whose nodes set conditions of its own',
      'one with a node that sets a condition of a graph around it',
      'use the graph around it: node.graph',
    )
}
