import * as E from 'fp-ts/lib/Either.js'
import { type DeviceError, together } from '../errors.js'
import { type AwaitableTask, task } from '../task.js'
import { thrown } from '../values.js'
import { badArgument, optionsFor, wholeNumber } from './allocator-error.js'
import { Arena } from './arena.js'
import { madeBy, reading } from './arguments.js'
import type { Block } from './block.js'
import { Core } from './core.js'
import { checkDevice, type DeviceOptions } from './device-options.js'
import { snapshotOf } from './device-snapshot.js'
import { type DeviceName, type DeviceSummary, summaryOf } from './devices.js'
import { type GraphEvent, makeGraphEvent } from './graph-event.js'
import { History } from './history.js'
import {
  type DeviceKernelDefinition,
  type Kernel,
  makeKernel,
  type Operands,
  type Scalars,
} from './kernel.js'
import {
  type AllocateOptions,
  allocateOn,
  type Lane,
  type LaneKind,
  type LaneOptions,
  makeLane,
} from './lane.js'
import { laneAccess } from './lane-access.js'
import { LeakDetector } from './leaks.js'
import { type MemPool, type MemPoolOptions, makePool } from './mem-pool.js'
import { openFailure } from './open-failure.js'
import type { Shortage } from './out-of-memory.js'
import type { ResolvedAllocatorOptions } from './settings/options.js'
import { openShare, settingsOf } from './share.js'
import type { AllocatorSnapshot } from './snapshot/snapshot.js'
import { type AllocatorStats, statsFrom } from './stats.js'

export interface SiteOptions {
  /** What the memory is for. Errors, leak warnings and snapshots show it. */
  readonly site?: string
}

/** For `testing.ts`, which calls the addon. */
export let coreOfDevice: (device: Device) => Core

/**
 * A GPU, or the host device, with its lanes and two caching allocators: for its own memory and for pinned
 * host memory. Belongs to the thread that opened it. Close it, or declare it with `await using`: closing
 * waits for the work of its lanes, then gives all memory back.
 */
export class Device implements AsyncDisposable {
  readonly #core: Core
  readonly #default: Lane
  readonly #history: History
  #lanes = 0
  #closing: Promise<void> | undefined

  private constructor(core: Core) {
    madeBy(core instanceof Core, 'Device', 'Device.open(name)')
    this.#core = core
    this.#default = this.#add('default', 0, undefined, 'default')
    this.#history = new History(core)
  }

  static {
    coreOfDevice = device => device.#core
  }

  static is(value: unknown): value is Device {
    return typeof value === 'object' && value !== null && #core in value
  }

  /**
   * Opens `host`, `cuda:N`, or `auto`: cuda:0 if that opens, else host. Returns every error in the options.
   */
  static open(
    name: 'auto' | DeviceName | (string & {}),
    options: DeviceOptions = {},
  ): AwaitableTask<DeviceError, Device> {
    return task(async () => {
      try {
        const checked = checkDevice(name, options)
        if (E.isRight(checked)) return opened(name, options, checked.right, core => new Device(core))
        const [first, ...others] = checked.left
        return E.left(together([first!, ...others]))
      } catch (cause) {
        // The options have a getter that throws, or are a proxy.
        return E.left({
          _tag: 'BadOption',
          at: 'options',
          subject: 'options',
          wanted: 'options that can be read',
          found: `what throws when it is read: ${thrown(cause)}`,
          next: 'pass a plain object; its error is the cause',
          cause,
        })
      }
    })
  }

  get name(): DeviceName {
    return this.#core.name as DeviceName
  }
  /** The device as it was when it was opened. For the present free bytes see `memory`. */
  get summary(): DeviceSummary {
    return summaryOf(this.#core.native.info)
  }
  /** All options of its allocators. */
  get options(): ResolvedAllocatorOptions {
    return this.#core.options
  }
  get closed(): boolean {
    return this.#core.closed
  }

  /** The driver's free and total bytes, for all programs together. */
  get memory(): { readonly free: number; readonly total: number } {
    this.#core.open('a device')
    return this.#core.tried('device.memory', this.name, () => this.#core.native.memory())
  }

  /**
   * The driver's memory behind the malloc nodes of graphs, of this process: the bytes that graphs use, and
   * those that are kept for later launches too. Limits and figures of the allocators do not count them.
   */
  get graphMemory(): { readonly used: number; readonly reserved: number } {
    this.#core.open('a device')
    return this.#core.tried('device.graphMemory', this.name, () => this.#core.native.graphMemory())
  }

  /** Gives the memory of graphs that no launch uses back to the driver. Their next launches take it again. */
  trimGraphMemory(): void {
    this.#core.open('a device')
    this.#core.tried('device.trimGraphMemory', this.name, () => this.#core.native.trimGraphMemory())
  }

  /** The lane that was made with the device. */
  get defaultLane(): Lane {
    return this.#default
  }

  /** Makes a lane over a new stream. */
  lane(options: LaneOptions = {}): Lane {
    this.#core.open('a device')
    const at = 'device.lane'
    const next = 'correct the option, or leave it out'
    if (typeof options !== 'object' || options === null)
      throw badArgument(at, 'options', 'an object of name, priority', options, next)
    const { name = `lane ${this.#lanes}`, priority = 'normal' } = reading(at, () => ({
      name: options.name,
      priority: options.priority,
    }))
    if (typeof name !== 'string' || name === '') throw badArgument(at, 'options.name', 'a name', name, next)
    if (typeof priority !== 'string' || !Object.hasOwn(priorities, priority))
      throw badArgument(at, 'options.priority', "'low', 'normal' or 'high'", priority, next)
    return this.#add(name, priorities[priority], undefined, 'own')
  }

  /**
   * Makes a lane over a stream of the caller's (a CUstream). The caller keeps the stream alive until the lane
   * is disposed of. The stream may be given work that Braid does not see, so no event on it is shared.
   */
  externalLane(stream: bigint | number, options: { readonly name?: string } = {}): Lane {
    this.#core.open('a device')
    const at = 'device.externalLane'
    const handle = typeof stream === 'bigint' ? stream : BigInt(wholeNumber(at, 'stream', stream, 0))
    if (handle < 0n || handle >= 2n ** 64n)
      throw badArgument(
        at,
        'stream',
        'a handle of 64 bits',
        handle,
        'pass what cuStreamCreate gave, or lane.stream',
      )
    const name = reading(at, () => options?.name) ?? 'external'
    if (typeof name !== 'string')
      throw badArgument(at, 'options.name', 'a name', name, 'correct the option, or leave it out')
    return this.#add(name, undefined, handle, 'external')
  }

  /** Allocates device memory whose home is `lane`: the same as `lane.malloc`. */
  malloc(bytes: number, lane: Lane = this.#default, options?: AllocateOptions): Block {
    this.#core.open('a device')
    laneAccess.idFor(lane, this.#core, 'device.malloc', true)
    return allocateOn(lane, this.#core.device, bytes, options, 'device.malloc')
  }

  /** Allocates pinned host memory, which the device copies from and to directly. Its home is `lane`. */
  pinned(bytes: number, lane: Lane = this.#default, options?: SiteOptions): Block {
    this.#core.open('a device')
    laneAccess.idFor(lane, this.#core, 'device.pinned', true)
    if (options !== undefined && typeof options === 'object' && options !== null && 'pool' in options)
      throw badArgument(
        'device.pinned',
        'options.pool',
        'no pool: pools are of device memory',
        options.pool,
        'leave it out',
      )
    return allocateOn(lane, this.#core.pinned, bytes, options, 'device.pinned')
  }

  /** Allocates one block whose parts a plan lays out. */
  arena(bytes: number, lane: Lane = this.#default, options?: SiteOptions): Arena {
    this.#core.open('a device')
    laneAccess.idFor(lane, this.#core, 'device.arena', true)
    return new Arena(allocateOn(lane, this.#core.device, bytes, options, 'device.arena'))
  }

  /**
   * Compiles a CUDA C++ kernel, off the JavaScript thread, for `lane.launch`. Rejects with the compiler's log
   * where it does not compile. On the host device its `reference` computes it.
   */
  kernel<
    const R extends Operands = Record<never, never>,
    const W extends Operands = Operands,
    const S extends Scalars = Record<never, never>,
  >(definition: DeviceKernelDefinition<R, W, S>): Promise<Kernel<R, W, S>> {
    return makeKernel(this.#core, definition) as Promise<unknown> as Promise<Kernel<R, W, S>>
  }

  /**
   * Makes an event that lanes and graphs record again and again. `timed`: whether it records the time too, for
   * `elapsed`.
   */
  event(options: { readonly timed?: boolean } = {}): GraphEvent {
    const at = 'device.event'
    this.#core.open('a device')
    const { timed = false } = reading(at, () => ({ timed: optionsFor(options, at).timed }))
    if (typeof timed !== 'boolean')
      throw badArgument(at, 'options.timed', 'true or false', timed, 'correct the option, or leave it out')
    return makeGraphEvent(this.#core, timed)
  }

  /** Makes a separate pool of device memory. */
  pool(options?: MemPoolOptions): MemPool {
    this.#core.open('a device')
    return makePool(this.#core, options)
  }

  /** The figures of device memory, or of pinned memory. */
  stats(memory: 'device' | 'pinned' = 'device'): AllocatorStats {
    this.#core.open('a device')
    const space = this.#space(memory, 'device.stats')
    const row = this.#core.tried('device.stats', this.name, () => this.#core.native.stats(space))
    const { maxSplit, policy } = this.options
    return space === 0 ? statsFrom(row, maxSplit, policy) : statsFrom(row, Number.POSITIVE_INFINITY, 'poll')
  }

  /** Sets all peaks to the present values. */
  resetPeaks(memory: 'device' | 'pinned' = 'device'): void {
    this.#core.open('a device')
    const space = this.#space(memory, 'device.resetPeaks')
    this.#core.tried('device.resetPeaks', this.name, () => this.#core.native.resetPeaks(space))
  }

  /** Sets all sums and counts to 0. */
  resetAccumulated(memory: 'device' | 'pinned' = 'device'): void {
    this.#core.open('a device')
    const space = this.#space(memory, 'device.resetAccumulated')
    this.#core.tried('device.resetAccumulated', this.name, () => this.#core.native.resetAccumulated(space))
  }

  /**
   * Gives the free memory of every pool back to the driver, once every lane has run its work. Does not block.
   */
  async emptyCache(): Promise<void> {
    this.#core.open('a device')
    await this.#core.wait('device.emptyCache', this.name, async () => this.#core.native.emptyCache(0))
  }

  /** The record of allocations, uses and frees. */
  get history(): History {
    return this.#history
  }

  /** All segments and blocks, the pending uses, and the history. */
  snapshot(): AllocatorSnapshot {
    this.#core.open('a device')
    return this.#core.tried('device.snapshot', this.name, () => snapshotOf(this.#core))
  }

  /**
   * Calls `observer` when an allocation is about to fail. The observer may free blocks and then returns true:
   * the allocation is tried again. An error that it throws is reported as uncaught, and counts as false. It
   * is asked about allocations of its own thread alone, and of sessions only about those in a `MemPool`:
   * others take their memory on a thread of the addon, and the error of `open` names who holds it. Returns
   * the function that removes the observer.
   */
  onOutOfMemory(observer: (shortage: Shortage) => boolean): () => void {
    this.#core.open('a device')
    const at = 'device.onOutOfMemory'
    if (typeof observer !== 'function')
      throw badArgument(at, 'observer', 'a function', observer, 'pass a function that may free blocks')
    const core = this.#core
    core.tried(at, this.name, () => core.native.observe((space, given) => askObservers(core, space, given)))
    // A new function for each call, so that one observer can be added twice.
    const own = (shortage: Shortage): boolean => observer(shortage)
    core.onOutOfMemory.add(own)
    return () => core.onOutOfMemory.delete(own)
  }

  /**
   * Waits for the work of the lanes, then gives all memory back. From the call on every handle of the device
   * throws a `DisposedError`, and views of pinned blocks have length 0.
   */
  close(): Promise<void> {
    if (this.#closing !== undefined) return this.#closing
    const core = this.#core
    this.#closing = core.tried('device.close', this.name, () => core.native.close())
    core.closed = true
    core.observer?.closed()
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #space(memory: unknown, at: string): 0 | 1 {
    if (memory === 'device') return 0
    if (memory === 'pinned') return 1
    throw badArgument(
      at,
      'memory',
      "'device' or 'pinned'",
      memory,
      'correct it, or leave it out for device memory',
    )
  }

  #add(name: string, priority: number | undefined, stream: bigint | undefined, kind: LaneKind): Lane {
    const core = this.#core
    const at = kind === 'external' ? 'device.externalLane' : 'device.lane'
    const made = core.addLane(at, name, priority, stream)
    this.#lanes++
    return makeLane(core, made.id, made.stream, name, kind)
  }
}

const priorities: Readonly<Record<string, number>> = { low: 1, normal: 0, high: -1 }

const askObservers = (core: Core, space: 0 | 1, given: Parameters<Core['shortage']>[1]): boolean => {
  let again = false
  for (const observer of [...core.onOutOfMemory]) {
    try {
      again = observer(core.shortage(space === 0 ? core.device : core.pinned, given)) === true || again
    } catch (error) {
      queueMicrotask(() => {
        throw error
      })
    }
  }
  return again
}

const opened = (
  name: string,
  options: DeviceOptions,
  allocator: ResolvedAllocatorOptions,
  make: (core: Core) => Device,
): E.Either<DeviceError, Device> => {
  try {
    const on = (where: string): Device => {
      // Without wishes about its allocators the program takes the device as it is open.
      const asItIs = options.allocator === undefined && options.environment !== true
      const share = openShare(where, options.host ?? {}, allocator, asItIs)
      const core = new Core(where, share, settingsOf(share, allocator), options.development === true)
      if (core.development) core.observer = new LeakDetector(core)
      return make(core)
    }
    if (name !== 'auto') return E.right(on(name))
    try {
      return E.right(on('cuda:0'))
    } catch {
      return E.right(on('host'))
    }
  } catch (error) {
    return E.left(openFailure(error, name))
  }
}
