import type { Block } from '../device/block.js'

export type OwnedBlocks = Readonly<Record<string, Promise<Block>>>

const free = (block: Promise<Block>): void => {
  block.then(
    made => made[Symbol.dispose](),
    () => undefined,
  )
}

// Nobody can ask for them any more.
const untaken = new FinalizationRegistry<ReadonlyMap<string, Promise<Block>>>(blocks => {
  for (const block of blocks.values()) free(block)
})

/**
 * The blocks that a launch copied out, by output. Whoever asks for one frees it; those that nobody has asked for
 * are freed once the object is garbage.
 */
export const ownedOf = (blocks: ReadonlyMap<string, Promise<Block>>): OwnedBlocks => {
  const owned = {} as Record<string, Promise<Block>>
  const left = new Map(blocks)
  for (const [name, block] of blocks) {
    // One that nobody waits for fails quietly: the launch says so.
    block.catch(() => undefined)
    const get = (): Promise<Block> => {
      left.delete(name)
      return block
    }
    Object.defineProperty(owned, name, { get, enumerable: true })
  }
  untaken.register(owned, left)
  return owned
}
