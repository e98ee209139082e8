import { IntervalSet } from './interval-set.js'

/**
 * Intervals of numbers, each of which holds for a stretch of steps: a binary tree over the steps, whose nodes
 * have unions. Where intervals lie side by side these are short, however many intervals they stand for.
 */
export class StretchUnions {
  /** Leaves of the tree: a power of two. Node 1 is the top, nodes 2n and 2n + 1 are below node n. */
  private readonly width: number
  /** By node, what holds for all of its steps but not for all of its parent's. */
  private readonly covering: (IntervalSet | undefined)[]
  /** By node, what holds for its first or last step, or for all steps of a node below. */
  private readonly within: (IntervalSet | undefined)[]

  constructor(steps: number) {
    this.width = 2 ** Math.ceil(Math.log2(Math.max(1, steps)))
    this.covering = new Array(2 * this.width)
    this.within = new Array(2 * this.width)
  }

  /** From now on [start, end) holds for the steps `from` to `to`; for none where `to` is less. */
  add(from: number, to: number, start: number, end: number): void {
    if (to < from) return
    const addTo = (sets: (IntervalSet | undefined)[]) => (node: number) => {
      sets[node] ??= new IntervalSet()
      sets[node].add(start, end)
    }
    this.eachCovered(from, to, addTo(this.covering))
    this.eachAbove(from, to, addTo(this.within))
  }

  /** Visits sets whose union is all that holds for some step of `from` to `to`. */
  visit(from: number, to: number, visit: (union: IntervalSet) => void): void {
    if (to < from) return
    const look = (set: IntervalSet | undefined): void => {
      if (set !== undefined) visit(set)
    }
    this.eachCovered(from, to, node => {
      look(this.within[node])
      look(this.covering[node])
    })
    this.eachAbove(from, to, node => look(this.covering[node]))
  }

  /** The fewest nodes that have these steps and no others. */
  private eachCovered(from: number, to: number, visit: (node: number) => void): void {
    let low = from + this.width
    let high = to + this.width + 1
    for (; low < high; low >>= 1, high >>= 1) {
      if (low & 1) visit(low++)
      if (high & 1) visit(--high)
    }
  }

  /** The nodes that have the first of these steps or the last one. All nodes above `eachCovered`'s are among them. */
  private eachAbove(from: number, to: number, visit: (node: number) => void): void {
    let low = from + this.width
    let high = to + this.width
    for (; low !== high; low >>= 1, high >>= 1) {
      visit(low)
      visit(high)
    }
    for (; low > 0; low >>= 1) visit(low)
  }
}
