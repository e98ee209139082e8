import * as E from 'fp-ts/lib/Either.js'
import type { DType } from '../../ir/tensor.js'
import { here } from '../where.js'
import { addOperator } from './add.js'
import { apply } from './apply.js'
import { attrsOfCode } from './code.js'
import { beside, composed } from './composition.js'
import { type MatmulFits, matmulOperator, type ProductShape } from './matmul.js'
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

/**
 * x · weightᵀ + bias, of floats: x is [..., k], the weight [n, k], the bias, where there is one, [n]
 * (torch.nn.functional.linear).
 */
export const linear = <E extends DType, W extends Shape, B extends Shape = Shape>(
  weight: Device<E, W>,
  bias?: Device<E, B> & BiasFits<W, B>,
) => {
  const at = here()
  return composed('linear', at, E.right, (_, x) => {
    const product = apply(matmulOperator, at, x, [['the weight', weight]], { transpose: true })
    return bias === undefined
      ? product
      : apply(addOperator, at, product, [['the bias', beside(product, at, 'linear', 'the bias', bias)]], sum)
  }) as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S> & Floats<D> & SameDType<D, E> & MatmulFits<S, W, true>,
  ) => Device<D, ProductShape<S, W, true>>
}
