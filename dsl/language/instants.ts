/**
 * The values of one instant of a tick: number `copy` (from 0) of each flow that has `fires` values a tick.
 */
export interface Coming {
  readonly fires: number
  readonly copy: number
}

/** An instant of a tick: of the values that are early, where `early` says so, or of all values. */
export interface Instant {
  readonly coming: readonly Coming[]
  readonly early: boolean
}

function* ends(fires: Iterable<number>): Generator<readonly Coming[]> {
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
 * The instants of a tick in order. A flow of rate r has its values at the ends of r equal parts of the tick,
 * so a slow value coincides with the last of the fast values that it depends on. The values that are early,
 * whose rates are `early`, are there at the beginnings of these parts.
 */
export function* instantsOf(fires: Iterable<number>, early: Iterable<number> = []): Generator<Instant> {
  const rates = [...new Set(early)]
  const copies = rates.map(() => 0)
  for (const coming of ends(fires)) {
    const { fires, copy } = coming[0]!
    const begun = rates.flatMap((rate, k) =>
      copies[k]! < rate && copies[k]! * fires < (copy + 1) * rate
        ? [{ fires: rate, copy: copies[k]!++ }]
        : [],
    )
    if (begun.length > 0) yield { coming: begun, early: true }
    yield { coming, early: false }
  }
}

/**
 * Which value of a flow of rate `slow` is the newest when value `copy` of a flow of rate `fast` comes, by its
 * number in the tick; -1: the last one of the tick before.
 */
export const newest = (copy: number, fast: number, slow: number): number =>
  Math.floor(((copy + 1) * slow) / fast) - 1

/** Which value of a flow of rate `slow` value `copy` of a flow of rate `fast` belongs to, by its number. */
export const current = (copy: number, fast: number, slow: number): number => Math.floor((copy * slow) / fast)
