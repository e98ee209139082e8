import * as E from 'fp-ts/lib/Either.js'
import type { DType } from '../../ir/tensor.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import { type Along, alongOf, axisOf, type ReduceOptions } from './reduce.js'
import type { Device, Reduced, Shape } from './types.js'

/** Positions along one axis. */
export type Choose = <const A extends number, const K extends boolean = false>(
  options: ReduceOptions<A, K>,
) => <D extends DType, S extends Shape>(x: Device<D, S>) => Device<'i32', Reduced<S, A, K>>

/** The public function of `argmax` and `argmin`. */
export const chooseAlong = (operator: Operator) => (options: unknown) => {
  const at = here()
  const { axis, keepDims } = named(options)
  return (x: unknown): unknown =>
    apply(
      operator,
      at,
      x,
      [],
      withOptions(options, ['axis', 'keepDims'], spec =>
        E.chain(() =>
          E.map(({ axes: [one], keepDims: kept }: Along): Attrs => ({ axis: one, keepDims: kept }))(
            alongOf(axis, keepDims)(spec),
          ),
        )(axisOf(axis, spec)),
      ),
    )
}
