import type { Place } from '../../ir/graph.js'
import type { TensorSpec } from '../../ir/tensor.js'
import { builderOf, FlowValue } from '../builder.js'
import type { Flow } from '../flow.js'
import { type Tensor, tensor } from '../tensor.js'
import type { HostArray } from '../values.js'
import { here } from '../where.js'
import { countOf } from './count.js'
import type { Shape } from './types.js'

/** The type of n values of one type, as one. */
export const windowed = ({ dtype, shape }: TensorSpec, n: number): TensorSpec => ({
  dtype,
  shape: [n, ...shape],
})

/** The meaning: the values one after the other, in a fresh array. */
export const windowReference = (values: readonly HostArray[]): HostArray => {
  const [first] = values
  const all = new (first!.constructor as new (length: number) => HostArray)(first!.length * values.length)
  values.forEach((value, i) => {
    all.set(value, i * value.length)
  })
  return all
}

/**
 * Each n successive values as one tensor with a leading dimension n, once for every n: `[…shape]` becomes `[n, …shape]`, of any element
 * type, on the host and on the device. As RxJS's `bufferCount(n)`, it yields when the last of the n is there; a window that a feed ends in the
 * midst of never comes. n is a whole number from 1 to 4,096, else a `BadAttribute`.
 */
export const window = <const N extends number>(n: N) => {
  const at = here()
  const gather = (x: unknown): unknown => {
    const builder = builderOf(x)
    const place: Place = x instanceof FlowValue ? x.place : 'device'
    const source = builder.take(x, place, at, 'window', 'the piped value', { dtype: 'f32', shape: [] })
    const count = countOf(builder, at, 'window', n)
    const spec = builder.spec(tensor(source.spec.dtype, windowed(source.spec, count).shape), at, 'window')
    const { id, hint } = source
    const lane = place === 'device' ? hint : undefined
    return builder.flow({ op: 'window', inputs: [id], attrs: { n: count }, spec, place, lane, at }, hint)
  }
  return gather as unknown as <P extends Place, A extends Tensor>(
    x: Flow<P, A>,
  ) => Flow<P, Tensor<A['dtype'], number extends A['shape']['length'] ? Shape : readonly [N, ...A['shape']]>>
}
