import { builderOf } from '../builder.js'
import type { Flow } from '../flow.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { countOf } from './count.js'
import { type Init, initOf } from './delay.js'

/**
 * A slow device flow at the rate of the flow that it meets: at each of that one's instants the newest value, of the same type. A value of a
 * group of n comes with the last of the group, so before the first there is `init` (one number for all elements, or each element,
 * row-major). How many instants a value is held follows from what it meets; `n` says so where nothing else does.
 *
 * Errors of `compile`: `BadAttribute` for an init or n that cannot be, `UnknownRate` where nothing says how long, `RateMismatch` where the
 * flow that it meets is the slower one.
 */
export const hold = (init: Init, n?: number) => {
  const at = here()
  const held = (x: unknown): unknown => {
    const builder = builderOf(x)
    const source = builder.take(x, 'device', at, 'hold', 'the piped value', { dtype: 'f32', shape: [] })
    const { id, spec, hint } = source
    const first = initOf(builder, at, 'hold', spec, init)
    const attrs = n === undefined ? { init: first } : { init: first, n: countOf(builder, at, 'hold', n) }
    return builder.flow({ op: 'hold', inputs: [id], attrs, spec, place: 'device', lane: hint, at }, hint)
  }
  return held as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
}
