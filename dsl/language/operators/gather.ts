import * as E from 'fp-ts/lib/Either.js'
import type { GatherSpec } from '../../ir/kernel-spec.js'
import {
  type BoundSpec,
  type DType,
  elements,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { FlowValue } from '../builder.js'
import { dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { maxRank } from '../tensor.js'
import { hostArray } from '../values.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { composed } from './composition.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import { axisOf } from './reduce.js'
import type { AxesFrom0, Device, Invalid, Shape } from './types.js'

const infer = ([x, indices]: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> => {
  const axis = attrs['axis'] as number
  if (indices!.dtype !== 'i32')
    return E.left(dtypeMismatch('indices of i32', showSpec(indices!), "cast them: pipe(cast('i32'))"))
  const shape = [...x!.shape.slice(0, axis), ...indices!.shape, ...x!.shape.slice(axis + 1)]
  return shape.length > maxRank
    ? E.left(
        shapeMismatch(
          `a result of at most ${maxRank} dimensions`,
          `${showSpec(x!)} by ${showSpec(indices!)}: ${shape.length}`,
          'reshape the indices to fewer dimensions',
        ),
      )
    : E.right({ dtype: x!.dtype, shape })
}

const gatherSpec = (x: BoundSpec, indices: BoundSpec, attrs: Attrs): GatherSpec => {
  const axis = attrs['axis'] as number
  return {
    kind: 'gather',
    outer: elements(x.shape.slice(0, axis)),
    length: x.shape[axis]!,
    inner: elements(x.shape.slice(axis + 1)),
    count: elements(indices.shape),
    dtype: x.dtype,
  }
}

/** Rows of a value by indices along an axis; zeros for an index outside of the axis. */
export const gatherOperator: Operator = {
  name: 'gather',
  infer,
  lower: ([x, indices], output, attrs) => ({
    as: 'run',
    kernel: gatherSpec(x!, indices!, attrs),
    flops: 0,
    movedBytes: 2 * tensorBytes(output) + tensorBytes(indices!),
    workspace: 0,
  }),
  withEmpty: () => 0,
  reference: ([values, places], [x, indices], output, attrs) => {
    const { outer, length, inner, count } = gatherSpec(x!, indices!, attrs)
    const result = hostArray(output.dtype, outer * count * inner)
    for (let o = 0; o < outer; o++)
      for (let j = 0; j < count; j++) {
        const index = places![j]!
        if (index < 0 || index >= length) continue
        const from = (o * length + index) * inner
        result.set(values!.subarray(from, from + inner), (o * count + j) * inner)
      }
    return result
  },
  tolerance: () => 0,
}

export type Indices<I extends DType> = [I] extends ['i32']
  ? unknown
  : Invalid<"indices are of i32: cast('i32')", I>

/** The shape with one axis in place of which the axes of R stand. */
type Taken<
  S extends Shape,
  A extends number,
  R extends Shape,
  Seen extends readonly unknown[] = [],
> = number extends S['length']
  ? Shape
  : number extends R['length']
    ? Shape
    : number extends A
      ? Shape
      : S extends readonly [infer X extends Shape[number], ...infer T extends Shape]
        ? Seen['length'] extends A
          ? readonly [...R, ...T]
          : readonly [X, ...Taken<T, A, R, [...Seen, 0]>]
        : Shape

/**
 * Rows of a value by their indices along an axis: x[…, n, …] by indices of shape [i, j] is [..., i, j, …]
 * (numpy.take, torch.embedding). Indices are of i32. An index below 0 or beyond the axis takes zeros, on
 * every device; nothing outside of the value is read.
 */
export const gather = <I extends DType, R extends Shape, const A extends number>(
  indices: Device<I, R> & Indices<I>,
  options: { readonly axis: A },
) => {
  const at = here()
  const taken = (x: unknown): unknown =>
    apply(
      gatherOperator,
      at,
      x,
      [['the indices', indices]],
      withOptions(options, ['axis'], spec => E.map(axis => ({ axis }))(axisOf(named(options)['axis'], spec))),
    )
  return taken as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S>,
  ) => Device<D, Taken<S, AxesFrom0<S, A>, R>>
}

/**
 * The rows of a table [n, …] for the piped indices of i32, of any shape: `tokens.pipe(embedding(table))`
 * (torch.nn.functional.embedding). As `gather` along axis 0: an index outside of the table takes zeros.
 */
export const embedding = <D extends DType, S extends Shape>(table: Device<D, S>) => {
  const at = here()
  return composed('embedding', at, E.right, (_, indices) => {
    const rows = indices.builder.take(table, 'device', at, 'embedding', 'the table')
    // On the lane of the indices, which are what is piped.
    const { builder, id, spec, place } = rows
    const first = new FlowValue(builder, id, spec, place, indices.hint)
    return apply(gatherOperator, at, first, [['the indices', indices]], given =>
      E.map(axis => ({ axis }))(axisOf(0, given)),
    )
  }) as unknown as <I extends DType, R extends Shape>(
    indices: Device<I, R> & Indices<I>,
  ) => Device<D, Taken<S, 0, R>>
}
