import * as E from 'fp-ts/lib/Either.js'
import { type BoundSpec, type DType, isFloat, showSpec, type TensorSpec } from '../../ir/tensor.js'
import { dtypeMismatch, type UnplacedError } from '../messages.js'
import { type HostArray, hostArray, numbers, roundoff, writer } from '../values.js'
import { type Call, reportAttribute } from './collective.js'
import type { Attrs } from './operator.js'
import type { Floats } from './types.js'

/**
 * The reductions of collectives over the values of several ranks: NCCL's `ncclSum`, `ncclProd`, `ncclMin`,
 * `ncclMax` and `ncclAvg`.
 */
export type ReduceOp = 'sum' | 'product' | 'min' | 'max' | 'mean'

const ops: readonly unknown[] = ['sum', 'product', 'min', 'max', 'mean'] satisfies readonly ReduceOp[]

/** Means take floats only. */
export type Joins<H extends ReduceOp, D extends DType> = [H] extends ['mean'] ? Floats<D> : unknown

/** The attributes of a reducing collective: `{ how }`. */
export const reduceOpOf =
  (how: unknown) =>
  (call: Call): { readonly how: ReduceOp } => {
    if (ops.includes(how)) return { how: how as ReduceOp }
    reportAttribute(
      call,
      "'sum', 'product', 'min', 'max' or 'mean'",
      how,
      'say how the values of the ranks are joined',
    )
    return { how: 'sum' }
  }

/** Keeps the type. A mean takes floats only. */
export const inferJoined = (x: TensorSpec, attrs: Attrs): E.Either<UnplacedError, TensorSpec> =>
  attrs['how'] === 'mean' && !isFloat(x.dtype)
    ? E.left(dtypeMismatch('floats, of a mean', showSpec(x), "cast first: pipe(cast('f32'))"))
    : E.right(x)

const joins: Readonly<Record<ReduceOp, (a: number, b: number) => number>> = {
  sum: (a, b) => a + b,
  product: (a, b) => a * b,
  min: Math.min,
  max: Math.max,
  mean: (a, b) => a + b,
}

/**
 * The values of all places, joined in their order. Floats are joined in f64 and rounded once: every order of
 * f32 additions is close to that. Whole numbers wrap in their own type, as NCCL's do. A NaN among the values
 * is the minimum and the maximum (NCCL promises nothing for it); -0 is less than +0.
 */
export const joined = (given: readonly HostArray[], { dtype }: BoundSpec, attrs: Attrs): HostArray => {
  const how = attrs['how'] as ReduceOp
  const float = isFloat(dtype)
  const join = how === 'product' && !float ? Math.imul : joins[how]
  const values = given.map(value => numbers(value, dtype))
  const [first, ...others] = values
  const result = hostArray(dtype, first!.length)
  const write = float ? writer(dtype) : (value: number) => value
  for (let i = 0; i < result.length; i++) {
    let total = first![i]!
    for (const value of others) total = join(total, value[i]!)
    if (how === 'mean') total /= given.length
    result[i] = write(float ? Math.fround(total) : total)
  }
  return result
}

/**
 * f32 may be added in any order; of f16 and bf16, each of the steps from rank to rank may round to the type.
 */
export const joinTolerance = ({ dtype }: BoundSpec, size: number, attrs: Attrs): number =>
  attrs['how'] === 'min' || attrs['how'] === 'max' || !isFloat(dtype)
    ? 0
    : 4 * size * roundoff.f32 + (dtype === 'f32' ? 0 : 2 * size * roundoff[dtype])
