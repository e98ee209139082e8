import type { NativeExecutable } from '../addon.js'
import { AllocatorError, badUse, optionsFor } from '../device/allocator-error.js'
import { madeBy, reading } from '../device/arguments.js'
import { type Core, outOfMemory } from '../device/core.js'
import type { Lane } from '../device/lane.js'
import { laneAccess } from '../device/lane-access.js'
import { DisposedError } from '../errors.js'
import { copyable, setsOwnConditions } from './conditions.js'
import type { GraphDefinition } from './definition.js'
import {
  definitionOf,
  fitsBody,
  type GraphPlace,
  Hierarchy,
  noCopyOf,
  nodeFor,
  noExecutableOf,
  noUpdateOf,
  wholeGraphFor,
} from './hierarchy.js'
import type { Lifetimes } from './memory.js'
import { childFor, type GraphNode } from './node.js'
import { awaitsHost, objectOf, type ParamsOf, paramsOf } from './node-params.js'
import { noMemory, triedOn } from './refusals.js'

export interface InstantiateOptions {
  /** Whether kernels keep the priority of the lane that they were captured from. */
  readonly nodePriorities?: boolean
}

/** The kinds of nodes that can be switched off. */
const switchable: readonly string[] = ['copy', 'fill', 'kernel']

/**
 * A copy of a definition that can be launched. It keeps what its nodes refer to, and so does each launch
 * until it has completed, whatever happens to the definition and to this object.
 */
export class ExecutableGraph implements Disposable {
  readonly #core: Core
  readonly #native: NativeExecutable
  // 0 once disposed of.
  #number: number

  // Whether a launch waits for JavaScript.
  #ordered: boolean

  // What it was instantiated from, if that is still in use: an executable keeps no definition alive.
  readonly #source: WeakRef<Hierarchy>
  readonly #sourceGraph: number

  // What nodes of the graph allocate, as it is here.
  #lifetimes: Lifetimes
  // Bytes that the first launch takes of the device at least; 0 once it has.
  #wanted: number

  private constructor(place: GraphPlace, native: NativeExecutable, lifetimes: Lifetimes) {
    const own = place?.hierarchy instanceof Hierarchy
    madeBy(own, 'ExecutableGraph', 'ExecutableGraph.instantiate(definition)')
    const { hierarchy, id } = place
    this.#core = hierarchy.core
    this.#ordered = hierarchy.ordered
    this.#source = new WeakRef(hierarchy)
    this.#sourceGraph = id
    this.#native = native
    this.#number = native.number
    this.#lifetimes = lifetimes
    this.#wanted = lifetimes.atOnce
    if (id === 0) hierarchy.launchable(this)
  }

  /**
   * Throws an `AllocatorError` that names the reason where the graph cannot run: a cycle, for instance. A graph
   * with conditional or memory nodes has one executable at a time, as CUDA has it; bodies of conditional nodes
   * have none of their own.
   */
  static instantiate(definition: GraphDefinition, options: InstantiateOptions = {}): ExecutableGraph {
    const at = 'ExecutableGraph.instantiate'
    const place = wholeGraphFor(definition, at)
    setsOwnConditions(place, at)
    const { hierarchy, id } = place
    const priorities = reading(at, () => optionsFor(options, at).nodePriorities === true)
    const lifetimes = hierarchy.lifetimes(id, at)
    if (lifetimes.size > 0 && hierarchy.hasExecutable) throw noExecutableOf(place, at)
    const made = hierarchy.tried(
      at,
      () => hierarchy.native.instantiate(id, priorities),
      () => noExecutableOf(place, at),
    )
    if (typeof made === 'string')
      throw new AllocatorError({
        _tag: 'BadArgument',
        at,
        subject: 'definition',
        wanted: 'a graph that can run',
        found: made,
        next: 'look for cycles, and for conditions that no node reads: definition.dot() draws the graph',
      })
    return new ExecutableGraph(place, made, lifetimes)
  }

  static is(value: unknown): value is ExecutableGraph {
    return typeof value === 'object' && value !== null && #native in value
  }

  get disposed(): boolean {
    return this.#number === 0 || this.#core.closed
  }

  /**
   * Queues all nodes as one piece of the lane: after all earlier work there, before all later work. Launches
   * of one executable run one after the other, whatever their lanes.
   */
  launch(lane: Lane): void {
    const number = this.#live('graph.launch')
    const id = laneAccess.idFor(lane, this.#core, 'graph.launch')
    const { native } = this.#core
    if (this.#wanted > 0) this.#fits('graph.launch', lane)
    const ordered = this.#ordered ? 1 : 0
    const status = native.launchGraph(id, number, ordered)
    if (status !== 0) throw this.#failed(status, 'graph.launch', lane)
    this.#wanted = 0
  }

  /** Does on the lane what the first launch would otherwise do before it runs. */
  upload(lane: Lane): void {
    const number = this.#live('graph.upload')
    const id = laneAccess.idFor(lane, this.#core, 'graph.upload')
    const { native } = this.#core
    if (this.#wanted > 0) this.#fits('graph.upload', lane)
    const status = native.uploadGraph(id, number, 0)
    if (status !== 0) throw this.#failed(status, 'graph.upload', lane)
    this.#wanted = 0
  }

  /**
   * Takes over the parameters of a definition of the same topology, and what its nodes keep. What was kept
   * before goes when the last launch that uses it has completed. Where it is refused nothing has changed.
   */
  update(definition: GraphDefinition): void {
    const at = 'graph.update'
    this.#live(at)
    const place = wholeGraphFor(definition, at, this.#core)
    setsOwnConditions(place, at)
    const { hierarchy, id } = place
    const own = hierarchy === this.#source.deref() && id === this.#sourceGraph
    if (!own && (this.#lifetimes.size > 0 || hierarchy.hasMemory(id)))
      throw badUse(
        at,
        'definition',
        'that of the graph itself, where one of them has memory nodes',
        'another definition, whose memory would have other addresses',
        'instantiate it anew',
      )
    const lifetimes = hierarchy.lifetimes(id, at)
    const why = triedOn(
      this.#core,
      at,
      'a graph',
      () => this.#native.update(hierarchy.native, id),
      () => noUpdateOf(place, at),
    )
    if (why !== '')
      throw badUse(
        at,
        'definition',
        'a definition with the same nodes and edges as the graph',
        why,
        'instantiate it anew',
      )
    this.#lifetimes = lifetimes
    this.#ordered ||= hierarchy.ordered
  }

  /**
   * Gives a node of the definition that was instantiated, or of a graph inside it, other parameters, here and
   * in later launches only. `params` are complete. What the node kept before is kept until the whole is updated.
   */
  updateNode<K extends keyof ParamsOf>(node: GraphNode<K>, params: ParamsOf[K]): void {
    const at = 'graph.updateNode'
    this.#live(at)
    const { hierarchy, graph, id } = this.#nodeFor(node, at)
    if (node.kind === 'child') {
      const given = reading(at, () => childFor(params, at))
      const child = wholeGraphFor(given, at, this.#core)
      copyable(child, at)
      fitsBody(child, { hierarchy, id: graph }, at)
      triedOn(
        this.#core,
        at,
        'a graph',
        () => this.#native.updateChild(hierarchy.native, id, child.hierarchy.native, child.id),
        () => noCopyOf(child, at),
      )
      this.#ordered ||= child.hierarchy.ordered
      return
    }
    const { node: given, memory = [] } = reading(at, () =>
      paramsOf(
        node.kind,
        objectOf(params, node.kind, at),
        {},
        hierarchy.core,
        at,
        definitionOf(hierarchy, graph),
      ),
    )
    this.#lifetimes.check(id, hierarchy.memory.nodesOf(memory), at)
    triedOn(
      this.#core,
      at,
      'a node',
      () => this.#native.updateNode(hierarchy.native, id, given),
      () => this.#notThere(node, at),
    )
    this.#ordered ||= awaitsHost(given)
  }

  /** Whether a copy, fill or kernel node does its work in later launches. Its edges hold either way. */
  enable(node: GraphNode<'copy' | 'fill' | 'kernel'>, enabled: boolean): void {
    const at = 'graph.enable'
    this.#live(at)
    const { hierarchy, id } = this.#switchable(node, at)
    triedOn(
      this.#core,
      at,
      'a node',
      () => this.#native.enable(hierarchy.native, id, enabled === true),
      () => this.#notThere(node, at),
    )
  }

  enabled(node: GraphNode<'copy' | 'fill' | 'kernel'>): boolean {
    const at = 'graph.enabled'
    this.#live(at)
    const { hierarchy, id } = this.#switchable(node, at)
    return triedOn(
      this.#core,
      at,
      'a node',
      () => this.#native.enabled(hierarchy.native, id),
      () => this.#notThere(node, at),
    )
  }

  /** Graphviz's text of the definition that it was instantiated from, as that is now. */
  dot(): string {
    this.#live('graph.dot')
    const source = this.#source.deref()
    if (source === undefined)
      throw new DisposedError('the definition of the graph', 'keep it while graph.dot() is of use')
    return definitionOf(source, this.#sourceGraph).dot()
  }

  /** Launches that are queued still run. */
  [Symbol.dispose](): void {
    if (this.#number === 0) return
    this.#number = 0
    this.#native.destroy()
  }

  /**
   * Before the first launch: gives back what idle graphs keep, where there is less than the graph holds at once,
   * and throws where that is not enough. The driver would take what there is, fail, and keep it as long as the
   * process lives (CUDA 13.0). What graphs that run hold may serve this one after them.
   */
  #fits(at: string, lane: Lane): void {
    const { native } = this.#core
    if (this.#wanted <= native.memory().free) return
    const subject = `lane ${lane.name}`
    triedOn(this.#core, at, subject, () => native.trimGraphMemory())
    const left = native.memory().free + native.graphMemory().reserved
    if (this.#wanted > left) throw noMemory(at, subject, `${this.#wanted} bytes wanted at once, ${left} free`)
  }

  #failed(status: number, at: string, lane: Lane): Error {
    const subject = `lane ${lane.name}`
    if (status !== outOfMemory) return this.#core.failed(status, at, subject)
    return noMemory(at, subject, this.#core.native.describe(status).detail)
  }

  #nodeFor(node: unknown, at: string): ReturnType<typeof nodeFor> {
    const found = nodeFor(node, at, this.#core)
    const { hierarchy, graph } = found
    if (hierarchy === this.#source.deref() && hierarchy.within(graph, this.#sourceGraph)) return found
    throw badUse(
      at,
      'node',
      'a node of the definition that the graph was instantiated from',
      'one of another definition',
      'pass the node of that definition: also after graph.update',
    )
  }

  #switchable(node: GraphNode<'copy' | 'fill' | 'kernel'>, at: string): ReturnType<typeof nodeFor> {
    const found = this.#nodeFor(node, at)
    if (!switchable.includes(node.kind))
      throw badUse(
        at,
        'node',
        'a kernel, copy or fill node',
        `a node of kind ${node.kind}`,
        'only these can be switched off',
      )
    return found
  }

  /** Says that the executable does not have the node, if that is so: the driver then knows no state of it. */
  #notThere(node: GraphNode, at: string): Error | undefined {
    if (!switchable.includes(node.kind)) return undefined
    const { hierarchy, id } = nodeFor(node, at)
    try {
      this.#native.enabled(hierarchy.native, id)
      return undefined
    } catch {
      return badUse(
        at,
        'node',
        'a node that the graph had when it was instantiated',
        'one that the definition, or a graph inside it, was given later',
        'instantiate the definition anew',
      )
    }
  }

  #live(at: string): number {
    if (this.#number > 0 && !this.#core.closed) return this.#number
    const why = this.#core.closed ? `its device ${this.#core.name} is closed` : 'it was disposed of'
    throw new DisposedError('an executable graph', `${why}; call ${at} before that`)
  }
}
