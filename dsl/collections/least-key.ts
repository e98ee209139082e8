/**
 * Finds the least of keys that change, the first of several: a tree of winners. All are infinite at first.
 */
export class LeastKey {
  /** The keys are the leaves, from `leaves` on; each node above has the number of its winning leaf. */
  private readonly leaves: number
  private readonly winner: Int32Array
  private readonly keys: Float64Array

  constructor(count: number) {
    let leaves = 1
    while (leaves < count) leaves *= 2
    this.leaves = leaves
    this.keys = new Float64Array(leaves).fill(Number.POSITIVE_INFINITY)
    this.winner = new Int32Array(2 * leaves)
    for (let leaf = 0; leaf < leaves; leaf++) this.winner[leaves + leaf] = leaf
    for (let node = leaves - 1; node > 0; node--) this.winner[node] = this.winner[2 * node]!
  }

  set(i: number, key: number): void {
    const { keys, winner } = this
    if (keys[i] === key) return
    keys[i] = key
    for (let node = (this.leaves + i) >> 1; node > 0; node >>= 1) {
      const [left, right] = [winner[2 * node]!, winner[2 * node + 1]!]
      winner[node] = keys[right]! < keys[left]! ? right : left
    }
  }

  /** The number of the least key; -1 where all are infinite. */
  get first(): number {
    const first = this.winner[1]!
    return this.keys[first] === Number.POSITIVE_INFINITY ? -1 : first
  }

  get least(): number {
    return this.keys[this.winner[1]!]!
  }
}
