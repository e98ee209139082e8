import { badArgument } from '../device/allocator-error.js'
import { madeBy, reading } from '../device/arguments.js'
import type { Block } from '../device/block.js'
import { DisposedError } from '../errors.js'
import { copyable } from './conditions.js'
import {
  access,
  apart,
  definitionOf,
  fitsBody,
  graphFor,
  Hierarchy,
  losesNothing,
  noCopyOf,
  nodeFor,
  type Views,
  wholeGraphFor,
} from './hierarchy.js'
import { Neighbours } from './neighbours.js'
import {
  awaitsHost,
  type Checked,
  type Given,
  kinds,
  type NodeKind,
  objectOf,
  type ParamsOf,
  paramsOf,
} from './node-params.js'

declare module './hierarchy.js' {
  interface Views {
    readonly node: GraphNode
  }
}

type Graph = Views['graph']

/** A node with graphs inside that a condition chooses from. They take no callbacks and no events. */
export type ConditionalNode = GraphNode<'conditional'>

/** For definitions and captures, which add nodes. */
export let makeNode: (graph: Graph, hierarchy: Hierarchy, id: number, given: Given) => GraphNode

export const conditionalOf = (graph: Graph, hierarchy: Hierarchy, id: number): ConditionalNode =>
  makeNode(graph, hierarchy, id, {}) as unknown as ConditionalNode

/** The graph that a child node is given. */
export const childFor = (params: unknown, at: string): Graph => {
  const { graph } = objectOf(params, 'child', at) as { readonly graph?: unknown }
  graphFor(graph, at)
  return graph as Graph
}

/**
 * A node of a definition. The same node is the same object, wherever it is found. Once it is destroyed it is
 * not `valid`, has no neighbours, and can still be compared.
 */
export class GraphNode<K extends NodeKind = NodeKind> {
  readonly #graph: Graph
  readonly #hierarchy: Hierarchy
  readonly #id: number
  readonly #kind: K
  #given: Given

  private constructor(graph: Graph, hierarchy: Hierarchy, id: number, given: Given) {
    madeBy(hierarchy instanceof Hierarchy, 'GraphNode', 'a GraphDefinition')
    this.#graph = graph
    this.#hierarchy = hierarchy
    this.#id = id
    this.#given = given
    this.#kind = (kinds[hierarchy.native.kind(id)] ?? 'other') as K
    hierarchy.nodes.set(id, this as unknown as GraphNode)
  }

  static {
    makeNode = (graph, hierarchy, id, given) => new GraphNode(graph, hierarchy, id, given) as GraphNode
    access.nodeFor = (node, at) => {
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
    access.dropGiven = node => {
      node.#given = {}
    }
  }

  static is(value: unknown): value is GraphNode {
    return typeof value === 'object' && value !== null && #graph in value
  }

  get kind(): K {
    return this.#kind
  }
  /** The graph that the node belongs to. */
  get graph(): Graph {
    this.#hierarchy.taken = true
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

  /**
   * What a node of kind `malloc` allocates, for nodes of its graph: a block, whose parts are `memory.at`. Its
   * address is fixed; it lives in each launch from this node to the one that frees it.
   */
  get memory(): K extends 'malloc' ? Block : undefined {
    this.#alive('node.memory')
    return this.#hierarchy.memory.of(this.#id) as K extends 'malloc' ? Block : undefined
  }

  /** The graphs inside a child or conditional node. */
  get bodies(): readonly Graph[] {
    this.#alive('node.bodies')
    const hierarchy = this.#hierarchy
    return hierarchy
      .bodiesOf(access.idOf(this.#graph), this.#id, 'node.bodies')
      .map(body => definitionOf(hierarchy, body))
  }

  /**
   * Gives the node other parameters; those that are left out stay. Executables made before keep theirs. Where
   * the driver refuses, nothing has changed. Of a node that was captured, or copied with its graph, what it
   * was given is not known: it takes all parameters.
   */
  update(params: K extends keyof ParamsOf ? Partial<ParamsOf[K]> : never): void {
    const at = 'node.update'
    const { hierarchy, graph, id } = nodeFor(this, at)
    if (this.#kind === 'child') {
      this.#replaceChild(
        reading(at, () => childFor(params, at)),
        at,
      )
      return
    }
    const { node, given, memory }: Checked = reading(at, () =>
      paramsOf(this.#kind, objectOf(params, this.#kind, at), this.#given, hierarchy.core, at, this.#graph),
    )
    hierarchy.tried(at, () => hierarchy.native.update(graph, id, node))
    hierarchy.ordered ||= awaitsHost(node)
    hierarchy.setsNone(id)
    hierarchy.memory.uses(id, memory)
    this.#given = given
  }

  /** Takes the node and its edges out of the graph. Does nothing to a node that has gone. */
  destroy(): void {
    if (!this.valid) return
    const { hierarchy, graph, id } = nodeFor(this, 'node.destroy')
    hierarchy.noCaptureInNode(id, 'node.destroy')
    losesNothing(hierarchy, graph, 'node.destroy')
    hierarchy.forget(hierarchy.tried('node.destroy', () => hierarchy.native.destroy(graph, id)))
  }

  #replaceChild(given: Graph, at: string): void {
    const { hierarchy, graph, id } = nodeFor(this, at)
    hierarchy.noCaptureInNode(id, at)
    const child = wholeGraphFor(given, at, hierarchy.core)
    copyable(child, at)
    fitsBody(child, { hierarchy, id: graph }, at)
    apart(child, { hierarchy, id: graph }, at)
    const gone = hierarchy.tried(
      at,
      () => hierarchy.native.updateChild(graph, id, child.hierarchy.native, child.id),
      () => noCopyOf(child, at),
    )
    hierarchy.forget(gone)
    hierarchy.ordered ||= child.hierarchy.ordered
  }

  #alive(at: string): void {
    if (!this.valid)
      throw new DisposedError(
        `a node (${this.#kind})`,
        `it was destroyed, or its graph was; call ${at} before`,
      )
  }
}
