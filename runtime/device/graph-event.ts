import type { NativeGraphEvent } from '../addon.js'
import { DisposedError } from '../errors.js'
import { badArgument, badUse, wrongDevice } from './allocator-error.js'
import { madeBy } from './arguments.js'
import { Core } from './core.js'

/** For devices. */
export let makeGraphEvent: (core: Core, timed?: boolean) => GraphEvent
/** What the addon knows the event by. Throws unless it is one of this device that is not disposed of. */
export let graphEventFor: (event: unknown, core: Core, at: string) => NativeGraphEvent
/** The capture in which the event was recorded last, if that was in one. */
export let captureOf: (event: GraphEvent) => object | undefined
export let recordedIn: (event: GraphEvent, capture: object | undefined) => void

/** Why two events have no time between them, by the driver's code, and what to do. */
const withoutTime: Readonly<Record<number, readonly [found: string, next: string]>> = {
  1: ['one that was last recorded in a capture', 'launch the graph, and await lane.synchronize() first'],
  400: ['one that was never recorded', 'record it on a lane, or launch a graph with a node that does'],
  600: ['one whose record the device has not reached', 'await lane.synchronize() first'],
}

/**
 * An event that is recorded again and again, by lanes and by graphs: each launch of a graph with a record
 * node moves it to that node, and a wait node waits for the record that is newest when the launch is queued.
 * An `Event`, in contrast, is one point of one lane for ever.
 *
 * A timed one, from `device.event({ timed: true })`, has the time of its newest record. Recorded on a captured
 * lane it becomes a node, which each launch of the graph records; one without a time becomes none.
 */
export class GraphEvent implements Disposable {
  readonly #core: Core
  readonly #timed: boolean
  #native: NativeGraphEvent | undefined
  #capture: object | undefined

  private constructor(core: Core, timed: boolean) {
    madeBy(core instanceof Core, 'GraphEvent', 'device.event()')
    this.#core = core
    this.#native = core.tried('device.event', core.name, () => core.native.graphEvent(timed))
    this.#timed = timed
  }

  static {
    makeGraphEvent = (core, timed = false) => new GraphEvent(core, timed)
    graphEventFor = (event, core, at) => {
      if (!GraphEvent.is(event))
        throw badArgument(at, 'event', 'a GraphEvent', event, 'make one: device.event()')
      if (!event.#core.same(core)) throw wrongDevice(at, 'an event', core.name)
      event.#core.open('an event')
      if (event.#native === undefined)
        throw new DisposedError('an event of graphs', `${at} needs one that was not disposed of`)
      return event.#native
    }
    captureOf = event => event.#capture
    recordedIn = (event, capture) => {
      event.#capture = capture
    }
  }

  static is(value: unknown): value is GraphEvent {
    return typeof value === 'object' && value !== null && #core in value
  }

  get disposed(): boolean {
    return this.#native === undefined || this.#core.closed
  }

  /** Whether it records the time. */
  get timed(): boolean {
    return this.#timed
  }

  /**
   * The milliseconds of the device from the newest record of this event to that of `end`. Both must be timed,
   * and recorded by work that is done: by a lane, or by a launch of a graph with a node that records them.
   */
  elapsed(end: GraphEvent): number {
    const at = 'event.elapsed'
    const core = this.#core
    const [from, to] = [graphEventFor(this, core, at), graphEventFor(end, core, at)]
    for (const [name, event] of [
      ['the event', this],
      ['end', end],
    ] as const)
      if (!event.#timed)
        throw badUse(
          at,
          name,
          'a timed event',
          'one without a time',
          'make it: device.event({ timed: true })',
        )
    const status = core.native.elapsedEvents(from, to)
    if (status === 0) return core.out[0]!
    const found = withoutTime[status]
    if (found === undefined) throw core.failed(status, at, 'an event')
    throw badUse(at, 'events', 'two events whose newest records are done', ...found)
  }

  /** Nodes that refer to the event keep it. */
  [Symbol.dispose](): void {
    this.#native = undefined
  }
}
