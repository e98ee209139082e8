import type { NativeNode } from '../addon.js'
import { DisposedError } from '../errors.js'
import { badArgument, badUse, wholeNumber, wrongDevice } from './allocator-error.js'
import { madeBy, reading } from './arguments.js'
import { type Block, makeBlock, type Span } from './block.js'
import { Core, type Space } from './core.js'
import { coreOfEvent, Event, eventFor, makeEvent } from './event.js'
import { type FillOptions, fillOf } from './fill.js'
import { captureOf, GraphEvent, graphEventFor, recordedIn } from './graph-event.js'
import { type Kernel, type KernelLaunch, launchFor, type Operands, type Scalars } from './kernel.js'
import { type LaneCapture, laneAccess, notReady } from './lane-access.js'
import { type MemPool, poolFor, poolInScope } from './mem-pool.js'
import { foreignTo, type Place, placeOf } from './place.js'
import { callbackWork, copyWork, fillWork, kernelWork, operandOf } from './work.js'

declare module './lane-access.js' {
  interface Handles {
    readonly lane: Lane
  }
}

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

/**
 * `default`: made and closed with its device. `external`: over a stream of the caller's. `session`: stands
 * for the lanes of a session, or of all, which take no work of others.
 */
export type LaneKind = 'own' | 'default' | 'external' | keyof typeof lenders

/** Lanes that stand for who lends a block. They take no work. */
const lenders = {
  session: "one of a session, which takes the session's alone",
  graph: 'one of a graph, whose nodes alone use its memory',
} as const

const lenderOf = (kind: LaneKind): string | undefined => lenders[kind as keyof typeof lenders]

// Functions that reach into the private fields of a lane.

/** For tests: a copy that marks no use, as of work that Braid does not see. */
export let copyUnseen: (lane: Lane, to: Block | Span, from: Block | Span) => void
/** For devices, which make lanes. */
export let makeLane: (core: Core, id: number, stream: bigint, name: string, kind: LaneKind) => Lane
export let allocateOn: (
  lane: Lane,
  space: Space,
  bytes: number,
  options: AllocateOptions | undefined,
  at: string,
) => Block

/** A CUDA stream, or its like on the host device: runs its work in order, concurrently with other lanes. */
export class Lane implements Disposable {
  readonly #core: Core
  readonly #stream: bigint
  readonly #name: string
  readonly #kind: LaneKind
  // Negative once the lane is disposed of.
  #id: number
  // While the lane is being captured: what it is given becomes nodes of a graph.
  #capture: LaneCapture | undefined

  private constructor(core: Core, id: number, stream: bigint, name: string, kind: LaneKind) {
    madeBy(core instanceof Core, 'Lane', 'device.lane()')
    this.#core = core
    this.#id = id
    this.#stream = stream
    this.#name = name
    this.#kind = kind
  }

  static {
    makeLane = (core, id, stream, name, kind) => new Lane(core, id, stream, name, kind)
    copyUnseen = (lane, to, from) => {
      lane.#copy(to, from, undefined)
    }
    laneAccess.idFor = (lane, core, at, captured = false) => {
      if (!Lane.is(lane))
        throw badArgument(at, 'lane', 'a Lane, from device.lane()', lane, 'pass what device.lane() gave')
      if (!lane.#core.same(core)) throw wrongDevice(at, 'a lane', core.name)
      return captured ? lane.#live(at) : lane.#running(at)
    }
    laneAccess.coreFor = (lane, at) => {
      if (!Lane.is(lane))
        throw badArgument(at, 'lane', 'a Lane, from device.lane()', lane, 'pass what device.lane() gave')
      lane.#running(at)
      return lane.#core
    }
    laneAccess.captureOf = lane => lane.#capture
    laneAccess.setCapture = (lane, capture) => {
      lane.#capture = capture
    }
    allocateOn = (lane, space, bytes, options, at) => {
      const core = lane.#core
      const id = lane.#live(at)
      if (!(Number.isSafeInteger(bytes) && bytes >= 1)) wholeNumber(at, 'bytes', bytes)
      let pool = 0
      let site = 0
      if (options !== undefined || core.careful) {
        const given = optionsOf(options, at)
        if (given.pool !== undefined) pool = poolFor(given.pool, core, at)
        else if (space.index === 0) pool = poolInScope(core, at)
        if (core.stacks || given.site !== undefined) site = core.sites.of(given.site, core.stacks)
      }
      // Pinned memory has a home of its own, and is the host's at once, whatever its lane captures.
      const capture = space.index === 1 ? undefined : lane.#capture
      const handle =
        capture === undefined
          ? space.malloc(space.index === 1 ? core.hostLane : id, bytes, pool, site)
          : capture.malloc(core, id, bytes, pool, site, at)
      if (handle === 0) throw core.unserved(core.out[0]!, at, `lane ${lane.#name}`, space)
      return makeBlock(core, space, handle, bytes, lane, capture === undefined ? id : core.out[2]!, site)
    }
  }

  static is(value: unknown): value is Lane {
    return typeof value === 'object' && value !== null && #core in value
  }

  get name(): string {
    return this.#name
  }
  /**
   * The stream's handle (a CUstream), for libraries that take one. From then on the lane may have work that
   * Braid does not see: every mark of it is recorded anew, as on an external lane.
   */
  get stream(): bigint {
    if (this.#id >= 0 && !this.#core.closed) this.#core.native.lendStream(this.#id)
    return this.#stream
  }
  /** Whether the lane is over a stream of the caller's. */
  get external(): boolean {
    return this.#kind === 'external'
  }
  /** Whether a `GraphBuilder` captures the lane: what it is given becomes nodes of a graph. */
  get capturing(): boolean {
    return this.#capture !== undefined
  }
  get disposed(): boolean {
    return (this.#id < 0 && lenderOf(this.#kind) === undefined) || this.#core.closed
  }

  /**
   * Allocates device memory whose home is this lane. Throws an `OutOfMemoryError` where there is none. While
   * the lane is being captured, the memory is the graph's: see `GraphBuilder`.
   */
  malloc(bytes: number, options?: AllocateOptions): Block {
    return allocateOn(this, this.#core.device, bytes, options, 'lane.malloc')
  }

  /**
   * Copies the first `bytes` bytes on this lane; default: as many as the shorter of the two has. As of all
   * work of a lane, blocks of other lanes are marked with `recordUse`.
   */
  copy(to: Block | Span, from: Block | Span, bytes?: number): void {
    this.#used(this.#live('lane.copy'), this.#copy(to, from, bytes))
  }

  #copy(to: Block | Span, from: Block | Span, bytes: number | undefined): readonly Place[] {
    const target = placeOf(to, this.#core, 'lane.copy', 'to')
    const source = placeOf(from, this.#core, 'lane.copy', 'from')
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
    if (this.#capture !== undefined) {
      this.#captured('lane.copy', copyWork(operandOf(target), operandOf(source), length, 'lane.copy'))
      return []
    }
    const kind = target.pinned ? (source.pinned ? 3 : 1) : source.pinned ? 0 : 2
    const id = this.#live('lane.copy')
    this.#check(this.#core.native.copy(id, kind, target.address, source.address, length), 'lane.copy')
    return [target, source]
  }

  /** Fills `to` with a 32-bit word. Its length and offset must be multiples of 4. */
  fill32(to: Block | Span, word: number): void {
    this.#fill(to, word, { bits: 32 }, 'lane.fill32', 'word')
  }

  /**
   * Fills `to` with an element of 8, 16 or 32 bits. With `rows`, only the first `width` elements of each row
   * of `pitch` bytes.
   */
  fill(to: Block | Span, value: number, options: FillOptions = {}): void {
    this.#fill(to, value, options, 'lane.fill', 'value')
  }

  #fill(to: Block | Span, value: number, options: FillOptions, at: string, name: string): void {
    const place = placeOf(to, this.#core, at, 'to')
    const { element, width, rows, pitch } = reading(at, () => fillOf(place, value, options, at, name))
    if (width === 0 && this.#capture === undefined) return
    if (this.#capture !== undefined) {
      this.#captured(
        at,
        reading(at, () => fillWork(operandOf(place), value, options, at)),
      )
      return
    }
    const id = this.#live(at)
    this.#check(this.#core.native.fill(id, place.address, value, element, width, rows, pitch), at)
    this.#used(id, [place])
  }

  /**
   * Launches a kernel on this lane, which orders it after earlier work of the lane alone: make the lane wait
   * for what other lanes write. Blocks of other lanes that the kernel reads or writes are marked with
   * `recordUse`, so their memory is not given out again before the launch has run.
   */
  launch<R extends Operands, W extends Operands, S extends Scalars>(
    kernel: Kernel<R, W, S>,
    launch: KernelLaunch<R, W, S>,
  ): void {
    const at = 'lane.launch'
    const id = this.#live(at)
    const checked = launchFor(kernel, launch, this.#core, at)
    if (this.#capture !== undefined) {
      this.#captured(at, kernelWork(checked))
      return
    }
    const status = this.#core.native.launch(id, checked.kernel, checked.words)
    if (status !== 0) throw this.#core.failed(status, at, `kernel ${kernel.name} on lane ${this.#name}`)
    this.#used(id, checked.places)
  }

  /**
   * Calls the function on the JavaScript thread, once the lane has run everything that it was given before.
   * The lane does not wait for it; a later `synchronize` of the lane does. It keeps the process alive until
   * then; where the device fails it is never called.
   */
  callback(callback: () => void): void {
    const at = 'lane.callback'
    if (typeof callback !== 'function')
      throw badArgument(at, 'callback', 'a function', callback, 'pass what is to be called')
    if (this.#capture !== undefined) {
      this.#captured(at, callbackWork(callback, {}, at))
      return
    }
    const core = this.#core
    const called = core.native.callback(this.#live(at), () => {
      awake()
      callback()
    })
    this.#check(called, at)
    const awake = core.stayAwake()
  }

  /**
   * Marks this point of the lane. If the lane's newest event already marks it, that event is shared. A timed
   * event is one of its own, which costs the device some microseconds more.
   */
  record(options?: { readonly timed?: boolean }): Event
  /** Moves the event to this point of the lane; where it is captured and the event timed, in each launch. */
  record(event: GraphEvent): void
  record(options: { readonly timed?: boolean } | GraphEvent = {}): Event | undefined {
    if (GraphEvent.is(options)) return this.#recordEvent(options)
    const at = 'lane.record'
    const { timed = false } = options ?? {}
    if (typeof timed !== 'boolean')
      throw badArgument(at, 'options.timed', 'true or false', timed, 'correct the option, or leave it out')
    const id = this.#running(at)
    const handle = timed ? this.#core.native.recordTime(id) : this.#core.native.record(id)
    const point = this.#core.out[0]!
    if (handle === 0) throw this.#core.failed(point, at, `lane ${this.#name}`)
    return makeEvent(this.#core, handle, this, point, timed)
  }

  /**
   * Makes later work on this lane wait for the event, which may be of another device of the kind. Returns
   * false where no wait was needed, because the lane is known to be after the event. Of a `GraphEvent` it
   * waits for the newest record.
   */
  wait(event: Event | GraphEvent): boolean {
    if (GraphEvent.is(event)) return this.#waitEvent(event)
    const at = 'lane.wait'
    const id = this.#running(at)
    const core = this.#core
    const other = Event.is(event) ? coreOfEvent(event) : core
    if (!other.same(core) && other.native.info.kind === core.native.info.kind) {
      this.#check(core.native.waitPeer(id, eventFor(event, other, at)), at)
      return true
    }
    this.#check(core.native.wait(id, eventFor(event, core, at)), at)
    return core.out[0] === 1
  }

  /** Resolves when all work given to the lane so far has run. Waits on a thread other than JavaScript's. */
  async synchronize(): Promise<void> {
    const id = this.#running('lane.synchronize')
    await this.#core.wait('lane.synchronize', `lane ${this.#name}`, () =>
      this.#core.native.synchronizeLane(id),
    )
  }

  /** Whether the lane has run all its work. Queries the driver; does not block. */
  get idle(): boolean {
    const status = this.#core.native.idle(this.#running('lane.idle'))
    if (status !== notReady) this.#check(status, 'lane.idle')
    return status !== notReady
  }

  /**
   * Its pending work still runs, and blocks that were allocated on it stay valid. Does nothing to the default
   * lane.
   */
  [Symbol.dispose](): void {
    if (this.#id < 0 || this.#core.closed || this.#kind === 'default') return
    this.#running('lane')
    this.#core.tried('lane', `lane ${this.#name}`, () => this.#core.native.retireLane(this.#id))
    this.#id = -1
  }

  /** Marks the work that this lane was just given as a use of each block of another lane. */
  #used(id: number, places: readonly Place[]): void {
    for (const block of foreignTo(id, places)) block.recordUse(this)
  }

  #recordEvent(event: GraphEvent): undefined {
    const id = this.#live('lane.record')
    if (this.#capture !== undefined) {
      this.#capture.record(id, event, 'lane.record')
      return
    }
    const native = graphEventFor(event, this.#core, 'lane.record')
    this.#check(this.#core.native.recordEvent(id, native), 'lane.record')
    recordedIn(event, undefined)
  }

  #waitEvent(event: GraphEvent): true {
    const id = this.#live('lane.wait')
    const native = graphEventFor(event, this.#core, 'lane.wait')
    const capture = captureOf(event) as LaneCapture | undefined
    if (capture?.active === true ? this.#capture !== undefined && this.#capture !== capture : this.#capture)
      throw badUse(
        'lane.wait',
        `lane ${this.#name}, which is being captured,`,
        'an event that was recorded in the same capture',
        'another event',
        'wait for it before the capture begins, or add a node: builder.definition.wait(event)',
      )
    if (capture?.active === true) {
      capture.wait(this, id, event, 'lane.wait')
      return true
    }
    const status = this.#core.native.waitEvent(id, native)
    // Unless a node of a launched graph has recorded it since.
    if (status !== 0 && capture !== undefined)
      throw badUse(
        'lane.wait',
        `lane ${this.#name}`,
        'an event that was recorded outside of a capture',
        'one that was last recorded in a capture, which has ended',
        'record it again: lane.record(event), on the lane that the graph is launched on',
      )
    this.#check(status, 'lane.wait')
    return true
  }

  #captured(at: string, node: NativeNode): void {
    this.#capture!.work(this.#live(at), node, at)
  }

  /** The lane's id, where it runs what it is given. */
  #running(at: string): number {
    const id = this.#live(at)
    if (this.#capture === undefined) return id
    throw badUse(
      at,
      `lane ${this.#name}`,
      'a lane that runs what it is given',
      'one that is being captured into a graph',
      'call it before builder.begin() or after builder.end()',
    )
  }

  #live(at: string): number {
    if (this.#id >= 0 && !this.#core.closed) return this.#id
    const lender = lenderOf(this.#kind)
    if (lender !== undefined)
      throw badUse(
        at,
        `lane ${this.#name}`,
        'a lane that takes work',
        lender,
        'make a lane of your own: device.lane()',
      )
    const why = this.#core.closed ? `its device ${this.#core.name} is closed` : 'it was disposed of'
    throw new DisposedError(`lane ${this.#name}`, `${why}; call ${at} before that`)
  }

  #check(status: number, at: string): void {
    if (status !== 0) throw this.#core.failed(status, at, `lane ${this.#name}`)
  }
}

const optionsOf = (options: unknown, at: string): AllocateOptions => {
  if (options === undefined) return {}
  if (typeof options !== 'object' || options === null)
    throw badArgument(
      at,
      'options',
      'an object of pool, site',
      options,
      'correct the options, or leave them out',
    )
  const { pool, site } = reading(at, () => ({
    pool: (options as AllocateOptions).pool,
    site: (options as AllocateOptions).site,
  }))
  if (site !== undefined && typeof site !== 'string')
    throw badArgument(at, 'options.site', 'a text', site, 'say in words what the memory is for')
  return { pool, site } as AllocateOptions
}
