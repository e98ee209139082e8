import { badArgument, badUse, optionsFor, wholeNumber } from '../device/allocator-error.js'
import { madeBy, reading } from '../device/arguments.js'
import type { Block } from '../device/block.js'
import type { Core } from '../device/core.js'
import { coreOfDevice, Device } from '../device/device.js'
import type { Event } from '../device/event.js'
import type { GraphEvent } from '../device/graph-event.js'
import type { Kernel, KernelLaunch, Operands, Scalars } from '../device/kernel.js'
import type { CallbackFunction } from '../device/work.js'
import { DisposedError } from '../errors.js'
import {
  conditionals,
  conditionFor,
  conditionOf,
  conditionWork,
  copyable,
  type GraphCondition,
  mostBodies,
} from './conditions.js'
import {
  access,
  apart,
  fitsBody,
  type GraphPlace,
  Hierarchy,
  noCopyOf,
  nodeFor,
  wholeGraphFor,
} from './hierarchy.js'
import { type ConditionalNode, conditionalOf, type GraphNode, makeNode } from './node.js'
import {
  awaitsHost,
  type CallbackParams,
  type Checked,
  type CopyParams,
  callbackParams,
  copyParams,
  type FillParams,
  fillParams,
  type KernelParams,
  kernelParams,
  type NodeKind,
} from './node-params.js'
import { type Memory, recordNode, waitNode } from './operands.js'

declare module './hierarchy.js' {
  interface Views {
    readonly graph: GraphDefinition
  }
}

export interface After {
  /** The nodes that come before. Default: none. */
  readonly after?: readonly GraphNode[]
}

/**
 * A graph as data: nodes and the edges that order them. Adding, changing and destroying nodes runs nothing;
 * `ExecutableGraph.instantiate` copies it into something that can be launched.
 *
 * A node keeps what it refers to: the allocation of a block (not the `Block`, which may be freed at once), an
 * event, a function. Copies of the graph, executables and launches keep it too, and whoever is last lets it
 * go. Use one hierarchy (a root graph with all graphs inside it) from one thread at a time.
 *
 * Hazard: a function or an owner that refers to the graph that holds it is never collected, since the
 * reference runs through the driver. Let it refer to the graph by a `WeakRef`.
 */
export class GraphDefinition implements Disposable {
  readonly #hierarchy: Hierarchy
  readonly #id: number

  private constructor(hierarchy: Hierarchy, id: number) {
    madeBy(hierarchy instanceof Hierarchy, 'GraphDefinition', 'GraphDefinition.create(device)')
    this.#hierarchy = hierarchy
    this.#id = id
    hierarchy.graphs.set(id, this)
  }

  static {
    access.graphFor = (graph, at) => {
      if (!GraphDefinition.is(graph))
        throw badArgument(at, 'graph', 'a GraphDefinition', graph, 'pass a definition')
      graph.#alive(at)
      return { hierarchy: graph.#hierarchy, id: graph.#id }
    }
    access.idOf = graph => graph.#id
    access.definitionOf = (hierarchy, id) => hierarchy.graphs.get(id) ?? new GraphDefinition(hierarchy, id)
  }

  /** An empty graph. */
  static create(device: Device): GraphDefinition {
    const at = 'GraphDefinition.create'
    if (!Device.is(device)) throw badArgument(at, 'device', 'a Device', device, 'pass what Device.open gave')
    const core = coreOfDevice(device)
    core.open('a device')
    return new GraphDefinition(
      new Hierarchy(
        core,
        core.tried(at, core.name, () => core.native.graph()),
      ),
      0,
    )
  }

  static is(value: unknown): value is GraphDefinition {
    return typeof value === 'object' && value !== null && #hierarchy in value
  }

  /** Whether the graph is alive: not disposed of, and its node, if it is inside one, not destroyed. */
  get valid(): boolean {
    const { closed, core, graphs } = this.#hierarchy
    return !closed && !core.closed && graphs.has(this.#id)
  }

  copy(to: Memory, from: Memory, options: Omit<CopyParams, 'to' | 'from'> & After = {}): GraphNode<'copy'> {
    const at = 'definition.copy'
    this.#alive(at)
    return this.#add(at, options, () => copyParams({ ...options, to, from }, undefined, this.#core, at, this))
  }

  /** Fills elements of 8, 16 or 32 bits, by default of 8, as `lane.fill` does. */
  fill(to: Memory, value: number, options: Omit<FillParams, 'to' | 'value'> & After = {}): GraphNode<'fill'> {
    const at = 'definition.fill'
    this.#alive(at)
    return this.#add(at, options, () =>
      fillParams({ ...options, to, value }, undefined, this.#core, at, this),
    )
  }

  /** Calls a function, see `CallbackFunction`. */
  callback(
    call: CallbackFunction,
    options: Omit<CallbackParams, 'call'> & After = {},
  ): GraphNode<'callback'> {
    const at = 'definition.callback'
    this.#alive(at)
    return this.#add(at, options, () => callbackParams({ ...options, call }, undefined, at))
  }

  /** Moves the event to this node in each launch. */
  record(event: GraphEvent, options: After = {}): GraphNode<'record'> {
    const at = 'definition.record'
    this.#alive(at)
    return this.#add(at, options, () => ({ node: recordNode(event, this.#core, at), given: {} }))
  }

  /** Waits for what the event marks when the launch is queued; an `Event` of a lane is one point for ever. */
  wait(event: GraphEvent | Event, options: After = {}): GraphNode<'wait'> {
    const at = 'definition.wait'
    this.#alive(at)
    return this.#add(at, options, () => ({ node: waitNode(event, this.#core, at), given: {} }))
  }

  /** A node that does nothing: for edges of many nodes to many others. */
  empty(options: After = {}): GraphNode<'empty'> {
    this.#alive('definition.empty')
    return this.#add('definition.empty', options, () => ({ node: { kind: 'empty' }, given: {} }))
  }

  /**
   * Memory that lives inside each launch: `node.memory` is a block for nodes of this definition that come
   * after this one and before the node that frees it. Nobody finds there what an earlier launch left. CUDA
   * neither clones nor embeds a graph with such nodes, takes no node and no edge out of it, and lets it have
   * one executable at a time.
   */
  malloc(bytes: number, options: After = {}): GraphNode<'malloc'> {
    const at = 'definition.malloc'
    this.#alive(at)
    const core = this.#core
    const size = wholeNumber(at, 'bytes', bytes, 1, core.native.info.totalBytes)
    const after = this.#after(options, at)
    this.#hierarchy.takes(this.#id, 'malloc', at)
    const { native, memory } = this.#hierarchy
    const [id, address] = this.#hierarchy.tried(at, () => native.malloc(this.#id, after, size))
    memory.allocated(id, address, size, this, core)
    return makeNode(this, this.#hierarchy, id, {}) as GraphNode<'malloc'>
  }

  /** Frees the memory of a malloc node of this definition, in each launch. */
  free(memory: Block, options: After = {}): GraphNode<'free'> {
    const at = 'definition.free'
    this.#alive(at)
    const freed = this.#hierarchy.memory.freeable(memory, at)
    const { address } = freed.block
    const node = this.#add<'free'>(at, options, () => ({ node: { kind: 'free', address }, given: {} }))
    freed.freedBy = access.nodeFor(node, at).id
    return node
  }

  /** Launches a kernel, as `lane.launch` does. The node keeps the kernel and the blocks. */
  launch<R extends Operands, W extends Operands, S extends Scalars>(
    kernel: Kernel<R, W, S>,
    launch: KernelLaunch<R, W, S>,
    options: After = {},
  ): GraphNode<'kernel'> {
    const at = 'definition.launch'
    this.#alive(at)
    const params = { kernel, launch } as unknown as KernelParams
    return this.#add(at, options, () => kernelParams(params, undefined, this.#core, at, this))
  }

  /** A condition of this graph, for conditional nodes, see `GraphCondition`. */
  condition(initial?: number): GraphCondition {
    const at = 'definition.condition'
    this.#alive(at)
    return conditionOf(this, this.#place, initial, at)
  }

  /** Sets the condition to the 32-bit word at the start of `from`. */
  setCondition(condition: GraphCondition, from: Memory, options: After = {}): GraphNode<'kernel'> {
    const at = 'definition.setCondition'
    this.#alive(at)
    const { node, memory, of } = reading(at, () => conditionWork(condition, from, this.#place, at, this))
    const after = this.#after(options, at)
    const id = this.#hierarchy.tried(at, () => this.#hierarchy.native.add(this.#id, after, node))
    this.#hierarchy.setsCondition(this.#id, of, id)
    this.#hierarchy.memory.uses(id, memory)
    return makeNode(this, this.#hierarchy, id, {}) as GraphNode<'kernel'>
  }

  /** Runs its body where the condition is not 0. */
  ifThen(condition: GraphCondition, options: After = {}): ConditionalNode {
    return this.#conditional('definition.ifThen', condition, options, 'if', 1)
  }
  /** Runs its first body where the condition is not 0, else the second. */
  ifElse(condition: GraphCondition, options: After = {}): ConditionalNode {
    return this.#conditional('definition.ifElse', condition, options, 'if', 2)
  }
  /** Runs its body again and again while the condition is not 0. The body clears it. */
  whileLoop(condition: GraphCondition, options: After = {}): ConditionalNode {
    return this.#conditional('definition.whileLoop', condition, options, 'while', 1)
  }
  /** Runs the body whose index the condition is, or none. */
  switchOn(condition: GraphCondition, count: number, options: After = {}): ConditionalNode {
    const bodies = wholeNumber('definition.switchOn', 'count', count, 1, mostBodies)
    return this.#conditional('definition.switchOn', condition, options, 'switch', bodies)
  }

  /**
   * A definition of its own with copies of all nodes, which keep what these keep. CUDA copies no conditional
   * nodes.
   */
  clone(): GraphDefinition {
    const at = 'definition.clone'
    this.#alive(at)
    this.#hierarchy.noCaptureInside(this.#id, at)
    copyable(this.#place, at)
    const { native, ordered } = this.#hierarchy
    const hierarchy = new Hierarchy(
      this.#core,
      this.#hierarchy.tried(
        at,
        () => native.clone(this.#id),
        () => noCopyOf(this.#place, at),
      ),
    )
    hierarchy.ordered = ordered
    return new GraphDefinition(hierarchy, 0)
  }

  /** A node that holds a copy of another definition: `node.bodies[0]`. */
  embed(graph: GraphDefinition, options: After = {}): GraphNode<'child'> {
    const at = 'definition.embed'
    this.#alive(at)
    const child = wholeGraphFor(graph, at, this.#core)
    apart(child, this.#place, at)
    copyable(child, at)
    fitsBody(child, this.#place, at)
    const { native } = this.#hierarchy
    const after = this.#after(options, at)
    const id = this.#hierarchy.tried(
      at,
      () => native.embed(this.#id, after, child.hierarchy.native, child.id),
      () => noCopyOf(child, at),
    )
    this.#hierarchy.ordered ||= child.hierarchy.ordered
    return makeNode(this, this.#hierarchy, id, {}) as GraphNode<'child'>
  }

  /** In the order of their making. */
  get nodes(): readonly GraphNode[] {
    this.#alive('definition.nodes')
    const { native } = this.#hierarchy
    return this.#hierarchy.tried('definition.nodes', () => native.nodes(this.#id)).map(id => this.#node(id))
  }

  /** Pairs of a node and one that comes after it. */
  get edges(): readonly (readonly [GraphNode, GraphNode])[] {
    this.#alive('definition.edges')
    const { native } = this.#hierarchy
    const flat = this.#hierarchy.tried('definition.edges', () => native.edges(this.#id))
    return Array.from(
      { length: flat.length / 2 },
      (_, i) => [this.#node(flat[2 * i]!), this.#node(flat[2 * i + 1]!)] as const,
    )
  }

  /** Graphviz's text, for people. */
  dot(): string {
    this.#alive('definition.dot')
    this.#hierarchy.noCaptureInside(this.#id, 'definition.dot')
    return this.#hierarchy.tried('definition.dot', () => this.#hierarchy.native.dot(this.#id))
  }

  /**
   * Gives up the graph, all graphs inside it and what their nodes keep. Executables are copies and stay. A
   * graph inside another goes with it: disposing of it does nothing. Throws while a lane is being captured
   * into one of them.
   */
  [Symbol.dispose](): void {
    if (this.#id !== 0 || this.#hierarchy.closed) return
    if (this.valid) {
      this.#alive('definition[Symbol.dispose]')
      this.#hierarchy.noCaptureInside(this.#id, 'definition[Symbol.dispose]')
    }
    this.#hierarchy.close()
  }

  get #place(): GraphPlace {
    return { hierarchy: this.#hierarchy, id: this.#id }
  }

  get #core(): Core {
    return this.#hierarchy.core
  }

  #alive(at: string): void {
    if (this.valid) {
      if (!this.#hierarchy.capturing.has(this.#id)) return
      throw badUse(
        at,
        'a graph',
        'one that no lane is being captured into',
        'a graph whose capture has not ended',
        'call builder.end() first',
      )
    }
    if (this.#hierarchy.lost)
      throw new DisposedError(
        'a graph',
        'a capture into it, or into a graph inside, failed, and the driver cannot take its nodes out again; build the graph anew',
      )
    const why = this.#core.closed
      ? `its device ${this.#core.name} is closed`
      : this.#hierarchy.closed
        ? 'it was disposed of'
        : 'the node that held it was destroyed or given another graph'
    throw new DisposedError('a graph', `${why}; call ${at} before that`)
  }

  #conditional(
    at: string,
    condition: GraphCondition,
    options: After,
    kind: keyof typeof conditionals,
    count: number,
  ): ConditionalNode {
    this.#alive(at)
    const after = this.#after(options, at)
    const { native } = this.#hierarchy
    const handle = conditionFor(condition, this.#place, at)
    const id = this.#hierarchy.tried(at, () =>
      native.conditional(this.#id, after, handle, conditionals[kind], count),
    )
    return conditionalOf(this, this.#hierarchy, id)
  }

  #node(id: number): GraphNode {
    return this.#hierarchy.nodes.get(id) ?? makeNode(this, this.#hierarchy, id, {})
  }

  #after(options: After, at: string): number[] {
    return reading(at, () => {
      const { after = [] } = optionsFor(options, at)
      if (!Array.isArray(after))
        throw badArgument(at, 'after', 'an array of nodes', after, 'pass after: [node]')
      return after.map((node, i) => {
        const found = nodeFor(node, at)
        if (found.hierarchy !== this.#hierarchy || found.graph !== this.#id)
          throw badUse(
            at,
            `after[${i}]`,
            'a node of this graph',
            'a node of another one',
            'edges stay inside one graph: embed the other one, or add its nodes here',
          )
        return found.id
      })
    })
  }

  #add<K extends NodeKind>(at: string, options: After, check: () => Checked): GraphNode<K> {
    const { node, given, memory } = reading(at, check)
    const after = this.#after(options, at)
    this.#hierarchy.takes(this.#id, node.kind, at)
    const id = this.#hierarchy.tried(
      at,
      () => this.#hierarchy.native.add(this.#id, after, node),
      () => this.#hierarchy.memory.notUsable(memory, at),
    )
    this.#hierarchy.ordered ||= awaitsHost(node)
    this.#hierarchy.memory.uses(id, memory)
    return makeNode(this, this.#hierarchy, id, given) as GraphNode<K>
  }
}
