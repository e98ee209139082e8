import * as E from 'fp-ts/lib/Either.js'
import type { MapInstruction } from '../../ir/kernel-spec.js'
import type { DType, TensorSpec } from '../../ir/tensor.js'
import { type OfOperand, operandOf } from './arithmetic.js'
import type { ElementwiseAttrs } from './code.js'
import { attrsOfCode } from './code.js'
import { elementwise, inferElementwise } from './elementwise.js'
import type { Attrs, Operator } from './operator.js'
import type { Broadcast, Broadcasts, Device, SameDType, Shape } from './types.js'

/** Of two values, elementwise: u8, 1 where it holds and 0 where it does not. */
export interface Comparison {
  (operand: number): <D extends DType, S extends Shape>(x: Device<D, S>) => Device<'u8', S>
  <D extends DType, R extends Shape>(
    operand: Device<D, R>,
  ): <E extends DType, S extends Shape>(
    x: Device<E, S> & SameDType<E, D> & Broadcasts<S, R>,
  ) => Device<'u8', Broadcast<S, R>>
}

/** What is computed of values 0 and 1, the two that are compared. */
const comparisons = {
  less: [['lt', 0, 1]],
  lessOrEqual: [['le', 0, 1]],
  greater: [['lt', 1, 0]],
  greaterOrEqual: [['le', 1, 0]],
  equal: [['eq', 0, 1]],
  notEqual: [
    ['eq', 0, 1],
    ['const', 0],
    ['eq', 2, 3],
  ],
} as const satisfies Readonly<Record<string, readonly MapInstruction[]>>

export type ComparisonName = keyof typeof comparisons

export const comparisonOperator = (name: ComparisonName): Operator => ({
  ...elementwise(name),
  infer: (inputs: readonly TensorSpec[], attrs: Attrs) =>
    E.map((spec: TensorSpec): TensorSpec => ({ dtype: 'u8', shape: spec.shape }))(
      inferElementwise(inputs, (attrs as unknown as ElementwiseAttrs).code),
    ),
})

/** The public function of a comparison. */
export const comparison = (operator: Operator): Comparison => {
  const after = comparisons[operator.name as ComparisonName]
  const attrsOf: OfOperand = second => attrsOfCode([['operand', 0], second, ...after])
  return operandOf(operator, attrsOf) as unknown as Comparison
}
