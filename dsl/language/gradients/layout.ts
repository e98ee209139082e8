// Gradients of operators that move elements and compute nothing.

import type { FlowValue } from '../builder.js'
import type { Backward, Rule, Within } from './backward.js'

export const sameRule: Rule = (_of, gradient) => [() => gradient]

export const castRule: Rule = ({ inputs: [x] }, gradient, make) => [
  () => make.following(make.castOf(gradient, x!.spec.dtype), gradient),
]

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

export const sliceRule: Rule = ({ output, attrs }, gradient, make) => [
  () => {
    const { axis, from, to } = attrs as { readonly axis: number; readonly from: number; readonly to: number }
    return { axis, from, to, gradient: make.whole(gradient, output) }
  },
]

/** The gradient of a value from those of parts of it: one after the other, with zeros between, or added up. */
export const fromParts = (parts: readonly Within[], x: FlowValue, make: Backward): FlowValue => {
  const ordered = parts.toSorted((a, b) => a.from - b.from)
  const axis = ordered[0]!.axis
  const size = make.size(x, axis)
  const apart = ordered.every((part, i) => part.axis === axis && (i === 0 || ordered[i - 1]!.to <= part.from))
  if (!apart)
    return parts
      .map(part => make.pad(part.gradient, part.axis, part.from, make.size(x, part.axis) - part.to))
      .reduce((a, b) => make.add(a, b))
  const padded = ordered.map(({ from, to, gradient }, i) =>
    make.pad(gradient, axis, i === 0 ? from : 0, (ordered[i + 1]?.from ?? size) - to),
  )
  return make.concat(padded, axis)
}

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
