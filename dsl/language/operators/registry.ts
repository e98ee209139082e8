import { absOperator } from './abs.js'
import { addOperator } from './add.js'
import { afterOperator } from './after.js'
import { allGatherOperator } from './all-gather.js'
import { allReduceOperator } from './all-reduce.js'
import { allToAllOperator } from './all-to-all.js'
import { broadcastOperator } from './broadcast.js'
import { castOperator } from './cast.js'
import { divOperator } from './div.js'
import { expOperator } from './exp.js'
import { geluOperator } from './gelu.js'
import { logOperator } from './log.js'
import { mapOperator } from './map.js'
import { matmulOperator } from './matmul.js'
import { maximumOperator, maxOperator } from './max.js'
import { meanOperator } from './mean.js'
import { minimumOperator, minOperator } from './min.js'
import { mulOperator } from './mul.js'
import { negOperator } from './neg.js'
import type { Operator } from './operator.js'
import { permuteOperator } from './permute.js'
import { powOperator } from './pow.js'
import { reduceScatterOperator } from './reduce-scatter.js'
import { reluOperator } from './relu.js'
import { reshapeOperator } from './reshape.js'
import { rsqrtOperator } from './rsqrt.js'
import { sigmoidOperator } from './sigmoid.js'
import { siluOperator } from './silu.js'
import { sliceOperator } from './slice.js'
import { sqrtOperator } from './sqrt.js'
import { subOperator } from './sub.js'
import { sumOperator } from './sum.js'
import { tanhOperator } from './tanh.js'

const all: readonly Operator[] = [
  absOperator,
  afterOperator,
  castOperator,
  mapOperator,
  maxOperator,
  maximumOperator,
  meanOperator,
  minOperator,
  minimumOperator,
  reshapeOperator,
  sliceOperator,
  sumOperator,
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
  allGatherOperator,
  allReduceOperator,
  allToAllOperator,
  broadcastOperator,
  permuteOperator,
  reduceScatterOperator,
]

/** Every operator whose nodes the compiler lowers and `interpret` computes, by the name that nodes carry. */
export const operators: Readonly<Record<string, Operator>> = Object.freeze(
  Object.assign(Object.create(null), Object.fromEntries(all.map(operator => [operator.name, operator]))),
)
