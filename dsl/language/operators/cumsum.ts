import * as E from 'fp-ts/lib/Either.js'
import type { ScanSpec } from '../../ir/kernel-spec.js'
import { type BoundSpec, type DType, elements, isFloat, tensorBytes } from '../../ir/tensor.js'
import { hostArray, numbers, roundoff, writer } from '../values.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import { axisOf, termsInTurn } from './reduce.js'
import type { Device, Shape } from './types.js'

const spec = (x: BoundSpec, output: BoundSpec, attrs: Attrs): ScanSpec => {
  const axis = attrs['axis'] as number
  return {
    kind: 'scan',
    outer: elements(x.shape.slice(0, axis)),
    length: x.shape[axis]!,
    inner: elements(x.shape.slice(axis + 1)),
    input: x.dtype,
    output: output.dtype,
  }
}

export const cumsumOperator: Operator = {
  name: 'cumsum',
  infer: ([x]) => E.right({ dtype: x!.dtype === 'u8' ? 'i32' : x!.dtype, shape: x!.shape }),
  lower: ([x], output, attrs) => ({
    as: 'run',
    kernel: spec(x!, output, attrs),
    flops: elements(x!.shape),
    movedBytes: tensorBytes(x!) + tensorBytes(output),
    workspace: 0,
  }),
  // Floats are added in f64 and rounded once an element; whole numbers wrap.
  reference: ([given], [x], output, attrs) => {
    const { outer, length, inner, input } = spec(x!, output, attrs)
    const values = numbers(given!, input)
    const result = hostArray(output.dtype, values.length)
    const write = writer(output.dtype)
    const add = isFloat(input) ? (a: number, b: number) => a + b : (a: number, b: number) => (a + b) | 0
    for (let o = 0; o < outer; o++)
      for (let i = 0; i < inner; i++) {
        let total = 0
        for (let l = 0; l < length; l++) {
          const at = (o * length + l) * inner + i
          total = add(total, values[at]!)
          result[at] = write(isFloat(input) ? Math.fround(total) : total)
        }
      }
    return result
  },
  tolerance: (output, [x], attrs) => {
    if (!isFloat(output.dtype)) return 0
    const { length, inner } = spec(x!, output, attrs)
    return (
      termsInTurn(length, inner === 1) * roundoff.f32 +
      (output.dtype === 'f32' ? 0 : 2 * roundoff[output.dtype])
    )
  },
  scale: ([x]) => x ?? 0,
}

/**
 * Along an axis, the sum of the elements up to and with each one: `cumsum({ axis: 1 })` (numpy.cumsum,
 * torch.cumsum), accumulated in f32 or wider; sums of u8 are i32, and whole numbers wrap.
 */
export const cumsum = (options: { readonly axis: number }) => {
  const at = here()
  const summed = (x: unknown): unknown =>
    apply(
      cumsumOperator,
      at,
      x,
      [],
      withOptions(options, ['axis'], given =>
        E.map(axis => ({ axis }))(axisOf(named(options)['axis'], given)),
      ),
    )
  return summed as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S>,
  ) => Device<D extends 'u8' ? 'i32' : D, S>
}
