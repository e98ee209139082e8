import * as E from 'fp-ts/lib/Either.js'
import type { Where } from '../../ir/graph.js'
import type { ScatterAddSpec } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import {
  type BoundSpec,
  type DType,
  elements,
  isFloat,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { FlowValue } from '../builder.js'
import { badAttribute, dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { hostArray, numbers, roundoff, writer } from '../values.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { composed } from './composition.js'
import type { Indices } from './gather.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import { axisOf } from './reduce.js'
import { product, reshapeOperator } from './reshape.js'
import { topKOperator } from './top-k.js'
import type { AxesFrom0, Device, Shape } from './types.js'

interface Scattered {
  readonly axis: number
  readonly size: number
}

const scattered = (attrs: Attrs): Scattered => attrs as unknown as Scattered

const infer = ([x, indices]: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> => {
  const { axis, size } = scattered(attrs)
  if (indices!.dtype !== 'i32')
    return E.left(dtypeMismatch('indices of i32', showSpec(indices!), "cast them: pipe(cast('i32'))"))
  const { shape } = x!
  const end = axis + indices!.shape.length
  const fits = end <= shape.length && indices!.shape.every((own, d) => own === shape[axis + d])
  if (!fits)
    return E.left(
      shapeMismatch(
        `indices of the shape that the value has from axis ${axis} on`,
        `${showSpec(x!)} by ${showSpec(indices!)}`,
        'reshape one of them: each row of the value has one index',
      ),
    )
  return E.right({
    dtype: x!.dtype === 'u8' ? 'i32' : x!.dtype,
    shape: [...shape.slice(0, axis), size, ...shape.slice(end)],
  })
}

const spec = (x: BoundSpec, indices: BoundSpec, output: BoundSpec, attrs: Attrs): ScatterAddSpec => {
  const { axis, size } = scattered(attrs)
  return {
    kind: 'scatterAdd',
    outer: elements(x.shape.slice(0, axis)),
    length: size,
    inner: elements(x.shape.slice(axis + indices.shape.length)),
    count: elements(indices.shape),
    input: x.dtype,
    output: output.dtype,
  }
}

/** The sums of the rows of each index. The third input: the places of the rows in the order of the indices. */
export const scatterAddOperator: Operator = {
  name: 'scatterAdd',
  infer,
  lower: ([x, indices], output, attrs) => ({
    as: 'run',
    kernel: spec(x!, indices!, output, attrs),
    flops: elements(x!.shape),
    movedBytes: tensorBytes(x!) + 2 * tensorBytes(indices!) + tensorBytes(output),
    workspace: 0,
  }),
  withEmpty: () => 0,
  // Floats are added in f64 and rounded once; whole numbers wrap.
  reference: ([given, places], [x, indices], output, attrs) => {
    const { outer, length, inner, count, input } = spec(x!, indices!, output, attrs)
    const values = numbers(given!, input)
    const floats = isFloat(input)
    const totals = floats ? new Float64Array(outer * length * inner) : new Int32Array(outer * length * inner)
    for (let o = 0; o < outer; o++)
      for (let j = 0; j < count; j++) {
        const index = places![j]!
        if (index < 0 || index >= length) continue
        for (let i = 0; i < inner; i++)
          totals[(o * length + index) * inner + i]! += values[(o * count + j) * inner + i]!
      }
    const result = hostArray(output.dtype, totals.length)
    const write = writer(output.dtype)
    for (let i = 0; i < totals.length; i++) result[i] = write(floats ? Math.fround(totals[i]!) : totals[i]!)
    return result
  },
  tolerance: ({ dtype }) => (isFloat(dtype) ? 2 * roundoff[dtype] : 0),
  scale: ([x]) => x ?? 0,
}

const sized = (options: unknown): E.Either<UnplacedError, number> => {
  const { size } = named(options)
  return Number.isInteger(size) && (size as number) >= 0 && (size as number) < 2 ** 31
    ? E.right(size as number)
    : E.left(
        badAttribute(
          'size: how many rows the result has, a whole number from 0 to 2,147,483,647',
          show(size),
          'as in scatterAdd(tokens, { axis: 0, size: 50257 })',
        ),
      )
}

const attrsOf =
  (options: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, Attrs> =>
    E.chain((axis: number) => E.map(size => ({ axis, size }))(sized(options)))(
      axisOf(named(options)['axis'], x),
    )

/** The shape without the axes of R from one on. */
type Without<S extends Shape, R extends Shape> = R extends readonly [unknown, ...infer Q extends Shape]
  ? S extends readonly [unknown, ...infer T extends Shape]
    ? Without<T, Q>
    : Shape
  : S

/** The shape with N in place of the axes of R, which begin at axis A. */
type WithRows<
  S extends Shape,
  A extends number,
  R extends Shape,
  N extends number,
  Seen extends readonly unknown[] = [],
> = number extends S['length']
  ? Shape
  : number extends R['length']
    ? Shape
    : number extends A
      ? Shape
      : Seen['length'] extends A
        ? readonly [N, ...Without<S, R>]
        : S extends readonly [infer X extends Shape[number], ...infer T extends Shape]
          ? readonly [X, ...WithRows<T, A, R, N, [...Seen, 0]>]
          : Shape

/** The node of a sum of rows by their indices, and of the order of the indices. */
export const rowsAdded = (at: Where, x: FlowValue, indices: FlowValue, attrs: Attrs): FlowValue => {
  const { builder, id, spec, place } = indices
  // On the lane of the rows, which are what is piped.
  const given = new FlowValue(builder, id, spec, place, x.hint)
  const isLine = spec.shape.length === 1
  if (!isLine && spec.shape.some(size => typeof size === 'string'))
    builder.report(
      at,
      'scatterAdd',
      shapeMismatch(
        'indices of one dimension, or whose sizes are numbers',
        showSpec(spec),
        'reshape the rows and the indices to one dimension',
      ),
    )
  const line = isLine ? given : apply(reshapeOperator, at, given, [], { shape: [product(spec.shape)] })
  const order = apply(topKOperator, at, line, [], { axis: 0, largest: false })
  const others = [
    ['the indices', given],
    ['their order', order],
  ] as const
  return apply(scatterAddOperator, at, x, others, attrs)
}

/**
 * Sums of the rows of a value by an index for each: x[…, i, j, …] by indices of shape [i, j] is
 * […, size, …], row n of which is the sum of the rows whose index is n, and 0 where there is none
 * (torch.index_add, jax.ops.segment_sum). It is the gradient of `gather` and `embedding`:
 * `rows.pipe(scatterAdd(tokens, { axis: 0, size: vocabulary }))`. Indices are of i32; a row whose index is
 * below 0, or not below the size, is not added.
 *
 * The rows of one index are added in f64, always in the same order, and rounded once; whole numbers wrap, and
 * sums of u8 are i32.
 */
export const scatterAdd = <I extends DType, R extends Shape, const A extends number, const N extends number>(
  indices: Device<I, R> & Indices<I>,
  options: { readonly axis: A; readonly size: N },
) => {
  const at = here()
  const name = 'scatterAdd'
  const settings = withOptions(options, ['axis', 'size'], attrsOf(options))
  return composed(name, at, settings, (_, x, attrs) =>
    rowsAdded(at, x, x.builder.take(indices, 'device', at, name, 'the indices'), attrs),
  ) as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S>,
  ) => Device<D extends 'u8' ? 'i32' : D, WithRows<S, AxesFrom0<S, A>, R, N>>
}
