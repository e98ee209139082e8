import { arithmetic, type FloatArithmetic } from './arithmetic.js'
import { elementwise } from './elementwise.js'

export const divOperator = elementwise('div')

/** x / operand, elementwise, of floats: `x.pipe(div(y))` or `x.pipe(div(2))`. */
export const div = arithmetic(divOperator, 'div') as FloatArithmetic
