import { arithmetic } from './arithmetic.js'
import { elementwise } from './elementwise.js'
import { type Extreme, extreme, reduction } from './reduce.js'

/** Along an axis. */
export const minOperator = reduction('min')
/** Of two values, elementwise. */
export const minimumOperator = elementwise('minimum')

/**
 * The smaller of two values, elementwise: `x.pipe(min(y))` or `x.pipe(min(0))`; a NaN of either is the
 * result, as in PyTorch. Along an axis: `x.pipe(min({ axis: 1, keepDims: true }))`; of all elements:
 * `x.pipe(min())`.
 */
export const min = extreme(arithmetic(minimumOperator, 'min'), minOperator) as Extreme
