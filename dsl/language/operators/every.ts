import type { Place } from '../../ir/graph.js'
import { builderOf, FlowValue } from '../builder.js'
import type { Flow } from '../flow.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { countOf } from './count.js'

/**
 * One of each n values: the last, when it is there. Of the same type, on the host and on the device. What it leaves out is computed only
 * where somebody else reads it. n is a whole number from 1 to 4,096, else a `BadAttribute`.
 */
export const every = (n: number) => {
  const at = here()
  const sample = (x: unknown): unknown => {
    const builder = builderOf(x)
    const place: Place = x instanceof FlowValue ? x.place : 'device'
    const { id, spec, hint } = builder.take(x, place, at, 'every', 'the piped value', {
      dtype: 'f32',
      shape: [],
    })
    const attrs = { n: countOf(builder, at, 'every', n) }
    return builder.flow({ op: 'every', inputs: [id], attrs, spec, place, lane: undefined, at }, hint)
  }
  return sample as <P extends Place, A extends AnyTensor>(x: Flow<P, A>) => Flow<P, A>
}
