import * as E from 'fp-ts/lib/Either.js'
import type { Dim, DType } from '../../ir/tensor.js'
import { here } from '../where.js'
import { addOperator } from './add.js'
import { apply } from './apply.js'
import { attrsOfCode } from './code.js'
import { beside, composed } from './composition.js'
import { type MatmulFits, matmulOperator, type ProductShape } from './matmul.js'
import { reshapeOperator } from './reshape.js'
import type { Device, Floats, Invalid, SameDim, SameDType, Shape } from './types.js'

const sum = attrsOfCode([
  ['operand', 0],
  ['operand', 1],
  ['add', 0, 1],
])

type BiasFits<W extends Shape, B extends Shape> = W extends readonly [infer N, unknown]
  ? B extends readonly [infer M]
    ? SameDim<N, M> extends true
      ? unknown
      : Invalid<'the bias and the rows of the weight differ', readonly [M, N]>
    : unknown
  : unknown

/** The size of a vector fits the weight, as the columns of a matrix do. */
export type LinearFits<S extends Shape, W extends Shape> = S extends readonly [infer K extends Dim]
  ? MatmulFits<readonly [1, K], W, true>
  : MatmulFits<S, W, true>

/** Of a vector: a vector. */
export type LinearShape<S extends Shape, W extends Shape> = S extends readonly [infer K extends Dim]
  ? ProductShape<readonly [1, K], W, true> extends readonly [
      ...infer L extends Shape,
      Dim,
      infer N extends Dim,
    ]
    ? readonly [...L, N]
    : Shape
  : ProductShape<S, W, true>

/**
 * x · weightᵀ + bias, of floats: x is [..., k], a vector too, the weight [n, k], the bias, where there is one,
 * [n] (torch.nn.functional.linear).
 */
export const linear = <E extends DType, W extends Shape, B extends Shape = Shape>(
  weight: Device<E, W>,
  bias?: Device<E, B> & BiasFits<W, B>,
) => {
  const at = here()
  return composed('linear', at, E.right, (parts, x) => {
    const isVector = x.spec.shape.length === 1
    const row = isVector ? apply(reshapeOperator, at, x, [], { shape: [1, { axis: 0 }] }) : x
    const rows = apply(matmulOperator, at, row, [['the weight', weight]], { transpose: true })
    const product = isVector ? parts.without(rows, [rows.spec.shape.length - 2]) : rows
    return bias === undefined
      ? product
      : apply(addOperator, at, product, [['the bias', beside(product, at, 'linear', 'the bias', bias)]], sum)
  }) as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S> & Floats<D> & SameDType<D, E> & LinearFits<S, W>,
  ) => Device<D, LinearShape<S, W>>
}
