import * as E from 'fp-ts/lib/Either.js'
import type { ReduceSpec } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import {
  type BoundSpec,
  type DType,
  elements,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { FlowValue } from '../builder.js'
import { badAttribute, dtypeMismatch, type UnplacedError } from '../messages.js'
import { type HostArray, hostArray, numbers, roundoff, writer } from '../values.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import type { Arithmetic } from './arithmetic.js'
import { isFloat } from './elementwise.js'
import type { Attrs, Operator } from './operator.js'
import type { Device, Reduced, Shape } from './types.js'

export interface ReduceOptions<A extends number = number, K extends boolean = boolean> {
  /** Counted from 0; negative from the end. */
  readonly axis: A
  /** Keep the axis, with size 1. */
  readonly keepDims?: K
}

/** An axis counted from 0, from one that may count from the end. */
export const axisOf = (axis: unknown, x: TensorSpec): E.Either<UnplacedError, number> => {
  const rank = x.shape.length
  const known = typeof axis === 'number' && Number.isInteger(axis) && axis >= -rank && axis < rank
  if (!known)
    return E.left(
      badAttribute(
        rank === 0 ? 'a value with at least one axis' : `an axis of ${showSpec(x)}: ${-rank} to ${rank - 1}`,
        rank === 0 ? showSpec(x) : show(axis),
        rank === 0 ? 'a scalar has nothing to go along' : 'count axes from 0, or from the end with -1',
      ),
    )
  return E.right(axis < 0 ? axis + rank : axis)
}

/** The attributes of a reduction's node, `{ axis, keepDims }`, from the caller's arguments. */
const reduceAttrs =
  (axis: unknown, keepDims: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, Attrs> => {
    if (keepDims !== undefined && typeof keepDims !== 'boolean')
      return E.left(badAttribute('keepDims: true or false', show(keepDims), 'give a boolean'))
    return E.map((known: number) => ({ axis: known, keepDims: keepDims === true }))(axisOf(axis, x))
  }

const spec = (how: ReduceSpec['how'], x: BoundSpec, output: DType, axis: number): ReduceSpec => ({
  kind: 'reduce',
  how,
  outer: elements(x.shape.slice(0, axis)),
  length: x.shape[axis] ?? 1,
  inner: elements(x.shape.slice(axis + 1)),
  input: x.dtype,
  output,
})

const run = (kernel: ReduceSpec, input: HostArray): HostArray => {
  const { how, outer, length, inner } = kernel
  const values = numbers(input, kernel.input)
  const result = hostArray(kernel.output, outer * inner)
  const write = writer(kernel.output)
  const whole = !isFloat(kernel.input)
  const picks = how === 'max' || how === 'min'
  // Floats are summed in f64 and rounded once: every order of f32 additions is close to that. Whole numbers
  // wrap. A NaN among the elements is the maximum and the minimum, as in PyTorch; -0 is less than +0.
  const join = picks
    ? how === 'max'
      ? Math.max
      : Math.min
    : whole
      ? (a: number, b: number) => (a + b) | 0
      : (a: number, b: number) => a + b
  for (let o = 0; o < outer; o++)
    for (let i = 0; i < inner; i++) {
      const base = o * length * inner + i
      let total = values[base]!
      for (let l = 1; l < length; l++) total = join(total, values[base + l * inner]!)
      if (how === 'mean') total /= length
      result[o * inner + i] = write(whole ? total : Math.fround(total))
    }
  return result
}

/** How many elements are added up. */
const lengthOf = (inputs: readonly BoundSpec[], attrs: Attrs): number =>
  inputs[0]?.shape[attrs['axis'] as number] ?? 1

/** A reduction along one axis. Sums of u8 are i32; means take floats only. */
export const reduction = (how: ReduceSpec['how']): Operator => ({
  name: how,
  infer: ([x], attrs) => {
    const { shape, dtype } = x ?? { shape: [], dtype: 'f32' as const }
    const axis = attrs['axis'] as number
    if (how === 'mean' && !isFloat(dtype))
      return E.left(dtypeMismatch('floats', showSpec({ shape, dtype }), "cast first: pipe(cast('f32'))"))
    const kept = attrs['keepDims'] === true
    return E.right({
      dtype: how === 'sum' && dtype === 'u8' ? 'i32' : dtype,
      shape: kept ? shape.map((size, d) => (d === axis ? 1 : size)) : shape.filter((_, d) => d !== axis),
    })
  },
  lower: (inputs, output, attrs) => {
    const x = inputs[0]!
    return {
      as: 'run',
      kernel: spec(how, x, output.dtype, attrs['axis'] as number),
      flops: elements(x.shape),
      movedBytes: tensorBytes(x) + tensorBytes(output),
      workspace: 0,
    }
  },
  reference: (inputs, specs, output, attrs) =>
    run(spec(how, specs[0]!, output.dtype, attrs['axis'] as number), inputs[0]!),
  tolerance: (output, inputs, attrs) =>
    how === 'max' || how === 'min' || !isFloat(output.dtype)
      ? 0
      : lengthOf(inputs, attrs) * roundoff.f32 + (output.dtype === 'f32' ? 0 : 2 * roundoff[output.dtype]),
  scale: ([x], inputs, attrs) => (how === 'mean' ? (x ?? 0) / lengthOf(inputs, attrs) : (x ?? 0)),
})

/** The public function of a reduction: of an axis and its options, or of one object with both. */
export const along =
  (operator: Operator) =>
  (axis: unknown, options?: { readonly keepDims?: unknown }): unknown => {
    const at = here()
    const given: Partial<Record<keyof ReduceOptions, unknown>> =
      typeof axis === 'object' && axis !== null ? axis : { axis, keepDims: options?.keepDims }
    return (x: unknown): unknown => apply(operator, at, x, [], reduceAttrs(given.axis, given.keepDims))
  }

/**
 * The public function of `min` and `max`: of two values where an operand is given, along an axis where
 * options are.
 */
export const extreme =
  (ofTwo: (operand: never) => unknown, ofAxis: Operator) =>
  (operand: unknown): unknown =>
    typeof operand === 'object' && operand !== null && !(operand instanceof FlowValue)
      ? along(ofAxis)(operand)
      : ofTwo(operand as never)

export interface Extreme extends Arithmetic {
  <const A extends number, const K extends boolean = false>(
    options: ReduceOptions<A, K>,
  ): <D extends DType, S extends Shape>(x: Device<D, S>) => Device<D, Reduced<S, A, K>>
}
