import type { Place } from '../../ir/graph.js'
import { piped, placeOf } from '../builder.js'
import type { Flow } from '../flow.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { countOf } from './count.js'

/**
 * The last of each n values, at the rate of one value in n. Keeps the type; works on the host and on the
 * device. The values left out are computed only where another operator reads them. n is a whole number from 1
 * to 4,096, else a `BadAttribute`.
 */
export const every = (n: number) => {
  const at = here()
  const sample = (x: unknown): unknown => {
    const place = placeOf(x)
    const { builder, id, spec, hint } = piped(x, place, at, 'every')
    const attrs = { n: countOf(builder, at, 'every', n) }
    return builder.flow({ op: 'every', inputs: [id], attrs, spec, place, at }, hint)
  }
  return sample as <P extends Place, A extends AnyTensor>(x: Flow<P, A>) => Flow<P, A>
}
