import { Neighbours } from './neighbours.js'
import { alignment, type Succession, type Tenants } from './tenants.js'

/** Pairs of tenants that are compared at most: beyond it an arena is given up. Graphs whose lanes meet now and then need some hundred a tenant. */
const maxPairs = 2 ** 25

/** Neighbours of one tenant are told apart by so many numbers. */
const most = 2 ** 20

/**
 * Best fit, in the order given (largest first, say): each tenant goes to the low end of the shortest gap that is long enough among those that it
 * may not share bytes with, else above all of them. Undefined where that would be too much work.
 *
 * What would reach beyond `limit` goes instead among those only that are in use when it is: waits then order it.
 */
export const packed = (
  { first, last }: Tenants,
  sizes: Float64Array,
  order: Int32Array,
  succession: Succession,
  base: number,
  limit: number,
): Float64Array | undefined => {
  const offset = new Float64Array(sizes.length)
  const neighbours = new Neighbours(succession, { first, last })
  const near = new Int32Array(sizes.length)
  const keys = new Float64Array(sizes.length)
  const lowest = (k: number, count: number, shares: (a: number, b: number) => boolean): number => {
    let length = 0
    for (let i = 0; i < count; i++) {
      const other = near[i]!
      // In order of offset, with who it is below that: both in one number, which sorts the fastest.
      if (!shares(other, k)) keys[length++] = (offset[other]! / alignment) * most + i
    }
    const sorted = keys.subarray(0, length).sort()
    const size = sizes[k]!
    let end = base
    let best = -1
    let bestGap = Number.POSITIVE_INFINITY
    for (const key of sorted) {
      const other = near[key % most]!
      const gap = offset[other]! - end
      if (gap >= size && gap < bestGap) {
        best = end
        bestGap = gap
      }
      end = Math.max(end, offset[other]! + sizes[other]!)
    }
    return best >= 0 ? best : end
  }
  const agree = (a: number, b: number): boolean => succession.agree(a, b)
  const apart = (a: number, b: number): boolean => last[a]! < first[b]! || last[b]! < first[a]!
  for (const k of order) {
    const count = neighbours.of(k, near)
    if (neighbours.work > maxPairs || count >= most) return undefined
    offset[k] = lowest(k, count, agree)
    if (offset[k]! + sizes[k]! > limit) offset[k] = Math.min(offset[k]!, lowest(k, count, apart))
    neighbours.add(k)
  }
  return offset
}
