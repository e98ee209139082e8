import { lowerBound } from './lower-bound.js'

/**
 * A set of numbers from 0 on that only grows, by ranges [from, to) whose ends are among given cuts. A piece
 * between two cuts is added once and skipped from then on, so additions and questions take amortised
 * logarithmic time, however they overlap.
 */
export class GrowingRanges {
  private readonly cuts: Float64Array
  /** By piece: itself while it is not in the set, else a later one. */
  private readonly next: Int32Array

  constructor(ends: Iterable<number>) {
    this.cuts = Float64Array.from(new Set(ends)).sort()
    this.next = Int32Array.from({ length: this.cuts.length + 1 }, (_, piece) => piece)
  }

  add(from: number, to: number): void {
    const end = lowerBound(this.cuts, to)
    for (let piece = this.missing(lowerBound(this.cuts, from)); piece < end; piece = this.missing(piece))
      this.next[piece] = piece + 1
  }

  /** The first number of [from, to) that is not in the set; -1: all are. */
  firstMissing(from: number, to: number): number {
    const piece = this.missing(lowerBound(this.cuts, from))
    return piece < lowerBound(this.cuts, to) ? this.cuts[piece]! : -1
  }

  /** The first piece from this one on that is not in the set. */
  private missing(piece: number): number {
    const { next } = this
    let found = piece
    while (next[found] !== found) found = next[found]!
    for (let at = piece; at !== found; ) {
      const after = next[at]!
      next[at] = found
      at = after
    }
    return found
  }
}
