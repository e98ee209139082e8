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
import { dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { hostArray } from '../values.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import type { Indices } from './gather.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import { axisOf } from './reduce.js'
import type { Device, Shape } from './types.js'

const infer = ([x, indices]: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> => {
  const axis = attrs['axis'] as number
  const found = `${showSpec(x!)} by ${showSpec(indices!)}`
  if (indices!.dtype !== 'i32')
    return E.left(dtypeMismatch('indices of i32', showSpec(indices!), "cast them: pipe(cast('i32'))"))
  const fits =
    indices!.shape.length === x!.shape.length &&
    indices!.shape.every((size, d) => d === axis || size === x!.shape[d])
  return fits
    ? E.right({ dtype: x!.dtype, shape: indices!.shape })
    : E.left(
        shapeMismatch(
          `indices of the shape of the value but for axis ${axis}`,
          found,
          'expand them; to take whole rows by a list of indices, use gather',
        ),
      )
}

const spec = (x: BoundSpec, indices: BoundSpec, attrs: Attrs): GatherSpec => {
  const axis = attrs['axis'] as number
  return {
    kind: 'gather',
    outer: elements(x.shape.slice(0, axis)),
    length: x.shape[axis]!,
    inner: elements(x.shape.slice(axis + 1)),
    count: indices.shape[axis]!,
    dtype: x.dtype,
    along: true,
  }
}

/** Elements by an index each, along an axis; 0 for an index outside of the axis. */
export const takeAlongOperator: Operator = {
  name: 'takeAlong',
  infer,
  lower: ([x, indices], output, attrs) => ({
    as: 'run',
    kernel: spec(x!, indices!, attrs),
    flops: 0,
    movedBytes: 2 * tensorBytes(output) + tensorBytes(indices!),
    workspace: 0,
  }),
  withEmpty: () => 0,
  reference: ([values, places], [x, indices], output, attrs) => {
    const { length, inner, count } = spec(x!, indices!, attrs)
    const result = hostArray(output.dtype, elements(output.shape))
    for (let i = 0; i < result.length; i++) {
      const index = places![i]!
      const o = Math.floor(i / (count * inner))
      if (index >= 0 && index < length) result[i] = values![(o * length + index) * inner + (i % inner)]!
    }
    return result
  },
  tolerance: () => 0,
}

/**
 * Elements of a value by an index each along an axis: y[i, j] = x[indices[i, j], j] for axis 0
 * (numpy.take_along_axis, torch.gather). Indices are of i32, and of the shape of the value but for that axis.
 * An index below 0 or beyond the axis takes 0.
 */
export const takeAlong = <I extends DType, R extends Shape>(
  indices: Device<I, R> & Indices<I>,
  options: { readonly axis: number },
) => {
  const at = here()
  const taken = (x: unknown): unknown =>
    apply(
      takeAlongOperator,
      at,
      x,
      [['the indices', indices]],
      withOptions(options, ['axis'], given =>
        E.map(axis => ({ axis }))(axisOf(named(options)['axis'], given)),
      ),
    )
  return taken as unknown as <D extends DType>(x: Device<D, Shape>) => Device<D, R>
}
