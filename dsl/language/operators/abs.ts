import { elementwise } from './elementwise.js'
import { unary } from './unary.js'

export const absOperator = elementwise('abs')

/** |x|, elementwise. */
export const abs = unary(absOperator, [
  ['operand', 0],
  ['abs', 0],
])
