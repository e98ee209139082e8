import { arithmetic } from './arithmetic.js'
import { elementwise } from './elementwise.js'

export const subOperator = elementwise('sub')

/** x − operand, elementwise: `x.pipe(sub(y))` or `x.pipe(sub(2))`. */
export const sub = arithmetic(subOperator, 'sub')
