import { elementwise } from './elementwise.js'
import { floatUnary } from './unary.js'

export const sinOperator = elementwise('sin')

/** The sine of an angle in radians, elementwise, of floats. */
export const sin = floatUnary(sinOperator, [
  ['operand', 0],
  ['sin', 0],
])
