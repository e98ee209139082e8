// What nodes refer to: memory with whoever keeps it, and events.
import type { NativeNode, NativeOwner } from '../addon.js'
import { badArgument, badUse, wholeNumber, wrongDevice } from '../device/allocator-error.js'
import { Block, coreOf, Span } from '../device/block.js'
import type { Core } from '../device/core.js'
import { type Event, eventFor } from '../device/event.js'
import { GraphEvent, graphEventFor } from '../device/graph-event.js'
import { placeOf } from '../device/place.js'
import { type Operand, ofGraph, operandOf, ownerOfBlock } from '../device/work.js'

/**
 * Memory that Braid knows nothing of: a node keeps it only through an owner that is named. `host`: pinned
 * host memory, not the device's.
 */
export interface RawMemory {
  readonly address: number
  readonly bytes: number
  readonly host?: boolean
}

export type Memory = Block | Span | RawMemory

/** An owner that a program names: of a block its allocation, of anything else the object. */
const namedOwner = (owner: unknown, core: Core, at: string, name: string): NativeOwner | undefined => {
  if (owner === undefined) return undefined
  if (Block.is(owner)) {
    if (!coreOf(owner).same(core)) throw wrongDevice(at, `${name}: a block`, core.name)
    return ownerOfBlock(owner)
  }
  if ((typeof owner !== 'object' || owner === null) && typeof owner !== 'function')
    throw badArgument(at, name, 'a Block, or an object to keep', owner, 'leave it out')
  return { value: owner }
}

const isRaw = (given: unknown): given is RawMemory =>
  typeof given === 'object' && given !== null && 'address' in given && 'bytes' in given

/** An operand of a node. `raw`: memory given by its address, which an owner may be named for. */
export interface NodeOperand extends Operand {
  readonly raw: boolean
  /** The block, where it is memory of the graph's own. */
  readonly memory: readonly Block[]
}

const ownerOfBlockRefused = (at: string, name: string): Error =>
  badUse(
    at,
    `${name}Owner`,
    `no owner for ${name}, which is a block: the node keeps its allocation`,
    'an owner',
    `leave out ${name}Owner, or give ${name} as { address, bytes }`,
  )

/** The same memory with another owner, or with the one that it has. */
export const ownedBy = (
  operand: NodeOperand,
  owner: unknown,
  core: Core,
  at: string,
  name: string,
): NodeOperand => {
  if (owner === undefined) return operand
  if (!operand.raw) throw ownerOfBlockRefused(at, name)
  return { ...operand, owner: namedOwner(owner, core, at, `${name}Owner`) }
}

/** Checks memory that is given to a node of the graph, and the owner that is given for it. */
export const operandFor = (
  given: unknown,
  owner: unknown,
  core: Core,
  at: string,
  name: string,
  graph: object | undefined,
): NodeOperand => {
  if (Block.is(given) || given instanceof Span) {
    if (owner !== undefined) throw ownerOfBlockRefused(at, name)
    const place = placeOf(given, core, at, name, graph)
    return { ...operandOf(place), raw: false, memory: ofGraph([place.block]) }
  }
  if (!isRaw(given))
    throw badArgument(
      at,
      name,
      'a Block, a part of one, or { address, bytes }',
      given,
      'pass a block, or block.at(offset, bytes)',
    )
  return {
    address: wholeNumber(at, `${name}.address`, given.address),
    bytes: wholeNumber(at, `${name}.bytes`, given.bytes),
    pinned: given.host === true,
    raw: true,
    memory: [],
    owner: namedOwner(owner, core, at, `${name}Owner`),
  }
}

export const recordNode = (event: unknown, core: Core, at: string): NativeNode => ({
  kind: 'record',
  event: graphEventFor(event, core, at),
})

export const waitNode = (event: unknown, core: Core, at: string): NativeNode =>
  GraphEvent.is(event)
    ? { kind: 'wait', event: graphEventFor(event, core, at) }
    : { kind: 'wait', mark: eventFor(event as Event, core, at) }
