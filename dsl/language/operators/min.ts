import type { DType } from '../../ir/tensor.js'
import { FlowValue } from '../builder.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { type Arithmetic, arithmetic } from './arithmetic.js'
import { elementwise } from './elementwise.js'
import { type ReduceOptions, reduceAttrs, reduction } from './reduce.js'
import type { Device, Reduced, Shape } from './types.js'

/** Along an axis. */
export const minOperator = reduction('min')
/** Of two values, elementwise. */
export const minimumOperator = elementwise('minimum')

interface Extreme extends Arithmetic {
  <const A extends number, const K extends boolean = false>(
    options: ReduceOptions<A, K>,
  ): <D extends DType, S extends Shape>(x: Device<D, S>) => Device<D, Reduced<S, A, K>>
}

const ofTwo = arithmetic(minimumOperator, 'min') as (operand: unknown) => unknown

/**
 * The smaller of two values, elementwise: `x.pipe(min(y))` or `x.pipe(min(0))`; a NaN of either is the result, as in PyTorch. Along
 * an axis: `x.pipe(min({ axis: 1, keepDims: true }))`.
 */
export const min: Extreme = ((operand: unknown) => {
  if (typeof operand !== 'object' || operand === null || operand instanceof FlowValue) return ofTwo(operand)
  const at = here()
  const { axis, keepDims } = operand as Partial<ReduceOptions>
  return (x: unknown): unknown => apply(minOperator, at, x, [], reduceAttrs(axis, keepDims))
}) as never
