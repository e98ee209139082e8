// Conditions, which the nodes of a kind read on the device, and kernels set there.
import type { NativeNode } from '../addon.js'
import { badArgument, badUse, wholeNumber } from '../device/allocator-error.js'
import type { Core } from '../device/core.js'
import type { Hierarchy, Views } from './hierarchy.js'
import { type Memory, operandFor } from './operands.js'

/**
 * A condition that a conditional node reads. A kernel of the same graph sets it. `initial`: its value at the
 * start of each launch; without one it keeps its value from launch to launch.
 */
export interface GraphCondition {
  readonly graph: Views['graph']
  readonly handle: bigint
}

/** Kinds of conditional nodes, by CUgraphConditionalNodeType's numbers. */
export const conditionals = { if: 0, while: 1, switch: 2 } as const

export const conditionHandle = (condition: unknown, at: string): bigint => {
  const { handle } = (condition ?? {}) as Partial<GraphCondition>
  if (typeof handle !== 'bigint')
    throw badArgument(at, 'condition', 'a GraphCondition', condition, 'make one: definition.condition()')
  return handle
}

export const conditionOf = (
  graph: Views['graph'],
  hierarchy: Hierarchy,
  id: number,
  initial: number | undefined,
  at: string,
): GraphCondition => {
  if (initial !== undefined) wholeNumber(at, 'initial', initial, 0, 0xffff_ffff)
  return { graph, handle: hierarchy.tried(at, () => hierarchy.native.condition(id, initial)) }
}

/** Sets a condition to the 32-bit word at the start of `from`. */
export const conditionWork = (
  condition: GraphCondition,
  from: Memory,
  core: Core,
  at: string,
): NativeNode => {
  const { address, bytes, owner } = operandFor(from, undefined, core, at, 'from')
  if (bytes < 4 || address % 4 !== 0)
    throw badUse(at, 'from', 'a whole word of 4 bytes', `${bytes} bytes`, 'pass block.at(offset, 4)')
  return { kind: 'condition', condition: conditionHandle(condition, at), from: address, owner }
}
