import type { MapInstruction } from '../../ir/kernel-spec.js'
import { elementwise } from './elementwise.js'
import { unary } from './unary.js'

export const reluOperator = elementwise('relu')

export const reluCode: readonly MapInstruction[] = [
  ['operand', 0],
  ['const', 0],
  ['max', 0, 1],
]

/** max(x, 0), elementwise; a NaN stays a NaN, as in PyTorch. */
export const relu = unary(reluOperator, reluCode)
