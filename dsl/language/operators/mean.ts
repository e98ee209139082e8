import type { DType } from '../../ir/tensor.js'
import { type Axes, along, type ReduceOptions, reduction, type WholeOptions } from './reduce.js'
import type { Device, Floats, Reduced, ReducedWhole, Shape } from './types.js'

export const meanOperator = reduction('mean')

type Averaged<A extends Axes, K extends boolean> = <D extends DType, S extends Shape>(
  x: Device<D, S> & Floats<D>,
) => Device<D, Reduced<S, A, K>>

interface Mean {
  <const A extends Axes, const K extends boolean = false>(
    axis: A,
    options?: { readonly keepDims?: K },
  ): Averaged<A, K>
  <const A extends Axes, const K extends boolean = false>(options: ReduceOptions<A, K>): Averaged<A, K>
  <const K extends boolean = false>(
    options?: WholeOptions<K>,
  ): <D extends DType, S extends Shape>(x: Device<D, S> & Floats<D>) => Device<D, ReducedWhole<S, K>>
}

/**
 * The mean of floats along axes, or of all elements, accumulated in f32. `mean()`, `mean(1)` or `mean({ axis:
 * 1, keepDims: true })`.
 */
export const mean = along(meanOperator) as Mean
