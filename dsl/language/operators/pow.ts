import { arithmetic, type FloatArithmetic } from './arithmetic.js'
import { elementwise } from './elementwise.js'

export const powOperator = elementwise('pow')

/** x to the power of operand, elementwise, of floats: `x.pipe(pow(y))` or `x.pipe(pow(2))`. */
export const pow = arithmetic(powOperator, 'pow') as FloatArithmetic
