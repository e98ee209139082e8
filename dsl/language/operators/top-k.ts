import * as E from 'fp-ts/lib/Either.js'
import type { ReduceSpec } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import {
  type BoundSpec,
  type DType,
  elements,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { FlowValue } from '../builder.js'
import { badAttribute, type UnplacedError } from '../messages.js'
import { hostArray, numbers } from '../values.js'
import { here } from '../where.js'
import { apply, parted } from './apply.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import { axisOf, beyondPositions } from './reduce.js'
import { takeAlongOperator } from './take-along.js'
import type { Device, Resized, Shape } from './types.js'

interface TopAttrs {
  readonly axis: number
  /** Absent: all positions, as `scatterAdd` has them. */
  readonly k?: number
  readonly largest: boolean
}

const attrsFrom = (attrs: Attrs): TopAttrs => attrs as unknown as TopAttrs

const infer = ([x]: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> => {
  const { axis, k } = attrsFrom(attrs)
  const size = x!.shape[axis]
  const beyond = beyondPositions(axis, x!)
  if (beyond !== undefined) return E.left(beyond)
  return typeof size === 'number' && k !== undefined && k > size
    ? E.left(
        badAttribute(`k: at most ${size}, the size of axis ${axis} of ${showSpec(x!)}`, `${k}`, 'take fewer'),
      )
    : E.right({ dtype: 'i32', shape: x!.shape.map((own, d) => (d === axis ? (k ?? own) : own)) })
}

const spec = (x: BoundSpec, attrs: Attrs): ReduceSpec => {
  const { axis, k, largest } = attrsFrom(attrs)
  return {
    kind: 'reduce',
    how: largest ? 'argmax' : 'argmin',
    outer: elements(x.shape.slice(0, axis)),
    length: x.shape[axis]!,
    inner: elements(x.shape.slice(axis + 1)),
    input: x.dtype,
    output: 'i32',
    count: k ?? x.shape[axis]!,
  }
}

/** Comparisons of an element, at most: of many positions an element is compared as sorting asks for. */
const mostTurns = 64

/** The positions of the k best elements along an axis, best first. */
export const topKOperator: Operator = {
  name: 'topK',
  infer,
  lower: ([x], output, attrs) => ({
    as: 'run',
    kernel: spec(x!, attrs),
    flops: elements(x!.shape) * Math.min(mostTurns, spec(x!, attrs).count ?? 1),
    movedBytes: tensorBytes(x!) + tensorBytes(output),
    workspace: 0,
  }),
  reference: ([given], [x], output, attrs) => {
    const { how, outer, length, inner, count = 1 } = spec(x!, attrs)
    const values = numbers(given!, x!.dtype)
    const result = hostArray('i32', elements(output.shape))
    const sign = how === 'argmax' ? 1 : -1
    // A NaN before all numbers, then the better number, then the earlier place.
    const order = (a: number, b: number): number => {
      const nan = Number(Number.isNaN(b)) - Number(Number.isNaN(a))
      return nan !== 0 || Number.isNaN(a) ? nan : a === b ? 0 : a > b ? -sign : sign
    }
    for (let o = 0; o < outer; o++)
      for (let i = 0; i < inner; i++) {
        const at = (l: number) => values[(o * length + l) * inner + i]!
        const places = Array.from({ length }, (_, l) => l).sort((p, q) => order(at(p), at(q)) || p - q)
        for (let j = 0; j < count; j++) result[(o * count + j) * inner + i] = places[j]!
      }
    return result
  },
  tolerance: () => 0,
}

export interface TopKOptions<K extends number = number, A extends number = number> {
  /** How many, from 0 to the size of the axis. */
  readonly k: K
  /** The last axis where it is left out. */
  readonly axis?: A
  /** false: the smallest elements. */
  readonly largest?: boolean
}

const attrsOf =
  (options: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, Attrs> =>
    E.chain((axis: number): E.Either<UnplacedError, Attrs> => {
      const { k, largest = true } = named(options)
      if (!Number.isSafeInteger(k) || (k as number) < 0 || typeof largest !== 'boolean')
        return E.left(
          badAttribute(
            'k: a whole number from 0, and largest: true or false',
            show(options),
            'as in topK({ k: 5, axis: 1 })',
          ),
        )
      const attrs = { axis, k, largest }
      return E.map(() => attrs)(infer([x], attrs))
    })(axisOf(named(options)['axis'] ?? -1, x))

/**
 * The k largest (or smallest) elements along an axis and their positions, best first: `const { values,
 * indices } = x.pipe(topK({ k: 5, axis: 1 }))` (torch.topk). Of equal elements the first comes first, and a
 * NaN before all numbers. Positions are of i32.
 */
export const topK = <const K extends number, const A extends number = -1>(options: TopKOptions<K, A>) => {
  const at = here()
  const both = (x: unknown): unknown => {
    const made = parted(
      'topK',
      at,
      x,
      withOptions(options, ['k', 'axis', 'largest'], attrsOf(options)),
      (value, attrs) =>
        value.builder.parts('topK', () => {
          const indices = apply(topKOperator, at, value, [], attrs)
          const role = ['the indices', indices] as const
          return {
            indices,
            values: apply(takeAlongOperator, at, value, [role], { axis: attrsFrom(attrs).axis }),
          }
        }),
    )
    return made instanceof FlowValue ? { indices: made, values: made } : made
  }
  return both as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S>,
  ) => { readonly values: Device<D, Resized<S, A, K>>; readonly indices: Device<'i32', Resized<S, A, K>> }
}
