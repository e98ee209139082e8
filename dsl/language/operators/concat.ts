import * as E from 'fp-ts/lib/Either.js'
import type { JoinSpec } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import { type BoundSpec, type DType, isEmpty, showSpec, type TensorSpec } from '../../ir/tensor.js'
import { FlowValue } from '../builder.js'
import { badAttribute, dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { composed } from './composition.js'
import { joinSpec, lowerJoin, runJoin } from './join.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import { axisOf } from './reduce.js'
import type { Total } from './sizes.js'
import type { Device, IsOpenShape, Resized, Shape, SizeOf } from './types.js'

/** Operands of one kernel; more values are joined in several steps. */
const most = 64

const axisFrom = (attrs: Attrs): number => attrs['axis'] as number

const infer = (inputs: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> => {
  const axis = axisFrom(attrs)
  const { dtype, shape } = inputs[0]!
  const found = inputs.map(showSpec).join(', ')
  if (inputs.some(x => x.dtype !== dtype))
    return E.left(dtypeMismatch('values of one element type', found, 'cast some of them'))
  const fits = inputs.every(
    x => x.shape.length === shape.length && x.shape.every((size, d) => d === axis || size === shape[d]),
  )
  if (!fits)
    return E.left(
      shapeMismatch(
        `values whose shapes are equal but for axis ${axis}`,
        found,
        'slice, pad or reshape them',
      ),
    )
  const sizes = inputs.map(x => x.shape[axis])
  if (!sizes.every(size => typeof size === 'number'))
    return E.left(
      shapeMismatch(`sizes along axis ${axis} that are numbers`, found, 'join along another axis'),
    )
  const total = sizes.reduce((sum, size) => sum + size, 0)
  return E.right({ dtype, shape: shape.map((size, d) => (d === axis ? total : size)) })
}

const spec = (inputs: readonly BoundSpec[], output: BoundSpec, attrs: Attrs): JoinSpec => {
  const axis = axisFrom(attrs)
  return joinSpec(
    output,
    axis,
    inputs.map(({ shape }) => ({ length: shape[axis]! })),
  )
}

export const concatOperator: Operator = {
  name: 'concat',
  infer,
  lower: (inputs, output, attrs) => lowerJoin(spec(inputs, output, attrs), inputs, output),
  withEmpty: inputs => inputs.flatMap((x, i) => (isEmpty(x) ? [] : [i])),
  reference: (values, inputs, output, attrs) => runJoin(spec(inputs, output, attrs), values),
  tolerance: () => 0,
}

const attrsOf =
  (others: unknown, options: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, Attrs> =>
    Array.isArray(others) && others.length > 0
      ? E.map(axis => ({ axis }))(axisOf(named(options)['axis'], x))
      : E.left(
          badAttribute(
            'a list of flows',
            Array.isArray(others) ? 'an empty one' : others instanceof FlowValue ? 'one flow' : show(others),
            'as in a.pipe(concat([b, c], { axis: 0 }))',
          ),
        )

/** The shape with the sizes of all values along an axis. */
export type Joined<S extends Shape, R extends readonly Shape[], A extends number> =
  IsOpenShape<S> extends true
    ? Shape
    : Resized<
        S,
        A,
        number extends R['length']
          ? number
          : Total<readonly [SizeOf<S, A>, ...{ [K in keyof R]: SizeOf<R[K], A> }]>
      >

/** Joins up to `most` values at a time, in their order, until one is left. */
export const joined = <F>(values: readonly F[], join: (group: readonly F[]) => F): F => {
  if (values.length <= most) return join(values)
  const groups: F[] = []
  for (let i = 0; i < values.length; i += most) {
    const group = values.slice(i, i + most)
    groups.push(group.length === 1 ? group[0]! : join(group))
  }
  return joined(groups, join)
}

/**
 * The piped value and others one after the other along an axis: `a.pipe(concat([b, c], { axis: 1 }))`
 * (numpy.concatenate, torch.cat). All have one element type, and sizes that are equal but for that axis.
 */
export const concat = <D extends DType, const A extends number, const R extends readonly Shape[]>(
  others: readonly [...{ [K in keyof R]: Device<D, R[K]> }] & readonly Device<D, Shape>[],
  options: { readonly axis: A },
) => {
  const at = here()
  return composed('concat', at, withOptions(options, ['axis'], attrsOf(others, options)), (_, x, attrs) =>
    joined([x, ...(others as unknown as readonly FlowValue[])], ([first, ...rest]) =>
      apply(
        concatOperator,
        at,
        first,
        rest.map(flow => ['a value to join', flow] as const),
        attrs,
      ),
    ),
  ) as unknown as <S extends Shape>(x: Device<D, S>) => Device<D, Joined<S, R, A>>
}
