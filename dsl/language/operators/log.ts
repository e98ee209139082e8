import { elementwise } from './elementwise.js'
import { floatUnary } from './unary.js'

export const logOperator = elementwise('log')

/** The natural logarithm, elementwise, of floats; NaN below 0. */
export const log = floatUnary(logOperator, [
  ['operand', 0],
  ['log', 0],
])
