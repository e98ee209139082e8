// Definitions and their nodes, which refer to each other, so they stand in one file.
import type { NativeGone, NativeGraph, NativeNode } from '../addon.js'
import { badArgument, badUse, wholeNumber } from '../device/allocator-error.js'
import type { Core } from '../device/core.js'
import { coreOfDevice, Device } from '../device/device.js'
import type { Event } from '../device/event.js'
import type { FillOptions } from '../device/fill.js'
import type { GraphEvent } from '../device/graph-event.js'
import { type Kernel, type KernelLaunch, launchFor, type Operands, type Scalars } from '../device/kernel.js'
import {
  type CallbackFunction,
  type CallbackOptions,
  callbackWork,
  copyWork,
  fillWork,
  kernelWork,
  type Operand,
} from '../device/work.js'
import { DisposedError } from '../errors.js'
import { type Memory, operandFor, recordNode, waitNode } from './operands.js'

/** A graph of a hierarchy, as the addon knows it. Throws unless it is alive. */
export let graphFor: (graph: unknown, at: string) => { readonly hierarchy: Hierarchy; readonly id: number }
/** The same of a node. */
export let nodeFor: (
  node: unknown,
  at: string,
) => { readonly hierarchy: Hierarchy; readonly graph: number; readonly id: number }
/** The complete parameters of a node for the addon. Throws where they do not fit its kind. */
export let paramsFor: (node: GraphNode, params: unknown, at: string) => NativeNode | GraphDefinition
/** For captures: the view of a graph of the addon's. */
export let definitionOf: (hierarchy: Hierarchy, id: number) => GraphDefinition
let dropGiven: (node: GraphNode) => void
/** The number of a graph, alive or not. */
let idOf: (graph: GraphDefinition) => number
let makeNode: (graph: GraphDefinition, hierarchy: Hierarchy, id: number, given: Given) => GraphNode

export type NodeKind =
  | 'kernel'
  | 'copy'
  | 'fill'
  | 'callback'
  | 'child'
  | 'empty'
  | 'wait'
  | 'record'
  | 'conditional'
  | 'other'

// By CUgraphNodeType's numbers.
const kinds: Readonly<Record<number, NodeKind>> = {
  0: 'kernel',
  1: 'copy',
  2: 'fill',
  3: 'callback',
  4: 'child',
  5: 'empty',
  6: 'wait',
  7: 'record',
  13: 'conditional',
}

/** What a node was given, for updates in part. Empty for a node that this program did not add by a call. */
interface Given {
  to?: Operand
  from?: Operand
  bytes?: number | undefined
  value?: number
  shape?: FillOptions
  kernel?: unknown
}

export interface After {
  /** The nodes that come before. Default: none. */
  readonly after?: readonly GraphNode[]
}

export interface CopyParams {
  readonly to: Memory
  readonly from: Memory
  /** Default: as many as the shorter of the two has. */
  readonly bytes?: number
  /** Of memory given by its address: what keeps it. A block's allocation, or any object. */
  readonly toOwner?: unknown
  readonly fromOwner?: unknown
}

export interface FillParams extends FillOptions {
  readonly to: Memory
  readonly value: number
  readonly toOwner?: unknown
}

export interface CallbackParams extends CallbackOptions {
  readonly call: CallbackFunction
}

export interface KernelParams {
  /** Default, in an update of a definition: the node's own. */
  readonly kernel?: Kernel
  readonly launch: KernelLaunch<Operands, Operands, Scalars>
}

/** The parameters of a node by its kind, as `update` takes them. */
export interface ParamsOf {
  kernel: KernelParams
  copy: CopyParams
  fill: FillParams
  callback: CallbackParams
  record: { readonly event: GraphEvent }
  wait: { readonly event: GraphEvent | Event }
  child: { readonly graph: GraphDefinition }
}

/** A root graph with all graphs inside it: what the addon knows them by. */
export class Hierarchy {
  readonly nodes = new Map<number, GraphNode>()
  readonly graphs = new Map<number, GraphDefinition>()
  closed = false
  /** The graphs that lanes are being captured into: the driver alone changes them. */
  readonly capturing = new Set<number>()
  /** Whether a callback somewhere inside makes the device wait for JavaScript. */
  ordered = false

  constructor(
    readonly core: Core,
    readonly native: NativeGraph,
  ) {}

  tried<T>(at: string, call: () => T): T {
    return this.core.tried(at, 'a graph', call)
  }

  /** Forgets what has gone, so that the program's views of it keep nothing alive. */
  forget(gone: NativeGone): void {
    for (const id of gone.nodes) {
      const node = this.nodes.get(id)
      if (node !== undefined) dropGiven(node)
      this.nodes.delete(id)
    }
    for (const id of gone.graphs) this.graphs.delete(id)
  }
}

/**
 * A condition that a conditional node reads. A kernel of the same graph sets it. `initial`: its value at the
 * start of each launch; without one it keeps its value from launch to launch.
 */
export interface GraphCondition {
  readonly graph: GraphDefinition
  readonly handle: bigint
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
    this.#hierarchy = hierarchy
    this.#id = id
    hierarchy.graphs.set(id, this)
  }

  static {
    graphFor = (graph, at) => {
      if (!GraphDefinition.is(graph))
        throw badArgument(at, 'graph', 'a GraphDefinition', graph, 'pass a definition')
      graph.#alive(at)
      return { hierarchy: graph.#hierarchy, id: graph.#id }
    }
    idOf = graph => graph.#id
    definitionOf = (hierarchy, id) => hierarchy.graphs.get(id) ?? new GraphDefinition(hierarchy, id)
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
    const given = copyGiven({ ...options, to, from }, this.#core, at)
    return this.#add(at, options, copyWork(given.to, given.from, given.bytes, at), given)
  }

  /** Fills elements of 8, 16 or 32 bits, by default of 8, as `lane.fill` does. */
  fill(to: Memory, value: number, options: Omit<FillParams, 'to' | 'value'> & After = {}): GraphNode<'fill'> {
    const at = 'definition.fill'
    this.#alive(at)
    const place = operandFor(to, options.toOwner, this.#core, at, 'to')
    return this.#add(at, options, fillWork(place, value, shapeOf(options), at), {
      to: place,
      value,
      shape: shapeOf(options),
    })
  }

  /** Calls a function, see `CallbackFunction`. */
  callback(
    call: CallbackFunction,
    options: Omit<CallbackParams, 'call'> & After = {},
  ): GraphNode<'callback'> {
    const at = 'definition.callback'
    this.#alive(at)
    const made = this.#add<'callback'>(at, options, callbackWork(call, orderedOf(options), at), {})
    return made
  }

  /** Moves the event to this node in each launch. */
  record(event: GraphEvent, options: After = {}): GraphNode<'record'> {
    const at = 'definition.record'
    this.#alive(at)
    return this.#add(at, options, recordNode(event, this.#core, at), {})
  }

  /** Waits for what the event marks when the launch is queued; an `Event` of a lane is one point for ever. */
  wait(event: GraphEvent | Event, options: After = {}): GraphNode<'wait'> {
    const at = 'definition.wait'
    this.#alive(at)
    return this.#add(at, options, waitNode(event, this.#core, at), {})
  }

  /** A node that does nothing: for edges of many nodes to many others. */
  empty(options: After = {}): GraphNode<'empty'> {
    this.#alive('definition.empty')
    return this.#add('definition.empty', options, { kind: 'empty' }, {})
  }

  /** Launches a kernel, as `lane.launch` does. The node keeps the kernel and the blocks. */
  launch<R extends Operands, W extends Operands, S extends Scalars>(
    kernel: Kernel<R, W, S>,
    launch: KernelLaunch<R, W, S>,
    options: After = {},
  ): GraphNode<'kernel'> {
    const at = 'definition.launch'
    this.#alive(at)
    const work = kernelWork(launchFor(kernel, launch, this.#core, at))
    const made = this.#add<'kernel'>(at, options, work, { kernel })
    return made
  }

  /** A condition of this graph, for conditional nodes, see `GraphCondition`. */
  condition(initial?: number): GraphCondition {
    const at = 'definition.condition'
    this.#alive(at)
    return conditionOf(this, this.#hierarchy, this.#id, initial, at)
  }

  /** Sets the condition to the 32-bit word at the start of `from`. */
  setCondition(condition: GraphCondition, from: Memory, options: After = {}): GraphNode<'kernel'> {
    const at = 'definition.setCondition'
    this.#alive(at)
    const work = conditionWork(condition, from, this.#core, at)
    return this.#add(at, options, work, {})
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
    const bodies = wholeNumber('definition.switchOn', 'count', count)
    return this.#conditional('definition.switchOn', condition, options, 'switch', bodies)
  }

  /** A node that holds a copy of another definition: `node.bodies[0]`. */
  embed(graph: GraphDefinition, options: After = {}): GraphNode<'child'> {
    const at = 'definition.embed'
    this.#alive(at)
    const child = graphFor(graph, at)
    if (!child.hierarchy.core.same(this.#core))
      throw badUse(at, 'graph', `a graph of ${this.#core.name}`, 'one of another device', 'build it there')
    const { native } = this.#hierarchy
    const after = this.#after(options, at)
    const id = this.#hierarchy.tried(at, () =>
      native.embed(this.#id, after, child.hierarchy.native, child.id),
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
    return edgesOf(this).map(([from, to]) => [this.#node(from), this.#node(to)] as const)
  }

  /** Graphviz's text, for people. */
  dot(): string {
    this.#alive('definition.dot')
    return this.#hierarchy.tried('definition.dot', () => this.#hierarchy.native.dot(this.#id))
  }

  /**
   * Gives up the graph, all graphs inside it and what their nodes keep. Executables are copies and stay. A
   * graph inside another goes with it: disposing of it does nothing.
   */
  [Symbol.dispose](): void {
    if (this.#id !== 0 || this.#hierarchy.closed) return
    const { native, nodes, graphs } = this.#hierarchy
    this.#hierarchy.closed = true
    this.#hierarchy.forget({ nodes: [...nodes.keys()], graphs: [...graphs.keys()] })
    native.close()
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
    const handle = conditionHandle(condition, at)
    const id = this.#hierarchy.tried(at, () =>
      native.conditional(this.#id, after, handle, conditionals[kind], count),
    )
    return conditionalOf(this, this.#hierarchy, id)
  }

  #node(id: number): GraphNode {
    return this.#hierarchy.nodes.get(id) ?? makeNode(this, this.#hierarchy, id, {})
  }

  #after(options: After, at: string): number[] {
    const after = options.after ?? []
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
  }

  #add<K extends NodeKind>(at: string, options: After, node: NativeNode, given: Given): GraphNode<K> {
    const after = this.#after(options, at)
    const id = this.#hierarchy.tried(at, () => this.#hierarchy.native.add(this.#id, after, node))
    this.#hierarchy.ordered ||= awaitsHost(node)
    return makeNode(this, this.#hierarchy, id, given) as GraphNode<K>
  }
}

/** A node with graphs inside that a condition chooses from. They take no callbacks and no events. */
export type ConditionalNode = GraphNode<'conditional'>

export const conditionals = { if: 0, while: 1, switch: 2 } as const

/** Whether the device waits for JavaScript in this node. */
export const awaitsHost = (node: NativeNode): boolean =>
  node.kind === 'callback' && 'ordered' in node && node.ordered

export const conditionHandle = (condition: unknown, at: string): bigint => {
  const { handle } = (condition ?? {}) as Partial<GraphCondition>
  if (typeof handle !== 'bigint')
    throw badArgument(at, 'condition', 'a GraphCondition', condition, 'make one: definition.condition()')
  return handle
}

export const conditionOf = (
  graph: GraphDefinition,
  hierarchy: Hierarchy,
  id: number,
  initial: number | undefined,
  at: string,
): GraphCondition => {
  if (initial !== undefined) wholeNumber(at, 'initial', initial, 0, 0xffff_ffff)
  return { graph, handle: hierarchy.tried(at, () => hierarchy.native.condition(id, initial)) }
}

export const conditionWork = (
  condition: GraphCondition,
  from: Memory,
  core: Core,
  at: string,
): NativeNode => {
  const { address, bytes, owner } = operandFor(from, undefined, core, at, 'from')
  if (bytes < 4 || address % 4 !== 0)
    throw badUse(at, 'from', 'a whole word of 4 bytes', `${bytes} bytes`, 'pass block.at(offset, 4)')
  return { kind: 'condition', condition: conditionHandle(condition, at), from: address, owner }
}

export const conditionalOf = (graph: GraphDefinition, hierarchy: Hierarchy, id: number): ConditionalNode => {
  return makeNode(graph, hierarchy, id, {}) as unknown as ConditionalNode
}

const edgesOf = (graph: GraphDefinition): readonly (readonly [number, number])[] => {
  const { hierarchy, id } = graphFor(graph, 'definition.edges')
  const flat = hierarchy.tried('definition.edges', () => hierarchy.native.edges(id))
  return Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i]!, flat[2 * i + 1]!] as const)
}

const shapeOf = ({ bits, width, rows, pitch }: FillOptions): FillOptions => ({
  ...(bits === undefined ? {} : { bits }),
  ...(width === undefined ? {} : { width }),
  ...(rows === undefined ? {} : { rows }),
  ...(pitch === undefined ? {} : { pitch }),
})

const orderedOf = ({ ordered }: CallbackOptions): CallbackOptions =>
  ordered === undefined ? {} : { ordered }

const copyGiven = (
  params: CopyParams,
  core: Core,
  at: string,
): { to: Operand; from: Operand; bytes: number | undefined } => ({
  to: operandFor(params.to, params.toOwner, core, at, 'to'),
  from: operandFor(params.from, params.fromOwner, core, at, 'from'),
  bytes: params.bytes,
})

/**
 * A node of a definition. The same node is the same object, wherever it is found. Once it is destroyed it is
 * not `valid`, has no neighbours, and can still be compared.
 */
export class GraphNode<K extends NodeKind = NodeKind> {
  readonly #graph: GraphDefinition
  readonly #hierarchy: Hierarchy
  readonly #id: number
  readonly #kind: K
  #given: Given

  private constructor(graph: GraphDefinition, hierarchy: Hierarchy, id: number, given: Given) {
    this.#graph = graph
    this.#hierarchy = hierarchy
    this.#id = id
    this.#given = given
    this.#kind = (kinds[hierarchy.native.kind(id)] ?? 'other') as K
    hierarchy.nodes.set(id, this as unknown as GraphNode)
  }

  static {
    makeNode = (graph, hierarchy, id, given) => new GraphNode(graph, hierarchy, id, given) as GraphNode
    nodeFor = (node, at) => {
      if (!GraphNode.is(node))
        throw badArgument(
          at,
          'node',
          'a node',
          node,
          'pass what a definition gave, such as definition.empty()',
        )
      node.#alive(at)
      return {
        hierarchy: node.#hierarchy,
        graph: graphFor(node.#graph, at).id,
        id: node.#id,
      }
    }
    dropGiven = node => {
      node.#given = {}
    }
    paramsFor = (node, params, at) => node.#params(params, at).node
  }

  static is(value: unknown): value is GraphNode {
    return typeof value === 'object' && value !== null && #graph in value
  }

  get kind(): K {
    return this.#kind
  }
  /** The graph that the node belongs to. */
  get graph(): GraphDefinition {
    return this.#graph
  }
  get valid(): boolean {
    return this.#graph.valid && this.#hierarchy.nodes.get(this.#id) === (this as unknown as GraphNode)
  }

  /** The nodes right before. Edges can be added and removed, or all set at once: `node.pred = [a, b]`. */
  get pred(): Neighbours {
    return new Neighbours(this as unknown as GraphNode, 'pred')
  }
  set pred(nodes: Iterable<GraphNode>) {
    this.pred.replace(nodes)
  }
  /** The nodes right after. */
  get succ(): Neighbours {
    return new Neighbours(this as unknown as GraphNode, 'succ')
  }
  set succ(nodes: Iterable<GraphNode>) {
    this.succ.replace(nodes)
  }

  /** The graphs inside a child or conditional node. */
  get bodies(): readonly GraphDefinition[] {
    this.#alive('node.bodies')
    const hierarchy = this.#hierarchy
    const graph = idOf(this.#graph)
    return hierarchy
      .tried('node.bodies', () => hierarchy.native.bodies(graph, this.#id))
      .map(body => definitionOf(hierarchy, body))
  }

  /**
   * Gives the node other parameters; those that are left out stay. Executables made before keep theirs. Where
   * the driver refuses, nothing has changed.
   */
  update(params: K extends keyof ParamsOf ? Partial<ParamsOf[K]> : never): void {
    const at = 'node.update'
    const { hierarchy, graph, id } = nodeFor(this, at)
    const { node, given } = this.#params(params, at)
    if (GraphDefinition.is(node)) {
      const child = graphFor(node, at)
      if (child.hierarchy === hierarchy)
        throw badUse(
          at,
          'graph',
          'a graph of another hierarchy',
          'the node’s own graph, or one around it or inside it',
          'build the new graph apart: GraphDefinition.create(device)',
        )
      hierarchy.forget(
        hierarchy.tried(at, () => hierarchy.native.updateChild(graph, id, child.hierarchy.native, child.id)),
      )
      hierarchy.ordered ||= child.hierarchy.ordered
      return
    }
    hierarchy.tried(at, () => hierarchy.native.update(graph, id, node))
    hierarchy.ordered ||= awaitsHost(node)
    this.#given = given
  }

  /** Takes the node and its edges out of the graph. Does nothing to a node that has gone. */
  destroy(): void {
    if (!this.valid) return
    const { hierarchy, graph, id } = nodeFor(this, 'node.destroy')
    hierarchy.forget(hierarchy.tried('node.destroy', () => hierarchy.native.destroy(graph, id)))
  }

  #alive(at: string): void {
    if (!this.valid)
      throw new DisposedError(`a ${this.#kind} node`, `it was destroyed, or its graph was; call ${at} before`)
  }

  #params(params: unknown, at: string): { node: NativeNode | GraphDefinition; given: Given } {
    const { core } = this.#hierarchy
    if (typeof params !== 'object' || params === null)
      throw badArgument(at, 'params', 'an object of parameters', params, `pass those of a ${this.#kind} node`)
    const known = this.#given
    const missing = (name: string): Error =>
      badUse(at, name, `${name}: the node’s own is not known here`, 'none', 'pass all parameters')
    switch (this.#kind as NodeKind) {
      case 'kernel': {
        const { kernel = known.kernel, launch } = params as Partial<KernelParams>
        if (kernel === undefined) throw missing('kernel')
        if (launch === undefined)
          throw badUse(at, 'launch', 'the operands and sizes of the launch', 'none', 'pass launch too')
        const node = kernelWork(launchFor(kernel, launch, core, at))
        return { node, given: { kernel } }
      }
      case 'copy': {
        const { to, from, bytes, toOwner, fromOwner } = params as Partial<CopyParams>
        const given = {
          to: to === undefined ? known.to : operandFor(to, toOwner, core, at, 'to'),
          from: from === undefined ? known.from : operandFor(from, fromOwner, core, at, 'from'),
          bytes: bytes ?? (to === undefined && from === undefined ? known.bytes : undefined),
        }
        if (given.to === undefined) throw missing('to')
        if (given.from === undefined) throw missing('from')
        const node = copyWork(given.to, given.from, given.bytes, at)
        return { node, given: { ...given, to: given.to, from: given.from } }
      }
      case 'fill': {
        const { to, value, toOwner, ...shape } = params as Partial<FillParams>
        const place = to === undefined ? known.to : operandFor(to, toOwner, core, at, 'to')
        const element = value ?? known.value
        if (place === undefined) throw missing('to')
        if (element === undefined) throw missing('value')
        const whole = { ...(to === undefined ? known.shape : {}), ...shapeOf(shape) }
        const node = fillWork(place, element, whole, at)
        return { node, given: { to: place, value: element, shape: whole } }
      }
      case 'callback': {
        const { call, ordered } = params as Partial<CallbackParams>
        return {
          node: callbackWork(call, orderedOf({ ordered: ordered! }), at),
          given: {},
        }
      }
      case 'record':
        return { node: recordNode((params as { event: unknown }).event, core, at), given: {} }
      case 'wait':
        return { node: waitNode((params as { event: unknown }).event, core, at), given: {} }
      case 'child': {
        const { graph } = params as { graph: GraphDefinition }
        graphFor(graph, at)
        return { node: graph, given: {} }
      }
      default:
        throw badUse(
          at,
          'node',
          'a node whose parameters can change',
          `a node of kind ${this.#kind}`,
          'destroy it and add another one',
        )
    }
  }
}

/** The nodes right before or right after a node, as a set that can be changed. It shows the graph as it is. */
export class Neighbours implements Iterable<GraphNode> {
  readonly #node: GraphNode
  readonly #side: 'pred' | 'succ'

  constructor(node: GraphNode, side: 'pred' | 'succ') {
    this.#node = node
    this.#side = side
  }

  get size(): number {
    return this.#all().length
  }
  has(node: GraphNode): boolean {
    return this.#all().includes(node)
  }
  [Symbol.iterator](): Iterator<GraphNode> {
    return this.#all()[Symbol.iterator]()
  }
  /** Adds an edge. Does nothing where there is one. */
  add(node: GraphNode): this {
    if (!this.has(node)) this.#set(node, true)
    return this
  }
  /** Removes an edge. Returns whether there was one. */
  delete(node: GraphNode): boolean {
    if (!this.has(node)) return false
    this.#set(node, false)
    return true
  }
  clear(): void {
    for (const node of this.#all()) this.#set(node, false)
  }
  /** Makes the set these nodes and no others. */
  replace(nodes: Iterable<GraphNode>): void {
    const wanted = new Set(nodes)
    for (const node of wanted) this.#pair(node)
    for (const node of this.#all()) if (!wanted.has(node)) this.#set(node, false)
    for (const node of wanted) this.add(node)
  }

  #all(): GraphNode[] {
    if (!this.#node.valid) return []
    return this.#node.graph.edges.flatMap(([from, to]) =>
      this.#side === 'pred' ? (to === this.#node ? [from] : []) : from === this.#node ? [to] : [],
    )
  }

  #pair(other: GraphNode): { hierarchy: Hierarchy; graph: number; from: number; to: number } {
    const at = `node.${this.#side}`
    const [mine, its] = [nodeFor(this.#node, at), nodeFor(other, at)]
    if (mine.hierarchy !== its.hierarchy || mine.graph !== its.graph)
      throw badUse(
        at,
        'node',
        'a node of the same graph',
        'a node of another one',
        'edges stay inside a graph',
      )
    if (mine.id === its.id)
      throw badUse(at, 'node', 'another node', 'the node itself', 'no node comes before itself')
    const { hierarchy, graph } = mine
    return this.#side === 'pred'
      ? { hierarchy, graph, from: its.id, to: mine.id }
      : { hierarchy, graph, from: mine.id, to: its.id }
  }

  #set(other: GraphNode, present: boolean): void {
    const { hierarchy, graph, from, to } = this.#pair(other)
    hierarchy.tried(`node.${this.#side}`, () => hierarchy.native.setEdge(graph, from, to, present))
  }
}
