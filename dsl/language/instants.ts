/**
 * The values of one instant of a tick: number `copy` (from 0) of each flow that has `fires` values a tick.
 */
export interface Coming {
  readonly fires: number
  readonly copy: number
}

/**
 * The instants of a tick in order. A flow of rate r has its values at the ends of r equal parts of the tick,
 * so a slow value coincides with the last of the fast values that it depends on.
 */
export function* instantsOf(fires: Iterable<number>): Generator<readonly Coming[]> {
  const rates = [...new Set(fires)]
  const copies = rates.map(() => 0)
  for (;;) {
    let soonest = -1
    const isBefore = (a: number, b: number): boolean =>
      (copies[a]! + 1) * rates[b]! < (copies[b]! + 1) * rates[a]!
    for (let k = 0; k < rates.length; k++)
      if (copies[k]! < rates[k]! && (soonest === -1 || isBefore(k, soonest))) soonest = k
    if (soonest === -1) return
    const now: number[] = []
    for (let k = 0; k < rates.length; k++) if (copies[k]! < rates[k]! && !isBefore(soonest, k)) now.push(k)
    yield now.map(k => ({ fires: rates[k]!, copy: copies[k]!++ }))
  }
}

/**
 * Which value of a flow of rate `slow` is the newest when value `copy` of a flow of rate `fast` comes, by its
 * number in the tick; -1: the last one of the tick before.
 */
export const newest = (copy: number, fast: number, slow: number): number =>
  Math.floor(((copy + 1) * slow) / fast) - 1
