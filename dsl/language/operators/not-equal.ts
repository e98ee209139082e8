import { comparison, comparisonOperator } from './comparison.js'

export const notEqualOperator = comparisonOperator('notEqual')

/**
 * 1 where x is different from the operand, else 0, as u8, elementwise: `x.pipe(notEqual(y))` or
 * `x.pipe(notEqual(0))`; of a NaN too.
 */
export const notEqual = comparison(notEqualOperator)
