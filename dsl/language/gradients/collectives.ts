// Gradients of collectives: of the sum of what all ranks compute. Each is made of collectives on the lane of
// the one before.

import type { FlowValue } from '../builder.js'
import { allGatherOperator } from '../operators/all-gather.js'
import { allReduceOperator } from '../operators/all-reduce.js'
import { allToAllOperator } from '../operators/all-to-all.js'
import type { GatherGradient } from '../operators/gather-gradient.js'
import type { Attrs, Operator } from '../operators/operator.js'
import type { ReduceOp } from '../operators/reduce-op.js'
import { reduceScatterOperator } from '../operators/reduce-scatter.js'
import { maxRank } from '../tensor.js'
import type { Backward, Differentiated, Rule } from './backward.js'
import { pickedOf, shared } from './extremes.js'

/** A value that is sent over the communicator and on the lane of the collective; the result is used here. */
const exchanged = (
  operator: Operator,
  { lane, attrs }: Differentiated,
  value: FlowValue,
  make: Backward,
  own: Attrs = {},
): FlowValue => {
  const given = { communicator: attrs['communicator'], ...own }
  return make.here(make.onLane(lane).apply(operator, value, [], given))
}

const sum: Attrs = { how: 'sum' }

const ranksOf = ({ attrs }: Differentiated): number =>
  (attrs['communicator'] as { readonly size: number }).size

const howOf = ({ attrs }: Differentiated): ReduceOp => attrs['how'] as ReduceOp

/** Equal extremes of several ranks share the gradient, as those of one rank do. */
const byExtreme = (of: Differentiated, gradient: FlowValue, make: Backward): FlowValue => {
  const total = exchanged(allReduceOperator, of, gradient, make, sum)
  return shared(of.inputs[0]!, of.output, total, make, picked =>
    exchanged(allReduceOperator, of, picked, make, sum),
  )
}

/** Values by place, each of which goes on by so many places; from the last one to the first. */
const turned = (x: FlowValue, by: number, ranks: number, make: Backward): FlowValue =>
  by % ranks === 0 ? x : make.concat([make.slice(x, 0, by, ranks), make.slice(x, 0, 0, by)], 0)

/**
 * Of values by place, the product of those of all other places. Hazard: the product of all by the value itself
 * is NaN at 0. So runs of places that follow each one are joined, twice as many at a time.
 */
const productOfOthers = (x: FlowValue, ranks: number, make: Backward): FlowValue => {
  let product: FlowValue | undefined
  let [run, length, next] = [make.cast(x, 'f32'), 1, 1]
  for (let rest = ranks - 1; rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) {
      const following = turned(run, next, ranks, make)
      product = product === undefined ? following : make.map((a, b) => a.mul(b), product, following)
      next += length
    }
    if (rest > 1) run = make.map((a, b) => a.mul(b), run, turned(run, length, ranks, make))
    length *= 2
  }
  return product!
}

/** The gradient times what it is of, in the type of the value. */
const times = (product: FlowValue, gradient: FlowValue, x: FlowValue, make: Backward): FlowValue => {
  const wide = make.map((p, g) => p.mul(g), make.here(product), make.cast(gradient, 'f32'))
  return make.cast(wide, x.spec.dtype)
}

/** Each rank has the values of all, and sends to each what its own gradient is by that one's value. */
const byProduct = (of: Differentiated, gradient: FlowValue, make: Backward): FlowValue => {
  const [x, ranks] = [of.inputs[0]!, ranksOf(of)]
  if (ranks === 1) return gradient
  const { shape } = x.spec
  const line = (y: FlowValue): FlowValue =>
    shape.length < maxRank ? y : make.reshape(y, [shape.reduce<number>((n, _, d) => n * make.size(y, d), 1)])
  const all = exchanged(allGatherOperator, of, line(x), make)
  const parts = times(productOfOthers(all, ranks, make), line(gradient), x, make)
  return make.reshape(exchanged(reduceScatterOperator, of, parts, make, sum), shape)
}

export const allReduceRule: Rule = (of, given, make) => [
  () => {
    const gradient = make.whole(given, of.output)
    const how = howOf(of)
    if (how === 'sum' || how === 'mean') return exchanged(allReduceOperator, of, gradient, make, { how })
    return how === 'product' ? byProduct(of, gradient, make) : byExtreme(of, gradient, make)
  },
]

/** By the communicator and lane of the gather, and in its type, where its option `gradient` says nothing else. */
export const allGatherRule: Rule = (of, given, make) => [
  () => {
    const { how = 'sum', dtype, communicator, lane } = (of.attrs['gradient'] ?? {}) as GatherGradient
    const [shard, gradient] = [of.inputs[0]!.spec.dtype, make.whole(given, of.output)]
    const by = { ...of, lane: lane ?? of.lane }
    const own = { how, ...(communicator === undefined ? {} : { communicator }) }
    const wide = make.cast(gradient, dtype ?? shard)
    return make.rounded(exchanged(reduceScatterOperator, by, wide, make, own), shard)
  },
]

/** What each place has of the extreme is divided there by how many ranks share it. */
const byScatteredExtreme = (of: Differentiated, gradient: FlowValue, make: Backward): FlowValue => {
  const x = of.inputs[0]!
  const picked = pickedOf(x, exchanged(allGatherOperator, of, of.output, make), make)
  const count = exchanged(reduceScatterOperator, of, picked, make, sum)
  const share = make.map((g, n) => g.div(n), make.cast(gradient, 'f32'), count)
  const all = exchanged(allGatherOperator, of, share, make)
  return make.cast(
    make.map((p, s) => p.select(s, 0), picked, all),
    x.spec.dtype,
  )
}

/** Each place has the values that it is a product of, and sends back what its gradient is by each. */
const byScatteredProduct = (of: Differentiated, gradient: FlowValue, make: Backward): FlowValue => {
  const x = of.inputs[0]!
  const all = exchanged(allToAllOperator, of, x, make)
  const parts = times(productOfOthers(all, ranksOf(of), make), gradient, x, make)
  return exchanged(allToAllOperator, of, parts, make)
}

export const reduceScatterRule: Rule = (of, given, make) => [
  () => {
    const [how, ranks] = [howOf(of), ranksOf(of)]
    const gradient = make.whole(given, of.output)
    if (ranks > 1 && how === 'product') return byScatteredProduct(of, gradient, make)
    if (ranks > 1 && (how === 'max' || how === 'min')) return byScatteredExtreme(of, gradient, make)
    const gathered = exchanged(allGatherOperator, of, gradient, make)
    return how === 'mean' ? make.map(g => g.mul(1 / ranks), gathered) : gathered
  },
]

export const allToAllRule: Rule = (of, gradient, make) => [
  () => exchanged(allToAllOperator, of, make.whole(gradient, of.output), make),
]
