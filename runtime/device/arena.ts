import type { Block } from './block.js'
import type { Span } from './span.js'

/**
 * One block, and parts of it at offsets that somebody has planned: `device.arena`. The parts own nothing and may overlap; what orders their
 * accesses is the plan's to see to.
 */
export class Arena implements Disposable {
  readonly #block: Block

  constructor(block: Block) {
    this.#block = block
  }

  /** The memory: marks of uses, and its lane, are its own. */
  get block(): Block {
    return this.#block
  }
  get bytes(): number {
    return this.#block.bytes
  }
  get address(): number {
    return this.#block.address
  }

  /** The part of these bytes from `offset` on. */
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
