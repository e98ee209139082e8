import * as E from 'fp-ts/lib/Either.js'
import type { MapSpec } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import {
  type BoundSpec,
  type DType,
  elementBytes,
  elements,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { badAttribute, type UnplacedError } from '../messages.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { runMap } from './map-reference.js'
import type { Attrs, Operator } from './operator.js'
import { axisOf } from './reduce.js'
import { denseStrides } from './shapes.js'
import type { Difference } from './sizes.js'
import { stridedCopy } from './strided-copy.js'
import type { Device, IsOpenShape, Resized, Shape, SizeOf } from './types.js'

interface SliceAttrs {
  readonly axis: number
  readonly from: number
  readonly to: number
}

/** The alignment of a pointer that the libraries and vector loads of every device need. */
const alignment = 16

const attrsFrom = (attrs: Attrs): SliceAttrs => attrs as unknown as SliceAttrs

const infer = ([x]: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> => {
  const { axis, from, to } = attrsFrom(attrs)
  const { dtype, shape } = x!
  const size = shape[axis]
  if (from > to || (typeof size === 'number' && to > size))
    return E.left(
      badAttribute(
        `0 ≤ from ≤ to ≤ ${size}, the size of axis ${axis} of ${showSpec(x!)}`,
        `from ${from} to ${to}`,
        'take a range inside the axis',
      ),
    )
  return E.right({ dtype, shape: shape.map((own, d) => (d === axis ? to - from : own)) })
}

const strided = (x: BoundSpec, output: BoundSpec, { axis, from }: SliceAttrs): MapSpec => {
  const strides = denseStrides(x.shape)
  return stridedCopy(output, strides, from * (strides[axis] ?? 1))
}

/**
 * A view where the range is contiguous and its start is aligned for every device; else a copy of the range.
 */
export const sliceOperator: Operator = {
  name: 'slice',
  infer,
  lower: (inputs, output, attrs) => {
    const x = inputs[0]!
    const { axis, from } = attrsFrom(attrs)
    const offsetBytes = from * elements(x.shape.slice(axis + 1)) * elementBytes[x.dtype]
    if (elements(x.shape.slice(0, axis)) === 1 && offsetBytes % alignment === 0)
      return { as: 'view', offsetBytes }
    return {
      as: 'run',
      kernel: strided(x, output, attrsFrom(attrs)),
      flops: 0,
      movedBytes: 2 * tensorBytes(output),
      workspace: 0,
    }
  },
  mayBeView: true,
  reference: (inputs, specs, output, attrs) =>
    runMap(strided(specs[0]!, output, attrsFrom(attrs)), inputs)[0]!,
  tolerance: () => 0,
}

const whole = (value: unknown): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0

const attrsOf =
  (axis: unknown, from: unknown, to: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, Attrs> => {
    const known = axisOf(axis, x)
    if (E.isLeft(known)) return known
    const size = x.shape[known.right]
    const end = to ?? (typeof size === 'number' ? size : undefined)
    if (whole(from) && whole(end)) return E.right({ axis: known.right, from, to: end })
    return E.left(
      badAttribute(
        'whole numbers from and to, from 0',
        `from ${show(from)} to ${show(to)}`,
        typeof size === 'string' && to === undefined
          ? `say where to end: the size ${size} is not known here`
          : 'give 0 ≤ from ≤ to',
      ),
    )
  }

/** To the end of the axis, where no end is given. */
export type Sliced<S extends Shape, A extends number, F extends number, T> =
  IsOpenShape<S> extends true ? Shape : Resized<S, A, Difference<[T] extends [number] ? T : SizeOf<S, A>, F>>

/**
 * Elements `from` to `to` (not included; the end of the axis if left out) along an axis; none where the two
 * are equal. A view where the layout allows, else a copy.
 */
export const slice = <
  const A extends number,
  const F extends number,
  const T extends number | undefined = undefined,
>(
  axis: A,
  from: F,
  to?: T,
) => {
  const at = here()
  const cut = (x: unknown): unknown => apply(sliceOperator, at, x, [], attrsOf(axis, from, to))
  return cut as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S>,
  ) => Device<D, Sliced<S, A, F, T>>
}
