import { elementwise } from './elementwise.js'
import { floatUnary } from './unary.js'

export const cosOperator = elementwise('cos')

/** The cosine of an angle in radians, elementwise, of floats. */
export const cos = floatUnary(cosOperator, [
  ['operand', 0],
  ['cos', 0],
])
