import * as E from 'fp-ts/lib/Either.js'
import { show } from '../../ir/show.js'
import { type Dim, type DType, showSpec, type TensorSpec } from '../../ir/tensor.js'
import { FlowValue } from '../builder.js'
import { badAttribute, shapeMismatch, type UnplacedError } from '../messages.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { isOperandNumber } from './arithmetic.js'
import { castTo } from './cast.js'
import { causalOperator } from './causal.js'
import { attrsOfCode } from './code.js'
import { composed, named, ofFloats, type Parts } from './composition.js'
import { matmulOperator } from './matmul.js'
import { reshapeOperator } from './reshape.js'
import { broadcast } from './shapes.js'
import type { Device, Floats, SameDType, Shape } from './types.js'
import { whereOperator } from './where.js'

export interface AttentionOptions<M extends Shape = Shape> {
  /** A query sees the keys up to its own place only; the last query sees all keys. */
  readonly causal?: boolean
  /** u8 or i32, not 0 where a query sees a key, of a shape that broadcasts to [..., heads, queries, keys]. */
  readonly mask?: Device<'u8' | 'i32', M>
  /** Multiplies the scores; 1 / √size where it is left out. */
  readonly scale?: number
}

interface Settings {
  readonly causal: boolean
  readonly scale: number
}

const settingsOf =
  (options: unknown) =>
  (q: TensorSpec): E.Either<UnplacedError, Settings> =>
    E.chain((): E.Either<UnplacedError, Settings> => {
      const size = q.shape.at(-1)
      const { causal = false, scale = typeof size === 'number' ? 1 / Math.sqrt(size) : undefined } =
        named(options)
      if (q.shape.length < 3)
        return E.left(
          shapeMismatch(
            'queries of [..., heads, queries, size]',
            showSpec(q),
            'reshape them to three dimensions',
          ),
        )
      return typeof causal === 'boolean' && isOperandNumber(scale)
        ? E.right({ causal, scale })
        : E.left(
            badAttribute(
              'causal: true or false, and a scale that f32 can hold',
              show(options),
              'give the scale where the size of a query is a symbol',
            ),
          )
    })(ofFloats(q))

type Size = number | { readonly axis: number }

/** The shape of a value as a reshape takes it: symbols by their axis. */
const sizes = (shape: readonly Dim[]): Size[] =>
  shape.map((size, axis) => (typeof size === 'number' ? size : { axis }))

/** [..., groups · n, t, s] as [..., groups, n · t, s]: heads that share their keys lie below one another. */
const folded = (parts: Parts, x: FlowValue, groups: number, n: number): FlowValue => {
  if (n === 1) return x
  const shape = sizes(x.spec.shape)
  const rows = x.spec.shape.at(-2) as number
  return apply(reshapeOperator, parts.at, x, [], {
    shape: [...shape.slice(0, -3), groups, n * rows, shape.at(-1)],
  })
}

const unfolded = (parts: Parts, x: FlowValue, n: number): FlowValue => {
  if (n === 1) return x
  const shape = sizes(x.spec.shape)
  const [groups, rows] = x.spec.shape.slice(-3, -1) as [number, number]
  return apply(reshapeOperator, parts.at, x, [], {
    shape: [...shape.slice(0, -3), groups * n, rows / n, shape.at(-1)],
  })
}

/** How many heads of the queries share one head of the keys; undefined where the shapes do not fit. */
const sharing = (q: TensorSpec, k: TensorSpec, v: TensorSpec): number | undefined => {
  const same = (a: readonly Dim[], b: readonly Dim[]) =>
    a.length === b.length && a.every((size, d) => size === b[d])
  const [heads, own] = [q.shape.at(-3), k.shape.at(-3)]
  if (
    k.shape.length !== q.shape.length ||
    !same(k.shape.slice(0, -1), v.shape.slice(0, -1)) ||
    !same(q.shape.slice(0, -3), k.shape.slice(0, -3)) ||
    q.shape.at(-1) !== k.shape.at(-1)
  )
    return undefined
  if (heads === own) return 1
  const shared = typeof heads === 'number' && typeof own === 'number' ? heads / own : Number.NaN
  return Number.isInteger(shared) && typeof q.shape.at(-2) === 'number' ? shared : undefined
}

const chooseCode = attrsOfCode([
  ['operand', 0],
  ['operand', 1],
  ['const', Number.NEGATIVE_INFINITY],
  ['select', 0, 1, 2],
])

/** The scores in f32 times the scale, -Infinity where a query does not see a key. */
const masked = (parts: Parts, scores: FlowValue, { causal, scale }: Settings, mask: unknown): FlowValue => {
  const seen = causal
    ? apply(causalOperator, parts.at, scores, [], { scale })
    : parts.map(s => s.mul(scale), scores)
  if (mask === undefined) return seen
  const { builder, hint } = seen
  const given = builder.take(mask, 'device', parts.at, 'attention', 'the mask', { ...seen.spec, dtype: 'u8' })
  const shape = broadcast([seen.spec.shape, given.spec.shape])
  const fits =
    shape?.length === seen.spec.shape.length && shape.every((size, d) => size === seen.spec.shape[d])
  if (!fits) {
    const wanted = `a mask of a shape that broadcasts to [${seen.spec.shape.join(', ')}], queries by keys`
    builder.report(parts.at, 'attention', shapeMismatch(wanted, showSpec(given.spec), 'reshape it'))
    return seen
  }
  const condition = new FlowValue(builder, given.id, given.spec, given.place, hint)
  return apply(whereOperator, parts.at, condition, [['the scores', seen]], chooseCode)
}

/**
 * softmax(q · kᵀ · scale) · v of floats: q is [..., heads, queries, size], k [..., groups, keys, size] and v
 * [..., groups, keys, n], where each group of keys is shared by heads / groups heads; the result is [..., heads,
 * queries, n] (torch.nn.functional.scaled_dot_product_attention with enable_gqa). Scores and their softmax are
 * of f32. A query that sees no key is NaN.
 */
export const attention = <E extends DType, K extends Shape, V extends Shape, M extends Shape = Shape>(
  k: Device<E, K>,
  v: Device<E, V>,
  options?: AttentionOptions<M>,
) => {
  const at = here()
  return composed('attention', at, settingsOf(options), (parts, q, settings) => {
    const { builder, spec } = q
    const keys = builder.take(k, 'device', at, 'attention', 'the keys', spec)
    const values = builder.take(v, 'device', at, 'attention', 'the values', spec)
    const shared = sharing(spec, keys.spec, values.spec)
    if (shared === undefined) {
      builder.report(
        at,
        'attention',
        shapeMismatch(
          'keys [..., groups, keys, size] and values [..., groups, keys, n] for queries [..., heads, queries, size]',
          [spec, keys.spec, values.spec].map(showSpec).join(', '),
          'make heads a multiple of groups, and all other leading dimensions equal',
        ),
      )
      return q
    }
    const groups = keys.spec.shape.at(-3) as number
    const product = apply(matmulOperator, at, folded(parts, q, groups, shared), [['the keys', keys]], {
      transpose: true,
      to: 'f32',
    })
    const scores = masked(parts, unfolded(parts, product, shared), settings, named(options)['mask'])
    const weights = castTo(spec.dtype, at, parts.softmax(scores, [scores.spec.shape.length - 1]))
    const summed = apply(
      matmulOperator,
      at,
      folded(parts, weights, groups, shared),
      [['the values', values]],
      {
        transpose: false,
      },
    )
    return unfolded(parts, summed, shared)
  }) as unknown as <D extends DType, S extends Shape>(
    q: Device<D, S> & Floats<D> & SameDType<D, E>,
  ) => Device<D, Attended<S, V>>
}

type Attended<S extends Shape, V extends Shape> = number extends S['length']
  ? Shape
  : V extends readonly [...Shape, infer N extends Dim]
    ? S extends readonly [...infer L extends Shape, Dim]
      ? readonly [...L, N]
      : Shape
    : Shape
