// Gradients of matrix products, of attention, and of rotary positions.

import { elements } from '../../ir/tensor.js'
import type { FlowValue } from '../builder.js'
import { attrsOfCode } from '../operators/code.js'
import { iotaOperator } from '../operators/iota.js'
import { ropeOperator } from '../operators/rope.js'
import { whereOperator } from '../operators/where.js'
import type { Backward, Rule } from './backward.js'
import { softmaxRule } from './reductions.js'

/** The rows of all matrices as those of one; undefined where a leading size is a symbol. */
const asOne = (x: FlowValue, make: Backward): FlowValue | undefined => {
  const lead = x.spec.shape.slice(0, -1)
  return lead.every(size => typeof size === 'number')
    ? make.reshape(x, [elements(lead), x.spec.shape.at(-1)!])
    : undefined
}

export const matmulRule: Rule = ({ inputs, output, attrs }, given, make) => {
  const [x, w] = inputs as [FlowValue, FlowValue]
  const { transpose, transposeX = false } = attrs as {
    readonly transpose: boolean
    readonly transposeX?: boolean
  }
  const whole = () => make.cast(make.whole(given, output), x.spec.dtype)
  // A product for each of the leading dimensions; those along which a matrix is shared are added up.
  const toShape = (gradient: FlowValue, value: FlowValue): FlowValue =>
    make.summed(gradient, gradient, value.spec)
  const byWeight = (a: FlowValue, g: FlowValue): FlowValue =>
    transpose ? make.matmul(g, a, true, transposeX) : make.matmul(a, g, !transposeX, false)
  return [
    () =>
      toShape(
        transposeX ? make.matmul(w, whole(), transpose, true) : make.matmul(whole(), w, false, !transpose),
        x,
      ),
    () => {
      const gradient = whole()
      const isShared = w.spec.shape.slice(0, -2).every(size => size === 1)
      const [tall, tallG] = isShared && !transposeX ? [asOne(x, make), asOne(gradient, make)] : []
      const made = tall && tallG ? byWeight(tall, tallG) : byWeight(x, gradient)
      return tall && tallG ? make.reshape(made, w.spec.shape) : toShape(made, w)
    },
  ]
}

/** Turned back: by the positions with the other sign. */
export const ropeRule: Rule = ({ inputs: [x, , positions], output, attrs }, given, make) => [
  () => {
    const gradient = make.whole(given, output)
    const rank = x!.spec.shape.length
    const own =
      positions ?? make.apply(iotaOperator, make.slice(make.here(x!), rank - 1, 0, 1), [], { axis: rank - 2 })
    const back = make.map(
      p => p.neg(),
      make.here(positions ?? make.reshape(own, own.spec.shape.slice(0, -1))),
    )
    return make.apply(ropeOperator, gradient, [gradient, back], attrs)
  },
]

const orLeast = attrsOfCode([
  ['operand', 0],
  ['operand', 1],
  ['const', Number.NEGATIVE_INFINITY],
  ['select', 0, 1, 2],
])

interface AttentionAttrs {
  readonly causal: boolean
  readonly scale: number
  readonly mask?: true
  readonly length?: true
}

/**
 * The weights of the values are computed again, in f32, and stored: queries by keys. The heads that share
 * keys are rows of one matrix, so that their gradients are added up by its products.
 */
export const attentionRule: Rule = ({ inputs, output, attrs }, given, make) => {
  const { causal, scale, mask, length } = attrs as unknown as AttentionAttrs
  const [q, k, v, ...others] = inputs as [FlowValue, FlowValue, FlowValue, ...FlowValue[]]
  const rank = q.spec.shape.length
  const [heads, queries, groups, keys] = [
    make.size(q, rank - 3),
    make.size(q, rank - 2),
    make.size(k, rank - 3),
    make.size(k, rank - 2),
  ]
  const lead = q.spec.shape.slice(0, -3)
  const { dtype } = q.spec
  const rows = (heads / groups) * queries
  /** [..., heads, queries, n] as [..., groups, rows, n]. */
  const grouped = (x: FlowValue): FlowValue => make.reshape(x, [...lead, groups, rows, x.spec.shape.at(-1)!])
  const count = length ? others.at(-1) : undefined

  /** Whether a query sees a key, by i32 that broadcasts to [..., groups, rows, keys]. */
  const seen = (scores: FlowValue): FlowValue | undefined => {
    const conditions: FlowValue[] = []
    const along = (axis: number) => make.apply(iotaOperator, scores, [], { axis })
    const there = count && make.reshape(make.here(count), [])
    if (causal) {
      const [row, key] = [along(rank - 2), along(rank - 1)]
      conditions.push(
        there === undefined
          ? make.map((i, j) => j.le(i.mod(queries).add(keys - queries)), row, key)
          : make.map((i, j, n) => j.le(i.mod(queries).sub(queries).add(n)), row, key, there),
      )
    }
    if (there !== undefined) conditions.push(make.map((j, n) => j.lt(n), along(rank - 1), there))
    if (mask) {
      const own = make.cast(others[0]!, 'i32')
      const full = [...lead, heads, queries, keys]
      const isEach = own.spec.shape.slice(-3).every((size, d) => size === full.slice(-3)[d])
      const expanded = heads === groups || isEach ? own : make.expand(own, full as number[])
      conditions.push(
        heads === groups
          ? expanded
          : make.reshape(expanded, [...expanded.spec.shape.slice(0, -3), groups, rows, keys]),
      )
    }
    return conditions.length === 0
      ? undefined
      : conditions.reduce((a, b) => make.map((x, y) => x.eq(0).select(0, y), make.here(a), b))
  }

  let known: readonly [weights: FlowValue, byScores: FlowValue, gradient: FlowValue] | undefined
  const common = (): NonNullable<typeof known> => {
    if (known !== undefined) return known
    // In this order what lies between the first two products and the last three can be one kernel.
    const gradient = grouped(make.whole(given, output))
    const product = make.matmul(grouped(q), k, false, true, 'f32')
    const byWeights = make.cast(make.matmul(gradient, v, false, true), 'f32')
    const scores = make.map(s => s.mul(scale), product)
    const condition = seen(scores)
    const masked = condition ? make.apply(whereOperator, condition, [scores], orLeast) : scores
    const weights = make.softmax(make.here(masked), [rank - 1])
    const narrow = make.cast(weights, dtype)
    const [byScores] = softmaxRule(
      { op: 'softmax', attrs: { axes: [rank - 1] }, inputs: [masked], output: weights, lane: undefined },
      byWeights,
      make,
    ).map(by => make.map(d => d.mul(scale), by!() as FlowValue)) as [FlowValue]
    known = [narrow, make.cast(byScores, dtype), gradient]
    return known
  }
  return [
    () => make.reshape(make.matmul(common()[1], k, false, false), q.spec.shape),
    () => make.matmul(common()[1], grouped(q), true, false),
    () => make.matmul(common()[0], common()[2], true, false),
  ]
}
