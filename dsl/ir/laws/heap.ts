/** A binary heap of (key, value), least key first, on growing typed arrays. */
export class Heap {
  private keys = new Float64Array(16)
  private values = new Int32Array(16)
  size = 0

  /** The least key's; only where size > 0. */
  topKey(): number {
    return this.keys[0]!
  }

  top(): number {
    return this.values[0]!
  }

  push(key: number, value: number): void {
    if (this.size === this.keys.length) this.grow()
    const { keys, values } = this
    let at = this.size++
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (keys[parent]! <= key) break
      keys[at] = keys[parent]!
      values[at] = values[parent]!
      at = parent
    }
    keys[at] = key
    values[at] = value
  }

  pop(): void {
    const { keys, values } = this
    const key = keys[--this.size]!
    const value = values[this.size]!
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= this.size) break
      if (child + 1 < this.size && keys[child + 1]! < keys[child]!) child++
      if (keys[child]! >= key) break
      keys[at] = keys[child]!
      values[at] = values[child]!
      at = child
    }
    keys[at] = key
    values[at] = value
  }

  private grow(): void {
    const keys = new Float64Array(this.keys.length * 2)
    const values = new Int32Array(this.values.length * 2)
    keys.set(this.keys)
    values.set(this.values)
    this.keys = keys
    this.values = values
  }
}
