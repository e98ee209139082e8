import { limits } from '../ir/limits.js'

/** A reduced fraction. */
export type Ratio = readonly [number, number]

export const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b))

const reduced = (a: number, b: number): Ratio => {
  const by = gcd(a, b)
  return [a / by, b / by]
}

const times = ([a, b]: Ratio, [c, d]: Ratio): Ratio => reduced(a * c, b * d)
const over = (a: Ratio, [c, d]: Ratio): Ratio => times(a, [d, c])

// If the ratio of two rates exceeds this, one of the flows exceeds the largest rate in any tick.
const isTooFar = ([a, b]: Ratio): boolean => a > limits.rate || b > limits.rate

/** The known ratios between nodes' rates: a union-find forest whose edges carry ratios. */
export class Relations {
  /**
   * The first node whose ratio to another exceeds the limit. Its ratio is not kept: it would exceed exact
   * integers.
   */
  tooFar: number | undefined
  private readonly parent: Int32Array
  /** By node: the ratio of its rate to its parent's. */
  private readonly rate: Ratio[]

  constructor(count: number) {
    this.parent = Int32Array.from({ length: count }, (_, id) => id)
    this.rate = new Array<Ratio>(count).fill([1, 1])
  }

  /** The root of the tree that holds `id`, and the ratio of id's rate to the root's. */
  find(id: number): { readonly root: number; readonly rate: Ratio } {
    const { parent, rate } = this
    const path: number[] = []
    let root = id
    for (; parent[root] !== root; root = parent[root]!) path.push(root)
    let product: Ratio = [1, 1]
    for (let step = path.pop(); step !== undefined; step = path.pop()) {
      product = this.kept(step, times(rate[step]!, product))
      rate[step] = product
      parent[step] = root
    }
    return { root, rate: product }
  }

  /** The ratio of a's rate to b's; undefined where the two are not related. */
  between(a: number, b: number): Ratio | undefined {
    const [x, y] = [this.find(a), this.find(b)]
    return x.root === y.root ? over(x.rate, y.rate) : undefined
  }

  /** Relates two unrelated nodes: a's rate is `ratio` times b's. */
  join(a: number, b: number, ratio: Ratio): void {
    const [x, y] = [this.find(a), this.find(b)]
    this.parent[x.root] = y.root
    this.rate[x.root] = this.kept(a, over(times(ratio, y.rate), x.rate))
  }

  private kept(id: number, rate: Ratio): Ratio {
    if (!isTooFar(rate)) return rate
    this.tooFar ??= id
    return [1, 1]
  }
}
