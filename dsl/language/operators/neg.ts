import { elementwise } from './elementwise.js'
import { unary } from './unary.js'

export const negOperator = elementwise('neg')

/** −x, elementwise. */
export const neg = unary(negOperator, [
  ['operand', 0],
  ['neg', 0],
])
