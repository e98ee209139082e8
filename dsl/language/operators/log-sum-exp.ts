import * as E from 'fp-ts/lib/Either.js'
import type { DType } from '../../ir/tensor.js'
import { here } from '../where.js'
import { composed, ofFloats } from './composition.js'
import { named, withOptions } from './options.js'
import { type Along, type Axes, alongOf, type ReduceOptions, type WholeOptions } from './reduce.js'
import type { Device, Floats, Reduced, ReducedWhole, Shape } from './types.js'

/** A reduction of floats along axes, or of all elements, with options by name. */
export interface FloatReduction {
  <const A extends Axes, const K extends boolean = false>(
    options: ReduceOptions<A, K>,
  ): <D extends DType, S extends Shape>(x: Device<D, S> & Floats<D>) => Device<D, Reduced<S, A, K>>
  <const K extends boolean = false>(
    options?: WholeOptions<K>,
  ): <D extends DType, S extends Shape>(x: Device<D, S> & Floats<D>) => Device<D, ReducedWhole<S, K>>
}

/** The axes and `keepDims` of a reduction of floats. */
export const alongFloats = (options: unknown) =>
  withOptions(options, ['axis', 'keepDims'], x =>
    E.chain(() => alongOf(named(options)['axis'], named(options)['keepDims'])(x))(ofFloats(x)),
  )

/**
 * The logarithm of the sum of exp(x) along the axes, of floats, computed in f32; the largest element is taken
 * away first, so that nothing overflows (torch.logsumexp).
 */
export const logSumExp = ((options: unknown) =>
  composed('logSumExp', here(), alongFloats(options), (parts, given, { axes, keepDims }: Along) =>
    parts.inFloat(given, x => {
      const { most, rest } = parts.logSum(x, axes)
      const value = parts.map((r, m) => r.add(m), rest, most)
      const kept = parts.composite('logSumExp', value, [x], { axes })
      return keepDims ? kept : parts.without(kept, axes)
    }),
  )) as unknown as FloatReduction
