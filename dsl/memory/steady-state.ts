/** Numbers of states that are kept. */
const mostKept = 2 ** 22

/**
 * Finds the tick at which a replay has reached its steady state: the first one that starts in a state that an
 * earlier one started in. States are lists of numbers, found by a hash and compared whole.
 *
 * Where they take more memory than `mostKept` numbers, one more state is kept, replaced after 1, 2, 4, 8 …
 * others (Brent): then the steady state is found after three times as many ticks at most.
 */
export class SteadyState {
  private readonly seen = new Map<number, Float64Array[]>()
  private values = new Float64Array(64)
  private length = 0
  private latest: Float64Array | undefined
  private until = 1
  private since = 0

  constructor(private left = mostKept) {}

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
    if (others.some(isSame) || (this.latest !== undefined && isSame(this.latest))) return true
    if (length <= this.left) {
      this.left -= length
      this.seen.set(hash, [...others, values.slice(0, length)])
    } else this.keepLatest()
    return false
  }

  private keepLatest(): void {
    this.left = -1
    if (this.latest !== undefined && ++this.since < this.until) return
    this.latest = this.values.slice(0, this.length)
    this.until *= 2
    this.since = 0
  }
}
