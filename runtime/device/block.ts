import { DisposedError } from '../errors.js'
import { size as inWords } from '../values.js'
import type { Core, Space } from './core.js'
import { type Event, eventFor } from './event.js'
import { badArgument, badUse, wholeNumber } from './failure.js'
import { type Lane, laneFor } from './lane.js'
import { Span } from './span.js'

// A view must not outlive its block silently: whoever holds the view holds the block.
const blockOf = new WeakMap<ArrayBuffer, Block>()

/** Made by a lane, with what the allocator gave. */
export let makeBlock: (
  core: Core,
  space: Space,
  handle: number,
  bytes: number,
  lane: Lane,
  home: number,
  site: number,
) => Block
/** The address, of a block that is alive and of this device. */
export let addressFor: (block: Block, at: string) => number
export let spaceOf: (block: Block) => Space
export let coreOf: (block: Block) => Core

/**
 * Memory of a device, or pinned host memory, from `lane.malloc` or `device.pinned`. Its owner frees it, once, on whatever lane is current:
 * `free()`, or `using`. Work that other lanes were given on it is marked with `recordUse`, and its memory is not handed out again before
 * that has run; of pinned memory, which the host may write at once, not before that and the home lane's work have completed. Everything but
 * its sizes throws a `DisposedError` after the free.
 */
export class Block implements Disposable {
  readonly #core: Core
  readonly #space: Space
  readonly #address: number
  readonly #bytes: number
  readonly #size: number
  readonly #lane: Lane
  readonly #home: number
  // 0 once it is freed.
  #handle: number
  // Of pinned memory: whether its last use on the home lane was marked by its owner. Else its free marks it.
  #marked = false
  #view: ArrayBuffer | undefined

  private constructor(core: Core, space: Space, handle: number, bytes: number, lane: Lane, home: number) {
    this.#core = core
    this.#space = space
    this.#handle = handle
    this.#address = core.out[0]!
    this.#size = core.out[1]!
    this.#bytes = bytes
    this.#lane = lane
    this.#home = home
  }

  static {
    makeBlock = (core, space, handle, bytes, lane, home, site) => {
      const block = new Block(core, space, handle, bytes, lane, home)
      core.holdings?.add(block, { space, handle, bytes, home, site })
      return block
    }
    addressFor = (block, at) => {
      block.#alive(at)
      return block.#address
    }
    spaceOf = block => block.#space
    coreOf = block => block.#core
  }

  static is(value: unknown): value is Block {
    return typeof value === 'object' && value !== null && #core in value
  }

  /** Where it lies, as CUDA's calls take it. */
  get address(): number {
    this.#alive('block.address')
    return this.#address
  }
  /** As it was asked for. */
  get bytes(): number {
    return this.#bytes
  }
  /** As it was given: what it takes of the pool. */
  get size(): number {
    return this.#size
  }
  /** Its home: work on this lane needs no mark. */
  get lane(): Lane {
    return this.#lane
  }
  get pinned(): boolean {
    return this.#space.index === 1
  }
  get disposed(): boolean {
    return this.#handle === 0 || this.#core.closed
  }

  /**
   * Marks this point of `lane` as its last use so far, by an event that is recorded now (or shared, where the lane's newest one already
   * marks this point). Nothing on the home lane. A later one of the same lane takes its place. Of pinned memory it means something on the
   * home lane too: there the point of the free counts unless this says an earlier one.
   */
  recordUse(lane: Lane): void {
    const id = laneFor(lane, this.#core, 'block.recordUse')
    this.#alive('block.recordUse')
    const status = this.#space.recordUse(this.#handle, id)
    if (status !== 0) throw this.#core.failed(status, 'block.recordUse', this.#name())
    if (id === this.#home) this.#marked = true
  }

  /** Whatever `lane` has been given by the time of the free counts as a use: imprecise, as PyTorch's `record_stream`. */
  recordStream(lane: Lane): void {
    const id = laneFor(lane, this.#core, 'block.recordStream')
    this.#alive('block.recordStream')
    const status = this.#space.recordStream(this.#handle, id)
    if (status !== 0) throw this.#core.failed(status, 'block.recordStream', this.#name())
  }

  /** Keeps the memory until the event has completed; the event may be disposed of at once. */
  keepUntil(event: Event): void {
    const handle = eventFor(event, this.#core, 'block.keepUntil')
    this.#alive('block.keepUntil')
    const status = this.#space.keepUntil(this.#handle, handle)
    if (status !== 0) throw this.#core.failed(status, 'block.keepUntil', this.#name())
  }

  /** A part of it, which owns nothing. */
  at(offset: number, bytes: number): Span {
    this.#alive('block.at')
    const start = wholeNumber('block.at', 'offset', offset, 0)
    const length = wholeNumber('block.at', 'bytes', bytes)
    if (start + length > this.#bytes)
      throw badArgument(
        'block.at',
        'offset',
        `a range inside the ${this.#bytes} bytes of the block`,
        `bytes ${start} to ${start + length}`,
        'ask for less',
      )
    return new Span(this, start, length)
  }

  /**
   * Of pinned memory: its bytes. The same buffer at each call; its length is 0 once the block is freed. Where a program moves its memory
   * into another buffer (`structuredClone` with `transfer`), the block is given out again only once nobody can read that any more.
   */
  view(): ArrayBuffer {
    this.#alive('block.view')
    if (this.#space.index !== 1)
      throw badUse(
        'block.view',
        this.#name(),
        'a pinned block',
        'one of device memory',
        'copy it into a pinned block: lane.copy(device.pinned(bytes), block)',
      )
    if (this.#view === undefined) {
      // Not marked as untransferable: Node does that itself, and from 24.16 on a second mark keeps `free` from detaching it.
      this.#view = this.#core.native.view(this.#handle)
      blockOf.set(this.#view, this)
    } else if (this.#view.byteLength === 0) {
      throw badUse(
        'block.view',
        this.#name(),
        'a view that lies where it was',
        'one that was moved into another ArrayBuffer',
        'keep the view, or free the block',
      )
    }
    return this.#view
  }

  /** Gives the memory back, for whoever comes after every use. Throws where that has been done. */
  free(): void {
    const handle = this.#handle
    if (handle === 0 || this.#core.closed) throw this.#gone('block.free')
    // What is called of the device meanwhile finds it freed; where the device takes no call, it is not.
    this.#handle = 0
    if (this.#space.index === 1 && !this.#marked) {
      const marked = this.#space.recordUse(handle, this.#home)
      if (marked !== 0) {
        this.#handle = handle
        throw this.#core.failed(marked, 'block.free', this.#name())
      }
    }
    const status = this.#view === undefined ? this.#space.free(handle) : this.#core.native.freeViewed(handle)
    if (status !== 0) {
      if (status < 0) this.#handle = handle
      throw this.#core.failed(status, 'block.free', this.#name())
    }
    this.#view = undefined
    this.#core.holdings?.remove(this, handle)
  }

  /** Frees it unless that has been done, or its device is closed. */
  [Symbol.dispose](): void {
    if (this.#handle !== 0 && !this.#core.closed) this.free()
  }

  #name(): string {
    return `a block of ${inWords(this.#bytes)}`
  }

  #alive(at: string): void {
    if (this.#handle === 0 || this.#core.closed) throw this.#gone(at)
  }

  #gone(at: string): DisposedError {
    const why = this.#core.closed
      ? `its device ${this.#core.name} is closed`
      : "it was freed, and its memory may be somebody else's"
    return new DisposedError(this.#name(), `${why}; call ${at} before that`)
  }
}
