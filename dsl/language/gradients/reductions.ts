// Gradients of reductions, and of operators that are composed of them.

import type { Dim } from '../../ir/tensor.js'
import type { FlowValue } from '../builder.js'
import { cumsumOperator } from '../operators/cumsum.js'
import { gatherOperator } from '../operators/gather.js'
import { iotaOperator } from '../operators/iota.js'
import { oneHotOperator } from '../operators/one-hot.js'
import type { Backward, Differentiated, Rule } from './backward.js'
import { shared } from './extremes.js'

/** The axes that a reduction leaves out, or leaves with size 1. */
const axesOf = ({ attrs }: Differentiated): readonly number[] => {
  const { axis, count = 1 } = attrs as { readonly axis: number; readonly count?: number }
  return Array.from({ length: count }, (_, d) => axis + d)
}

/** A value of the reduction's result with the axes that it left out, each of size 1. */
const withAxes = (of: Differentiated, y: FlowValue, make: Backward): FlowValue => {
  const axes = axesOf(of)
  const rank = of.inputs[0]!.spec.shape.length
  if (y.spec.shape.length === rank) return y
  const own = [...y.spec.shape]
  const shape = Array.from({ length: rank }, (_, d): Dim => (axes.includes(d) ? 1 : own.shift()!))
  return make.reshape(y, shape)
}

/** The gradient divided by how many elements of x there are along the axes. */
const divided = (gradient: FlowValue, x: FlowValue, axes: readonly number[], make: Backward): FlowValue => {
  const sizes = axes.map(axis => x.spec.shape[axis]!)
  if (sizes.every(size => typeof size === 'number')) {
    const count = sizes.reduce((n, size) => n * size, 1)
    return count === 1 ? gradient : make.map(g => g.mul(1 / count), make.here(gradient))
  }
  const places = make.apply(iotaOperator, x, [], { axis: axes[0] })
  const ones = make.map(i => i.mul(0).add(1), places)
  const count = make.cast(make.reduce('sum', ones, axes), 'f32')
  const wide = make.map((g, n) => g.div(n), make.cast(gradient, 'f32'), count)
  return make.cast(wide, gradient.spec.dtype)
}

export const sumRule: Rule = (of, gradient, make) => [() => withAxes(of, make.here(gradient), make)]

export const meanRule: Rule = (of, gradient, make) => [
  () => divided(withAxes(of, make.here(gradient), make), of.inputs[0]!, axesOf(of), make),
]

/** Equal largest (or smallest) elements share the gradient. */
export const extremeRule: Rule = (of, gradient, make) => [
  () => {
    const y = withAxes(of, of.output, make)
    return shared(of.inputs[0]!, y, withAxes(of, gradient, make), make, picked =>
      make.reduce('sum', picked, axesOf(of)),
    )
  },
]

/** The sum of the gradient from each element to the end, which is added up from there. */
export const cumsumRule: Rule = ({ inputs: [x], attrs }, gradient, make) => [
  () => {
    const axis = attrs['axis'] as number
    const whole = make.here(make.whole(gradient, x!))
    const order = backwards(whole, axis, make)
    const turned = (y: FlowValue): FlowValue => make.apply(gatherOperator, y, [order], { axis })
    return turned(make.apply(cumsumOperator, turned(whole), [], attrs))
  },
]

/** The places along an axis from the last one to 0. */
const backwards = (x: FlowValue, axis: number, make: Backward): FlowValue => {
  const size = x.spec.shape[axis]!
  const row = x.spec.shape.reduce<FlowValue>((y, _, d) => (d === axis ? y : make.slice(y, d, 0, 1)), x)
  const places = make.reshape(make.apply(iotaOperator, row, [], { axis }), [size])
  if (typeof size === 'number') return make.map(i => i.neg().add(size - 1), places)
  const count = make.reduce(
    'sum',
    make.map(i => i.mul(0).add(1), places),
    [0],
  )
  return make.map((i, n) => n.sub(i).sub(1), places, count)
}

const axesIn = ({ attrs }: Differentiated): readonly number[] => attrs['axes'] as readonly number[]

/** The sum along the axes, of a gradient that may be the same along some of them. */
const sumAlong = (x: FlowValue, like: FlowValue, axes: readonly number[], make: Backward): FlowValue =>
  make.reduce('sum', make.here(make.whole(x, like)), axes)

export const softmaxRule: Rule = (of, gradient, make) => [
  () => {
    const { output } = of
    const product = make.map((p, g) => p.mul(g), make.here(output), gradient)
    return make.map(
      (p, g, t) => p.mul(g.sub(t)),
      make.here(output),
      gradient,
      make.reduce('sum', product, axesIn(of)),
    )
  },
]

export const logSoftmaxRule: Rule = (of, gradient, make) => [
  () =>
    make.map(
      (g, y, t) => g.sub(y.exp().mul(t)),
      make.here(gradient),
      of.output,
      sumAlong(gradient, of.output, axesIn(of), make),
    ),
]

/** The share of each element; of a row that is -Infinity everywhere, 0. */
export const logSumExpRule: Rule = ({ inputs: [x], output }, gradient, make) => [
  () => {
    const none = Number.NEGATIVE_INFINITY
    return make.map((a, y, g) => y.eq(none).select(0, a.sub(y).exp().mul(g)), make.here(x!), output, gradient)
  },
]

/** The share of each class, less 1 for the right one; of a row without one, 0. */
export const crossEntropyRule: Rule = ({ inputs: [x, label], output, attrs }, gradient, make) => [
  () => {
    const known = attrs as Readonly<Record<'classes' | 'most' | 'rest' | 'isClass', number>>
    const [most, rest, isClass] = [known.most, known.rest, known.isClass].map(id =>
      make.value(output.builder, id),
    ) as [FlowValue, FlowValue, FlowValue]
    const rows = make.reshape(label!, label!.spec.shape.slice(0, -1))
    const right = make.apply(oneHotOperator, rows, [], { classes: known.classes, to: 'f32' })
    return make.map(
      (a, m, r, hot, c, g) => c.gt(0).select(a.sub(m).sub(r).exp().sub(hot).mul(g), 0),
      make.here(x!),
      most,
      rest,
      right,
      isClass,
      gradient,
    )
  },
]

/**
 * Of `normalised`: x less its mean, if it has one, times a factor. What is read is x and two numbers a group,
 * since the value between is not stored.
 */
export const normRule: Rule = (of, gradient, make) => {
  const { attrs, inputs, output } = of
  const axes = axesIn(of)
  const [x, ...others] = inputs as [FlowValue, ...FlowValue[]]
  const { builder } = output
  const scale = attrs['scale'] === true ? others[0] : undefined
  const known = attrs as { readonly mean?: number; readonly factor: number }
  const factor = make.value(builder, known.factor)
  const mean = known.mean === undefined ? undefined : make.value(builder, known.mean)
  const normal = (): FlowValue =>
    mean === undefined
      ? make.map((a, f) => a.mul(f), make.here(x), factor)
      : make.map((a, m, f) => a.sub(m).mul(f), make.here(x), mean, factor)
  return [
    () => {
      const n = normal()
      const own = scale === undefined ? gradient : make.map((g, s) => g.mul(s), make.here(gradient), scale)
      const product = make.reduce(
        'mean',
        make.map((g, a) => g.mul(a), make.here(own), n),
        axes,
      )
      if (mean === undefined)
        return make.map((g, a, p, f) => g.sub(a.mul(p)).mul(f), make.here(own), n, product, factor)
      const middle = make.reduce('mean', make.here(make.whole(own, x)), axes)
      return make.map(
        (g, a, p, q, f) => g.sub(q).sub(a.mul(p)).mul(f),
        make.here(own),
        n,
        product,
        middle,
        factor,
      )
    },
    ...others.map(value => () => {
      const own = value === scale ? make.map((g, a) => g.mul(a), make.here(gradient), normal()) : gradient
      return make.summed(own, output, value.spec)
    }),
  ]
}
