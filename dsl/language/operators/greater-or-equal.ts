import { comparison, comparisonOperator } from './comparison.js'

export const greaterOrEqualOperator = comparisonOperator('greaterOrEqual')

/**
 * 1 where x is no less than the operand, else 0, as u8, elementwise: `x.pipe(greaterOrEqual(y))` or
 * `x.pipe(greaterOrEqual(0))`; never of a NaN.
 */
export const greaterOrEqual = comparison(greaterOrEqualOperator)
