import { DisposedError } from '../errors.js'
import { makeLendable } from '../lending.js'
import { size } from '../values.js'
import { badArgument, badUse, wholeNumber } from './allocator-error.js'
import { madeBy } from './arguments.js'
import { Core, type Space } from './core.js'
import { type Event, eventFor } from './event.js'
import { type Handles, laneAccess } from './lane-access.js'

// Functions that reach into the private fields of a block.

/** For lanes, which allocate blocks. */
export let makeBlock: (
  core: Core,
  space: Space,
  handle: number,
  bytes: number,
  lane: Handles['lane'],
  home: number,
  site: number,
) => Block
/** The address of a block. Throws unless the block is alive, and no graph's own but that graph's. */
export let addressFor: (block: Block, at: string, graph?: object) => number
/** What the addon knows a block of device memory by. Throws unless the block is alive. */
export let sharedHandle: (block: Block) => number
/** Makes the home lane of a block wait for all uses that other lanes marked. */
export let waitUses: (block: Block) => void
/**
 * A block that stays its lender's: an output of a session while its lease is held, a shared parameter, or a
 * value of a plan tree during `handle.use`.
 */
export let lendBlock: (core: Core, loan: Loan) => Block
/**
 * Makes the block unusable, and marks what `recordStream` noted. `why` and `next` are for later uses of it.
 */
export let endLoan: (block: Block, why: string, next: string) => void
/** Makes a block unusable that is lent from an owner who goes on; `error` is what later uses of it throw. */
export let revokeLoan: (block: Block, error: (at: string) => Error) => void
/** What the addon knows a block by that a graph keeps. Throws unless the block is alive, and may be kept. */
export let keptHandle: (block: Block) => number
/** Copies the bytes of device memory that no pending work writes. */
export let bytesOf: (block: Block) => Promise<ArrayBuffer>
export let spaceOf: (block: Block) => Space
/** The id of its home lane. */
export let homeOf: (block: Block) => number
export let coreOf: (block: Block) => Core
/** The graph in whose launches alone the memory lives, if it is a graph's own. */
export let graphOf: (block: Block) => object | undefined

export interface Loan {
  readonly handle: number
  readonly address: number
  readonly size: number
  readonly bytes: number
  /** Stands for the lanes of the lender, and is named for the loan. */
  readonly lane: Handles['lane']
  /** What the block is, and how it goes back: for a caller who frees it. */
  readonly lender: readonly [found: string, next: string]
  /** Whether no graph may keep it: the memory has another value when the graph is launched. */
  readonly briefly?: boolean
  /** The graph whose nodes allocate and free the memory, and alone may use it: the addon has no block of it. */
  readonly graph?: object
}

/** Memory of a graph's own is given to something other than a node of the graph. */
export const outsideGraph = (at: string, name: string): Error =>
  badUse(
    at,
    name,
    'memory that lives outside of launches, or is of the graph that the node is added to',
    'memory that nodes of a graph allocate and free: it lives inside each launch',
    'give it to nodes of its own definition, and copy what shall stay into a block',
  )

/**
 * Device memory from `lane.malloc`, or pinned host memory from `device.pinned`. Its owner frees it once, with
 * `free()` or `using`, whichever lane is current. `recordUse` marks work of other lanes on it: its memory is
 * not given to another owner before that work. The host may write to pinned memory at once, so pinned memory
 * is not given out again before the marked work and the home lane's work have completed. After the free
 * everything but its sizes throws a `DisposedError`.
 *
 * An output that a session leaves on the device is a block too. It stays the session's: its lease gives it
 * back, and the next tick in its slot comes after the uses that were marked. It has no lane of the caller's
 * as its home, so every lane that works on it marks its use. A parameter that sessions share (`params`) is
 * lent the same way. The memory of a graph's malloc node (`node.memory`) is a block for nodes of that graph
 * alone.
 */
export class Block implements Disposable {
  readonly #core: Core
  readonly #space: Space
  readonly #address: number
  readonly #bytes: number
  readonly #size: number
  readonly #lane: Handles['lane']
  readonly #home: number
  // 0 once the block is freed.
  #handle: number
  // Of a block that is lent: by whom, and after the loan what became of it.
  #loan: Loan['lender'] | undefined
  #briefly = false
  #graph: object | undefined
  #ended: ((at: string) => Error) | undefined
  #view: ArrayBuffer | undefined

  private constructor(
    core: Core,
    space: Space,
    handle: number,
    bytes: number,
    lane: Handles['lane'],
    home: number,
  ) {
    madeBy(core instanceof Core, 'Block', 'lane.malloc(bytes)')
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
    lendBlock = (core, { handle, address, size, bytes, lane, lender, briefly = false, graph }) => {
      core.out[0] = address
      core.out[1] = size
      const block = new Block(core, core.device, handle, bytes, lane, -1)
      block.#loan = lender
      block.#briefly = briefly
      block.#graph = graph
      return block
    }
    revokeLoan = (block, error) => {
      block.#handle = 0
      block.#ended = error
    }
    keptHandle = block => {
      block.#own('a node of a graph')
      block.#kept('a node of a graph')
      return block.#handle
    }
    endLoan = (block, why, next) => {
      const handle = block.#handle
      revokeLoan(block, at => new DisposedError(block.#name(), `${why}; ${next} ${at}`))
      if (!block.#core.closed) block.#check(block.#space.endLoan(handle), 'the end of a lease')
    }
    bytesOf = async block => {
      const { native, pinned, hostLane, out } = block.#core
      const address = addressFor(block, 'a read')
      const staging = pinned.malloc(hostLane, block.#bytes, 0, 0)
      if (staging === 0) throw block.#core.unserved(out[0]!, 'a read', block.#name(), pinned)
      const to = out[0]!
      const lane = block.#core.addLane('a read', 'read', 0).id
      try {
        block.#check(native.copy(lane, 1, to, address, block.#bytes), 'a read')
        await native.synchronizeLane(lane)
        return native.view(staging).slice(0)
      } finally {
        native.retireLane(lane)
        native.freeViewed(staging)
      }
    }
    addressFor = (block, at, graph) => {
      block.#alive(at)
      if (block.#graph !== undefined && block.#graph !== graph) throw outsideGraph(at, block.#name())
      return block.#address
    }
    sharedHandle = block => {
      block.#own('open')
      return block.#handle
    }
    waitUses = block => {
      block.#own('a write')
      block.#check(block.#space.waitUses(block.#handle, block.#home), 'a write')
    }
    spaceOf = block => block.#space
    homeOf = block => block.#home
    coreOf = block => block.#core
    graphOf = block => block.#graph
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
  get lane(): Handles['lane'] {
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
   * it. On the home lane the call changes nothing: all work given to that lane before the free counts.
   *
   * On a lane that is being captured the point is one of the graph, for a block of the graph's own memory.
   * Any other block is kept by the graph: after its free, until the last definition, executable and launch
   * have gone.
   */
  recordUse(lane: Handles['lane']): void {
    const id = laneAccess.idFor(lane, this.#core, 'block.recordUse', true)
    this.#own('block.recordUse')
    if (this.#captured(lane, id, false, 'block.recordUse')) return
    this.#check(this.#space.recordUse(this.#handle, id), 'block.recordUse')
  }

  /**
   * All work that `lane` is given before the free counts as a use: imprecise, as PyTorch's `record_stream`.
   */
  recordStream(lane: Handles['lane']): void {
    const id = laneAccess.idFor(lane, this.#core, 'block.recordStream', true)
    this.#own('block.recordStream')
    if (this.#captured(lane, id, true, 'block.recordStream')) return
    this.#check(this.#space.recordStream(this.#handle, id), 'block.recordStream')
  }

  /** Keeps the memory until the event has completed. The event may be disposed of at once. */
  keepUntil(event: Event): void {
    const handle = eventFor(event, this.#core, 'block.keepUntil')
    this.#own('block.keepUntil')
    this.#check(this.#space.keepUntil(this.#handle, handle), 'block.keepUntil')
  }

  /** A part of the block, which owns nothing; it may be of no bytes. */
  at(offset: number, bytes: number): Span {
    this.#alive('block.at')
    const start = wholeNumber('block.at', 'offset', offset, 0)
    const length = wholeNumber('block.at', 'bytes', bytes, 0)
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
      const view = this.#core.native.view(this.#handle)
      this.#view = view
      // A view is memory of its block, so a program that holds only the view must keep the block from being
      // collected: by this property, as a value keeps its lease (session/lease.ts).
      makeLendable(view, () => this.#lend(view))
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
    if (this.#loan !== undefined)
      throw badUse('block.free', this.#name(), 'a block that the caller owns', ...this.#loan)
    // Callbacks that run during the call see a freed block. If the device refuses the call, the block is not
    // freed.
    this.#handle = 0
    if (this.#space.index === 1) {
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

  /** Frees the block, unless it was freed, is lent, or its device is closed. */
  [Symbol.dispose](): void {
    if (this.#handle !== 0 && !this.#core.closed && this.#loan === undefined) this.free()
  }

  #lend(view: ArrayBuffer): () => void {
    const { native } = this.#core
    if (this.disposed) return () => undefined
    native.lend(this.#handle)
    return () => native.endLoan(view)
  }

  /** A use by a lane that is being captured. False where it is not. */
  #captured(lane: Handles['lane'], id: number, stream: boolean, at: string): boolean {
    const capture = laneAccess.captureOf(lane)
    if (capture === undefined) return false
    this.#kept(at)
    capture.use(id, { space: this.#space.index, block: this.#handle }, stream, at)
    return true
  }

  /** Throws where no graph may keep the block. */
  #kept(at: string): void {
    if (!this.#briefly) return
    throw badUse(
      at,
      this.#name(),
      'memory that has the same value whenever the graph is launched',
      this.#loan![0],
      'copy the value into a block of your own, and give that to the graph',
    )
  }

  #name(): string {
    return this.#loan ? this.#lane.name : `a block of ${size(this.#bytes)}`
  }

  #check(status: number, at: string): void {
    if (status !== 0) throw this.#core.failed(status, at, this.#name())
  }

  #alive(at: string): void {
    if (this.#handle === 0 || this.#core.closed) throw this.#gone(at)
  }

  /** Throws unless the block is alive, and the addon has it. */
  #own(at: string): void {
    this.#alive(at)
    if (this.#graph !== undefined) throw outsideGraph(at, this.#name())
  }

  #gone(at: string): Error {
    if (this.#ended !== undefined) return this.#ended(at)
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
    return addressFor(this.#block, 'span.address', graphOf(this.#block)) + this.#offset
  }
}
