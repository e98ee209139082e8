import { elementwise } from './elementwise.js'
import { floatUnary } from './unary.js'

export const expOperator = elementwise('exp')

/** e to the power of x, elementwise, of floats. */
export const exp = floatUnary(expOperator, [
  ['operand', 0],
  ['exp', 0],
])
