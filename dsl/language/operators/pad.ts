import * as E from 'fp-ts/lib/Either.js'
import type { JoinSpec } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import { type BoundSpec, type DType, isFloat, showSpec, type TensorSpec } from '../../ir/tensor.js'
import { badAttribute, type UnplacedError } from '../messages.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { isOperandNumber } from './arithmetic.js'
import { holdsWhole } from './elementwise.js'
import { joinSpec, lowerJoin, runJoin } from './join.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import { axisOf } from './reduce.js'
import type { Total } from './sizes.js'
import type { Device, IsOpenShape, Resized, Shape, SizeOf } from './types.js'

interface PadAttrs {
  readonly axis: number
  readonly before: number
  readonly after: number
  readonly value: number
}

const attrsFrom = (attrs: Attrs): PadAttrs => attrs as unknown as PadAttrs

/** Without an element more the value stays as it is. */
const isNothing = ({ before, after }: PadAttrs): boolean => before + after === 0

const infer = ([x]: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> => {
  const { axis, before, after } = attrsFrom(attrs)
  const { dtype, shape } = x!
  const size = shape[axis]
  if (isNothing(attrsFrom(attrs))) return E.right(x!)
  return typeof size === 'number'
    ? E.right({ dtype, shape: shape.map((own, d) => (d === axis ? before + size + after : own)) })
    : E.left(
        badAttribute('an axis whose size is a number', showSpec(x!), `pad another axis: ${size} is a symbol`),
      )
}

const spec = (x: BoundSpec, output: BoundSpec, attrs: Attrs): JoinSpec => {
  const { axis, before, after, value } = attrsFrom(attrs)
  const border = (length: number) => (length === 0 ? [] : [{ length, fill: value }])
  return joinSpec(output, axis, [...border(before), { length: x.shape[axis]! }, ...border(after)])
}

export const padOperator: Operator = {
  name: 'pad',
  infer,
  lower: ([x], output, attrs) =>
    isNothing(attrsFrom(attrs))
      ? { as: 'view', offsetBytes: 0 }
      : lowerJoin(spec(x!, output, attrs), [x!], output),
  mayBeView: true,
  withEmpty: (_, attrs) => attrsFrom(attrs).value,
  reference: (inputs, [x], output, attrs) => runJoin(spec(x!, output, attrs), inputs),
  tolerance: () => 0,
}

export interface PadOptions<A extends number = number, B extends number = number, C extends number = number> {
  readonly axis: A
  /** How many elements come before the first one; none where it is left out. */
  readonly before?: B
  /** How many come after the last one; none where it is left out. */
  readonly after?: C
  /** What they are; 0 where it is left out. */
  readonly value?: number
}

const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 31

const isValue = (value: unknown, dtype: DType): value is number =>
  isFloat(dtype) ? isOperandNumber(value) : holdsWhole(dtype as 'u8' | 'i32', value)

const attrsOf =
  (options: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, Attrs> =>
    E.chain((axis: number): E.Either<UnplacedError, Attrs> => {
      const { before = 0, after = 0, value = 0 } = named(options)
      if (!isCount(before) || !isCount(after))
        return E.left(
          badAttribute(
            'before and after: whole numbers from 0 to 2147483647',
            show(options),
            'as in pad({ axis: 1, before: 2 })',
          ),
        )
      return isValue(value, x.dtype)
        ? E.right({ axis, before, after, value })
        : E.left(badAttribute(`a value that ${x.dtype} can hold`, show(value), 'give another value'))
    })(axisOf(named(options)['axis'], x))

// The sizes are added up once the shape is known: the type of the operator alone names this type.
export type Padded<S extends Shape, A extends number, B extends number, C extends number> =
  IsOpenShape<S> extends true ? Shape : Resized<S, A, Total<readonly [B, SizeOf<S, A>, C]>>

/**
 * The value with further elements before and after it along an axis: `pad({ axis: 1, before: 2, after: 1 })`
 * (numpy.pad, torch.nn.functional.pad). They are 0, or `value`, which for floats may be infinite.
 */
export const pad = <const A extends number, const B extends number = 0, const C extends number = 0>(
  options: PadOptions<A, B, C>,
) => {
  const at = here()
  const padded = (x: unknown): unknown =>
    apply(
      padOperator,
      at,
      x,
      [],
      withOptions(options, ['axis', 'before', 'after', 'value'], attrsOf(options)),
    )
  return padded as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S>,
  ) => Device<D, Padded<S, A, B, C>>
}
