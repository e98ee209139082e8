import { comparison, comparisonOperator } from './comparison.js'

export const lessOperator = comparisonOperator('less')

/**
 * 1 where x is less than the operand, else 0, as u8, elementwise: `x.pipe(less(y))` or `x.pipe(less(0))`;
 * never of a NaN.
 */
export const less = comparison(lessOperator)
