// Work as the addon takes it for nodes and for captures: what is done, and the owners of what it refers to.
import { lateFunction, lateResult } from '../../dsl/internal.js'
import type { NativeNode, NativeOwner } from '../addon.js'
import { badArgument, badUse, wholeNumber } from './allocator-error.js'
import { type Block, graphOf, keptHandle, spaceOf } from './block.js'
import { type FillOptions, fillOf } from './fill.js'
import type { CheckedLaunch } from './kernel.js'
import type { Place } from './place.js'

/** Memory with what keeps it. */
export interface Operand {
  readonly address: number
  readonly bytes: number
  readonly pinned: boolean
  readonly owner: NativeOwner | undefined
}

/**
 * A block's allocation; of an output of a session its slot. Throws unless the block is alive, and may be
 * kept.
 */
export const ownerOfBlock = (block: Block): NativeOwner => ({
  space: spaceOf(block).index,
  block: keptHandle(block),
})

/** The same for an operand: memory of the graph's own lives as long as the graph, and is kept by none. */
const keeperOf = (block: Block): NativeOwner | undefined =>
  graphOf(block) === undefined ? ownerOfBlock(block) : undefined

/** The blocks among these that are a graph's own memory. */
export const ofGraph = (blocks: readonly Block[]): readonly Block[] =>
  blocks.filter(block => graphOf(block) !== undefined)

export const operandOf = ({ block, address, bytes, pinned }: Place): Operand => ({
  address,
  bytes,
  pinned,
  owner: keeperOf(block),
})

/** By default as many bytes as the shorter of the two has. */
export const copyWork = (to: Operand, from: Operand, given: number | undefined, at: string): NativeNode => {
  const longest = Math.min(to.bytes, from.bytes)
  const bytes = given === undefined ? longest : wholeNumber(at, 'bytes', given)
  if (bytes > longest)
    throw badArgument(
      at,
      'bytes',
      `at most ${longest}: to has ${to.bytes} bytes, from ${from.bytes}`,
      bytes,
      'copy fewer bytes',
    )
  const copyKind = to.pinned ? (from.pinned ? 3 : 1) : from.pinned ? 0 : 2
  const owners = [to.owner, from.owner] as const
  return { kind: 'copy', copyKind, to: to.address, from: from.address, bytes, owners }
}

export const fillWork = (to: Operand, value: unknown, options: FillOptions, at: string): NativeNode => {
  const { element, width, rows, pitch } = fillOf({ ...to, offset: 0 }, value, options, at, 'value')
  return {
    kind: 'fill',
    to: to.address,
    value: value as number,
    elementBytes: element,
    width,
    height: rows,
    pitch,
    owners: [to.owner],
  }
}

export const kernelWork = ({ kernel, words, places }: CheckedLaunch): NativeNode => ({
  kind: 'kernel',
  kernel,
  words,
  owners: [...new Set(places.map(({ block }) => block))].map(keeperOf),
})

/** A function of a native library, `void f(void *data)`, which gets a copy of `data`, or a null pointer. */
export interface LibraryFunction {
  readonly library: string
  readonly symbol: string
  readonly data?: Uint8Array
}

/**
 * What a callback calls. A function of JavaScript is called with nothing, on its own thread; what it throws
 * is reported as uncaught, and the device goes on. By default the device does not wait for it. A native
 * function runs on a thread of the driver's: the device waits for it, and it must not call the driver.
 */
export type CallbackFunction = (() => void) | LibraryFunction

export interface CallbackOptions {
  /**
   * Whether the device waits until the function of JavaScript has returned. While such a call is pending,
   * calls of the device that would block JavaScript are refused: they would wait for each other. The function
   * has done its work when it returns: an async one is refused, and a promise that is returned is an error.
   */
  readonly ordered?: boolean
}

const orderedForm = {
  wanted: 'a function that has done its work when it returns: the device waits no longer',
  next: 'make it an ordinary function, neither async nor function*, or leave out ordered',
} as const

/** The function, which reports a promise that it returns as what it throws is reported. */
const doneAtReturn = (call: () => void, at: string): (() => void) => {
  const late = lateFunction(call)
  if (late !== undefined) throw badUse(at, 'callback', orderedForm.wanted, late, orderedForm.next)
  return () => {
    const returned = lateResult(call())
    if (returned !== undefined) throw badUse(at, 'callback', orderedForm.wanted, returned, orderedForm.next)
  }
}

export const callbackWork = (given: unknown, options: CallbackOptions, at: string): NativeNode => {
  const { ordered } = options
  if (ordered !== undefined && typeof ordered !== 'boolean')
    throw badArgument(at, 'ordered', 'true or false', ordered, 'leave it out')
  if (typeof given === 'function') {
    const call = given as () => void
    return ordered === true
      ? { kind: 'callback', function: doneAtReturn(call, at), ordered }
      : { kind: 'callback', function: call, ordered: false }
  }
  const { library, symbol, data } = (given ?? {}) as Partial<LibraryFunction>
  if (typeof library !== 'string' || typeof symbol !== 'string')
    throw badArgument(at, 'callback', 'a function, or { library, symbol }', given, 'pass a function')
  if (data !== undefined && !(data instanceof Uint8Array))
    throw badArgument(at, 'callback.data', 'a Uint8Array', data, 'pass the bytes of the data')
  if (ordered !== undefined)
    throw badUse(
      at,
      'ordered',
      'no `ordered` for a native function: the device always waits for it',
      String(ordered),
      'leave it out',
    )
  return { kind: 'callback', library, symbol, ...(data === undefined ? {} : { data }) }
}
