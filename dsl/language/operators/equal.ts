import { comparison, comparisonOperator } from './comparison.js'

export const equalOperator = comparisonOperator('equal')

/**
 * 1 where x is equal to the operand, else 0, as u8, elementwise: `x.pipe(equal(y))` or `x.pipe(equal(0))`;
 * never of a NaN.
 */
export const equal = comparison(equalOperator)
