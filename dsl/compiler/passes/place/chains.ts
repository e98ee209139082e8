import type { Dependencies } from '../../analysis/dependencies.js'
import type { Operation } from '../../analysis/ir.js'

/**
 * Each operation comes after the one before it in its chain; -1: in no chain. Chains are numbered by their
 * first operations.
 */
export interface Chains {
  readonly chainOf: Int32Array
  readonly chains: number
}

/** Operations that may be in a chain. */
type Chooses = (i: number) => boolean

/**
 * Each operation continues the chain of its first predecessor that no other operation has continued, else it
 * begins a chain. Linear; within a few percent of the fewest chains on regular graphs.
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

/**
 * The lane of each chain where each lane takes successive chains, equally much work a lane: neighbours
 * communicate most.
 */
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
 * The fewest chains that there can be: a maximum matching of operations with those that continue their chains
 * (Hopcroft and Karp 1973, starting from the greedy chains). O(edges · √operations); seldom more than a few
 * rounds.
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

/** A matching of operations with the operations that continue their chains. */
class Matching {
  /** Length of the alternating path from an unmatched operation. */
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

  /** One round: a maximal set of disjoint shortest augmenting paths. False where there is none. */
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

  // Depth first without recursion: a path may be as long as the graph.
  private augment(from: number, shortest: number): void {
    const { depth, edge, next, previous, chooses } = this
    const { start, to } = this.dependencies
    const path = [from]
    while (path.length > 0) {
      const i = path[path.length - 1]!
      if (edge[i]! >= start[i + 1]!) {
        depth[i] = -1
        path.pop()
        if (path.length > 0) edge[path[path.length - 1]!]!++
        continue
      }
      const s = to[edge[i]!]!
      const other = chooses(s) ? previous[s]! : i
      if (other === -1 && depth[i]! + 1 === shortest) {
        for (const step of path) {
          const follows = to[edge[step]!]!
          next[step] = follows
          previous[follows] = step
          depth[step] = -1
        }
        return
      }
      if (other !== -1 && depth[other] === depth[i]! + 1) path.push(other)
      else edge[i]!++
    }
  }
}
