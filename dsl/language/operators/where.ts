import * as E from 'fp-ts/lib/Either.js'
import type { MapInstruction } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import { type DType, isFloat, showSpec, type TensorSpec } from '../../ir/tensor.js'
import { FlowValue } from '../builder.js'
import { badAttribute, dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { isOperandNumber } from './arithmetic.js'
import { attrsOfCode, type ElementwiseAttrs } from './code.js'
import { elementwise, inferElementwise } from './elementwise.js'
import type { Attrs, Operator } from './operator.js'
import { broadcast } from './shapes.js'
import type { Broadcast, Broadcasts, Device, Invalid, SameDType, Shape } from './types.js'

/** The condition is of whole numbers; what it chooses from are values of one element type. */
const infer = (inputs: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> => {
  const [condition, ...values] = inputs as readonly [TensorSpec, ...TensorSpec[]]
  if (isFloat(condition.dtype))
    return E.left(
      dtypeMismatch(
        'a condition of u8 or i32, as comparisons yield it',
        showSpec(condition),
        'compare first: pipe(notEqual(0), where(yes, no))',
      ),
    )
  return E.chain((chosen: TensorSpec): E.Either<UnplacedError, TensorSpec> => {
    const shape = broadcast([condition.shape, chosen.shape])
    return shape === undefined
      ? E.left(
          shapeMismatch(
            'a condition and values whose shapes broadcast: trailing dimensions equal, or 1',
            `${showSpec(condition)} and ${showSpec(chosen)}`,
            'reshape one of them',
          ),
        )
      : E.right({ dtype: chosen.dtype, shape })
  })(inferElementwise(values, (attrs as unknown as ElementwiseAttrs).code))
}

export const whereOperator: Operator = { ...elementwise('where'), infer }

const isChoice = (value: unknown): boolean => value instanceof FlowValue || isOperandNumber(value)

const attrsOf = (choices: readonly unknown[]): E.Either<UnplacedError, Attrs> => {
  const flows = choices.filter(choice => choice instanceof FlowValue)
  if (flows.length === 0 || !choices.every(isChoice))
    return E.left(
      badAttribute(
        'two values to choose from, at least one of them a flow; the other a flow, a number that f32 can hold, or ±Infinity',
        choices.map(choice => (choice instanceof FlowValue ? `a ${choice}` : show(choice))).join(' and '),
        'as in where(y, 0); to make a number of the condition itself, cast it',
      ),
    )
  const code: MapInstruction[] = [['operand', 0]]
  const places: number[] = []
  let operand = 1
  for (const choice of choices) {
    code.push(typeof choice === 'number' ? ['const', choice] : ['operand', operand++])
    places.push(code.length - 1)
  }
  const [yes, no] = places as [number, number]
  return E.right(attrsOfCode([...code, ['select', 0, yes, no]]))
}

type Choice = Device<DType, Shape> | number
type TypeOf<Y, N> = Y extends Device<infer D, Shape> ? D : N extends Device<infer D, Shape> ? D : DType
type ShapeOf<V> = V extends Device<DType, infer S> ? S : readonly []
type OneType<Y, N> =
  Y extends Device<infer D, Shape>
    ? N extends Device<infer F, Shape>
      ? SameDType<F, D>
      : unknown
    : N extends Device<DType, Shape>
      ? unknown
      : Invalid<'one of the two values must be a flow', readonly [Y, N]>
type Condition<C extends DType> = [C] extends ['u8' | 'i32']
  ? unknown
  : Invalid<'a condition is of u8 or i32, as comparisons yield it', C>

/**
 * `yes` where the piped condition is not 0, else `no`, elementwise: `x.pipe(less(0), where(y, -Infinity))`.
 * The condition is of u8 or i32; the values are flows of one element type, of which one may be a number, for
 * floats also an infinite one. Shapes broadcast (torch.where).
 */
export const where = <const Y extends Choice, const N extends Choice>(yes: Y, no: N & OneType<Y, N>) => {
  const at = here()
  const choices = [yes, no] as const
  const others = choices
    .filter(choice => choice instanceof FlowValue)
    .map(flow => ['a value to choose', flow] as const)
  const chosen = (condition: unknown): unknown =>
    apply(whereOperator, at, condition, others, () => attrsOf(choices))
  return chosen as unknown as <C extends DType, S extends Shape>(
    condition: Device<C, S> &
      Condition<C> &
      Broadcasts<ShapeOf<Y>, ShapeOf<N>> &
      Broadcasts<S, Broadcast<ShapeOf<Y>, ShapeOf<N>>>,
  ) => Device<TypeOf<Y, N>, Broadcast<S, Broadcast<ShapeOf<Y>, ShapeOf<N>>>>
}
