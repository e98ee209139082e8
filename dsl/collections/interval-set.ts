/** A set of numbers, as disjoint intervals [start, end) in ascending order that do not touch. */
export class IntervalSet {
  readonly starts: number[] = []
  readonly ends: number[] = []

  /** Amortised constant intervals vanish in each call; the others move up or down in one block. */
  add(start: number, end: number): void {
    const { starts, ends } = this
    // The first interval that the new one touches, and behind the last one.
    let from = 0
    for (let to = ends.length; from < to; ) {
      const middle = (from + to) >> 1
      if (ends[middle]! < start) from = middle + 1
      else to = middle
    }
    let to = from
    while (to < starts.length && starts[to]! <= end) to++
    if (to === from) {
      starts.splice(from, 0, start)
      ends.splice(from, 0, end)
      return
    }
    starts[from] = Math.min(start, starts[from]!)
    ends[from] = Math.max(end, ends[to - 1]!)
    if (to - from === 1) return
    starts.splice(from + 1, to - from - 1)
    ends.splice(from + 1, to - from - 1)
  }
}
