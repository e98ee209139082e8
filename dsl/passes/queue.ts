/** Numbers by key, the least key first and of equal keys the least number. */
export class Queue {
  private heap = new Int32Array(16)
  size = 0

  constructor(private readonly key: Float64Array) {}

  /** The first of all; there must be one. */
  get head(): number {
    return this.heap[0]!
  }

  push(value: number): void {
    if (this.size === this.heap.length) {
      const longer = new Int32Array(2 * this.size)
      longer.set(this.heap)
      this.heap = longer
    }
    const { heap } = this
    let at = this.size++
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (this.isBefore(heap[parent]!, value)) break
      heap[at] = heap[parent]!
      at = parent
    }
    heap[at] = value
  }

  pop(): number {
    const { heap } = this
    const first = heap[0]!
    const value = heap[--this.size]!
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= this.size) break
      if (child + 1 < this.size && this.isBefore(heap[child + 1]!, heap[child]!)) child++
      if (this.isBefore(value, heap[child]!)) break
      heap[at] = heap[child]!
      at = child
    }
    heap[at] = value
    return first
  }

  private isBefore(a: number, b: number): boolean {
    const x = this.key[a]!
    const y = this.key[b]!
    return x < y || (x === y && a <= b)
  }
}
