// Gradients of convolutions and of pooling.

import type { BoundSpec } from '../../ir/tensor.js'
import type { FlowValue } from '../builder.js'
import { convOperator, convSpec } from '../operators/conv.js'
import { gatherOperator } from '../operators/gather.js'
import { iotaOperator } from '../operators/iota.js'
import type { Backward, Differentiated, Rule } from './backward.js'
import { shared } from './extremes.js'

/** 0, 1, 2, … up to a size that is at most that of the axis. */
const range = (like: FlowValue, axis: number, size: number, make: Backward): FlowValue => {
  const row = like.spec.shape.reduce<FlowValue>((x, _, d) => make.slice(x, d, 0, d === axis ? size : 1), like)
  return make.reshape(make.apply(iotaOperator, row, [], { axis }), [size])
}

const isLast = ({ attrs }: Differentiated): boolean => attrs['channels'] === 'last'

/** The order of axes with the channels second, and back. */
const toFirst = (rank: number): number[] => [
  0,
  rank - 1,
  ...Array.from({ length: rank - 2 }, (_, d) => d + 1),
]
const toLast = (rank: number): number[] => [0, ...Array.from({ length: rank - 2 }, (_, d) => d + 2), 1]

/** The elements along an axis with zeros between them, as many as a stride leaves out. */
const spread = (x: FlowValue, axis: number, stride: number, make: Backward): FlowValue => {
  if (stride === 1) return x
  const { shape } = x.spec
  const size = make.size(x, axis)
  const [before, after] = [shape.slice(0, axis), shape.slice(axis + 1)]
  const apart = make.pad(make.reshape(x, [...before, size, 1, ...after]), axis + 1, 0, stride - 1)
  return make.slice(
    make.reshape(apart, [...before, size * stride, ...after]),
    axis,
    0,
    (size - 1) * stride + 1,
  )
}

/** [parts · a, b, …] as [parts · b, a, …]: within each part a and b change places. */
const crossed = (x: FlowValue, parts: number, make: Backward): FlowValue => {
  const [first, second, ...rest] = x.spec.shape as [number, number, ...number[]]
  const own = make.reshape(x, [parts, first / parts, second, ...rest])
  const moved = make.transpose(own, [0, 2, 1, ...rest.map((_, d) => d + 3)])
  return make.reshape(moved, [parts * second, first / parts, ...rest])
}

export const convRule: Rule = (of, given, make) => {
  const { inputs, output, attrs } = of
  const rank = output.spec.shape.length
  const moved = (x: FlowValue): FlowValue => (isLast(of) ? make.transpose(x, toFirst(rank)) : x)
  const back = (x: FlowValue): FlowValue => (isLast(of) ? make.transpose(x, toLast(rank)) : x)
  const [x, w] = inputs as [FlowValue, FlowValue]
  const groups = attrs['groups'] as number
  const spatial = () => {
    const first = isLast(of) ? 1 : 2
    for (let d = first; d < first + rank - 2; d++) make.size(x, d)
    return convSpec(x.spec as BoundSpec, w.spec as BoundSpec, attrs).spatial
  }
  const convolved = (
    a: FlowValue,
    b: FlowValue,
    stride: readonly number[],
    dilation: readonly number[],
  ): FlowValue => make.apply(convOperator, a, [b], { stride, padding: stride.map(() => 0), dilation, groups })
  return [
    () => {
      const dims = spatial()
      let gradient = moved(make.whole(given, output))
      let weight = crossed(moved(w), groups, make)
      for (const [d, { input, kernel, stride, dilation, before }] of dims.entries()) {
        gradient = spread(gradient, d + 2, stride, make)
        const length = make.size(gradient, d + 2)
        gradient = make.pad(gradient, d + 2, dilation * (kernel - 1) - before, input - length + before)
        if (kernel === 1) continue
        const order = make.map(i => i.neg().add(kernel - 1), range(weight, d + 2, kernel, make))
        weight = make.apply(gatherOperator, weight, [order], { axis: d + 2 })
      }
      const ones = dims.map(() => 1)
      return back(
        convolved(
          gradient,
          weight,
          ones,
          dims.map(({ dilation }) => dilation),
        ),
      )
    },
    () => {
      const dims = spatial()
      const gradient = moved(make.whole(given, output))
      // Channels take the place of the batch, whose images are added up as channels are.
      const swapped = (value: FlowValue): FlowValue =>
        make.transpose(value, [1, 0, ...dims.map((_, d) => d + 2)])
      const padded = dims.reduce(
        (value, { before, after }, d) => make.pad(value, d + 2, before, after),
        moved(x),
      )
      const values = groups === 1 ? swapped(padded) : swapped(byGroups(padded, groups, make))
      const products = convolved(
        values,
        swapped(gradient),
        dims.map(({ dilation }) => dilation),
        dims.map(({ stride }) => stride),
      )
      const whole = dims.reduce((value, { kernel }, d) => make.slice(value, d + 2, 0, kernel), products)
      return back(swapped(whole))
    },
  ]
}

/** [batch, groups · channels, …] as [groups · batch, channels, …]. */
const byGroups = (x: FlowValue, groups: number, make: Backward): FlowValue => {
  const batch = make.size(x, 0)
  const [, channels, ...rest] = x.spec.shape as [number, number, ...number[]]
  const parts = make.reshape(x, [batch, groups, channels / groups, ...rest])
  const moved = make.transpose(parts, [1, 0, ...[channels, ...rest].map((_, d) => d + 2)])
  return make.reshape(moved, [groups * batch, channels / groups, ...rest])
}

/** Equal largest elements of a kernel's place share its gradient. */
export const poolRule: Rule = (of, given, make) => [
  () => {
    const { inputs, output, attrs } = of
    const x = inputs[0]!
    const { how, kernel, stride } = attrs as {
      readonly how: 'max' | 'mean'
      readonly kernel: readonly number[]
      readonly stride: readonly number[]
    }
    const first = isLast(of) ? 1 : 2
    const gradient = make.whole(given, output)
    const indices = kernel.map((size, d) => {
      const axis = first + d
      const inner = make.reshape(range(x, axis, size, make), [size, 1])
      const outer = range(output, axis, make.size(output, axis), make)
      return make.map((k, o) => o.mul(stride[d]!).add(k), inner, outer)
    })
    /** A value of each place, beside the elements of the kernel there. */
    const beside = (y: FlowValue): FlowValue =>
      make.reshape(
        y,
        y.spec.shape.flatMap((size, d) => (d >= first && d < first + kernel.length ? [1, size] : [size])),
      )
    const axes = kernel.map((_, d) => first + 2 * d)
    const elementsOf = (): FlowValue =>
      indices.reduce(
        (value, order, d) => make.apply(gatherOperator, value, [order], { axis: axes[d]! }),
        make.here(x),
      )
    const shares = (): FlowValue => {
      if (how === 'mean') {
        const count = kernel.reduce((n, size) => n * size, 1)
        const each = make.map(g => g.mul(1 / count), beside(gradient))
        return make.expand(
          each,
          each.spec.shape.map((size, d) => (axes.includes(d) ? kernel[axes.indexOf(d)]! : size)),
        )
      }
      return shared(elementsOf(), beside(output), beside(gradient), make, picked =>
        axes.reduce((value, axis) => make.reduce('sum', value, [axis]), picked),
      )
    }
    return indices.reduceRight(
      (value, order, d) => make.addRows(value, order, { axis: axes[d]!, size: make.size(x, first + d) }),
      shares(),
    )
  },
]
