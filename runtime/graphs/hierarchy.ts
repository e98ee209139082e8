// What the addon knows graphs and nodes by. definition.ts and node.ts make each other's views, so neither can
// import the other for all that it needs: they fill `access` in.
import type { NativeGone, NativeGraph } from '../addon.js'
import { badUse, wrongDevice } from '../device/allocator-error.js'
import type { Core } from '../device/core.js'
import { GraphMemory, Lifetimes } from './memory.js'
import { triedOn } from './refusals.js'

/** The classes of views, by what they are of. definition.ts adds `graph`, node.ts adds `node`. */
export interface Views {
  readonly hierarchy: Hierarchy
}

/** A graph of a hierarchy. */
export interface GraphPlace {
  readonly hierarchy: Hierarchy
  readonly id: number
}

/** A node of it. */
export interface NodePlace {
  readonly hierarchy: Hierarchy
  readonly graph: number
  readonly id: number
}

/** Functions that reach into the private fields of views. */
export const access = {} as {
  graphFor(graph: unknown, at: string): GraphPlace
  nodeFor(node: unknown, at: string): NodePlace
  definitionOf(hierarchy: Hierarchy, id: number): Views['graph']
  /** The number of a graph, alive or not. */
  idOf(graph: Views['graph']): number
  /** Forgets what a node was given. */
  dropGiven(node: Views['node']): void
}

/**
 * Where a graph is. Throws unless it is alive, no lane is being captured into it, and it is of the Device,
 * where one is given: on one GPU the driver would take graphs of another Device, and their blocks would not
 * be kept.
 */
export const graphFor = (graph: unknown, at: string, core?: Core): GraphPlace => {
  const place = access.graphFor(graph, at)
  if (core?.same(place.hierarchy.core) === false) throw wrongDevice(at, 'a graph', core.name)
  return place
}
/** Where a node is. Throws unless it is alive, and of the Device, where one is given. */
export const nodeFor = (node: unknown, at: string, core?: Core): NodePlace => {
  const place = access.nodeFor(node, at)
  if (core?.same(place.hierarchy.core) === false) throw wrongDevice(at, 'a node', core.name)
  return place
}
/**
 * As `graphFor`, for calls that read the graphs inside too: no lane is being captured into any of them. While
 * a body is being captured it is half made, and the driver alone may touch it.
 */
export const wholeGraphFor = (graph: unknown, at: string, core?: Core): GraphPlace => {
  const place = graphFor(graph, at, core)
  place.hierarchy.noCaptureInside(place.id, at)
  return place
}
/** The view of a graph of the addon's: the same object at each call. */
export const definitionOf: typeof access.definitionOf = (hierarchy, id) => access.definitionOf(hierarchy, id)

const halfMade = (at: string): Error =>
  badUse(
    at,
    'a graph',
    'one that no lane is being captured into',
    'one with a graph inside whose capture has not ended',
    'call end() of the builder that captures into it first',
  )

// CUgraphNodeType's numbers.
const child = 4
const conditional = 13
const callbacksAndEvents = [3, 6, 7]

const ofABody = (at: string): Error =>
  badUse(
    at,
    'a graph',
    'a graph that is no body of a conditional node, nor inside one',
    'one that is: it runs with the graph around it, and the driver does not copy it',
    'use the graph around it, or add the same nodes to a graph of their own',
  )

const notItsOwn = (at: string): Error =>
  badUse(
    at,
    'definition',
    'a graph that is inside no other one',
    'the graph of a child node, which runs with the graph around it',
    'take a copy: definition.clone()',
  )

/** Why an executable cannot take over the graph, if it is that. */
export const noUpdateOf = ({ hierarchy, id }: GraphPlace, at: string): Error | undefined =>
  hierarchy.isInside(id) ? notItsOwn(at) : undefined

/** Why the graph cannot be instantiated, if it is that. */
export const noExecutableOf = ({ hierarchy, id }: GraphPlace, at: string): Error | undefined => {
  if (hierarchy.inConditional(id)) return ofABody(at)
  if (hierarchy.isInside(id)) return notItsOwn(at)
  const kind = hierarchy.hasMemory(id) ? 'memory' : 'conditional'
  if (kind === 'conditional' && !hierarchy.contains(id, [conditional])) return undefined
  return badUse(
    at,
    'definition',
    `a graph without an executable: one with ${kind} nodes has one executable at a time`,
    `one with ${kind} nodes, and an executable that is not disposed of`,
    'launch that one again, or dispose of it first',
  )
}

/** Why a copy of the graph cannot be made, if it is that. */
export const noCopyOf = ({ hierarchy, id }: GraphPlace, at: string): Error | undefined => {
  if (hierarchy.inConditional(id)) return ofABody(at)
  if (hierarchy.contains(id, [conditional]))
    return badUse(
      at,
      'a graph',
      'a graph without conditional nodes',
      'one that has some: the driver does not copy them',
      'add the conditional nodes to each graph that needs them',
    )
  if (!hierarchy.hasCondition) return undefined
  return badUse(
    at,
    'a graph',
    'a graph that no condition was ever made for, nor for one around it or inside it',
    'one with a condition: the driver does not copy it, whether or not a node reads the condition',
    'build the graph anew without definition.condition()',
  )
}

/**
 * Throws where a graph would bring callbacks or events into the body of a conditional node. A driver may take
 * it, and refuse to make the whole executable.
 */
export const fitsBody = (graph: GraphPlace, into: GraphPlace, at: string): void => {
  if (into.hierarchy.inConditional(into.id) && graph.hierarchy.contains(graph.id, callbacksAndEvents))
    throw badUse(
      at,
      'a graph',
      'a graph without callbacks and events',
      'one that has some, for the body of a conditional node',
      'add these nodes to the graph around the conditional node',
    )
}

/** Throws where a graph with memory nodes would lose a node or an edge. */
export const losesNothing = (hierarchy: Hierarchy, graph: number, at: string): void => {
  if (hierarchy.hasMemory(graph))
    throw badUse(
      at,
      'graph',
      'a graph without memory nodes',
      'one with malloc nodes: the driver takes no node and no edge out of it',
      'build the graph anew without them',
    )
}

/** Throws where a graph would become a part of the graph that it is, or is in. */
export const apart = (graph: GraphPlace, into: GraphPlace, at: string): void => {
  if (graph.hierarchy === into.hierarchy)
    throw badUse(
      at,
      'graph',
      'a graph of another hierarchy',
      'the graph itself, or one around it or inside it',
      'build the new graph apart: GraphDefinition.create(device)',
    )
}

/** A node that sets a condition: the graph of the node, and the graph that the condition was made for. */
export interface ConditionSet {
  readonly graph: number
  readonly of: number
}

/** A root graph with all graphs inside it. */
export class Hierarchy {
  readonly nodes = new Map<number, Views['node']>()
  readonly graphs = new Map<number, Views['graph']>()
  closed = false
  /** Whether it was given up because a capture could not be taken out of it again. */
  lost = false
  /** Whether the program has been given the root, of a graph that a builder made. */
  taken = false
  /** The captures that have not ended, by their graphs, which the driver alone changes meanwhile. */
  readonly capturing = new Map<number, { abandon(): void }>()
  /** Where each graph lies that is inside a node: known for those whose number has been asked for. */
  readonly #around = new Map<number, { readonly graph: number; readonly node: number }>()
  /** Nodes that set conditions, by their number; of a captured one it may not be known. */
  readonly #setters = new Map<number, ConditionSet>()
  readonly #capturedSetters = new Set<ConditionSet>()
  /** Whether a condition was ever made for one of its graphs. The driver never forgets it. */
  hasCondition = false
  /** Memory that nodes of the root allocate. */
  readonly memory = new GraphMemory()
  /** The executables of the root, each as long as it is in use. */
  #executables: WeakRef<{ readonly disposed: boolean }>[] = []
  /** Whether a callback somewhere inside makes the device wait for JavaScript. */
  ordered = false

  constructor(
    readonly core: Core,
    readonly native: NativeGraph,
  ) {
    core.reportReleased()
  }

  tried<T>(at: string, call: () => T, why?: () => Error | undefined): T {
    return triedOn(this.core, at, 'a graph', call, why)
  }

  /** Whether the graph is a body of a conditional node, or inside one. */
  inConditional(id: number): boolean {
    for (let place = this.#around.get(id); place !== undefined; place = this.#around.get(place.graph))
      if (this.native.kind(place.node) === conditional) return true
    return false
  }

  /** Whether the graph is inside another one. */
  isInside(id: number): boolean {
    return this.#around.has(id)
  }

  /** Whether the graph has memory nodes. */
  hasMemory(id: number): boolean {
    return id === 0 && this.memory.size > 0
  }

  /** The lives of the graph's memory. Throws where a node uses it outside of its life. */
  lifetimes(id: number, at: string): Lifetimes {
    if (!this.hasMemory(id)) return new Lifetimes([], { names: new Map(), edges: [] }, at)
    const [nodes, edges] = this.tried(at, () => [this.native.nodes(id), this.native.edges(id)])
    const name = (node: number, i: number) =>
      `definition.nodes[${i}] (${this.nodes.get(node)?.kind ?? 'other'})`
    const names = new Map(nodes.map((node, i) => [node, name(node, i)]))
    return this.memory.lifetimes({ names, edges }, at)
  }

  /** An executable of the root was made. */
  launchable(executable: { readonly disposed: boolean }): void {
    this.#executables = this.#executables.filter(other => other.deref()?.disposed === false)
    this.#executables.push(new WeakRef(executable))
  }

  /** Whether the root has an executable. */
  get hasExecutable(): boolean {
    return this.#executables.some(executable => executable.deref()?.disposed === false)
  }

  /** Throws where the graph does not take nodes of the kind. */
  takes(id: number, kind: string, at: string): void {
    if (id !== 0 && (kind === 'malloc' || kind === 'free'))
      throw badUse(
        at,
        'a graph',
        'a graph that is inside no other, which takes memory nodes',
        'one inside a child or conditional node',
        'add the nodes to the graph around it',
      )
    if (!['callback', 'record', 'wait'].includes(kind) || !this.inConditional(id)) return
    throw badUse(
      at,
      'a graph',
      `a graph that takes nodes of kind ${kind}`,
      'the body of a conditional node: it takes no callbacks and no events',
      'add the node to the graph around it, before or after the conditional node',
    )
  }

  /** Whether the graph, or one inside it, has a node of one of the kinds, by their numbers. */
  contains(id: number, kinds: readonly number[]): boolean {
    return this.native.nodes(id).some(node => {
      const kind = this.native.kind(node)
      if (kinds.includes(kind)) return true
      if (kind !== child && kind !== conditional) return false
      return this.bodiesOf(id, node, 'node.bodies').some(body => this.contains(body, kinds))
    })
  }

  /** The graphs inside a child or conditional node. */
  bodiesOf(graph: number, node: number, at: string): readonly number[] {
    const bodies = this.tried(at, () => this.native.bodies(graph, node))
    for (const body of bodies) this.#around.set(body, { graph, node })
    return bodies
  }

  /** Whether the first graph is the second, or inside it. */
  within(graph: number, other: number): boolean {
    for (let at: number | undefined = graph; at !== undefined; at = this.#around.get(at)?.graph)
      if (at === other) return true
    return false
  }

  /** Throws where a lane is being captured into a graph inside this one. */
  noCaptureInside(id: number, at: string): void {
    for (const captured of this.capturing.keys())
      if (captured !== id && this.within(captured, id)) throw halfMade(at)
  }

  /** Throws where a lane is being captured into a graph inside the node. */
  noCaptureInNode(node: number, at: string): void {
    for (const captured of this.capturing.keys())
      for (let place = this.#around.get(captured); place !== undefined; place = this.#around.get(place.graph))
        if (place.node === node) throw halfMade(at)
  }

  /** Ends the captures into graphs inside this one. */
  abandonInside(id: number): void {
    for (const [captured, capture] of [...this.capturing])
      if (captured !== id && this.within(captured, id)) capture.abandon()
  }

  /** A node of `graph` sets a condition of the graph `of`. `node`: its number, where it is known. */
  setsCondition(graph: number, of: number, node?: number): ConditionSet {
    const set = { graph, of }
    if (node === undefined) this.#capturedSetters.add(set)
    else this.#setters.set(node, set)
    return set
  }

  /** The node whose number is not known has gone. */
  setsNoMore(set: ConditionSet): void {
    this.#capturedSetters.delete(set)
  }

  /** The node sets no condition any more. */
  setsNone(node: number): void {
    this.#setters.delete(node)
  }

  /** Whether a node of the graph, or inside it, sets a condition: any, or one of a graph outside. */
  hasSetter(id: number, which: 'any' | 'outside'): boolean {
    return [...this.#setters.values(), ...this.#capturedSetters].some(
      ({ graph, of }) => this.within(graph, id) && (which === 'any' || !this.within(of, id)),
    )
  }

  /** Gives up the root and all graphs inside it. No lane is being captured into them. Idempotent. */
  close(): void {
    if (this.closed) return
    this.closed = true
    this.forget({ nodes: [...this.nodes.keys()], graphs: [...this.graphs.keys()] })
    this.native.close()
  }

  /** The same, and ends the captures into its graphs first. */
  abandon(): void {
    for (const capture of [...this.capturing.values()]) capture.abandon()
    this.close()
  }

  /** A capture that failed could not be taken out of a graph that existed before. */
  lose(): void {
    this.lost = true
    this.abandon()
  }

  /** Forgets what has gone, so that the program's views of it keep nothing alive. */
  forget(gone: NativeGone): void {
    this.memory.forget(gone.nodes)
    for (const id of gone.nodes) {
      const node = this.nodes.get(id)
      if (node !== undefined) access.dropGiven(node)
      this.nodes.delete(id)
      this.#setters.delete(id)
    }
    for (const id of gone.graphs) {
      this.graphs.delete(id)
      this.#around.delete(id)
    }
  }
}
