import * as E from 'fp-ts/lib/Either.js'
import { show } from '../../ir/show.js'
import { type Dim, type DType, showSpec, type TensorSpec } from '../../ir/tensor.js'
import { badAttribute, shapeMismatch, type UnplacedError } from '../messages.js'
import { maxRank, validSpec } from '../tensor.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import type { Attrs, Operator } from './operator.js'
import type { ProductOver } from './sizes.js'
import type { Device, IsOpenShape, Shape } from './types.js'

/**
 * A size of the new shape: a number, or the size of an axis of the input (so that a symbol is kept and bound
 * later).
 */
type Size = number | { readonly axis: number }

/** The product of the sizes that are numbers. */
export const product = (shape: readonly Dim[]): number =>
  shape.reduce<number>((n, size) => n * (typeof size === 'number' ? size : 1), 1)
const symbols = (shape: readonly Dim[]): string =>
  shape
    .filter(size => typeof size === 'string')
    .sort()
    .join(' ')

const mismatch = (x: TensorSpec, shape: readonly unknown[]): E.Either<UnplacedError, never> =>
  E.left(
    shapeMismatch(
      `as many elements as ${showSpec(x)}`,
      show(shape),
      'a reshape keeps all elements: every symbol once, and the numbers with an equal product; ' +
        'one -1 is worked out',
    ),
  )

const fits = (x: TensorSpec, shape: readonly Dim[]): boolean =>
  product(shape) === product(x.shape) && symbols(shape) === symbols(x.shape)

/** Always a view. */
export const reshapeOperator: Operator = {
  name: 'reshape',
  infer: ([x], attrs) => {
    const shape = (attrs['shape'] as readonly Size[]).map(size =>
      typeof size === 'number' ? size : (x!.shape[size.axis] ?? 1),
    )
    return fits(x!, shape) ? E.right({ dtype: x!.dtype, shape }) : mismatch(x!, shape)
  },
  lower: () => ({ as: 'view', offsetBytes: 0 }),
  mayBeView: true,
  reference: inputs => inputs[0]!.slice(),
  tolerance: () => 0,
}

const attrsOf =
  (given: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, Attrs> => {
    if (!Array.isArray(given) || given.length > maxRank)
      return E.left(
        badAttribute(
          `a shape of at most ${maxRank} dimensions`,
          show(given),
          'give an array such as [-1, 64]',
        ),
      )
    const open = given.indexOf(-1)
    const rest = given.filter((_, d) => d !== open) as Dim[]
    const { problem } = validSpec({ dtype: 'u8', shape: rest })
    if (problem) return E.left({ ...problem, _tag: 'BadAttribute' })
    const missing = product(x.shape) / product(rest)
    if (open >= 0 && !Number.isInteger(missing)) return mismatch(x, given)
    const taken = new Set<number>()
    const shape: Size[] = []
    for (const [d, size] of given.entries()) {
      if (d === open) shape.push(missing)
      else if (typeof size === 'number') shape.push(size)
      else {
        const axis = x.shape.findIndex((own, i) => own === size && !taken.has(i))
        if (axis < 0) return mismatch(x, given)
        taken.add(axis)
        shape.push({ axis })
      }
    }
    // -1 may be the one remaining symbol, if that symbol has no numeric factor.
    const left = x.shape.findIndex((size, axis) => typeof size === 'string' && !taken.has(axis))
    if (open >= 0 && left >= 0 && missing === 1) shape[open] = { axis: left }
    const sizes = shape.map(size => (typeof size === 'number' ? size : x.shape[size.axis]!))
    return fits(x, sizes) ? E.right({ shape }) : mismatch(x, given)
  }

type Others<N extends Shape> = N extends readonly [infer First, ...infer R extends Shape]
  ? First extends -1
    ? Others<R>
    : readonly [First, ...Others<R>]
  : readonly []

/** The new shape, its -1 worked out where the sizes of both are known. */
export type Reshaped<S extends Shape, N extends Shape> = {
  readonly [K in keyof N]: N[K] extends -1
    ? IsOpenShape<S> extends true
      ? number
      : ProductOver<S, Others<N>> extends infer Size extends Dim
        ? Size
        : number
    : N[K]
}

/** The same elements in another shape, row-major; one dimension may be -1. A view: no element moves. */
export const reshape = <const N extends Shape>(shape: N) => {
  const at = here()
  const view = (x: unknown): unknown => apply(reshapeOperator, at, x, [], attrsOf(shape))
  return view as unknown as <D extends DType, S extends Shape>(x: Device<D, S>) => Device<D, Reshaped<S, N>>
}
