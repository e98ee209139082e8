// Gradients of operators that read elements by indices: each element's gradient goes to where it came from.

import { elements } from '../../ir/tensor.js'
import type { FlowValue } from '../builder.js'
import { gatherOperator } from '../operators/gather.js'
import { iotaOperator } from '../operators/iota.js'
import type { Backward, Rule } from './backward.js'

export const gatherRule: Rule = ({ inputs: [x, indices], output, attrs }, gradient, make) => [
  () => {
    const axis = attrs['axis'] as number
    const given = { axis, size: make.size(x!, axis) }
    return make.addRows(make.whole(gradient, output), indices!, given)
  },
]

export const scatterAddRule: Rule = ({ inputs: [, indices], output, attrs }, gradient, make) => [
  () => {
    const { axis } = attrs as { readonly axis: number }
    return make.apply(gatherOperator, make.whole(gradient, output), [indices!], { axis })
  },
]

/** The place of each element that `takeAlong` reads, among all elements of x in a row; -1 outside of x. */
const placesAlong = (x: FlowValue, indices: FlowValue, axis: number, make: Backward): FlowValue => {
  const sizes = x.spec.shape.map((_, d) => make.size(x, d))
  const inner = elements(sizes.slice(axis + 1))
  const index = make.map(
    i => i.ge(0).select(i.lt(sizes[axis]!).select(i.mul(inner), -1), -1),
    make.here(indices),
  )
  return sizes.reduce((places, _, d) => {
    if (d === axis) return places
    const step = elements(sizes.slice(d + 1))
    const own = make.apply(iotaOperator, indices, [], { axis: d })
    return make.map((p, i) => p.lt(0).select(-1, p.add(i.mul(step))), make.here(places), own)
  }, index)
}

export const takeAlongRule: Rule = ({ inputs: [x, indices], output, attrs }, gradient, make) => [
  () => {
    const places = placesAlong(x!, indices!, attrs['axis'] as number, make)
    const [values, order] = [make.whole(gradient, output), places].map(each =>
      make.reshape(each, [elements(each.spec.shape as readonly number[])]),
    ) as [FlowValue, FlowValue]
    const size = elements(x!.spec.shape as readonly number[])
    return make.reshape(make.addRows(values, order, { axis: 0, size }), x!.spec.shape)
  },
]
