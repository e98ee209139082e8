import { piped } from '../builder.js'
import type { Flow } from '../flow.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { countOf } from './count.js'
import { type Init, initOf } from './state.js'

/**
 * A slow device flow at the rate of the faster flow it is combined with: its newest value at each instant of
 * that flow. Keeps the type. A value of a group of n coincides with the last instant of the group, so the
 * instants before it have `init` (one number for all elements, or each element, row-major). The faster flow
 * determines for how many instants a value is held; `n` gives the number where no other flow does. What follows
 * from parameters alone is there before every instant, so `init` is never seen of it, unless `n` counts: then it
 * is held from the n-th instant on, and the instants before have `init`.
 *
 * Errors of `compile`: `BadAttribute` for an invalid init or n, `UnknownRate` where nothing determines how
 * long a value is held, `RateMismatch` where the other flow is the slower one.
 */
export const hold = (init: Init, n?: number) => {
  const at = here()
  const held = (x: unknown): unknown => {
    const { builder, id, spec, hint } = piped(x, 'device', at, 'hold')
    const first = builder.guesses.has(id) ? 0 : initOf(builder, at, 'hold', spec, init)
    const attrs = n === undefined ? { init: first } : { init: first, n: countOf(builder, at, 'hold', n) }
    return builder.flow({ op: 'hold', inputs: [id], attrs, spec, place: 'device', lane: hint, at }, hint)
  }
  return held as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
}
