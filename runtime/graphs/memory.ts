// Memory that nodes of a graph allocate and free: it lives inside each launch.
import { badArgument, badUse } from '../device/allocator-error.js'
import { Block, graphOf, lendBlock, outsideGraph, revokeLoan, Span } from '../device/block.js'
import type { Core } from '../device/core.js'
import { makeLane } from '../device/lane.js'
import { DisposedError } from '../errors.js'

const name = 'memory of a graph'

const lender = [
  'memory of a graph, which a node frees in each launch',
  'add that node: definition.free(memory, { after: [the nodes that use it] })',
] as const

/** What a node, by its number, allocates. */
interface Allocation {
  readonly node: number
  readonly block: Block
  freedBy?: number
}

/** The nodes of a graph, with their names, and its edges. */
export interface Shape {
  readonly names: ReadonlyMap<number, string>
  /** From, to, from, to, and so on. */
  readonly edges: readonly number[]
}

/** The memory of one graph, and the nodes that use it. */
export class GraphMemory {
  readonly #allocations = new Map<number, Allocation>()
  /** By the node that uses it: the nodes that allocate. */
  readonly #users = new Map<number, readonly number[]>()

  get size(): number {
    return this.#allocations.size
  }

  /** What a new node allocates, as a block that the graph lends to its nodes. */
  allocated(node: number, address: number, bytes: number, graph: object, core: Core): void {
    const lane = makeLane(core, -1, 0n, name, 'graph')
    // The addon has no block of it, so no handle is given on.
    const block = lendBlock(core, { handle: -1, address, size: bytes, bytes, lane, lender, graph })
    this.#allocations.set(node, { node, block })
  }

  /** What the node allocates. */
  of(node: number): Block | undefined {
    return this.#allocations.get(node)?.block
  }

  /** The nodes that allocate these blocks. */
  nodesOf(memory: readonly Block[]): readonly number[] {
    return [...this.#allocations.values()].flatMap(({ node, block }) =>
      memory.includes(block) ? [node] : [],
    )
  }

  /** What a new node is to free. Throws unless it is the graph's, and whole, and none frees it. */
  freeable(memory: unknown, at: string): Allocation {
    if (!Block.is(memory))
      throw badArgument(
        at,
        'memory',
        'the memory of a malloc node, as node.memory gives it',
        memory,
        memory instanceof Span ? 'free the whole' : 'pass what definition.malloc(bytes).memory gave',
      )
    if (graphOf(memory) === undefined)
      throw badUse(at, 'memory', 'the memory of a malloc node', 'a block of a lane', 'call block.free()')
    const [node] = this.nodesOf([memory])
    const allocation = node === undefined ? undefined : this.#allocations.get(node)
    if (allocation === undefined) throw outsideGraph(at, name)
    if (allocation.freedBy !== undefined)
      throw badUse(at, 'memory', 'memory that no node frees', 'memory that a node frees', 'free it once')
    return allocation
  }

  /** Why the driver does not take a node that uses this memory, where that is its node that frees it. */
  notUsable(memory: readonly Block[] = [], at: string): Error | undefined {
    const isFreed = this.nodesOf(memory).some(node => this.#allocations.get(node)?.freedBy !== undefined)
    if (!isFreed) return undefined
    return badUse(
      at,
      name,
      'memory that no node before this one frees',
      'memory that one may free',
      'add the node before definition.free(memory)',
    )
  }

  /** The node uses this memory, and no other. */
  uses(node: number, memory: readonly Block[] = []): void {
    if (memory.length > 0) this.#users.set(node, this.nodesOf(memory))
    else this.#users.delete(node)
  }

  /** The lives of the memory in a launch. Throws where a node uses memory outside of its life. */
  lifetimes(shape: Shape, at: string): Lifetimes {
    const lifetimes = new Lifetimes([...this.#allocations.values()], shape, at)
    for (const [node, allocations] of this.#users) lifetimes.check(node, allocations, at)
    return lifetimes
  }

  /** The nodes have gone, and what they allocate. */
  forget(nodes: readonly number[]): void {
    for (const node of nodes) {
      const block = this.of(node)
      if (block !== undefined)
        revokeLoan(block, at => new DisposedError(name, `its graph was disposed of; call ${at} before that`))
      this.#allocations.delete(node)
      this.#users.delete(node)
    }
  }
}

interface Lifetime {
  readonly bytes: number
  readonly freedBy: number
  /** The nodes that come before the allocation. */
  readonly earlier: ReadonlySet<number>
  /** The nodes that come after the allocation, and those before the free. */
  readonly after: ReadonlySet<number>
  readonly before: ReadonlySet<number>
}

/**
 * Between which nodes the memory of a graph lives, by the edges that it had. It refers to no block: these
 * keep their definition.
 */
export class Lifetimes {
  /** By the node that allocates. */
  readonly #lifetimes = new Map<number, Lifetime>()
  readonly #names: ReadonlyMap<number, string>

  constructor(allocations: readonly Allocation[], { names, edges }: Shape, at: string) {
    this.#names = names
    const [after, before] = [neighbours(edges, 'after'), neighbours(edges, 'before')]
    for (const { node, freedBy, block } of allocations) {
      if (freedBy === undefined)
        throw badUse(
          at,
          this.#name(node),
          'memory that a node frees: it lives inside one launch',
          'memory that none frees',
          'add definition.free(node.memory, { after: [the nodes that use it] }), and copy what shall stay',
        )
      const life = {
        bytes: block.bytes,
        freedBy,
        earlier: reached(node, before),
        after: reached(node, after),
        before: reached(freedBy, before),
      }
      this.#lifetimes.set(node, life)
      this.#ordered(freedBy, node, life, at)
    }
  }

  get size(): number {
    return this.#lifetimes.size
  }

  /** Bytes that a launch may hold at once, whatever the driver lets share bytes: a part of its peak. */
  get atOnce(): number {
    const together: Lifetime[] = []
    for (const life of [...this.#lifetimes.values()].sort((a, b) => b.bytes - a.bytes))
      if (together.every(other => !life.earlier.has(other.freedBy) && !other.earlier.has(life.freedBy)))
        together.push(life)
    return together.reduce((sum, { bytes }) => sum + bytes, 0)
  }

  /** Throws unless the node uses what these nodes allocate while it lives. */
  check(node: number, allocations: readonly number[], at: string): void {
    for (const allocation of allocations) {
      const life = this.#lifetimes.get(allocation)
      if (life === undefined)
        throw badUse(
          at,
          this.#name(node),
          'memory that the graph had when it was instantiated',
          'memory that its definition was given later',
          'instantiate the definition anew',
        )
      this.#ordered(node, allocation, life, at)
      if (!life.before.has(node))
        throw badUse(
          at,
          this.#name(node),
          `a node before ${this.#name(life.freedBy)}, which frees memory that it uses`,
          `no path of edges from this node to ${this.#name(life.freedBy)}`,
          'add the edge: free.pred.add(node)',
        )
    }
  }

  #ordered(node: number, allocation: number, { after }: Lifetime, at: string): void {
    if (after.has(node)) return
    throw badUse(
      at,
      this.#name(node),
      `a node after ${this.#name(allocation)}, whose memory it uses`,
      `no path of edges from ${this.#name(allocation)} to this node`,
      'name it in `after`, or add the edge: node.pred.add(allocation)',
    )
  }

  #name(node: number): string {
    return this.#names.get(node) ?? 'a node'
  }
}

/** The nodes right after each node, or right before it. */
const neighbours = (edges: readonly number[], side: 'after' | 'before'): ReadonlyMap<number, number[]> => {
  const found = new Map<number, number[]>()
  for (let i = 0; i < edges.length; i += 2) {
    const [from, to] = side === 'after' ? [edges[i]!, edges[i + 1]!] : [edges[i + 1]!, edges[i]!]
    const known = found.get(from)
    if (known === undefined) found.set(from, [to])
    else known.push(to)
  }
  return found
}

/** All nodes that a path leads to. */
const reached = (from: number, next: ReadonlyMap<number, readonly number[]>): ReadonlySet<number> => {
  const found = new Set<number>()
  const open = [from]
  for (let node = open.pop(); node !== undefined; node = open.pop())
    for (const other of next.get(node) ?? [])
      if (!found.has(other)) {
        found.add(other)
        open.push(other)
      }
  return found
}
