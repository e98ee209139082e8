import type { LiveRanges } from '../../analysis/live-ranges.js'
import { alignment, type ReuseOrder } from './reuse-order.js'

/**
 * Pairs of ranges that are compared at most: then no arena is found this way. Where lanes meet now and then a
 * range needs some hundred.
 */
const maxPairs = 2 ** 25

/** A range has fewer neighbours than this, so that one number holds a neighbour's offset and its index. */
const maxNeighbours = 2 ** 20

// Not `dsl/memory`'s range pool: a pool is played forward in time, while here ranges come by size, and each
// is placed between ranges of any time that it may not share bytes with.

/**
 * Best fit, in the order given (largest first, say): each range goes to the low end of the shortest gap that
 * is long enough between the ranges that it may not share bytes with, else above all of them. Undefined where
 * that would be too much work.
 *
 * A range that would reach beyond `limit` goes between those only that are live at the same time: waits then
 * order it.
 */
export const packedBySize = (
  { first, last }: LiveRanges,
  sizes: Float64Array,
  order: Int32Array,
  reuse: ReuseOrder,
  base: number,
  limit: number,
): Float64Array | undefined => {
  const offset = new Float64Array(sizes.length)
  const neighbours = new Neighbours(reuse, { first, last })
  const near = new Int32Array(sizes.length)
  const keys = new Float64Array(sizes.length)
  const lowest = (k: number, count: number, mayShare: (a: number, b: number) => boolean): number => {
    let length = 0
    let furthest = 0
    for (let i = 0; i < count; i++) {
      const other = near[i]!
      if (mayShare(other, k)) continue
      furthest = Math.max(furthest, offset[other]! / alignment)
      // One number sorts faster than a pair: the offset, and below it the index.
      keys[length++] = (offset[other]! / alignment) * maxNeighbours + i
    }
    const sorted =
      furthest < Number.MAX_SAFE_INTEGER / maxNeighbours - 1
        ? keys.subarray(0, length).sort()
        : Array.from({ length: count }, (_, i) => i)
            .filter(i => !mayShare(near[i]!, k))
            .sort((a, b) => offset[near[a]!]! - offset[near[b]!]!)
    const size = sizes[k]!
    let end = base
    let best = -1
    let bestGap = Number.POSITIVE_INFINITY
    for (const key of sorted) {
      const other = near[key % maxNeighbours]!
      const gap = offset[other]! - end
      if (gap >= size && gap < bestGap) {
        best = end
        bestGap = gap
      }
      end = Math.max(end, offset[other]! + sizes[other]!)
    }
    return best >= 0 ? best : end
  }
  const mayShare = (a: number, b: number): boolean => reuse.mayShare(a, b)
  const areApart = (a: number, b: number): boolean => last[a]! < first[b]! || last[b]! < first[a]!
  for (const k of order) {
    const count = neighbours.of(k, near)
    if (neighbours.work > maxPairs || count >= maxNeighbours) return undefined
    offset[k] = lowest(k, count, mayShare)
    if (offset[k]! + sizes[k]! > limit) offset[k] = Math.min(offset[k]!, lowest(k, count, areApart))
    neighbours.add(k)
  }
  return offset
}

/** Operations that one step of the index stands for. */
const stepWidth = 16

/**
 * An index by time: finds the ranges that may conflict with a range, without a look at all of them. A range
 * takes up the tick from the earliest operation that its first access is not known to be after, to its last
 * access; and the end of the tick, from the earliest operation there that its first access of the next tick
 * is not known to be after. Ranges that are nowhere together may share bytes: one follows the other, in the
 * tick and around its end.
 */
class Neighbours {
  private readonly stretches: Stretches
  private readonly steps: number
  private readonly from: Int32Array
  private readonly to: Int32Array
  /** Where the stretch at the end of the tick begins; `steps`: there is none. */
  private readonly again: Int32Array
  private readonly seen: Int32Array
  private stamp = 0
  /** Entries that were looked at so far. */
  work = 0

  constructor(reuse: ReuseOrder, { first, last }: Pick<LiveRanges, 'first' | 'last'>) {
    const stepOf = (i: number): number => Math.floor(i / stepWidth)
    this.steps = stepOf(reuse.operations) + 1
    this.stretches = new Stretches(this.steps)
    this.from = first.map(i => stepOf(reuse.openSince(i)))
    this.to = last.map(stepOf)
    this.again = first.map(i => {
      const open = reuse.openSinceLastTick(i)
      return open === reuse.operations ? this.steps : stepOf(open)
    })
    this.seen = new Int32Array(first.length)
  }

  add(k: number): void {
    this.stretches.add(k, this.from[k]!, this.to[k]!)
    const again = Math.max(this.again[k]!, this.to[k]! + 1)
    if (again < this.steps) this.stretches.add(k, again, this.steps - 1)
  }

  /** Puts the ranges that were added and may conflict with k into `into`; returns how many there are. */
  of(k: number, into: Int32Array): number {
    const { seen } = this
    const stamp = ++this.stamp
    let count = 0
    const look = (list: readonly number[]): void => {
      this.work += list.length
      for (let i = 0; i < list.length; i++) {
        const other = list[i]!
        if (seen[other] === stamp) continue
        seen[other] = stamp
        into[count++] = other
      }
    }
    this.stretches.visit(this.from[k]!, this.to[k]!, look)
    const again = Math.max(this.again[k]!, this.to[k]! + 1)
    if (again < this.steps) this.stretches.visit(again, this.steps - 1, look)
    return count
  }
}

/** Stretches of time, found by the step at which they begin or by any step within. */
class Stretches {
  private readonly beginning: number[][]
  /** A binary tree over the steps: stretches that cover all steps of a node, but not all of its parent. */
  private readonly covering: number[][]

  constructor(private readonly steps: number) {
    this.beginning = Array.from({ length: steps }, () => [])
    this.covering = Array.from({ length: 2 * steps }, () => [])
  }

  add(k: number, from: number, to: number): void {
    this.beginning[from]!.push(k)
    let low = from + this.steps
    let high = to + this.steps + 1
    for (; low < high; low >>= 1, high >>= 1) {
      if (low & 1) this.covering[low++]!.push(k)
      if (high & 1) this.covering[--high]!.push(k)
    }
  }

  /** Visits all that are somewhere from `from` to `to`, each stretch once. */
  visit(from: number, to: number, visit: (list: readonly number[]) => void): void {
    for (let node = from + this.steps; node > 0; node >>= 1) visit(this.covering[node]!)
    for (let at = from + 1; at <= to; at++) visit(this.beginning[at]!)
  }
}
