import { absOperator } from './abs.js'
import { addOperator } from './add.js'
import { divOperator } from './div.js'
import { expOperator } from './exp.js'
import { geluOperator } from './gelu.js'
import { logOperator } from './log.js'
import { matmulOperator } from './matmul.js'
import { mulOperator } from './mul.js'
import { negOperator } from './neg.js'
import type { Operator } from './operator.js'
import { powOperator } from './pow.js'
import { reluOperator } from './relu.js'
import { rsqrtOperator } from './rsqrt.js'
import { sigmoidOperator } from './sigmoid.js'
import { siluOperator } from './silu.js'
import { sqrtOperator } from './sqrt.js'
import { subOperator } from './sub.js'
import { tanhOperator } from './tanh.js'

const all: readonly Operator[] = [
  absOperator,
  addOperator,
  divOperator,
  expOperator,
  geluOperator,
  logOperator,
  matmulOperator,
  mulOperator,
  negOperator,
  powOperator,
  reluOperator,
  rsqrtOperator,
  sigmoidOperator,
  siluOperator,
  sqrtOperator,
  subOperator,
  tanhOperator,
]

/** Every operator whose nodes the compiler lowers and `interpret` computes, by the name that nodes carry. */
export const operators: Readonly<Record<string, Operator>> = Object.freeze(
  Object.assign(Object.create(null), Object.fromEntries(all.map(operator => [operator.name, operator]))),
)
