import { comparison, comparisonOperator } from './comparison.js'

export const greaterOperator = comparisonOperator('greater')

/**
 * 1 where x is greater than the operand, else 0, as u8, elementwise: `x.pipe(greater(y))` or
 * `x.pipe(greater(0))`; never of a NaN.
 */
export const greater = comparison(greaterOperator)
