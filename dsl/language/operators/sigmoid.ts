import { elementwise } from './elementwise.js'
import { floatUnary } from './unary.js'

export const sigmoidOperator = elementwise('sigmoid')

/** 1 / (1 + e^−x), elementwise, of floats. */
export const sigmoid = floatUnary(sigmoidOperator, [
  ['operand', 0],
  ['sigmoid', 0],
])
