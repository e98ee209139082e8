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
import { badAttribute, type UnplacedError } from '../messages.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { runMap } from './map-reference.js'
import type { Attrs, Operator } from './operator.js'
import { axisOf } from './reduce.js'
import { denseStrides } from './shapes.js'
import { stridedCopy } from './strided-copy.js'
import type { Device, Shape, SizeOf } from './types.js'

const axesFrom = (attrs: Attrs): readonly number[] => attrs['axes'] as readonly number[]

const strided = (x: BoundSpec, output: BoundSpec, axes: readonly number[]): MapSpec => {
  const own = denseStrides(x.shape)
  return stridedCopy(
    output,
    axes.map(axis => own[axis]!),
  )
}

/** A view where only axes of size 1 change their places; else a copy with strides. */
export const transposeOperator: Operator = {
  name: 'transpose',
  infer: ([x], attrs) =>
    E.right({ dtype: x!.dtype, shape: axesFrom(attrs).map(axis => x!.shape[axis] ?? 1) }),
  lower: ([x], output, attrs) => {
    const axes = axesFrom(attrs)
    const moving = axes.filter(axis => x!.shape[axis] !== 1)
    if (moving.every((axis, i) => i === 0 || moving[i - 1]! < axis)) return { as: 'view', offsetBytes: 0 }
    return {
      as: 'run',
      kernel: strided(x!, output, axes),
      flops: 0,
      movedBytes: 2 * tensorBytes(output),
      workspace: 0,
    }
  },
  mayBeView: true,
  reference: (inputs, specs, output, attrs) =>
    runMap(strided(specs[0]!, output, axesFrom(attrs)), inputs)[0]!,
  tolerance: () => 0,
}

const attrsOf =
  (given: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, Attrs> => {
    const axes = (Array.isArray(given) ? given : []).map(axis => axisOf(axis, x))
    const known = axes.flatMap(axis => (E.isRight(axis) ? [axis.right] : []))
    return Array.isArray(given) && known.length === x.shape.length && new Set(known).size === axes.length
      ? E.right({ axes: known })
      : E.left(
          badAttribute(
            `each of the ${x.shape.length} axes of ${showSpec(x)} once, in their new order`,
            show(given),
            'as in transpose([0, 2, 1]), which changes the last two of three',
          ),
        )
  }

type Moved<S extends Shape, A extends readonly number[]> = number extends S['length']
  ? Shape
  : number extends A[number]
    ? Shape
    : { readonly [K in keyof A]: SizeOf<S, A[K]> extends infer D extends Dim ? D : Dim }

/**
 * The axes in another order: axis d of the result is axis `axes[d]` of the value (numpy.transpose,
 * torch.permute). A copy where elements move; `matmul` reads a value whose last two axes have changed places
 * where it lies.
 */
export const transpose = <const A extends readonly number[]>(axes: A) => {
  const at = here()
  const moved = (x: unknown): unknown => apply(transposeOperator, at, x, [], attrsOf(axes))
  return moved as unknown as <D extends DType, S extends Shape>(x: Device<D, S>) => Device<D, Moved<S, A>>
}
