import { elementwise } from './elementwise.js'
import { floatUnary } from './unary.js'

export const rsqrtOperator = elementwise('rsqrt')

/** 1 / √x, elementwise, of floats. */
export const rsqrt = floatUnary(rsqrtOperator, [
  ['operand', 0],
  ['rsqrt', 0],
])
