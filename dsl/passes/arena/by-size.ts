import type { Succession, Tenants } from './tenants.js'

/** Pairs of tenants that are compared at most: more tenants than this allows are placed in order of time alone. */
export const maxPairs = 2 ** 24

/**
 * Best fit, in the order given (largest first, say): each tenant goes to the low end of the shortest gap that is long enough among those that it
 * may not share bytes with, else above all of them. Every pair is looked at once, so the work is quadratic.
 *
 * Where that would reach beyond `most`, it goes among those only that are in use when it is: what waits then order.
 */
export const packed = (
  { first, last }: Tenants,
  sizes: Float64Array,
  order: Int32Array,
  succession: Succession,
  base: number,
  most: number,
): Float64Array => {
  const offset = new Float64Array(sizes.length)
  // In order of offset.
  const placed: number[] = []
  const shares = (a: number, b: number): boolean => succession.agree(a, b)
  const apart = (a: number, b: number): boolean => last[a]! < first[b]! || last[b]! < first[a]!
  const lowest = (k: number, compatible: (a: number, b: number) => boolean): number => {
    const size = sizes[k]!
    let end = base
    let best = -1
    let bestGap = Number.POSITIVE_INFINITY
    for (const other of placed) {
      const from = offset[other]!
      if (from + sizes[other]! <= end || compatible(other, k)) continue
      const gap = from - end
      if (gap >= size && gap < bestGap) {
        best = end
        bestGap = gap
      }
      end = Math.max(end, from + sizes[other]!)
    }
    return best >= 0 ? best : end
  }
  for (const k of order) {
    let at = lowest(k, shares)
    if (at + sizes[k]! > most) at = Math.min(at, lowest(k, apart))
    offset[k] = at
    let low = 0
    for (let high = placed.length; low < high; ) {
      const middle = (low + high) >> 1
      if (offset[placed[middle]!]! <= at) low = middle + 1
      else high = middle
    }
    placed.splice(low, 0, k)
  }
  return offset
}
