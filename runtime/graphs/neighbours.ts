// Edges, as the sets of nodes right before and right after a node.
import { badArgument, badUse } from '../device/allocator-error.js'
import { definitionOf, type Hierarchy, losesNothing, nodeFor, type Views } from './hierarchy.js'

type Node = Views['node']

/**
 * The nodes right before or right after a node, as a set that can be changed. It shows the graph as it is.
 */
export class Neighbours implements Iterable<Node> {
  readonly #node: Node
  readonly #side: 'pred' | 'succ'

  constructor(node: Node, side: 'pred' | 'succ') {
    this.#node = node
    this.#side = side
  }

  get size(): number {
    return this.#all().length
  }
  has(node: Node): boolean {
    return this.#all().includes(node)
  }
  [Symbol.iterator](): Iterator<Node> {
    return this.#all()[Symbol.iterator]()
  }
  /** Adds an edge. Does nothing where there is one. */
  add(node: Node): this {
    if (!this.has(node)) this.#set(node, true)
    return this
  }
  /** Removes an edge. Returns whether there was one. */
  delete(node: Node): boolean {
    if (!this.has(node)) return false
    this.#set(node, false)
    return true
  }
  clear(): void {
    for (const node of this.#all()) this.#set(node, false)
  }
  /** Makes the set these nodes and no others. */
  replace(nodes: Iterable<Node>): void {
    if (typeof (nodes as Partial<Iterable<Node>> | undefined | null)?.[Symbol.iterator] !== 'function')
      throw badArgument(
        `node.${this.#side}`,
        'nodes',
        'an array of nodes, or another iterable',
        nodes,
        `assign [node], or [] for none`,
      )
    const wanted = new Set(nodes)
    for (const node of wanted) this.#pair(node)
    for (const node of this.#all()) if (!wanted.has(node)) this.#set(node, false)
    for (const node of wanted) this.add(node)
  }

  #all(): Node[] {
    if (!this.#node.valid) return []
    const { hierarchy, graph } = nodeFor(this.#node, `node.${this.#side}`)
    return definitionOf(hierarchy, graph).edges.flatMap(([from, to]) =>
      this.#side === 'pred' ? (to === this.#node ? [from] : []) : from === this.#node ? [to] : [],
    )
  }

  #pair(other: Node): { hierarchy: Hierarchy; graph: number; from: number; to: number } {
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

  #set(other: Node, present: boolean): void {
    const { hierarchy, graph, from, to } = this.#pair(other)
    if (!present) losesNothing(hierarchy, graph, `node.${this.#side}`)
    hierarchy.tried(`node.${this.#side}`, () => hierarchy.native.setEdge(graph, from, to, present))
  }
}
