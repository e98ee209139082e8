/**
 * Numbers by key: the least key first; of equal keys the least number, or the one of the least `rank` where
 * ranks are given. A number's key is read when it is pushed, its rank as long as it is in the queue.
 */
export class PriorityQueue {
  // Four children a node, and the keys beside the numbers: fewer cache misses in heaps of a million numbers.
  private heap = new Int32Array(16)
  private keys = new Float64Array(16)
  size = 0

  constructor(
    private readonly key: Float64Array,
    private readonly rank?: Float64Array | Int32Array,
  ) {}

  /** The first number; the queue must not be empty. */
  get head(): number {
    return this.heap[0]!
  }

  /** The key of the first number; infinite for an empty queue. */
  get least(): number {
    return this.size === 0 ? Number.POSITIVE_INFINITY : this.keys[0]!
  }

  /** Of two numbers of equal keys, whether the first one comes first. */
  private isFirst(one: number, other: number): boolean {
    const { rank } = this
    return rank === undefined ? one < other : rank[one]! < rank[other]!
  }

  push(value: number): void {
    if (this.size === this.heap.length) this.grow()
    const { heap, keys } = this
    const key = this.key[value]!
    let at = this.size++
    while (at > 0) {
      const parent = (at - 1) >> 2
      if (keys[parent]! < key || (keys[parent] === key && this.isFirst(heap[parent]!, value))) break
      heap[at] = heap[parent]!
      keys[at] = keys[parent]!
      at = parent
    }
    heap[at] = value
    keys[at] = key
  }

  pop(): number {
    const { heap, keys } = this
    const first = heap[0]!
    const size = --this.size
    const value = heap[size]!
    const key = keys[size]!
    let at = 0
    for (;;) {
      let child = 4 * at + 1
      if (child >= size) break
      for (let other = child + 1, end = Math.min(child + 4, size); other < end; other++)
        if (
          keys[other]! < keys[child]! ||
          (keys[other] === keys[child] && this.isFirst(heap[other]!, heap[child]!))
        )
          child = other
      if (key < keys[child]! || (key === keys[child] && !this.isFirst(heap[child]!, value))) break
      heap[at] = heap[child]!
      keys[at] = keys[child]!
      at = child
    }
    heap[at] = value
    keys[at] = key
    return first
  }

  private grow(): void {
    const heap = new Int32Array(2 * this.size)
    const keys = new Float64Array(2 * this.size)
    heap.set(this.heap)
    keys.set(this.keys)
    this.heap = heap
    this.keys = keys
  }
}
