import type { DType } from '../../ir/tensor.js'
import { type Axes, along, type ReduceOptions, reduction, type WholeOptions } from './reduce.js'
import type { Device, Reduced, ReducedWhole, Shape } from './types.js'

export const sumOperator = reduction('sum')

type SumType<D extends DType> = D extends 'u8' ? 'i32' : D
type Summed<A extends Axes, K extends boolean> = <D extends DType, S extends Shape>(
  x: Device<D, S>,
) => Device<SumType<D>, Reduced<S, A, K>>

interface Sum {
  <const A extends Axes, const K extends boolean = false>(
    axis: A,
    options?: { readonly keepDims?: K },
  ): Summed<A, K>
  <const A extends Axes, const K extends boolean = false>(options: ReduceOptions<A, K>): Summed<A, K>
  <const K extends boolean = false>(
    options?: WholeOptions<K>,
  ): <D extends DType, S extends Shape>(x: Device<D, S>) => Device<SumType<D>, ReducedWhole<S, K>>
}

/**
 * The sum along axes, or of all elements, accumulated in f32; whole numbers wrap, and u8 sums to i32.
 * `sum()`, `sum(1)` or `sum({ axis: 1, keepDims: true })`.
 */
export const sum = along(sumOperator) as Sum
