import { elementwise } from './elementwise.js'
import { floatUnary } from './unary.js'

export const tanhOperator = elementwise('tanh')

/** The hyperbolic tangent, elementwise, of floats. */
export const tanh = floatUnary(tanhOperator, [
  ['operand', 0],
  ['tanh', 0],
])
