import { comparison, comparisonOperator } from './comparison.js'

export const lessOrEqualOperator = comparisonOperator('lessOrEqual')

/**
 * 1 where x is no greater than the operand, else 0, as u8, elementwise: `x.pipe(lessOrEqual(y))` or
 * `x.pipe(lessOrEqual(0))`; never of a NaN.
 */
export const lessOrEqual = comparison(lessOrEqualOperator)
