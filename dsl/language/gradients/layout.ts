// Gradients of operators that move elements and compute nothing.

import type { Rule } from './backward.js'

export const sameRule: Rule = (_of, gradient) => [() => gradient]

export const castRule: Rule = ({ inputs: [x] }, gradient, make) => [() => make.cast(gradient, x!.spec.dtype)]

export const reshapeRule: Rule = ({ inputs: [x], output }, gradient, make) => [
  () => make.reshape(make.whole(gradient, output), x!.spec.shape),
]

export const transposeRule: Rule = ({ attrs }, gradient, make) => [
  () => {
    const axes = attrs['axes'] as readonly number[]
    return make.transpose(
      gradient,
      axes.map((_, d) => axes.indexOf(d)),
    )
  },
]

export const expandRule: Rule = ({ inputs: [x], output }, gradient, make) => [
  () => make.summed(gradient, output, x!.spec),
]

export const sliceRule: Rule = ({ inputs: [x], output, attrs }, gradient, make) => [
  () => {
    const { axis, from, to } = attrs as { readonly axis: number; readonly from: number; readonly to: number }
    const size = make.size(x!, axis)
    return make.pad(make.whole(gradient, output), axis, from, size - to)
  },
]

export const padRule: Rule = ({ inputs: [x], output, attrs }, gradient, make) => [
  () => {
    const { axis, before } = attrs as { readonly axis: number; readonly before: number }
    const size = make.size(x!, axis)
    return make.slice(make.whole(gradient, output), axis, before, before + size)
  },
]

export const concatRule: Rule = ({ inputs, output, attrs }, gradient, make) => {
  const axis = attrs['axis'] as number
  let from = 0
  return inputs.map(x => {
    const [start, size] = [from, make.size(x, axis)]
    from += size
    return () => make.slice(make.whole(gradient, output), axis, start, start + size)
  })
}
