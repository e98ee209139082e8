import { DisposedError } from '../errors.js'
import type { Core } from './core.js'
import { badArgument, wrongDevice } from './failure.js'
import type { Lane } from './lane.js'

/** Made by `lane.record`. */
export let makeEvent: (core: Core, handle: number, lane: Lane, point: number) => Event
/** The handle of an event that is alive and of this device. */
export let eventFor: (event: unknown, core: Core, at: string) => number

const notReady = 600

/** A point in a lane's order, from `lane.record()`: everything that the lane was given before it has completed once it is done. */
export class Event implements Disposable {
  readonly #core: Core
  readonly #lane: Lane
  readonly #point: number
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
      if (event.#core !== core) throw wrongDevice(at, 'an event', core.name)
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
  /** Its number in the lane's order, counted from 1 on; events at one point are equal. */
  get point(): number {
    return this.#point
  }
  get disposed(): boolean {
    return this.#handle === 0 || this.#core.closed
  }

  /** Whether the lane has passed it. Asks the driver where that is not known yet; does not block. */
  get done(): boolean {
    this.#alive('event.done')
    const status = this.#core.native.done(this.#handle)
    if (status === notReady) return false
    if (status !== 0) throw this.#core.failed(status, 'event.done', 'an event')
    return true
  }

  /** When the lane has passed it. Waits on another thread than JavaScript's. */
  async synchronize(): Promise<void> {
    this.#alive('event.synchronize')
    await this.#core.wait('event.synchronize', 'an event', () =>
      this.#core.native.synchronizeEvent(this.#handle),
    )
  }

  /** Its driver event may be recorded again. Blocks that are kept until it stay kept. */
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
