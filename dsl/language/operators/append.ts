import * as E from 'fp-ts/lib/Either.js'
import type { AppendSpec } from '../../ir/kernel-spec.js'
import {
  type BoundSpec,
  type DType,
  elements,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import { axisOf } from './reduce.js'
import type { Device, Shape } from './types.js'

const infer = (
  [x, rows, position]: readonly TensorSpec[],
  attrs: Attrs,
): E.Either<UnplacedError, TensorSpec> => {
  const axis = attrs['axis'] as number
  const found = `${showSpec(rows!)}, for ${showSpec(x!)}`
  if (position!.dtype !== 'i32' || position!.shape.some(size => size !== 1))
    return E.left(dtypeMismatch('a position: one element of i32', showSpec(position!), 'cast or reshape it'))
  if (rows!.dtype !== x!.dtype)
    return E.left(dtypeMismatch('rows of the element type of the value', found, 'cast them'))
  const [length, count] = [x!.shape[axis], rows!.shape[axis]]
  const fits =
    rows!.shape.length === x!.shape.length &&
    rows!.shape.every((size, d) => d === axis || size === x!.shape[d]) &&
    !(typeof length === 'number' && typeof count === 'number' && count > length)
  return fits
    ? E.right(x!)
    : E.left(
        shapeMismatch(
          `rows of the shape of the value but for axis ${axis}, where there are at most as many`,
          found,
          'reshape or slice them',
        ),
      )
}

const spec = (x: BoundSpec, rows: BoundSpec, attrs: Attrs): AppendSpec => {
  const axis = attrs['axis'] as number
  return {
    kind: 'append',
    outer: elements(x.shape.slice(0, axis)),
    length: x.shape[axis]!,
    inner: elements(x.shape.slice(axis + 1)),
    count: rows.shape[axis]!,
    dtype: x.dtype,
  }
}

/** Rows written at a position along an axis, in the memory of the value. */
export const appendOperator: Operator = {
  name: 'append',
  infer,
  takesMemory: true,
  lower: ([x, rows], _, attrs) => ({
    as: 'run',
    kernel: spec(x!, rows!, attrs),
    flops: 0,
    movedBytes: 2 * tensorBytes(rows!),
    workspace: 0,
  }),
  withEmpty: () => [0],
  reference: ([values, added, position], [x, rows], _, attrs) => {
    const { outer, length, inner, count } = spec(x!, rows!, attrs)
    const result = values!.slice()
    for (let o = 0; o < outer; o++)
      for (let j = 0; j < count; j++) {
        const place = position![0]! + j
        if (place < 0 || place >= length) continue
        const from = (o * count + j) * inner
        result.set(added!.subarray(from, from + inner), (o * length + place) * inner)
      }
    return result
  },
  tolerance: () => 0,
}

/** One element of i32, in device memory. */
type Position = Device<'i32', readonly [] | readonly [1]>

/**
 * Writes rows into a value at a position that the device knows, and yields the whole value:
 * `cache.keys.pipe(append(keys, { axis: 1, at: length }))` puts the rows of `keys` at `length` and after it
 * along axis 1 (lax.dynamic_update_slice, torch.index_copy). `at` is one element of i32. The rows have the
 * element type and the shape of the value but for that axis, along which there may be none. A row whose place
 * is below 0 or beyond the axis is not written, on every device.
 *
 * The rows are written in the value's own memory, and nothing else moves, where nothing reads the value as it
 * was later in the program; else in a copy of it. `explain` says which.
 */
export const append = <D extends DType>(
  rows: Device<D, Shape>,
  options: { readonly axis: number; readonly at: Position },
) => {
  const at = here()
  const appended = (x: unknown): unknown =>
    apply(
      appendOperator,
      at,
      x,
      [
        ['the rows', rows],
        ['the position (at)', named(options)['at']],
      ],
      withOptions(options, ['axis', 'at'], given =>
        E.map(axis => ({ axis }))(axisOf(named(options)['axis'], given)),
      ),
    )
  return appended as unknown as <S extends Shape>(x: Device<D, S>) => Device<D, S>
}
