// The parameters of nodes by their kind: as programs write them, what is left out of an update, and as the
// addon takes them.
import type { NativeNode } from '../addon.js'
import { badArgument, badUse } from '../device/allocator-error.js'
import type { Block } from '../device/block.js'
import type { Core } from '../device/core.js'
import type { Event } from '../device/event.js'
import type { FillOptions } from '../device/fill.js'
import type { GraphEvent } from '../device/graph-event.js'
import { type Kernel, type KernelLaunch, launchFor, type Operands, type Scalars } from '../device/kernel.js'
import {
  type CallbackFunction,
  type CallbackOptions,
  callbackWork,
  copyWork,
  fillWork,
  kernelWork,
  ofGraph,
} from '../device/work.js'
import type { Views } from './hierarchy.js'
import { type Memory, type NodeOperand, operandFor, ownedBy, recordNode, waitNode } from './operands.js'

export type NodeKind =
  | 'kernel'
  | 'copy'
  | 'fill'
  | 'callback'
  | 'child'
  | 'empty'
  | 'wait'
  | 'record'
  | 'malloc'
  | 'free'
  | 'conditional'
  | 'other'

/** By CUgraphNodeType's numbers. */
export const kinds: Readonly<Record<number, NodeKind>> = {
  0: 'kernel',
  1: 'copy',
  2: 'fill',
  3: 'callback',
  4: 'child',
  5: 'empty',
  6: 'wait',
  7: 'record',
  10: 'malloc',
  11: 'free',
  13: 'conditional',
}

export interface CopyParams {
  readonly to: Memory
  readonly from: Memory
  /** Default: as many as the shorter of the two has. */
  readonly bytes?: number
  /**
   * Of memory given by its address: what keeps it. A block's allocation, or any object. An update may give an
   * address that stays another owner; a new address has only the owner that is given with it.
   */
  readonly toOwner?: unknown
  readonly fromOwner?: unknown
}

export interface FillParams extends FillOptions {
  readonly to: Memory
  readonly value: number
  readonly toOwner?: unknown
}

export interface CallbackParams extends CallbackOptions {
  readonly call: CallbackFunction
}

export interface KernelParams {
  /** Default, in an update of a definition: the node's own. */
  readonly kernel?: Kernel
  readonly launch: KernelLaunch<Operands, Operands, Scalars>
}

/** The parameters of a node by its kind, as `update` takes them. */
export interface ParamsOf {
  kernel: KernelParams
  copy: CopyParams
  fill: FillParams
  callback: CallbackParams
  record: { readonly event: GraphEvent }
  wait: { readonly event: GraphEvent | Event }
  child: { readonly graph: Views['graph'] }
}

/** What a node was given, for updates in part. Empty for a node that this program did not add by a call. */
export interface Given {
  readonly to?: NodeOperand
  readonly from?: NodeOperand
  readonly bytes?: number | undefined
  readonly value?: number
  readonly shape?: FillOptions
  readonly kernel?: unknown
  readonly call?: CallbackFunction
  readonly ordered?: boolean | undefined
}

/** Checked parameters for the addon, and what later updates may leave out. */
export interface Checked {
  readonly node: NativeNode
  readonly given: Given
  /** Memory of the graph's own that the node uses. */
  readonly memory?: readonly Block[]
}

/** Whether the device waits for JavaScript in this node. */
export const awaitsHost = (node: NativeNode): boolean =>
  node.kind === 'callback' && 'ordered' in node && node.ordered

/**
 * What a node that is updated in part has already. Without it nothing may be left out, and what is left out
 * is as wrong as anything else.
 */
type Known = Given | undefined

/** A parameter that is left out of an update. */
const own = <T>(known: T | undefined, name: string, at: string): T => {
  if (known !== undefined) return known
  throw badUse(at, name, `${name}: the node’s own is not known here`, 'none', 'pass all parameters')
}

export const kernelParams = (
  params: Partial<KernelParams>,
  known: Known,
  core: Core,
  at: string,
  graph: object,
): Checked => {
  const kernel = params.kernel ?? (known === undefined ? undefined : own(known.kernel, 'kernel', at))
  if (params.launch === undefined && known !== undefined)
    throw badUse(at, 'launch', 'the operands and sizes of the launch', 'none', 'pass launch too')
  const launch = launchFor(kernel, params.launch, core, at, graph)
  const memory = ofGraph(launch.places.map(({ block }) => block))
  return { node: kernelWork(launch), given: { kernel }, memory }
}

/** Without `bytes` a new place is copied as far as it goes, and the old places as far as before. */
export const copyParams = (
  params: Partial<CopyParams>,
  known: Known,
  core: Core,
  at: string,
  graph: object,
): Checked => {
  const place = (name: 'to' | 'from'): NodeOperand =>
    params[name] === undefined && known !== undefined
      ? ownedBy(own(known[name], name, at), params[`${name}Owner`], core, at, name)
      : operandFor(params[name], params[`${name}Owner`], core, at, name, graph)
  const [to, from] = [place('to'), place('from')]
  const same = params.to === undefined && params.from === undefined
  const bytes = params.bytes ?? (same ? known?.bytes : undefined)
  const memory = [...to.memory, ...from.memory]
  return { node: copyWork(to, from, bytes, at), given: { to, from, bytes }, memory }
}

/** The shape is that of the place, so a new place has none of the old one. */
export const fillParams = (
  params: Partial<FillParams>,
  known: Known,
  core: Core,
  at: string,
  graph: object,
): Checked => {
  const before = params.to === undefined ? known : undefined
  const to =
    before === undefined
      ? operandFor(params.to, params.toOwner, core, at, 'to', graph)
      : ownedBy(own(before.to, 'to', at), params.toOwner, core, at, 'to')
  const value = params.value ?? (known === undefined ? undefined : own(known.value, 'value', at))
  const shape = { ...before?.shape, ...shapeOf(params) }
  const given = { to, value: value as number, shape }
  return { node: fillWork(to, value, shape, at), given, memory: to.memory }
}

const shapeOf = ({ bits, width, rows, pitch }: FillOptions): FillOptions => ({
  ...(bits === undefined ? {} : { bits }),
  ...(width === undefined ? {} : { width }),
  ...(rows === undefined ? {} : { rows }),
  ...(pitch === undefined ? {} : { pitch }),
})

/**
 * `ordered` is of functions of JavaScript: a native one that comes in place of one has none of the old one.
 */
export const callbackParams = (params: Partial<CallbackParams>, known: Known, at: string): Checked => {
  const call = params.call ?? (known === undefined ? undefined : own(known.call, 'call', at))
  const ordered = params.ordered ?? (typeof call === 'function' ? known?.ordered : undefined)
  return {
    node: callbackWork(call, ordered === undefined ? {} : { ordered }, at),
    given: { call: keptCall(call as CallbackFunction), ordered },
  }
}

/** The bytes that a native function gets are those of the call. */
const keptCall = (call: CallbackFunction): CallbackFunction =>
  typeof call === 'object' && call.data !== undefined ? { ...call, data: call.data.slice() } : call

/** Parameters of a node of the graph of any kind but `child`, by its kind. `known`: what may be left out. */
export const paramsOf = (
  kind: NodeKind,
  params: object,
  known: Known,
  core: Core,
  at: string,
  graph: object,
): Checked => {
  const { event } = params as { readonly event?: unknown }
  switch (kind) {
    case 'kernel':
      return kernelParams(params, known, core, at, graph)
    case 'copy':
      return copyParams(params, known, core, at, graph)
    case 'fill':
      return fillParams(params, known, core, at, graph)
    case 'callback':
      return callbackParams(params, known, at)
    case 'record':
      return { node: recordNode(event, core, at), given: {} }
    case 'wait':
      return { node: waitNode(event, core, at), given: {} }
    default:
      throw badUse(
        at,
        'node',
        'a node whose parameters can change',
        `a node of kind ${kind}`,
        'destroy it and add another one',
      )
  }
}

/** Checks that parameters are an object. */
export const objectOf = (params: unknown, kind: NodeKind, at: string): object => {
  if (typeof params === 'object' && params !== null) return params
  throw badArgument(at, 'params', 'an object of parameters', params, `pass those of a ${kind} node`)
}
