import { arithmetic } from './arithmetic.js'
import { elementwise } from './elementwise.js'

export const mulOperator = elementwise('mul')

/** x · operand, elementwise: `x.pipe(mul(y))` or `x.pipe(mul(2))`. */
export const mul = arithmetic(mulOperator, 'mul')
