import { piped } from '../builder.js'
import type { Flow } from '../flow.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { countOf } from './count.js'

/**
 * A slow device flow at the rate of the faster flow it is combined with: each value for all n instants that it
 * belongs to, as the weights of a step for each of its micro-batches. Keeps the type. So the value must be
 * there before the first of them: a state, an input, a parameter, or what follows from these without `window`,
 * `every` and `hold`. `hold` takes any other value, which then comes with the last of the n. The faster flow
 * determines how many instants there are; `n` gives the number where no other flow does, and for `gradients`:
 * the gradient of the value is the sum over the n.
 *
 * Errors of `compile`: `BadAttribute` for an invalid n, `UnknownRate` where nothing determines how often a
 * value is repeated, `RateMismatch` where the value is not there yet, or the other flow is the slower one.
 */
export const repeat = (n?: number) => {
  const at = here()
  const repeated = (x: unknown): unknown => {
    const { builder, id, spec, hint } = piped(x, 'device', at, 'repeat')
    const attrs = n === undefined ? {} : { n: countOf(builder, at, 'repeat', n) }
    return builder.flow({ op: 'repeat', inputs: [id], attrs, spec, place: 'device', lane: hint, at }, hint)
  }
  return repeated as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
}
