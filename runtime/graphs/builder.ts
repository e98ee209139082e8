import { badArgument, badUse, optionsFor, wholeNumber } from '../device/allocator-error.js'
import { madeBy, reading } from '../device/arguments.js'
import { Core } from '../device/core.js'
import { makeGraphEvent } from '../device/graph-event.js'
import type { Lane } from '../device/lane.js'
import { laneAccess } from '../device/lane-access.js'
import { type CallbackFunction, type CallbackOptions, callbackWork } from '../device/work.js'
import { Capture, type CaptureMode, lost, modes } from './capture.js'
import {
  conditionals,
  conditionFor,
  conditionOf,
  conditionWork,
  copyable,
  type GraphCondition,
  mostBodies,
} from './conditions.js'
import type { GraphDefinition } from './definition.js'
import { ExecutableGraph, type InstantiateOptions } from './executable.js'
import { apart, definitionOf, fitsBody, graphFor, Hierarchy, noCopyOf, wholeGraphFor } from './hierarchy.js'
import { type ConditionalNode, conditionalOf } from './node.js'
import type { Memory } from './operands.js'

type State = 'new' | 'building' | 'ended' | 'closed'

/**
 * Captures what lanes are given into a graph, instead of running it. Copies, fills, launches, callbacks and
 * conditions become nodes after what the lane has captured before; a node keeps what it refers to, as one
 * that a definition adds does.
 *
 * A builder of `split` captures another lane, from what its builder has captured so far; `GraphBuilder.join`
 * leads it back. Until the capture ends, what needs the lane's real order (`record` of an `Event`,
 * `synchronize`) is refused. A builder that is garbage before it has ended is disposed of, some time later.
 *
 * `malloc` on a captured lane takes memory that belongs to the graph, from a pool of the capture's own, or
 * from a pool that the call or `pool.use` names. Once freed, it is used again by later work of the capture:
 * work that the graph's edges order after everything that was captured on the block. Nothing else gets it
 * before the last definition, executable and launch have gone, and only captures allocate from the pool until
 * then. Captures that take turns with one pool use the same memory: launch their graphs in the order in which
 * they were captured, and never two at once.
 */
export class GraphBuilder implements Disposable {
  readonly #core: Core
  readonly #lane: Lane
  /** The builder that began the capture: of a fork, the one that it was split from. */
  readonly #root: GraphBuilder
  /** The graph that is captured into. */
  readonly #into: GraphDefinition
  /** What the builder made for that; undefined where the graph existed before. */
  readonly #made: Hierarchy | undefined
  #state: State
  #capture: Capture | undefined

  private constructor(core: Core, lane: Lane, into: GraphDefinition, made?: Hierarchy, root?: GraphBuilder) {
    madeBy(core instanceof Core, 'GraphBuilder', 'GraphBuilder.create(lane)')
    this.#core = core
    this.#lane = lane
    this.#into = into
    this.#made = made
    this.#root = root ?? this
    this.#state = root === undefined ? 'new' : 'building'
    this.#capture = root === undefined ? undefined : root.#capture
  }

  /**
   * A builder over a lane, which captures nothing before `begin`. `into`: a graph that exists, such as the
   * body of a conditional node; default: a new one.
   */
  static create(lane: Lane, options: { readonly into?: GraphDefinition } = {}): GraphBuilder {
    const at = 'GraphBuilder.create'
    const core = laneAccess.coreFor(lane, at)
    const { into } = reading(at, () => ({ into: optionsFor(options, at).into }))
    if (into === undefined) {
      const native = core.tried(at, core.name, () => core.native.graph())
      const made = new Hierarchy(core, native)
      return new GraphBuilder(core, lane, definitionOf(made, 0), made)
    }
    graphFor(into, at, core)
    return new GraphBuilder(core, lane, into)
  }

  static is(value: unknown): value is GraphBuilder {
    return typeof value === 'object' && value !== null && #root in value
  }

  get lane(): Lane {
    return this.#lane
  }

  /**
   * Whether the lane is being captured. Throws where a call that cannot be captured has ended the capture.
   */
  get building(): boolean {
    if (this.#state !== 'building' || this.#capture?.active !== true) return false
    const id = laneAccess.idFor(this.#lane, this.#core, 'builder.building', true)
    if (this.#capture.tried('builder.building', () => this.#capture!.native.status(id)) !== 2) return true
    throw badUse(
      'builder.building',
      'capture',
      'one that is valid',
      'one that a call which cannot be captured has made invalid',
      'call builder.end(), which throws, and build the graph anew',
    )
  }

  /** Whether the builder was split from another, and has to be joined with it. */
  get joinRequired(): boolean {
    return this.#root !== this && this.#state === 'building'
  }

  /** From here on the lane's work becomes nodes. */
  begin(mode: CaptureMode = 'relaxed'): this {
    const at = 'builder.begin'
    if (this.#state !== 'new')
      throw badUse(at, 'builder', 'a builder that has not begun', this.#words(), 'make another one')
    if (typeof mode !== 'string' || !Object.hasOwn(modes, mode))
      throw badArgument(
        at,
        'mode',
        "'global', 'thread-local' or 'relaxed'",
        mode,
        'correct it, or leave it out',
      )
    const { hierarchy, id } = graphFor(this.#into, at)
    if (mode !== 'relaxed' && hierarchy.inConditional(id)) throw strictBody(at, mode)
    const lane = laneAccess.idFor(this.#lane, this.#core, at)
    const restores = this.#made === undefined
    const native = hierarchy.tried(at, () => hierarchy.native.capture(id, lane, modes[mode], restores))
    this.#capture = new Capture(this.#core, native, hierarchy, id)
    this.#capture.enter(this.#lane)
    this.#capture.driven.add(this.#lane)
    hierarchy.capturing.set(id, this.#capture)
    lost.register(this, { capture: this.#capture, made: this.#made })
    this.#state = 'building'
    return this
  }

  /**
   * Builders that go on, on other lanes, after what this one has captured so far. A lane that was joined in this
   * capture can be split off again.
   */
  split(...lanes: readonly Lane[]): GraphBuilder[] {
    const at = 'builder.split'
    const capture = this.#building(at)
    if (lanes.length === 0)
      throw badUse(at, 'lanes', 'at least one other lane', 'none', 'pass the lanes to go on with')
    // All are judged before one of them joins: a lane without a builder would keep the capture from ending.
    const ids = lanes.map((lane, i) => this.#splittable(lane, lanes.indexOf(lane) < i, capture, at))
    const event = makeGraphEvent(this.#core)
    capture.record(laneAccess.idFor(this.#lane, this.#core, at, true), event, at)
    return lanes.map((lane, i) => {
      capture.wait(lane, ids[i]!, event, at)
      capture.driven.add(lane)
      return new GraphBuilder(this.#core, lane, this.#into, undefined, this.#root)
    })
  }

  /** The id of a lane that a builder can be split off to. */
  #splittable(lane: Lane, isRepeated: boolean, capture: Capture, at: string): number {
    const id = laneAccess.idFor(lane, this.#core, at, true)
    const other = laneAccess.captureOf(lane)
    if (other !== undefined && other !== capture)
      throw badUse(
        at,
        `lane ${lane.name}`,
        'a lane that no other builder captures',
        'one that is being captured into another graph',
        'call end() of the builder that captures it first, or pass another lane: device.lane()',
      )
    if (isRepeated || capture.driven.has(lane))
      throw badUse(
        at,
        `lane ${lane.name}`,
        'a lane that no builder of this capture drives',
        isRepeated ? 'one that was passed twice' : 'one that a builder of this capture drives',
        lane === this.#lane || isRepeated
          ? 'pass another lane: device.lane()'
          : 'join its builder first, by GraphBuilder.join, or pass another lane: device.lane()',
      )
    return id
  }

  /**
   * Joins builders of one capture: the first that was not split, or else the first, goes on after all of
   * them, and is returned. The others are closed.
   */
  static join(...builders: readonly GraphBuilder[]): GraphBuilder {
    const at = 'GraphBuilder.join'
    for (const builder of builders)
      if (!GraphBuilder.is(builder))
        throw badArgument(at, 'builder', 'a GraphBuilder', builder, 'pass what builder.split() gave')
    const [first] = builders
    if (first === undefined || builders.length < 2)
      throw badUse(at, 'builders', 'at least two', String(builders.length), 'pass those to be joined')
    const capture = first.#building(at)
    for (const builder of builders)
      if (builder.#building(at) !== capture)
        throw badUse(
          at,
          'builders',
          'builders of one capture',
          'those of several',
          'join each capture by itself',
        )
    const root = builders.find(builder => !builder.joinRequired) ?? first
    for (const builder of builders) {
      if (builder === root) continue
      const event = makeGraphEvent(root.#core)
      capture.record(laneAccess.idFor(builder.#lane, root.#core, at, true), event, at)
      capture.wait(root.#lane, laneAccess.idFor(root.#lane, root.#core, at, true), event, at)
      builder.#state = 'closed'
      capture.driven.delete(builder.#lane)
    }
    return root
  }

  /** Calls a function, see `CallbackFunction`. The same arguments as those of `definition.callback`. */
  callback(call: CallbackFunction, options: CallbackOptions = {}): void {
    const at = 'builder.callback'
    const capture = this.#building(at)
    const work = reading(at, () => callbackWork(call, optionsFor(options, at), at))
    capture.work(laneAccess.idFor(this.#lane, this.#core, at, true), work, at)
  }

  /** Adds a copy of a finished graph as one node, after what the lane has captured so far. */
  embed(child: GraphBuilder | GraphDefinition): void {
    const at = 'builder.embed'
    const capture = this.#building(at)
    const place = wholeGraphFor(GraphBuilder.is(child) ? child.#ended(at) : child, at, this.#core)
    apart(place, capture.place, at)
    copyable(place, at)
    fitsBody(place, capture.place, at)
    const { hierarchy, id } = place
    const lane = laneAccess.idFor(this.#lane, this.#core, at, true)
    capture.tried(
      at,
      () => capture.native.embed(lane, hierarchy.native, id),
      () => noCopyOf(place, at),
    )
    capture.ordered ||= hierarchy.ordered
  }

  /** A condition of the graph that is captured, see `GraphCondition`. */
  condition(initial?: number): GraphCondition {
    const at = 'builder.condition'
    return conditionOf(this.#into, this.#building(at).place, initial, at)
  }
  /** Sets the condition to the 32-bit word at the start of `from`. */
  setCondition(condition: GraphCondition, from: Memory): void {
    const at = 'builder.setCondition'
    const capture = this.#building(at)
    const lane = laneAccess.idFor(this.#lane, this.#core, at, true)
    const { node, of } = reading(at, () => conditionWork(condition, from, capture.place, at))
    capture.setsCondition(of, capture.work(lane, node, at))
  }
  /** Runs its body where the condition is not 0. Fill `node.bodies[0]` directly or by another builder. */
  ifThen(condition: GraphCondition): ConditionalNode {
    return this.#conditional('builder.ifThen', condition, 'if', 1)
  }
  /** Runs its first body where the condition is not 0, else the second. */
  ifElse(condition: GraphCondition): ConditionalNode {
    return this.#conditional('builder.ifElse', condition, 'if', 2)
  }
  /** Runs its body again and again while the condition is not 0. */
  whileLoop(condition: GraphCondition): ConditionalNode {
    return this.#conditional('builder.whileLoop', condition, 'while', 1)
  }
  /** Runs the body whose index the condition is, or none. */
  switchOn(condition: GraphCondition, count: number): ConditionalNode {
    const bodies = wholeNumber('builder.switchOn', 'count', count, 1, mostBodies)
    return this.#conditional('builder.switchOn', condition, 'switch', bodies)
  }

  /**
   * Ends the capture. Its lanes are ordinary ones again, also where this throws: then there is no graph, and
   * one that existed before is as it was. While another builder captures into a graph inside, the call is refused and the capture goes on.
   */
  end(): this {
    const at = 'builder.end'
    if (this.#root !== this)
      throw badUse(
        at,
        'builder',
        'the builder that began',
        'one that was split from it',
        'join it, and end that one',
      )
    const capture = this.#building(at)
    capture.hierarchy.noCaptureInside(capture.graph, at)
    this.#state = 'closed'
    try {
      capture.end(at)
    } catch (error) {
      this.#made?.abandon()
      throw error
    }
    this.#state = 'ended'
    return this
  }

  /**
   * The graph, to be read and changed: once the capture has ended, and for a graph that existed before also
   * before it begins. Whoever has taken it disposes of it; what nobody has taken goes with the builder.
   */
  get definition(): GraphDefinition {
    const definition = this.#ended('builder.definition')
    if (this.#made !== undefined) this.#made.taken = true
    return definition
  }

  #ended(at: string): GraphDefinition {
    const refused = (found: string, next: string): Error =>
      badUse(at, 'builder', 'a builder whose capture has ended', found, next)
    if (this.#root !== this)
      throw refused('one that was split from another', 'access the graph through the builder that began')
    if (this.#state === 'building') throw refused(this.#words(), 'call builder.end() first')
    if (this.#state === 'closed') throw refused(this.#words(), 'take the definition before')
    if (this.#state === 'new' && this.#made !== undefined)
      throw refused(this.#words(), 'call builder.begin(), give the lane its work, and call builder.end()')
    return this.#into
  }

  /** An executable of what was captured. Can be called again. */
  instantiate(options?: InstantiateOptions): ExecutableGraph {
    return ExecutableGraph.instantiate(this.#ended('builder.instantiate'), options)
  }

  /**
   * Ends a capture that has not ended, and those into graphs inside, and drops what was captured: a graph that
   * existed before is as it was. Of a capture that has ended the graph goes too, unless it was taken by
   * `builder.definition` or `node.graph`. Executables stay.
   */
  [Symbol.dispose](): void {
    const state = this.#state
    if (state === 'closed') return
    this.#state = 'closed'
    if (this.#root !== this) {
      if (state === 'building') this.#capture!.driven.delete(this.#lane)
      return
    }
    if (state === 'building') this.#capture!.abandon()
    if (state === 'ended' && this.#made?.taken === true) return
    this.#made?.abandon()
  }

  #conditional(
    at: string,
    condition: GraphCondition,
    kind: keyof typeof conditionals,
    count: number,
  ): ConditionalNode {
    const capture = this.#building(at)
    const lane = laneAccess.idFor(this.#lane, this.#core, at, true)
    const handle = conditionFor(condition, capture.place, at)
    const id = capture.tried(at, () => capture.native.conditional(lane, handle, conditionals[kind], count))
    return conditionalOf(this.#into, capture.hierarchy, id)
  }

  #building(at: string): Capture {
    if (this.#state === 'building' && this.#capture?.active === true) return this.#capture
    throw badUse(at, 'builder', 'a builder that is capturing', this.#words(), 'call builder.begin() before')
  }

  #words(): string {
    if (this.#state === 'building' && this.#capture?.active !== true)
      return 'one whose capture has ended with that of another builder'
    return {
      new: 'one that has not begun',
      building: 'one that is capturing',
      ended: 'one that has ended: a capture cannot be resumed',
      closed: 'one that is closed',
    }[this.#state]
  }
}

// A capture into a body that becomes invalid takes the graph around it along, and one of a strict mode may do so
// together with the capture around it: CUDA (13.0) ends the process then.
const strictBody = (at: string, mode: string): Error =>
  badUse(
    at,
    'mode',
    "'relaxed', for a graph inside a conditional node",
    `'${mode}'`,
    'leave it out; the capture of the graph around the node may have another mode',
  )
