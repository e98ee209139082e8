import { piped } from '../builder.js'
import type { Flow } from '../flow.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { countOf } from './count.js'
import { type Init, initOf } from './delay.js'

/**
 * A slow device flow at the rate of the flow that it meets: its newest value at each instant of that flow, of the same type. A
 * value of a group of n comes with the last of the group, so before the first one there is `init` (one number for all
 * elements, or each element, row-major). How many instants a value is held follows from the flow that it meets; `n` says it
 * where nothing else does.
 *
 * Errors of `compile`: `BadAttribute` for an init or n that cannot be, `UnknownRate` where nothing says how long a value is
 * held, `RateMismatch` where the flow that it meets is the slower one.
 */
export const hold = (init: Init, n?: number) => {
  const at = here()
  const held = (x: unknown): unknown => {
    const { builder, id, spec, hint } = piped(x, 'device', at, 'hold')
    const first = initOf(builder, at, 'hold', spec, init)
    const attrs = n === undefined ? { init: first } : { init: first, n: countOf(builder, at, 'hold', n) }
    return builder.flow({ op: 'hold', inputs: [id], attrs, spec, place: 'device', lane: hint, at }, hint)
  }
  return held as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
}
