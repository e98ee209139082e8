import * as E from 'fp-ts/lib/Either.js'
import { show } from '../../ir/show.js'
import { type DType, showSpec, type TensorSpec } from '../../ir/tensor.js'
import { badAttribute, type UnplacedError } from '../messages.js'
import { here } from '../where.js'
import { apply, parted } from './apply.js'
import { named, withOptions } from './options.js'
import { axisOf } from './reduce.js'
import type { Quotient } from './sizes.js'
import { sliceOperator } from './slice.js'
import type { Device, IsOpenShape, Resized, Shape, SizeOf } from './types.js'

/** Equal parts, or parts of these sizes, along an axis. */
export type SplitOptions =
  | { readonly axis: number; readonly parts: number }
  | { readonly axis: number; readonly sizes: readonly number[] }

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) > 0
const isSize = (value: unknown): value is number => value === 0 || isCount(value)

interface Cuts {
  readonly axis: number
  readonly sizes: readonly number[]
}

const cutsOf =
  (options: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, Cuts> =>
    E.chain((axis: number): E.Either<UnplacedError, Cuts> => {
      const { parts, sizes } = named(options)
      const size = x.shape[axis]
      const found = `${show(options)} of ${showSpec(x)}`
      if (typeof size !== 'number')
        return E.left(
          badAttribute(
            'an axis whose size is a number',
            found,
            `cut it with slice: the size ${size} is not known here`,
          ),
        )
      if ((parts === undefined) === (sizes === undefined))
        return E.left(badAttribute('either parts or sizes', found, 'as in split({ axis: 0, parts: 2 })'))
      if (isCount(parts) && size % parts === 0)
        return E.right({ axis, sizes: new Array<number>(parts).fill(size / parts) })
      if (Array.isArray(sizes) && sizes.every(isSize) && sizes.reduce((a, b) => a + b, 0) === size)
        return E.right({ axis, sizes })
      return E.left(
        badAttribute(
          parts === undefined
            ? `sizes from 0 that add up to ${size}`
            : `a number of parts that divides ${size}`,
          found,
          'give sizes: [1, 2] for parts that differ',
        ),
      )
    })(axisOf(named(options)['axis'], x))

/** How many results a caller takes apart, even after an error. */
const wanted = (options: unknown): number => {
  const { parts, sizes } = named(options)
  const count = Array.isArray(sizes) ? sizes.length : parts
  return isCount(count) && count <= 4096 ? count : 4096
}

type Tuple<N extends number, V, Made extends readonly V[] = []> = number extends N
  ? readonly V[]
  : Made['length'] extends 64
    ? readonly V[]
    : Made['length'] extends N
      ? readonly [...Made]
      : Tuple<N, V, [...Made, V]>

/** One of equal parts. */
export type Divided<S extends Shape, A extends number, N extends number> =
  IsOpenShape<S> extends true ? Shape : Resized<S, A, Quotient<SizeOf<S, A>, N>[0]>

type Parts<D extends DType, S extends Shape, O> = O extends {
  readonly axis: infer A extends number
  readonly sizes: infer N extends readonly number[]
}
  ? { readonly [K in keyof N]: Device<D, Resized<S, A, N[K] & number>> }
  : O extends { readonly axis: infer A extends number; readonly parts: infer N extends number }
    ? Tuple<N, Device<D, Divided<S, A, N>>>
    : never

/**
 * The parts of a value along an axis, in their order: `const [a, b] = x.pipe(split({ axis: 1, parts: 2 }))`.
 * Each is a `slice`: a view where the layout allows, else a copy.
 */
export const split = <const O extends SplitOptions>(options: O) => {
  const at = here()
  const cut = (x: unknown): unknown => {
    const made = parted(
      'split',
      at,
      x,
      withOptions(options, ['axis', 'parts', 'sizes'], cutsOf(options)),
      (value, { axis, sizes }) =>
        value.builder.parts('split', () => {
          let from = 0
          return sizes.map(size => {
            const to = from + size
            const part = apply(sliceOperator, at, value, [], { axis, from, to })
            from = to
            return part
          })
        }),
    )
    return Array.isArray(made) ? made : new Array(wanted(options)).fill(made)
  }
  return cut as unknown as <D extends DType, S extends Shape>(x: Device<D, S>) => Parts<D, S, O>
}
