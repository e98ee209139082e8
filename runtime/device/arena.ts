import { madeBy } from './arguments.js'
import { Block, type Span } from './block.js'

/**
 * One block whose parts lie at offsets that a plan has chosen, from `device.arena`. The parts own nothing and
 * may overlap; the plan must order their accesses.
 */
export class Arena implements Disposable {
  readonly #block: Block

  constructor(block: Block) {
    madeBy(Block.is(block), 'Arena', 'device.arena(bytes)')
    this.#block = block
  }

  /** The block, for its lane and for marking uses. */
  get block(): Block {
    return this.#block
  }
  get bytes(): number {
    return this.#block.bytes
  }
  get address(): number {
    return this.#block.address
  }

  /** The `bytes` bytes from `offset` on. */
  at(offset: number, bytes: number): Span {
    return this.#block.at(offset, bytes)
  }

  free(): void {
    this.#block.free()
  }

  [Symbol.dispose](): void {
    this.#block[Symbol.dispose]()
  }
}
