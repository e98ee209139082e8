import type { DType } from '../../ir/tensor.js'
import { FlowValue } from '../builder.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { type Arithmetic, arithmetic } from './arithmetic.js'
import { elementwise } from './elementwise.js'
import { type ReduceOptions, reduceAttrs, reduction } from './reduce.js'
import type { Device, Reduced, Shape } from './types.js'

/** Along an axis. */
export const maxOperator = reduction('max')
/** Of two values, elementwise. */
export const maximumOperator = elementwise('maximum')

interface Extreme extends Arithmetic {
  <const A extends number, const K extends boolean = false>(
    options: ReduceOptions<A, K>,
  ): <D extends DType, S extends Shape>(x: Device<D, S>) => Device<D, Reduced<S, A, K>>
}

const ofTwo = arithmetic(maximumOperator, 'max') as (operand: unknown) => unknown

/**
 * The larger of two values, elementwise: `x.pipe(max(y))` or `x.pipe(max(0))`; a NaN of either is the result, as in PyTorch. Along
 * an axis: `x.pipe(max({ axis: 1, keepDims: true }))`.
 */
export const max: Extreme = ((operand: unknown) => {
  if (typeof operand !== 'object' || operand === null || operand instanceof FlowValue) return ofTwo(operand)
  const at = here()
  const { axis, keepDims } = operand as Partial<ReduceOptions>
  return (x: unknown): unknown => apply(maxOperator, at, x, [], reduceAttrs(axis, keepDims))
}) as never
