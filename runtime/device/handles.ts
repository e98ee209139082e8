// The handles that a program holds of a device: lanes, events, blocks of memory and parts of blocks. Lanes
// make blocks and events, and both name their lane, so the four classes stand in one file.
import { DisposedError } from '../errors.js'
import { size } from '../values.js'
import { badArgument, badUse, wholeNumber, wrongDevice } from './allocator-error.js'
import type { Core, Space } from './core.js'
import { type MemPool, poolFor, poolInScope } from './mem-pool.js'

export interface AllocateOptions {
  /**
   * The pool that the memory comes from. Default: the innermost pool whose `use` runs the call, else the
   * device's own pool.
   */
  readonly pool?: MemPool
  /** What the memory is for. Errors, leak warnings and snapshots show it. */
  readonly site?: string
}

export interface LaneOptions {
  readonly name?: string
  readonly priority?: 'low' | 'normal' | 'high'
}

/** `default`: made and closed with its device. `external`: over a stream of the caller's. */
export type LaneKind = 'own' | 'default' | 'external'

// Functions that reach into the private fields of a handle. Each class sets its own when it is defined.

/** For devices, which make lanes. */
export let makeLane: (core: Core, id: number, stream: bigint, name: string, kind: LaneKind) => Lane
/** The id of a lane. Throws unless it is a lane of this device that is not disposed of. */
export let laneFor: (lane: unknown, core: Core, at: string) => number
export let allocateOn: (
  lane: Lane,
  space: Space,
  bytes: number,
  options: AllocateOptions | undefined,
  at: string,
) => Block
let makeEvent: (core: Core, handle: number, lane: Lane, point: number) => Event
/** The handle of an event. Throws unless it is an event of this device that is not disposed of. */
let eventFor: (event: unknown, core: Core, at: string) => number
let makeBlock: (
  core: Core,
  space: Space,
  handle: number,
  bytes: number,
  lane: Lane,
  home: number,
  site: number,
) => Block
/** The address of a block. Throws unless the block is alive. */
let addressFor: (block: Block, at: string) => number
/** What the addon knows a block of device memory by. Throws unless the block is alive. */
export let sharedHandle: (block: Block) => number
/** Frees a block that sessions may use: it lives on until the last of them has closed. */
export let freeShared: (block: Block) => void
let spaceOf: (block: Block) => Space
let coreOf: (block: Block) => Core

// The driver's code for work that has not completed yet.
const notReady = 600

/** A CUDA stream, or its like on the host device: runs its work in order, concurrently with other lanes. */
export class Lane implements Disposable {
  readonly #core: Core
  readonly #stream: bigint
  readonly #name: string
  readonly #kind: LaneKind
  // Negative once the lane is disposed of.
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
      if (!lane.#core.same(core)) throw wrongDevice(at, 'a lane', core.name)
      return lane.#live(at)
    }
    allocateOn = (lane, space, bytes, options, at) => {
      const core = lane.#core
      const id = lane.#live(at)
      if (!(Number.isSafeInteger(bytes) && bytes >= 1)) wholeNumber(at, 'bytes', bytes)
      let pool = 0
      let site = 0
      if (options !== undefined || core.careful) {
        checkOptions(options, at)
        if (options?.pool !== undefined) pool = poolFor(options.pool, core, at)
        else if (space.index === 0) pool = poolInScope(core, at)
        if (core.stacks || options?.site !== undefined) site = core.sites.of(options?.site, core.stacks)
      }
      const handle = space.malloc(space.index === 1 ? core.hostLane : id, bytes, pool, site)
      if (handle === 0) throw core.unserved(core.out[0]!, at, `lane ${lane.#name}`, space)
      return makeBlock(core, space, handle, bytes, lane, id, site)
    }
  }

  static is(value: unknown): value is Lane {
    return typeof value === 'object' && value !== null && #core in value
  }

  get name(): string {
    return this.#name
  }
  /** The stream's handle (a CUstream), for libraries that take one. */
  get stream(): bigint {
    return this.#stream
  }
  /** Whether the lane is over a stream of the caller's, which may be given work that Braid does not see. */
  get external(): boolean {
    return this.#kind === 'external'
  }
  get disposed(): boolean {
    return this.#id < 0 || this.#core.closed
  }

  /** Allocates device memory whose home is this lane. Throws an `OutOfMemoryError` where there is none. */
  malloc(bytes: number, options?: AllocateOptions): Block {
    return allocateOn(this, this.#core.device, bytes, options, 'lane.malloc')
  }

  /**
   * Copies the first `bytes` bytes on this lane; default: as many as the shorter of the two has. Marks no
   * use: if the home of a block is another lane, call `recordUse(lane)` on the block before it is freed.
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
    const id = this.#live('lane.copy')
    this.#check(this.#core.native.copy(id, kind, target.address, source.address, length), 'lane.copy')
  }

  /** Fills `to` with a 32-bit word. Its length and offset must be multiples of 4. */
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
    const id = this.#live('lane.fill32')
    this.#check(this.#core.native.fill32(id, target.address, value, target.bytes / 4), 'lane.fill32')
  }

  /** Marks this point of the lane. If the lane's newest event already marks it, that event is shared. */
  record(): Event {
    const handle = this.#core.native.record(this.#live('lane.record'))
    const point = this.#core.out[0]!
    if (handle === 0) throw this.#core.failed(point, 'lane.record', `lane ${this.#name}`)
    return makeEvent(this.#core, handle, this, point)
  }

  /**
   * Makes later work on this lane wait for the event. Returns false where no wait was needed, because the
   * lane is known to be after the event.
   */
  wait(event: Event): boolean {
    const id = this.#live('lane.wait')
    this.#check(this.#core.native.wait(id, eventFor(event, this.#core, 'lane.wait')), 'lane.wait')
    return this.#core.out[0] === 1
  }

  /** Resolves when all work given to the lane so far has run. Waits on a thread other than JavaScript's. */
  async synchronize(): Promise<void> {
    const id = this.#live('lane.synchronize')
    await this.#core.wait('lane.synchronize', `lane ${this.#name}`, () =>
      this.#core.native.synchronizeLane(id),
    )
  }

  /** Whether the lane has run all its work. Queries the driver; does not block. */
  get idle(): boolean {
    const status = this.#core.native.idle(this.#live('lane.idle'))
    if (status !== notReady) this.#check(status, 'lane.idle')
    return status !== notReady
  }

  /**
   * Its pending work still runs, and blocks that were allocated on it stay valid. Does nothing to the default
   * lane.
   */
  [Symbol.dispose](): void {
    if (this.#id < 0 || this.#core.closed || this.#kind === 'default') return
    this.#core.tried('lane', `lane ${this.#name}`, () => this.#core.native.retireLane(this.#id))
    this.#id = -1
  }

  #live(at: string): number {
    if (this.#id >= 0 && !this.#core.closed) return this.#id
    const why = this.#core.closed ? `its device ${this.#core.name} is closed` : 'it was disposed of'
    throw new DisposedError(`lane ${this.#name}`, `${why}; call ${at} before that`)
  }

  #check(status: number, at: string): void {
    if (status !== 0) throw this.#core.failed(status, at, `lane ${this.#name}`)
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
    if (!coreOf(block).same(this.#core)) throw wrongDevice(at, 'a block', this.#core.name)
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

/**
 * A point in a lane's order, from `lane.record()`. Once it is done, all work given to the lane before it has
 * completed.
 */
export class Event implements Disposable {
  readonly #core: Core
  readonly #lane: Lane
  readonly #point: number
  // 0 once the event is disposed of.
  #handle: number

  private constructor(core: Core, handle: number, lane: Lane, point: number) {
    this.#core = core
    this.#handle = handle
    this.#lane = lane
    this.#point = point
  }

  static {
    makeEvent = (core, handle, lane, point) => new Event(core, handle, lane, point)
    eventFor = (event, core, at) => {
      if (!Event.is(event))
        throw badArgument(at, 'event', 'an Event, from lane.record()', event, 'pass what lane.record() gave')
      if (!event.#core.same(core)) throw wrongDevice(at, 'an event', core.name)
      event.#alive(at)
      return event.#handle
    }
  }

  static is(value: unknown): value is Event {
    return typeof value === 'object' && value !== null && #core in value
  }

  get lane(): Lane {
    return this.#lane
  }
  /** Its number in the lane's order, from 1 on. Two events at one point have the same number. */
  get point(): number {
    return this.#point
  }
  get disposed(): boolean {
    return this.#handle === 0 || this.#core.closed
  }

  /**
   * Whether the lane has passed the event. Queries the driver where that is not known yet; does not block.
   */
  get done(): boolean {
    this.#alive('event.done')
    const status = this.#core.native.done(this.#handle)
    if (status === notReady) return false
    if (status !== 0) throw this.#core.failed(status, 'event.done', 'an event')
    return true
  }

  /** Resolves when the lane has passed the event. Waits on a thread other than JavaScript's. */
  async synchronize(): Promise<void> {
    this.#alive('event.synchronize')
    await this.#core.wait('event.synchronize', 'an event', () =>
      this.#core.native.synchronizeEvent(this.#handle),
    )
  }

  /** Lets its driver event be recorded again. Blocks that are kept until the event stay kept. */
  [Symbol.dispose](): void {
    const handle = this.#handle
    this.#handle = 0
    if (handle !== 0 && !this.#core.closed) this.#core.native.drop(handle)
  }

  #alive(at: string): void {
    this.#core.open('an event')
    if (this.#handle === 0)
      throw new DisposedError('an event', `${at} needs one that was not disposed of; record another`)
  }
}

// A view is memory of its block, so a program that holds only the view must keep the block from being
// collected.
const blockOf = new WeakMap<ArrayBuffer, Block>()

/**
 * Device memory from `lane.malloc`, or pinned host memory from `device.pinned`. Its owner frees it once, with
 * `free()` or `using`, whichever lane is current. `recordUse` marks work of other lanes on it: its memory is
 * not given to another owner before that work. The host may write to pinned memory at once, so pinned memory
 * is not given out again before the marked work and the home lane's work have completed. After the free
 * everything but its sizes throws a `DisposedError`.
 */
export class Block implements Disposable {
  readonly #core: Core
  readonly #space: Space
  readonly #address: number
  readonly #bytes: number
  readonly #size: number
  readonly #lane: Lane
  readonly #home: number
  // 0 once the block is freed.
  #handle: number
  // Of pinned memory: whether the owner marked the last use on the home lane. If not, the free marks it.
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
      core.observer?.made(block, { space, handle, bytes, home, site })
      return block
    }
    addressFor = (block, at) => {
      block.#alive(at)
      return block.#address
    }
    sharedHandle = block => {
      block.#alive('open')
      return block.#handle
    }
    freeShared = block => {
      const handle = block.#handle
      block.#handle = 0
      block.#check(block.#core.native.freeShared(handle), 'block.free')
      block.#core.observer?.freed(block, handle)
    }
    spaceOf = block => block.#space
    coreOf = block => block.#core
  }

  static is(value: unknown): value is Block {
    return typeof value === 'object' && value !== null && #core in value
  }

  /** Its address, as CUDA's calls take it. */
  get address(): number {
    this.#alive('block.address')
    return this.#address
  }
  /** Bytes as asked for. */
  get bytes(): number {
    return this.#bytes
  }
  /** Bytes as given out, after rounding. */
  get size(): number {
    return this.#size
  }
  /** The home lane: work on it needs no mark. */
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
   * Marks the present point of `lane` as its last use of the block, with an event that is recorded now (or
   * shared, where the lane's newest event already marks this point). A later mark on the same lane replaces
   * it. On the home lane the call does nothing to device memory; for pinned memory it replaces the point of
   * the free as the home lane's last use.
   */
  recordUse(lane: Lane): void {
    const id = laneFor(lane, this.#core, 'block.recordUse')
    this.#alive('block.recordUse')
    this.#check(this.#space.recordUse(this.#handle, id), 'block.recordUse')
    if (id === this.#home) this.#marked = true
  }

  /**
   * All work that `lane` is given before the free counts as a use: imprecise, as PyTorch's `record_stream`.
   */
  recordStream(lane: Lane): void {
    const id = laneFor(lane, this.#core, 'block.recordStream')
    this.#alive('block.recordStream')
    this.#check(this.#space.recordStream(this.#handle, id), 'block.recordStream')
  }

  /** Keeps the memory until the event has completed. The event may be disposed of at once. */
  keepUntil(event: Event): void {
    const handle = eventFor(event, this.#core, 'block.keepUntil')
    this.#alive('block.keepUntil')
    this.#check(this.#space.keepUntil(this.#handle, handle), 'block.keepUntil')
  }

  /** A part of the block, which owns nothing. */
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
   * The bytes of pinned memory: the same buffer at each call, whose length is 0 once the block is freed. If a
   * program moves the memory into another buffer (`structuredClone` with `transfer`), the block's memory is
   * given out again only when that buffer has been collected.
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
      // Node marks the buffer as untransferable. From Node 24.16 on a second mark keeps `free` from detaching
      // it.
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

  /** Gives the memory back. Its next owner comes after every use. Throws if the block was freed before. */
  free(): void {
    const handle = this.#handle
    if (handle === 0 || this.#core.closed) throw this.#gone('block.free')
    // Callbacks that run during the call see a freed block. If the device refuses the call, the block is not
    // freed.
    this.#handle = 0
    if (this.#space.index === 1 && !this.#marked) {
      const marked = this.#space.recordUse(handle, this.#home)
      if (marked !== 0) {
        this.#handle = handle
        this.#check(marked, 'block.free')
      }
    }
    const status = this.#view === undefined ? this.#space.free(handle) : this.#core.native.freeViewed(handle)
    if (status < 0) this.#handle = handle
    this.#check(status, 'block.free')
    this.#view = undefined
    this.#core.observer?.freed(this, handle)
  }

  /** Frees the block, unless it was freed or its device is closed. */
  [Symbol.dispose](): void {
    if (this.#handle !== 0 && !this.#core.closed) this.free()
  }

  #name(): string {
    return `a block of ${size(this.#bytes)}`
  }

  #check(status: number, at: string): void {
    if (status !== 0) throw this.#core.failed(status, at, this.#name())
  }

  #alive(at: string): void {
    if (this.#handle === 0 || this.#core.closed) throw this.#gone(at)
  }

  #gone(at: string): DisposedError {
    const why = this.#core.closed
      ? `its device ${this.#core.name} is closed`
      : 'it was freed, and its memory may belong to another block'
    return new DisposedError(this.#name(), `${why}; call ${at} before that`)
  }
}

/** A part of a block, from `block.at` or `arena.at`. It owns nothing, and is valid as long as its block. */
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
