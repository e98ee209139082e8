import type { Block } from './block.js'
import { addressFor } from './block.js'

/** A part of a block, from `block.at` or `arena.at`: it owns nothing, and ends with its block. */
export class Span {
  readonly #block: Block
  readonly #offset: number
  readonly #bytes: number

  constructor(block: Block, offset: number, bytes: number) {
    this.#block = block
    this.#offset = offset
    this.#bytes = bytes
  }

  get block(): Block {
    return this.#block
  }
  get offset(): number {
    return this.#offset
  }
  get bytes(): number {
    return this.#bytes
  }
  get address(): number {
    return addressFor(this.#block, 'span.address') + this.#offset
  }
}
