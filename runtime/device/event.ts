import { DisposedError } from '../errors.js'
import { badArgument, badUse, wrongDevice } from './allocator-error.js'
import { madeBy } from './arguments.js'
import { Core } from './core.js'
import { type Handles, notReady } from './lane-access.js'

/** For lanes, which record events. */
export let makeEvent: (
  core: Core,
  handle: number,
  lane: Handles['lane'],
  point: number,
  timed: boolean,
) => Event
/** The device of an event. */
export let coreOfEvent: (event: Event) => Core
/** The handle of an event. Throws unless it is an event of this device that is not disposed of. */
export let eventFor: (event: unknown, core: Core, at: string) => number

/** What an event holds of its device. The handle is 0 once the event is disposed of. */
interface Held {
  readonly core: Core
  handle: number
}

const release = (held: Held): void => {
  const { handle, core } = held
  held.handle = 0
  if (handle !== 0 && !core.closed) core.native.drop(handle)
}

// Events are often passed on and forgotten: `math.wait(copy.record())`. Each would keep a driver event, and
// the order that its lane had there, until the device is closed. Nothing is unregistered: that costs more
// than recording does, and an event that was disposed of has a handle of 0.
const collected = new FinalizationRegistry(release)

/**
 * A point in a lane's order, from `lane.record()`. Once it is done, all work given to the lane before it has
 * completed.
 */
export class Event implements Disposable {
  readonly #core: Core
  readonly #lane: Handles['lane']
  readonly #point: number
  readonly #timed: boolean
  readonly #held: Held

  private constructor(core: Core, handle: number, lane: Handles['lane'], point: number, timed: boolean) {
    madeBy(core instanceof Core, 'Event', 'lane.record()')
    this.#core = core
    this.#held = { core, handle }
    this.#lane = lane
    this.#point = point
    this.#timed = timed
  }

  static {
    makeEvent = (core, handle, lane, point, timed) => {
      const made = new Event(core, handle, lane, point, timed)
      collected.register(made, made.#held)
      return made
    }
    coreOfEvent = event => event.#core
    eventFor = (event, core, at) => {
      if (!Event.is(event))
        throw badArgument(at, 'event', 'an Event, from lane.record()', event, 'pass what lane.record() gave')
      if (!event.#core.same(core)) throw wrongDevice(at, 'an event', core.name)
      event.#alive(at)
      return event.#held.handle
    }
  }

  static is(value: unknown): value is Event {
    return typeof value === 'object' && value !== null && #core in value
  }

  get lane(): Handles['lane'] {
    return this.#lane
  }
  /** Its number in the lane's order, from 1 on. Two events at one point have the same number. */
  get point(): number {
    return this.#point
  }
  /** Whether it records the time: `lane.record({ timed: true })`. */
  get timed(): boolean {
    return this.#timed
  }
  get disposed(): boolean {
    return this.#held.handle === 0 || this.#core.closed
  }

  /**
   * Whether the lane has passed the event. Queries the driver where that is not known yet; does not block.
   */
  get done(): boolean {
    this.#alive('event.done')
    const status = this.#core.native.done(this.#held.handle)
    if (status === notReady) return false
    if (status !== 0) throw this.#core.failed(status, 'event.done', 'an event')
    return true
  }

  /** Resolves when the lane has passed the event. Waits on a thread other than JavaScript's. */
  async synchronize(): Promise<void> {
    this.#alive('event.synchronize')
    await this.#core.wait('event.synchronize', 'an event', () =>
      this.#core.native.synchronizeEvent(this.#held.handle),
    )
  }

  /**
   * The milliseconds of the device from this event to `end`, which may be of another lane. Both must be timed
   * and done.
   */
  elapsed(end: Event): number {
    const at = 'event.elapsed'
    this.#alive(at)
    const to = eventFor(end, this.#core, at)
    for (const [name, event] of [
      ['the event', this],
      ['end', end],
    ] as const)
      if (!event.#timed)
        throw badUse(at, name, 'a timed event', 'one without a time', 'record it with { timed: true }')
    const status = this.#core.native.elapsed(this.#held.handle, to)
    if (status === notReady)
      throw badUse(
        at,
        'end',
        'two events that are done',
        'one that its lane has not passed',
        'await synchronize() of both first',
      )
    if (status !== 0) throw this.#core.failed(status, at, 'an event')
    return this.#core.out[0]!
  }

  /**
   * Lets its driver event be recorded again. Blocks that are kept until the event stay kept. An event that is
   * garbage is disposed of too, some time later.
   */
  [Symbol.dispose](): void {
    release(this.#held)
  }

  #alive(at: string): void {
    this.#core.open('an event')
    if (this.#held.handle === 0)
      throw new DisposedError('an event', `${at} needs one that was not disposed of; record another`)
  }
}
