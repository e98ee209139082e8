// Gradients of collectives: of the sum of what all ranks compute. Each is a collective on the lane of the
// one before.

import type { FlowValue } from '../builder.js'
import { allGatherOperator } from '../operators/all-gather.js'
import { allReduceOperator } from '../operators/all-reduce.js'
import { allToAllOperator } from '../operators/all-to-all.js'
import type { Attrs, Operator } from '../operators/operator.js'
import { reduceScatterOperator } from '../operators/reduce-scatter.js'
import type { Backward, Differentiated, Rule } from './backward.js'

const exchanged = (
  operator: Operator,
  { lane, attrs, output }: Differentiated,
  gradient: FlowValue,
  make: Backward,
  own: Attrs,
): FlowValue => {
  const given = { communicator: attrs['communicator'], ...own }
  return make.onLane(lane).apply(operator, make.whole(gradient, output), [], given)
}

/** A mean is of that many ranks. */
const ranksOf = ({ attrs }: Differentiated): number =>
  (attrs['communicator'] as { readonly size: number }).size

export const allReduceRule: Rule = (of, gradient, make) => [
  () => exchanged(allReduceOperator, of, gradient, make, { how: of.attrs['how'] }),
]

export const allGatherRule: Rule = (of, gradient, make) => [
  () => exchanged(reduceScatterOperator, of, gradient, make, { how: 'sum' }),
]

export const reduceScatterRule: Rule = (of, gradient, make) => [
  () => {
    const gathered = exchanged(allGatherOperator, of, gradient, make, {})
    return of.attrs['how'] === 'mean' ? make.map(g => g.mul(1 / ranksOf(of)), make.here(gathered)) : gathered
  },
]

export const allToAllRule: Rule = (of, gradient, make) => [
  () => exchanged(allToAllOperator, of, gradient, make, {}),
]
