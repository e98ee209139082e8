/**
 * Finds the tick at which a replay has reached its steady state: the first one that starts in a state that an
 * earlier one started in. States are lists of numbers, found by a hash and compared whole.
 */
export class SteadyState {
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

  /** Whether the state that was put since `begin` has been seen before; keeps it if not. */
  isReached(): boolean {
    const { values, length } = this
    let hash = length
    for (let i = 0; i < length; i++)
      hash = Math.imul(hash ^ (values[i]! | 0), 0x85ebca6b) ^ (hash >>> 13) ^ ((values[i]! / 0x100000000) | 0)
    const others = this.seen.get(hash) ?? []
    const isSame = (other: Float64Array): boolean => {
      if (other.length !== length) return false
      for (let i = 0; i < length; i++) if (other[i] !== values[i]) return false
      return true
    }
    if (others.some(isSame)) return true
    this.seen.set(hash, [...others, values.slice(0, length)])
    return false
  }
}
