import { elementwise } from './elementwise.js'
import { floatUnary } from './unary.js'

export const siluOperator = elementwise('silu')

/** x · sigmoid(x), elementwise, of floats (torch.nn.functional.silu). */
export const silu = floatUnary(siluOperator, [
  ['operand', 0],
  ['sigmoid', 0],
  ['mul', 0, 1],
])
