import type { MapInstruction } from '../../ir/kernel-spec.js'
import type { DType } from '../../ir/tensor.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { attrsOfCode } from './code.js'
import type { Operator } from './operator.js'
import type { Device, Floats, Shape } from './types.js'

/** An elementwise operator of floats. */
export type FloatUnary = () => <D extends DType, S extends Shape>(x: Device<D, S> & Floats<D>) => Device<D, S>
/** An elementwise operator of any element type. */
export type AnyUnary = () => <D extends DType, S extends Shape>(x: Device<D, S>) => Device<D, S>

/** The public function of an operator that is one expression over its one input. */
export const unary = (operator: Operator, code: readonly MapInstruction[]): AnyUnary => {
  const attrs = attrsOfCode(code)
  const make = () => {
    const at = here(make)
    return (x: unknown): unknown => apply(operator, at, x, [], attrs)
  }
  return make as unknown as AnyUnary
}

/** The same for an operator that only floats have. */
export const floatUnary: (operator: Operator, code: readonly MapInstruction[]) => FloatUnary = unary as never
