import { arithmetic } from './arithmetic.js'
import { elementwise } from './elementwise.js'
import { type Extreme, extreme, reduction } from './reduce.js'

/** Along an axis. */
export const maxOperator = reduction('max')
/** Of two values, elementwise. */
export const maximumOperator = elementwise('maximum')

/**
 * The larger of two values, elementwise: `x.pipe(max(y))` or `x.pipe(max(0))`; a NaN of either is the result,
 * as in PyTorch. Along an axis: `x.pipe(max({ axis: 1, keepDims: true }))`; of all elements: `x.pipe(max())`.
 */
export const max = extreme(arithmetic(maximumOperator, 'max'), maxOperator) as Extreme
