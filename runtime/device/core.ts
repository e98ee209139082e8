// The state that a device shares with its handles. Internal: nothing here is public, and no public call
// returns it.

import type { NativeCachingDevice, NativeFailure, NativeLane, NativeShortage, NativeSpace } from '../addon.js'
import { DisposedError } from '../errors.js'
import { thrown } from '../values.js'
import { AllocatorError, forbiddenByCapture, poolOfGraphs } from './allocator-error.js'
import { OutOfMemoryError, type Setting, type Shortage, shortageOf } from './out-of-memory.js'
import { released } from './released.js'
import type { ResolvedAllocatorOptions } from './settings/options.js'
import { Sites } from './sites.js'

/** One of a device's two allocators. */
export interface Space extends NativeSpace {
  readonly index: 0 | 1
  readonly kind: 'device' | 'pinned'
}

/** What the addon knows a block by. */
export interface BlockRecord {
  readonly space: Space
  readonly handle: number
  readonly bytes: number
  /** The id of the home lane. */
  readonly home: number
  readonly site: number
}

/** Is told of each block that is allocated and freed. */
export interface BlockObserver {
  made(block: object, record: BlockRecord): void
  freed(block: object, handle: number): void
  closed(): void
}

export const outOfMemory = 2
const invalidHandle = 400
const notPermitted = 800
const captureUnsupported = 900
const refusals = { closed: -1, inSource: -2, poolOfGraphs: -4 } as const

export class Core {
  closed = false
  /** Whether an allocation has to look up its pool in scope, or its site. */
  careful = false
  /** Whether the stack of each allocation is kept: in development, or for a history with stacks. */
  stacks = false
  readonly device: Space
  readonly pinned: Space
  readonly out: Float64Array
  /** The native home lane of all pinned memory. It runs no work: the host itself uses the memory. */
  readonly hostLane: number
  readonly sites: Sites
  /** In development only. */
  observer: BlockObserver | undefined
  readonly onOutOfMemory = new Set<(shortage: Shortage) => boolean>()

  constructor(
    readonly name: string,
    readonly native: NativeCachingDevice,
    readonly options: ResolvedAllocatorOptions,
    readonly development: boolean,
  ) {
    this.device = { ...native.device, index: 0, kind: 'device' }
    this.pinned = { ...native.pinned, index: 1, kind: 'pinned' }
    this.out = native.out
    this.hostLane = native.hostLane()
    this.sites = new Sites(native)
    this.stacks = this.careful = development
  }

  #awaited = 0
  #alarm: NodeJS.Timeout | undefined

  /**
   * Keeps the process alive until the function that it returns is called, the device is closed, or it has
   * failed: then no work reaches the point that is waited for.
   */
  stayAwake(): () => void {
    this.#awaited++
    this.#alarm ??= setInterval(() => {
      try {
        if (!this.closed) this.native.memory()
        else this.#sleep()
      } catch {
        this.#sleep()
      }
    }, 500)
    return () => {
      if (--this.#awaited <= 0) this.#sleep()
    }
  }

  #sleep(): void {
    clearInterval(this.#alarm)
    this.#alarm = undefined
    this.#awaited = 0
  }

  #reportsReleased = false

  /** From here on whoever waits for memory that graphs keep is told when they let go of it. */
  reportReleased(): void {
    if (this.#reportsReleased) return
    this.native.onReleased(released)
    this.#reportsReleased = true
  }

  /** Whether lanes, blocks and events of the other are of the same device. */
  same(other: Core): boolean {
    return this.native.memoryId === other.native.memoryId
  }

  /** Throws if the device is closed. */
  open(subject: string): void {
    if (this.closed) throw new DisposedError(subject, `its device ${this.name} is closed; open one again`)
  }

  shortage(space: Space, given: NativeShortage): Shortage {
    return shortageOf(space.kind, given, site => this.sites.words(site))
  }

  /** The error for a code that is not 0. */
  failed(status: number, at: string, subject: string): Error {
    if (status === refusals.closed)
      return new DisposedError(subject, `its device ${this.name} is closed; open one again`)
    if (status === refusals.inSource)
      return new AllocatorError({
        _tag: 'Reentrant',
        at,
        subject,
        wanted:
          "no call of the device from a pool's own allocate or release function, or a kernel's reference",
        found: 'one, while the device waits for that function',
        next: 'call the device after the function has returned',
      })
    if (status === refusals.poolOfGraphs)
      return new AllocatorError({ _tag: 'BadArgument', at, subject: 'the pool', ...poolOfGraphs })
    if (status === notPermitted)
      return new AllocatorError({
        _tag: 'WouldDeadlock',
        at,
        subject,
        wanted: 'a call that need not wait for the device while work there waits for JavaScript',
        found: 'one that may have to, and an ordered callback is still to run',
        next: 'let JavaScript run first: await lane.synchronize(), then call again',
      })
    if (status === captureUnsupported) return forbiddenByCapture(at, subject)
    if (status < 0 || status === invalidHandle)
      return new DisposedError(subject, `${at} needs one that is alive`)
    const given = this.native.takeThrown()
    const { code, detail, sticky } = this.native.describe(status)
    if (given)
      return new AllocatorError(
        {
          _tag: 'SourceFailed',
          at,
          subject,
          wanted: "an address, or null, from the pool's own allocate function",
          found: thrown(given[0]),
          next: 'correct the function; the error is the cause',
        },
        { cause: given[0], code },
      )
    return new AllocatorError(
      {
        _tag: 'DriverFailed',
        at,
        subject,
        wanted: 'a driver call that succeeds',
        found: detail === '' ? code : detail.includes(code) ? detail : `${code}: ${detail}`,
        next: sticky
          ? `earlier work has broken ${this.name}: close it, and run the work under a checker such as compute-sanitizer`
          : 'run: npx braid doctor',
      },
      { code },
    )
  }

  /** Makes a lane of a priority, or over the caller's stream. */
  addLane(at: string, name: string, priority: number | undefined, stream?: bigint): NativeLane {
    const made = this.tried(at, name, () => this.native.addLane(name, priority, stream))
    if (made !== null) return made
    throw new AllocatorError({
      _tag: 'TooManyLanes',
      at,
      subject: name,
      wanted: 'at most 256 lanes of a device at a time, those of its sessions and graphs among them',
      found: '256 lanes that are in use or still have work to complete',
      next: 'dispose of lanes that are no longer used, or give one lane the work of several',
    })
  }

  /** Runs a call of the addon; translates the failure that it throws. */
  tried<T>(at: string, subject: string, call: () => T): T {
    try {
      return call()
    } catch (error) {
      throw this.translated(error, at, subject)
    }
  }

  /** Awaits a call of the addon; translates the failure that it rejects with. */
  async wait<T>(at: string, subject: string, call: () => Promise<T>): Promise<T> {
    try {
      return await call()
    } catch (error) {
      throw this.translated(error, at, subject)
    }
  }

  translated(error: unknown, at: string, subject: string): Error {
    if (error instanceof AllocatorError || error instanceof DisposedError) return error
    if (this.closed) return new DisposedError(subject, `its device ${this.name} is closed; open one again`)
    const { code, message } = error as Partial<NativeFailure> & Error
    if (code === 'REENTRANT') return this.failed(refusals.inSource, at, subject)
    if (code === 'CUDA_ERROR_NOT_PERMITTED') return this.failed(notPermitted, at, subject)
    if (code === 'CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED') return forbiddenByCapture(at, subject, error)
    return new AllocatorError(
      {
        _tag: 'DriverFailed',
        at,
        subject,
        wanted: 'a driver call that succeeds',
        found: message,
        next: `see the cause; if it is of ${this.name} itself, close the device and open it again`,
      },
      { cause: error, ...(code === undefined ? {} : { code }) },
    )
  }

  /** The error for an allocation that failed. */
  unserved(status: number, at: string, subject: string, space: Space): Error {
    if (status !== outOfMemory) return this.failed(status, at, subject)
    return new OutOfMemoryError(at, this.shortage(space, this.native.shortage(space.index)), this.#setting())
  }

  #setting(): Setting {
    return {
      device: this.name,
      expandable: this.options.expandable && this.native.info.pageBytes > 0,
      waits: this.options.policy.startsWith('order'),
      sitesKept: this.stacks,
    }
  }
}
