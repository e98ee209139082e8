// The gradient of attention. The weights of the values are computed again, in f32, and stored: queries by keys.
// The heads that share keys are rows of one matrix, [..., groups, rows, keys], so that its products add up the
// gradients of the keys and values.

import type { Dim } from '../../ir/tensor.js'
import type { FlowValue } from '../builder.js'
import { attrsOfCode } from '../operators/code.js'
import { iotaOperator } from '../operators/iota.js'
import { whereOperator } from '../operators/where.js'
import type { Backward, Differentiated, Rule } from './backward.js'
import { softmaxRule } from './reductions.js'

interface Sizes {
  readonly lead: readonly Dim[]
  readonly heads: number
  readonly groups: number
  readonly queries: number
  readonly keys: number
  /** Queries of all heads that share keys. */
  readonly rows: number
}

const sizesOf = ({ inputs: [q, k] }: Differentiated, make: Backward): Sizes => {
  const { shape } = q!.spec
  const rank = shape.length
  const [heads, queries] = [make.size(q!, rank - 3), make.size(q!, rank - 2)]
  const [groups, keys] = [make.size(k!, rank - 3), make.size(k!, rank - 2)]
  return { lead: shape.slice(0, -3), heads, groups, queries, keys, rows: (heads / groups) * queries }
}

/** A mask of [..., heads, queries, keys], as it broadcasts to [..., groups, rows, keys]. */
const maskOf = (given: FlowValue, sizes: Sizes, make: Backward): FlowValue => {
  const { lead, heads, groups, queries, keys, rows } = sizes
  const mask = make.cast(given, 'i32')
  if (heads === groups) return mask
  const own = [heads, queries, keys]
  const isWhole = mask.spec.shape.slice(-3).every((size, d) => size === own[d])
  const whole = isWhole ? mask : make.expand(mask, [...lead, ...own])
  return make.reshape(whole, [...whole.spec.shape.slice(0, -3), groups, rows, keys])
}

/** Whether a query sees a key, as i32 that broadcasts to the scores; undefined where each sees all. */
const seenBy = (
  of: Differentiated,
  scores: FlowValue,
  sizes: Sizes,
  make: Backward,
): FlowValue | undefined => {
  const { causal, mask, length } = of.attrs
  const { queries, keys } = sizes
  const [, , , ...others] = of.inputs
  const rank = scores.spec.shape.length
  const along = (axis: number): FlowValue => make.apply(iotaOperator, scores, [], { axis })
  const there = length ? make.reshape(make.here(others.at(-1)!), []) : undefined
  const conditions: FlowValue[] = []
  if (causal) {
    const [row, key] = [along(rank - 2), along(rank - 1)]
    conditions.push(
      there === undefined
        ? make.map((i, j) => j.le(i.mod(queries).add(keys - queries)), row, key)
        : make.map((i, j, n) => j.le(i.mod(queries).sub(queries).add(n)), row, key, there),
    )
  }
  if (there !== undefined) conditions.push(make.map((j, n) => j.lt(n), along(rank - 1), there))
  if (mask) conditions.push(maskOf(others[0]!, sizes, make))
  return conditions.length === 0
    ? undefined
    : conditions.reduce((a, b) => make.map((x, y) => x.eq(0).select(0, y), make.here(a), b))
}

const orLeast = attrsOfCode([
  ['operand', 0],
  ['operand', 1],
  ['const', Number.NEGATIVE_INFINITY],
  ['select', 0, 1, 2],
])

/** The weights of the values, the gradient of the scores before their scale, and that of the result. */
interface Common {
  readonly weights: FlowValue
  readonly byScores: FlowValue
  readonly gradient: FlowValue
}

/** In an order in which all between the first two products and the last three can be one kernel. */
const commonOf = (
  of: Differentiated,
  gradient: FlowValue,
  q: FlowValue,
  sizes: Sizes,
  make: Backward,
): Common => {
  const [, k, v] = of.inputs as readonly [FlowValue, FlowValue, FlowValue]
  const { dtype } = q.spec
  const scale = of.attrs['scale'] as number
  const axes = [q.spec.shape.length - 1]
  const product = make.matmul(q, k, false, true, 'f32')
  const byWeights = make.cast(make.matmul(gradient, v, false, true), 'f32')
  const scores = make.map(s => s.mul(scale), product)
  const seen = seenBy(of, scores, sizes, make)
  const masked = make.here(seen ? make.apply(whereOperator, seen, [scores], orLeast) : scores)
  const weights = make.softmax(masked, axes)
  const narrow = make.cast(weights, dtype)
  const softmax = { op: 'softmax', attrs: { axes }, inputs: [masked], output: weights, lane: undefined }
  const [byScores] = softmaxRule(softmax, byWeights, make)
  const scaled = make.map(d => d.mul(scale), byScores!() as FlowValue)
  return { weights: narrow, byScores: make.cast(scaled, dtype), gradient }
}

export const attentionRule: Rule = (of, given, make) => {
  const [q, k] = of.inputs as readonly [FlowValue, FlowValue]
  const sizes = sizesOf(of, make)
  const { lead, groups, rows } = sizes
  const grouped = (x: FlowValue): FlowValue => make.reshape(x, [...lead, groups, rows, x.spec.shape.at(-1)!])
  let known: Common | undefined
  const common = (): Common =>
    (known ??= commonOf(of, grouped(make.whole(given, of.output)), grouped(q), sizes, make))
  return [
    () => make.reshape(make.matmul(common().byScores, k, false, false), q.spec.shape),
    () => make.matmul(common().byScores, grouped(q), true, false),
    () => make.matmul(common().weights, common().gradient, true, false),
  ]
}
