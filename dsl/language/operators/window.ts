import type { Place } from '../../ir/graph.js'
import type { TensorSpec } from '../../ir/tensor.js'
import { piped, placeOf } from '../builder.js'
import type { Flow } from '../flow.js'
import type { Tensor } from '../tensor.js'
import type { HostArray } from '../values.js'
import { here } from '../where.js'
import { countOf } from './count.js'
import type { Shape } from './types.js'

/** The type of a window of n values. */
export const windowed = ({ dtype, shape }: TensorSpec, n: number): TensorSpec => ({
  dtype,
  shape: [n, ...shape],
})

/** The meaning: the values concatenated in a fresh array. */
export const windowReference = (values: readonly HostArray[]): HostArray => {
  const [first] = values
  const all = new (first!.constructor as new (length: number) => HostArray)(first!.length * values.length)
  for (const [i, value] of values.entries()) all.set(value, i * value.length)
  return all
}

/**
 * Each n successive values as one tensor with a leading dimension n: `[…shape]` becomes `[n, …shape]`, of any
 * element type, on the host and on the device. Like RxJS's `bufferCount(n)`, it yields when the last of the n
 * values is available; a window during which a feed ends is never yielded. n is a whole number from 1 to
 * 4,096, else a `BadAttribute`.
 */
export const window = <const N extends number>(n: N) => {
  const at = here()
  const operator = (x: unknown): unknown => {
    const place = placeOf(x)
    const { builder, id, spec: one, hint } = piped(x, place, at, 'window')
    const count = countOf(builder, at, 'window', n)
    const spec = builder.spec(windowed(one, count), at, 'window')
    const lane = place === 'device' ? hint : undefined
    return builder.flow({ op: 'window', inputs: [id], attrs: { n: count }, spec, place, lane, at }, hint)
  }
  return operator as unknown as <P extends Place, A extends Tensor>(
    x: Flow<P, A>,
  ) => Flow<P, Tensor<A['dtype'], number extends A['shape']['length'] ? Shape : readonly [N, ...A['shape']]>>
}
