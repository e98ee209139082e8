// Gradients of matrix products and of rotary positions.

import { elements } from '../../ir/tensor.js'
import type { FlowValue } from '../builder.js'
import { iotaOperator } from '../operators/iota.js'
import { ropeOperator } from '../operators/rope.js'
import type { Backward, Rule } from './backward.js'

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
