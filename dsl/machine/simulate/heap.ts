/**
 * A priority queue of the times at which lanes resume, earliest first; at equal times in issue order. It has
 * a lane at most once.
 */
export class Heap {
  private readonly lanes: Int32Array
  private readonly time: Float64Array
  private readonly order: Float64Array
  private size = 0

  constructor(lanes: number) {
    this.lanes = new Int32Array(lanes)
    this.time = new Float64Array(lanes)
    this.order = new Float64Array(lanes)
  }

  /** Infinite for an empty queue. */
  get earliest(): number {
    return this.size === 0 ? Number.POSITIVE_INFINITY : this.time[this.lanes[0]!]!
  }

  push(lane: number, time: number, order: number): void {
    this.time[lane] = time
    this.order[lane] = order
    let at = this.size++
    while (at > 0) {
      const above = (at - 1) >> 1
      if (!this.before(lane, this.lanes[above]!)) break
      this.lanes[at] = this.lanes[above]!
      at = above
    }
    this.lanes[at] = lane
  }

  pop(): number {
    const first = this.lanes[0]!
    const last = this.lanes[--this.size]!
    let at = 0
    for (let below = 1; below < this.size; below = 2 * at + 1) {
      if (below + 1 < this.size && this.before(this.lanes[below + 1]!, this.lanes[below]!)) below++
      if (!this.before(this.lanes[below]!, last)) break
      this.lanes[at] = this.lanes[below]!
      at = below
    }
    this.lanes[at] = last
    return first
  }

  private before(a: number, b: number): boolean {
    const { time, order } = this
    return time[a]! < time[b]! || (time[a] === time[b] && order[a]! < order[b]!)
  }
}
