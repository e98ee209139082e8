import type { NativeGraphEvent } from '../addon.js'
import { DisposedError } from '../errors.js'
import { badArgument, wrongDevice } from './allocator-error.js'
import { madeBy } from './arguments.js'
import { Core } from './core.js'

/** For devices. */
export let makeGraphEvent: (core: Core) => GraphEvent
/** What the addon knows the event by. Throws unless it is one of this device that is not disposed of. */
export let graphEventFor: (event: unknown, core: Core, at: string) => NativeGraphEvent
/** The capture in which the event was recorded last, if that was in one. */
export let captureOf: (event: GraphEvent) => object | undefined
export let recordedIn: (event: GraphEvent, capture: object | undefined) => void

/**
 * An event that is recorded again and again, by lanes and by graphs: each launch of a graph with a record
 * node moves it to that node, and a wait node waits for the record that is newest when the launch is queued.
 * An `Event`, in contrast, is one point of one lane for ever.
 */
export class GraphEvent implements Disposable {
  readonly #core: Core
  #native: NativeGraphEvent | undefined
  #capture: object | undefined

  private constructor(core: Core) {
    madeBy(core instanceof Core, 'GraphEvent', 'device.event()')
    this.#core = core
    this.#native = core.tried('device.event', core.name, () => core.native.graphEvent(false))
  }

  static {
    makeGraphEvent = core => new GraphEvent(core)
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

  /** Nodes that refer to the event keep it. */
  [Symbol.dispose](): void {
    this.#native = undefined
  }
}
