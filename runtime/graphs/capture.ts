// A capture of lanes into a graph, for the builders that drive it.
import type { NativeCapture, NativeNode } from '../addon.js'
import { wrongDevice } from '../device/allocator-error.js'
import type { Core } from '../device/core.js'
import { type GraphEvent, graphEventFor, recordedIn } from '../device/graph-event.js'
import type { Lane } from '../device/lane.js'
import { type LaneCapture, laneAccess, type NativeBlock } from '../device/lane-access.js'
import type { ConditionSet, GraphPlace, Hierarchy } from './hierarchy.js'
import { awaitsHost } from './node-params.js'
import { triedOn } from './refusals.js'

/**
 * Whose calls are refused while a lane is captured: calls that take memory from the driver or give it back.
 * `global`: those of every thread; `thread-local`: of this one; `relaxed`: none. One that is refused makes the
 * capture invalid. What the capture itself allocates is served in every mode.
 */
export type CaptureMode = 'global' | 'thread-local' | 'relaxed'

/** By the driver's numbers. */
export const modes: Readonly<Record<CaptureMode, number>> = { global: 0, 'thread-local': 1, relaxed: 2 }

/** A capture, for all lanes that take part in it. */
export class Capture implements LaneCapture {
  active = true
  readonly lanes = new Set<Lane>()
  /** Lanes that a builder gives work to which is not joined. */
  readonly driven = new Set<Lane>()
  /** Whether what was captured awaits JavaScript. */
  ordered = false
  readonly #sets: ConditionSet[] = []
  readonly #core: Core
  readonly #native: NativeCapture

  constructor(
    core: Core,
    native: NativeCapture,
    readonly hierarchy: Hierarchy,
    readonly graph: number,
  ) {
    this.#core = core
    this.#native = native
  }

  get native(): NativeCapture {
    return this.#native
  }

  /** The graph that is captured into. */
  get place(): GraphPlace {
    return { hierarchy: this.hierarchy, id: this.graph }
  }

  tried<T>(at: string, call: () => T, why?: () => Error | undefined): T {
    return triedOn(this.#core, at, 'a capture', call, why)
  }

  enter(lane: Lane): void {
    this.lanes.add(lane)
    laneAccess.setCapture(lane, this)
  }

  /** Ends the capture without a graph, and those into graphs inside. Idempotent. */
  abandon(): void {
    if (!this.active) return
    this.hierarchy.abandonInside(this.graph)
    this.leave()
    this.drop()
  }

  /** The capture is over, and nobody is to see what it added. */
  drop(): void {
    if (this.#core.closed) return
    const gone = this.#native.abandon()
    this.hierarchy.forget(gone)
    for (const set of this.#sets) this.hierarchy.setsNoMore(set)
    if (!gone.restored) this.hierarchy.lose()
  }

  /** Ends the capture; where that throws, what it added is dropped. */
  end(at: string): void {
    this.leave()
    try {
      this.tried(at, () => this.#native.end())
    } catch (error) {
      this.drop()
      throw error
    }
    this.hierarchy.ordered ||= this.ordered
  }

  leave(): void {
    this.active = false
    this.hierarchy.capturing.delete(this.graph)
    for (const lane of this.lanes) laneAccess.setCapture(lane, undefined)
    this.lanes.clear()
    this.driven.clear()
  }

  setsCondition(of: number, node: number | undefined): void {
    this.#sets.push(this.hierarchy.setsCondition(this.graph, of, node))
  }

  work(lane: number, node: NativeNode, at: string): number | undefined {
    this.hierarchy.takes(this.graph, node.kind, at)
    const made = this.tried(at, () => this.#native.work(lane, node))
    this.ordered ||= awaitsHost(node)
    return made
  }

  record(lane: number, event: GraphEvent, at: string): void {
    const native = graphEventFor(event, this.#core, at)
    if (event.timed) {
      this.hierarchy.takes(this.graph, 'record', at)
      this.tried(at, () => this.#native.add(lane, { kind: 'record', event: native }))
    }
    this.tried(at, () => this.#native.record(lane, native))
    recordedIn(event, this)
  }

  malloc(core: Core, lane: number, bytes: number, pool: number, site: number, at: string): number {
    // The pool's number is of the lane's Device, and so are the figures that the addon returns.
    if (core !== this.#core) throw wrongDevice(at, 'a lane', this.#core.name)
    return this.tried(at, () => this.#native.malloc(lane, bytes, pool, site))
  }

  use(lane: number, block: NativeBlock, stream: boolean, at: string): void {
    this.tried(at, () => this.#native.use(lane, block, stream))
  }

  wait(lane: Lane, id: number, event: GraphEvent, at: string): void {
    const native = graphEventFor(event, this.#core, at)
    this.tried(at, () => this.#native.wait(id, native))
    this.enter(lane)
  }
}

/** What a builder that began a capture leaves behind where it is lost. It must not refer to the builder. */
interface Left {
  readonly capture: Capture
  /** The graph that the builder made for itself. */
  readonly made: Hierarchy | undefined
}

// A capture that nobody can end holds its lanes for ever: their work would go into a graph that nobody gets.
// Nothing is unregistered: a capture that has ended is left as it is.
export const lost = new FinalizationRegistry<Left>(({ capture, made }) => {
  if (!capture.active) return
  capture.abandon()
  made?.close()
})
