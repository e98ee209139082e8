import { badArgument, wrongDevice } from './allocator-error.js'
import { addressFor, Block, coreOf, homeOf, Span, spaceOf } from './block.js'
import type { Core } from './core.js'

/** A block or a part of one, as work on a lane touches it. */
export interface Place {
  readonly block: Block
  readonly address: number
  readonly offset: number
  readonly bytes: number
  readonly pinned: boolean
}

/**
 * The place that a program named. Throws unless it is of this device and alive. `graph`: that of the node
 * which it is for.
 */
export const placeOf = (given: unknown, core: Core, at: string, name: string, graph?: object): Place => {
  const block = given instanceof Span ? given.block : given
  if (!Block.is(block))
    throw badArgument(
      at,
      name,
      'a Block, or a part of one',
      given,
      'pass a block, or block.at(offset, bytes)',
    )
  if (!coreOf(block).same(core)) throw wrongDevice(at, 'a block', core.name)
  const offset = given instanceof Span ? given.offset : 0
  const bytes = given instanceof Span ? given.bytes : block.bytes
  return {
    block,
    address: addressFor(block, at, graph) + offset,
    offset,
    bytes,
    pinned: spaceOf(block).index === 1,
  }
}

/** The blocks of these places whose home is not the lane with this id, each once. */
export const foreignTo = (lane: number, places: readonly Place[]): Set<Block> => {
  const blocks = new Set<Block>()
  for (const { block } of places) if (homeOf(block) !== lane) blocks.add(block)
  return blocks
}
