import { elementwise } from './elementwise.js'
import { floatUnary } from './unary.js'

export const sqrtOperator = elementwise('sqrt')

/** The square root, elementwise, of floats; NaN below 0. */
export const sqrt = floatUnary(sqrtOperator, [
  ['operand', 0],
  ['sqrt', 0],
])
