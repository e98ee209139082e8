import { attentionRule } from './attention.js'
import type { Rule } from './backward.js'
import { allGatherRule, allReduceRule, allToAllRule, reduceScatterRule } from './collectives.js'
import { elementwiseRule, whereRule } from './elementwise.js'
import { gatherRule, scatterAddRule, takeAlongRule } from './indices.js'
import {
  castRule,
  concatRule,
  expandRule,
  padRule,
  reshapeRule,
  sameRule,
  sliceRule,
  transposeRule,
} from './layout.js'
import { matmulRule, ropeRule } from './products.js'
import { repeatRule } from './rates.js'
import {
  crossEntropyRule,
  cumsumRule,
  extremeRule,
  logSoftmaxRule,
  logSumExpRule,
  meanRule,
  normRule,
  softmaxRule,
  sumRule,
} from './reductions.js'
import { convRule, poolRule } from './spatial.js'

const elementwise = [
  ...['abs', 'add', 'clamp', 'cos', 'div', 'exp', 'floorDiv', 'gelu', 'log', 'map', 'maximum', 'minimum'],
  ...['mod', 'mul', 'neg', 'pow', 'relu', 'rsqrt', 'sigmoid', 'silu', 'sin', 'sqrt', 'sub', 'tanh'],
]

/** The rule of each operator, and of those composed operators that have one for the whole. */
export const rules: Readonly<Record<string, Rule>> = Object.freeze(
  Object.assign(Object.create(null), {
    ...Object.fromEntries(elementwise.map(op => [op, elementwiseRule])),
    after: sameRule,
    allGather: allGatherRule,
    allReduce: allReduceRule,
    allToAll: allToAllRule,
    attention: attentionRule,
    cast: castRule,
    concat: concatRule,
    conv: convRule,
    crossEntropy: crossEntropyRule,
    cumsum: cumsumRule,
    expand: expandRule,
    gather: gatherRule,
    keep: sameRule,
    logSoftmax: logSoftmaxRule,
    logSumExp: logSumExpRule,
    matmul: matmulRule,
    max: extremeRule,
    mean: meanRule,
    min: extremeRule,
    norm: normRule,
    pad: padRule,
    pool: poolRule,
    reduceScatter: reduceScatterRule,
    repeat: repeatRule,
    reshape: reshapeRule,
    rope: ropeRule,
    scatterAdd: scatterAddRule,
    slice: sliceRule,
    softmax: softmaxRule,
    sum: sumRule,
    takeAlong: takeAlongRule,
    transpose: transposeRule,
    where: whereRule,
  }),
)

/** Operators whose value gradients take for a constant: a place, a draw, what a state held before. */
export const constants: ReadonlySet<string> = new Set(['delay', 'iota', 'random'])

const rates = 'ask for the gradient on one side of it: gradients are of flows of one rate'

/** Operators of floats that have no rule, each with what to do in place of it. */
export const withoutRule: Readonly<Record<string, string>> = Object.freeze(
  Object.assign(Object.create(null), {
    append: 'compute the loss without the cache',
    attentionGradient: 'write attention out by products and a softmax, for gradients of gradients',
    broadcast: 'ask for the gradient of what each rank has: allReduce and allGather have one',
    every: rates,
    hold: `repeat(n) has one, of a value that is there before the faster ones; else ${rates}`,
    kernel: 'write its gradient out, or ask for gradients on either side of the kernel',
    permute: 'ask for gradients on either side of it, and permute them back',
    port: 'write its gradient out, or ask for gradients on either side of the kernel',
    window: rates,
  }),
)
