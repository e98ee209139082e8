import * as E from 'fp-ts/lib/Either.js'
import type { MapSpec } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import {
  type BoundSpec,
  type Dim,
  type DType,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { badAttribute, shapeMismatch, type UnplacedError } from '../messages.js'
import { validSpec } from '../tensor.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { runMap } from './map-reference.js'
import type { Attrs, Operator } from './operator.js'
import { broadcast, broadcastStrides } from './shapes.js'
import { stridedCopy } from './strided-copy.js'
import type { Broadcasts, Device, Shape } from './types.js'

/** A number, or the size that an axis of the value has: a symbol stays as it is. */
type Size = number | { readonly axis: number }

const shapeOf = (attrs: Attrs, x: TensorSpec): readonly Dim[] =>
  (attrs['shape'] as readonly Size[]).map(size =>
    typeof size === 'number' ? size : (x.shape[size.axis] ?? 1),
  )

const infer = ([x]: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> => {
  const wanted = shapeOf(attrs, x!)
  const both = broadcast([x!.shape, wanted])
  return both?.length === wanted.length && both.every((size, d) => size === wanted[d])
    ? E.right({ dtype: x!.dtype, shape: wanted })
    : E.left(
        shapeMismatch(
          'a shape that the value broadcasts to: trailing dimensions equal, or 1 in the value',
          `${showSpec(x!)} to ${show(wanted)}`,
          'reshape the value first',
        ),
      )
}

const spec = (x: BoundSpec, output: BoundSpec): MapSpec =>
  stridedCopy(output, broadcastStrides(x.shape, output.shape))

/** A copy that reads along new dimensions, and those of size 1, with stride 0. */
export const expandOperator: Operator = {
  name: 'expand',
  infer,
  lower: ([x], output) => ({
    as: 'run',
    kernel: spec(x!, output),
    flops: 0,
    movedBytes: tensorBytes(x!) + tensorBytes(output),
    workspace: 0,
  }),
  reference: (inputs, [x], output) => runMap(spec(x!, output), inputs)[0]!,
  tolerance: () => 0,
}

const attrsOf =
  (given: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, Attrs> => {
    if (!Array.isArray(given) || validSpec({ dtype: 'u8', shape: given }).problem !== undefined)
      return E.left(badAttribute('a shape of sizes from 0', show(given), 'as in expand([4, 1, 8])'))
    const lead = given.length - x.shape.length
    const shape: Size[] = []
    for (const [d, size] of (given as readonly Dim[]).entries()) {
      if (typeof size === 'string' && x.shape[d - lead] !== size)
        return E.left(
          shapeMismatch(
            'numbers, and symbols only where the value has them',
            `${showSpec(x)} to ${show(given)}`,
            `give a number for ${size}`,
          ),
        )
      shape.push(typeof size === 'number' ? size : { axis: d - lead })
    }
    return E.right({ shape })
  }

/**
 * The value repeated along new leading dimensions and dimensions of size 1, up to a shape (torch.expand,
 * numpy.broadcast_to). Symbols of the value stay as they are. A copy; operators that broadcast need none.
 */
export const expand = <const R extends Shape>(shape: R) => {
  const at = here()
  const repeated = (x: unknown): unknown => apply(expandOperator, at, x, [], attrsOf(shape))
  return repeated as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S> & Broadcasts<S, R>,
  ) => Device<D, R>
}
