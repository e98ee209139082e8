/** States that a replay has been in, each a list of numbers: found by a hash, and compared whole, so that one is met only where it really recurs. */
export class Snapshots {
  private readonly seen = new Map<number, Float64Array[]>()
  private values = new Float64Array(64)
  private length = 0

  begin(): void {
    this.length = 0
  }

  put(value: number): void {
    if (this.length === this.values.length) {
      const values = new Float64Array(2 * this.length)
      values.set(this.values)
      this.values = values
    }
    this.values[this.length++] = value
  }

  /** Whether what was put since `begin` has been there before; keeps it if not. */
  met(): boolean {
    const { values, length } = this
    let hash = length
    for (let i = 0; i < length; i++)
      hash = Math.imul(hash ^ (values[i]! | 0), 0x85ebca6b) ^ (hash >>> 13) ^ ((values[i]! / 0x100000000) | 0)
    const others = this.seen.get(hash)
    if (others === undefined) {
      this.seen.set(hash, [values.slice(0, length)])
      return false
    }
    for (const other of others) {
      if (other.length !== length) continue
      let same = true
      for (let i = 0; i < length && same; i++) same = other[i] === values[i]
      if (same) return true
    }
    others.push(values.slice(0, length))
    return false
  }
}
