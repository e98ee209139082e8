import type { MapBinary, MapInstruction } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import type { DType } from '../../ir/tensor.js'
import { builderOf, FlowValue } from '../builder.js'
import type { Flow } from '../flow.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { attrsOfCode } from './code.js'
import type { Attrs, Operator } from './operator.js'
import type { Broadcast, Broadcasts, Device, Floats, SameDType, Shape } from './types.js'

/**
 * An elementwise operator with a number or a flow as its second operand; shapes broadcast, element types must
 * be equal.
 */
export interface Arithmetic {
  (operand: number): <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
  <D extends DType, R extends Shape>(
    operand: Device<D, R>,
  ): <E extends DType, S extends Shape>(
    x: Device<E, S> & SameDType<E, D> & Broadcasts<S, R>,
  ) => Device<E, Broadcast<S, R>>
}

/** The same of floats alone. */
export interface FloatArithmetic {
  (operand: number): <D extends DType, S extends Shape>(x: Device<D, S> & Floats<D>) => Device<D, S>
  <D extends DType, R extends Shape>(
    operand: Device<D, R>,
  ): <E extends DType, S extends Shape>(
    x: Device<E, S> & Floats<E> & SameDType<E, D> & Broadcasts<S, R>,
  ) => Device<E, Broadcast<S, R>>
}

/** Whether f32 holds the number, which may be infinite. A NaN as an operand is taken for a mistake. */
export const isOperandNumber = (value: unknown): value is number =>
  typeof value === 'number' &&
  (Number.isFinite(Math.fround(value)) || Math.abs(value) === Number.POSITIVE_INFINITY)

/** The attributes of an elementwise node from the instruction that yields its second operand. */
export type OfOperand = (second: MapInstruction) => Attrs

/** The public function of an operator of two values, of which the second is a flow or a number. */
export const operandOf = (operator: Operator, attrsOf: OfOperand): unknown => {
  const ofFlow = attrsOf(['operand', 1])
  const make = (operand: unknown) => {
    const at = here(make)
    return (x: unknown): unknown => {
      if (operand instanceof FlowValue) return apply(operator, at, x, [['the operand', operand]], ofFlow)
      if (isOperandNumber(operand)) return apply(operator, at, x, [], attrsOf(['const', operand]))
      builderOf(x).report(at, operator.name, {
        _tag: typeof operand === 'number' ? 'BadAttribute' : 'NotAFlow',
        wanted: 'a flow, or a number that f32 can hold or ±Infinity, as the operand',
        found: show(operand),
        next: 'give a flow of this graph or such a number',
      })
      return apply(operator, at, x, [], attrsOf(['const', 1]))
    }
  }
  return make
}

/** The public function of a binary instruction. */
export const arithmetic = (operator: Operator, op: MapBinary): Arithmetic =>
  operandOf(operator, second => attrsOfCode([['operand', 0], second, [op, 0, 1]])) as Arithmetic
