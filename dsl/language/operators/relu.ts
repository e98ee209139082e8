import { elementwise } from './elementwise.js'
import { unary } from './unary.js'

export const reluOperator = elementwise('relu')

/** max(x, 0), elementwise; a NaN stays a NaN, as in PyTorch. */
export const relu = unary(reluOperator, [
  ['operand', 0],
  ['const', 0],
  ['max', 0, 1],
])
