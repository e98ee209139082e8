import type { Dependencies } from '../../analysis/dependencies.js'
import type { Operation } from '../../analysis/ir.js'

/** Operations in chains, each of which comes after the one before it in the same chain; -1: in none. Chains are numbered by their first operations. */
export interface Chains {
  readonly chainOf: Int32Array
  readonly chains: number
}

/** Operations that may be in a chain. */
export type Chooses = (i: number) => boolean

/**
 * Each operation goes on with the chain of the first operation that it comes after and that no other has gone on with, else it begins a chain. Linear. Within a few
 * percent of the fewest chains on regular graphs.
 */
export const greedyChains = (
  operations: readonly Operation[],
  order: Int32Array,
  chooses: Chooses,
): Chains => {
  const chainOf = new Int32Array(operations.length).fill(-1)
  const taken = new Uint8Array(operations.length)
  let chains = 0
  for (const i of order) {
    if (!chooses(i)) continue
    const parent = operations[i]!.after.find(before => taken[before] === 0 && chooses(before))
    chainOf[i] = parent === undefined ? chains++ : chainOf[parent]!
    if (parent !== undefined) taken[parent] = 1
  }
  return { chainOf, chains }
}

/** The lane of each chain where lanes take as many successive chains as make them equally busy: neighbours talk to each other most. */
export const blocks = ({ chainOf, chains }: Chains, lanes: number, alone: Float64Array): Int32Array => {
  const work = new Float64Array(chains)
  let whole = 0
  chainOf.forEach((chain, i) => {
    if (chain === -1) return
    work[chain]! += alone[i]!
    whole += alone[i]!
  })
  let before = 0
  return Int32Array.from(work, own => {
    const middle = before + own / 2
    before += own
    return Math.min(lanes - 1, Math.floor((lanes * middle) / whole))
  })
}

/**
 * The fewest chains that there can be: as many operations as possible go on with another's (Hopcroft and Karp 1973, from the greedy chains on), so that the fewest
 * dependencies are left between chains. O(edges · √operations); seldom more than a few rounds.
 */
export const fewestChains = (
  operations: readonly Operation[],
  order: Int32Array,
  dependencies: Dependencies,
  chooses: Chooses,
): Chains => {
  const count = operations.length
  const next = new Int32Array(count).fill(-1)
  const previous = new Int32Array(count).fill(-1)
  for (const i of order) {
    if (!chooses(i)) continue
    const parent = operations[i]!.after.find(before => next[before] === -1 && chooses(before))
    if (parent === undefined) continue
    next[parent] = i
    previous[i] = parent
  }
  const matching = new Matching(dependencies, chooses, next, previous)
  while (matching.grow(order)) {}
  const chainOf = new Int32Array(count).fill(-1)
  let chains = 0
  for (const i of order) if (chooses(i)) chainOf[i] = previous[i] === -1 ? chains++ : chainOf[previous[i]!]!
  return { chainOf, chains }
}

/** A matching of operations with those that go on with their chains. */
class Matching {
  /** Rounds from an operation that nothing goes on with, along what it could be followed by and what that follows now. */
  private readonly depth: Int32Array
  private readonly edge: Int32Array

  constructor(
    private readonly dependencies: Dependencies,
    private readonly chooses: Chooses,
    private readonly next: Int32Array,
    private readonly previous: Int32Array,
  ) {
    this.depth = new Int32Array(next.length)
    this.edge = new Int32Array(next.length)
  }

  /** One round: as many shortest ways to match one more as do not meet. False where there is none. */
  grow(order: Int32Array): boolean {
    const { depth, edge, next, previous, chooses } = this
    const { start, to } = this.dependencies
    const queue = new Int32Array(next.length)
    let length = 0
    depth.fill(-1)
    for (const i of order)
      if (chooses(i) && next[i] === -1) {
        depth[i] = 0
        queue[length++] = i
      }
    let shortest = Number.POSITIVE_INFINITY
    for (let at = 0; at < length && depth[queue[at]!]! < shortest; at++) {
      const i = queue[at]!
      for (let e = start[i]!; e < start[i + 1]!; e++) {
        const s = to[e]!
        if (!chooses(s)) continue
        const other = previous[s]!
        if (other === -1) shortest = depth[i]! + 1
        else if (depth[other] === -1) {
          depth[other] = depth[i]! + 1
          queue[length++] = other
        }
      }
    }
    if (shortest === Number.POSITIVE_INFINITY) return false
    edge.set(start.subarray(0, next.length))
    for (const i of order) if (chooses(i) && next[i] === -1) this.augment(i, shortest)
    return true
  }

  // Depth first without recursion: a way may be as long as the graph.
  private augment(from: number, shortest: number): void {
    const { depth, edge, next, previous, chooses } = this
    const { start, to } = this.dependencies
    const way = [from]
    while (way.length > 0) {
      const i = way[way.length - 1]!
      if (edge[i]! >= start[i + 1]!) {
        depth[i] = -1
        way.pop()
        if (way.length > 0) edge[way[way.length - 1]!]!++
        continue
      }
      const s = to[edge[i]!]!
      const other = chooses(s) ? previous[s]! : i
      if (other === -1 && depth[i]! + 1 === shortest) {
        for (const step of way) {
          const follows = to[edge[step]!]!
          next[step] = follows
          previous[follows] = step
          depth[step] = -1
        }
        return
      }
      if (other !== -1 && depth[other] === depth[i]! + 1) way.push(other)
      else edge[i]!++
    }
  }
}
