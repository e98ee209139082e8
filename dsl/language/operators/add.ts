import { arithmetic } from './arithmetic.js'
import { elementwise } from './elementwise.js'

export const addOperator = elementwise('add')

/** x + operand, elementwise: `x.pipe(add(y))` or `x.pipe(add(2))`. */
export const add = arithmetic(addOperator, 'add')
