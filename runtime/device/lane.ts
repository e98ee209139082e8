import { DisposedError } from '../errors.js'
import { addressFor, Block, coreOf, makeBlock, spaceOf } from './block.js'
import type { Core, Space } from './core.js'
import { type Event, eventFor, makeEvent } from './event.js'
import { badArgument, badUse, wholeNumber, wrongDevice } from './failure.js'
import { type MemPool, poolFor } from './mem-pool.js'
import { poolInScope } from './scopes.js'
import { Span } from './span.js'

export interface AllocateOptions {
  /** The pool that it comes from; else the one whose `use` this is called in; else the device's own. */
  readonly pool?: MemPool
  /** What it is for: errors, leak reports and snapshots say it. */
  readonly site?: string
}

export interface LaneOptions {
  readonly name?: string
  readonly priority?: 'low' | 'normal' | 'high'
}

/** Made by a device. */
export let makeLane: (core: Core, id: number, stream: bigint, name: string, kind: LaneKind) => Lane
/** The id of a lane that is alive and of this device. */
export let laneFor: (lane: unknown, core: Core, at: string) => number
export let allocateOn: (
  lane: Lane,
  space: Space,
  bytes: number,
  options: AllocateOptions | undefined,
  at: string,
) => Block

/** `default`: the device's, and goes with it. `external`: over a stream of the caller's. */
export type LaneKind = 'own' | 'default' | 'external'

const notReady = 600

/** A CUDA stream, or its like on the host device: what it is given runs in order, beside other lanes. */
export class Lane implements Disposable {
  readonly #core: Core
  readonly #stream: bigint
  readonly #name: string
  readonly #kind: LaneKind
  // Below 0 once it is disposed of.
  #id: number

  private constructor(core: Core, id: number, stream: bigint, name: string, kind: LaneKind) {
    this.#core = core
    this.#id = id
    this.#stream = stream
    this.#name = name
    this.#kind = kind
  }

  static {
    makeLane = (core, id, stream, name, kind) => new Lane(core, id, stream, name, kind)
    laneFor = (lane, core, at) => {
      if (!Lane.is(lane))
        throw badArgument(at, 'lane', 'a Lane, from device.lane()', lane, 'pass what device.lane() gave')
      if (lane.#core !== core) throw wrongDevice(at, 'a lane', core.name)
      if (lane.#id < 0) throw lane.#gone(at)
      return lane.#id
    }
    allocateOn = (lane, space, bytes, options, at) => {
      const core = lane.#core
      if (lane.#id < 0 || core.closed) throw lane.#gone(at)
      if (!(Number.isSafeInteger(bytes) && bytes >= 1)) wholeNumber(at, 'bytes', bytes)
      let pool = 0
      let site = 0
      if (options !== undefined || core.careful) {
        checkOptions(options, at)
        pool =
          options?.pool === undefined
            ? space.index === 0
              ? poolInScope(core, at)
              : 0
            : poolFor(options.pool, core, at)
        site = core.stacks || options?.site !== undefined ? core.sites.of(options?.site, core.stacks) : 0
      }
      const handle = space.malloc(space.index === 1 ? core.hostLane : lane.#id, bytes, pool, site)
      if (handle === 0) throw core.unserved(core.out[0]!, at, `lane ${lane.#name}`, space)
      return makeBlock(core, space, handle, bytes, lane, lane.#id, site)
    }
  }

  static is(value: unknown): value is Lane {
    return typeof value === 'object' && value !== null && #core in value
  }

  get name(): string {
    return this.#name
  }
  /** The stream's handle, for libraries that are given one: a CUstream. */
  get stream(): bigint {
    return this.#stream
  }
  /** Over a stream of the caller's: Braid does not see what else it is given. */
  get external(): boolean {
    return this.#kind === 'external'
  }
  get disposed(): boolean {
    return this.#id < 0 || this.#core.closed
  }

  /** Device memory whose home is this lane. Throws an `OutOfMemoryError` where there is none. */
  malloc(bytes: number, options?: AllocateOptions): Block {
    return allocateOn(this, this.#core.device, bytes, options, 'lane.malloc')
  }

  /**
   * Copies the first `bytes` bytes, all of the shorter unless told, on this lane. It marks no use: a block whose home is another lane wants
   * `recordUse(lane)` before it is freed.
   */
  copy(to: Block | Span, from: Block | Span, bytes?: number): void {
    const target = this.#place(to, 'lane.copy', 'to')
    const source = this.#place(from, 'lane.copy', 'from')
    const longest = Math.min(target.bytes, source.bytes)
    const length = bytes === undefined ? longest : wholeNumber('lane.copy', 'bytes', bytes, 0)
    if (length > longest)
      throw badArgument(
        'lane.copy',
        'bytes',
        `at most ${longest}: to has ${target.bytes} bytes, from ${source.bytes}`,
        length,
        'copy fewer bytes',
      )
    const kind = target.pinned ? (source.pinned ? 3 : 1) : source.pinned ? 0 : 2
    const status = this.#core.native.copy(
      this.#live('lane.copy'),
      kind,
      target.address,
      source.address,
      length,
    )
    if (status !== 0) throw this.#core.failed(status, 'lane.copy', `lane ${this.#name}`)
  }

  /** Fills it with a 32-bit word; its length and offset are multiples of 4. */
  fill32(to: Block | Span, word: number): void {
    const target = this.#place(to, 'lane.fill32', 'to')
    const value = wholeNumber('lane.fill32', 'word', word, 0, 0xffff_ffff)
    if (target.bytes % 4 !== 0 || target.address % 4 !== 0)
      throw badUse(
        'lane.fill32',
        'to',
        'a range of whole words of 4 bytes',
        `${target.bytes} bytes at offset ${target.offset}`,
        'fill block.at(offset, bytes) with both multiples of 4',
      )
    const status = this.#core.native.fill32(
      this.#live('lane.fill32'),
      target.address,
      value,
      target.bytes / 4,
    )
    if (status !== 0) throw this.#core.failed(status, 'lane.fill32', `lane ${this.#name}`)
  }

  /** Marks this point of the lane; where its newest event marks it already, that one is shared. */
  record(): Event {
    const handle = this.#core.native.record(this.#live('lane.record'))
    const point = this.#core.out[0]!
    if (handle === 0) throw this.#core.failed(point, 'lane.record', `lane ${this.#name}`)
    return makeEvent(this.#core, handle, this, point)
  }

  /** Makes what follows on this lane wait for the event, unless it is known to be after it. Whether a wait was needed. */
  wait(event: Event): boolean {
    const status = this.#core.native.wait(this.#live('lane.wait'), eventFor(event, this.#core, 'lane.wait'))
    if (status !== 0) throw this.#core.failed(status, 'lane.wait', `lane ${this.#name}`)
    return this.#core.out[0] === 1
  }

  /** When everything that the lane has been given so far has run. Waits on another thread than JavaScript's. */
  async synchronize(): Promise<void> {
    const id = this.#live('lane.synchronize')
    await this.#core.wait('lane.synchronize', `lane ${this.#name}`, () =>
      this.#core.native.synchronizeLane(id),
    )
  }

  /** Whether it has run everything that it was given. Asks the driver; does not block. */
  get idle(): boolean {
    const status = this.#core.native.idle(this.#live('lane.idle'))
    if (status === notReady) return false
    if (status !== 0) throw this.#core.failed(status, 'lane.idle', `lane ${this.#name}`)
    return true
  }

  /** What it has been given still runs; blocks that were allocated on it stay good. Nothing for the default lane. */
  [Symbol.dispose](): void {
    if (this.#id < 0 || this.#core.closed || this.#kind === 'default') return
    this.#core.tried('lane', `lane ${this.#name}`, () => this.#core.native.retireLane(this.#id))
    this.#id = -1
  }

  #live(at: string): number {
    if (this.#id < 0 || this.#core.closed) throw this.#gone(at)
    return this.#id
  }

  #gone(at: string): DisposedError {
    const why = this.#core.closed ? `its device ${this.#core.name} is closed` : 'it was disposed of'
    return new DisposedError(`lane ${this.#name}`, `${why}; call ${at} before that`)
  }

  #place(given: unknown, at: string, name: string): Place {
    const block = given instanceof Span ? given.block : given
    if (!Block.is(block))
      throw badArgument(
        at,
        name,
        'a Block, or a part of one',
        given,
        'pass a block, or block.at(offset, bytes)',
      )
    if (coreOf(block) !== this.#core) throw wrongDevice(at, 'a block', this.#core.name)
    const offset = given instanceof Span ? given.offset : 0
    const bytes = given instanceof Span ? given.bytes : block.bytes
    return { address: addressFor(block, at) + offset, offset, bytes, pinned: spaceOf(block).index === 1 }
  }
}

interface Place {
  readonly address: number
  readonly offset: number
  readonly bytes: number
  readonly pinned: boolean
}

const checkOptions = (options: unknown, at: string): void => {
  if (options === undefined) return
  if (typeof options !== 'object' || options === null)
    throw badArgument(
      at,
      'options',
      'an object of pool, site',
      options,
      'correct the options, or leave them out',
    )
  const { site } = options as AllocateOptions
  if (site !== undefined && typeof site !== 'string')
    throw badArgument(at, 'options.site', 'a text', site, 'say in words what the memory is for')
}
