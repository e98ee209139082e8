import * as E from 'fp-ts/lib/Either.js'
import type { Where } from '../../ir/graph.js'
import {
  type AttentionOperand,
  type AttentionResult,
  type AttentionSpec,
  attentionProducts,
  attentionYields,
  canAppend,
  isAttentionGradient,
} from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import {
  type BoundSpec,
  type Dim,
  type DType,
  elements,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { FlowValue, piped } from '../builder.js'
import { badAttribute, dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { type HostArray, numbers, roundoff, stored } from '../values.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { isOperandNumber } from './arithmetic.js'
import { ofFloats } from './composition.js'
import { expandOperator } from './expand.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import { broadcast, broadcastStrides } from './shapes.js'
import type { Device, Floats, SameDType, Shape } from './types.js'

export interface AttentionOptions<M extends Shape = Shape, L extends Shape = Shape> {
  /** A query sees the keys up to its own place only; the last query sees all keys that are there. */
  readonly causal?: boolean
  /** u8 or i32, not 0 where a query sees a key, of a shape that broadcasts to [..., heads, queries, keys]. */
  readonly mask?: Device<'u8' | 'i32', M>
  /** Multiplies the scores; 1 / √size where it is left out. */
  readonly scale?: number
  /** How many keys are there, the first ones, as in a cache that fills; all where it is left out. One i32. */
  readonly length?: Device<'i32', L>
}

interface AttentionAttrs {
  readonly causal: boolean
  readonly scale: number
  /** Whether a mask and a length follow the values. Absent: false. */
  readonly mask?: true
  readonly length?: true
  /** Absent: the attended values. */
  readonly result?: AttentionResult
}

const attrsFrom = (attrs: Attrs): AttentionAttrs => attrs as unknown as AttentionAttrs

const attrsOf = (options: unknown, q: TensorSpec): E.Either<UnplacedError, Attrs> => {
  const size = q.shape.at(-1)
  const {
    causal = false,
    scale = typeof size === 'number' ? 1 / Math.sqrt(Math.max(1, size)) : undefined,
    mask,
    length,
  } = named(options)
  return typeof causal === 'boolean' && isOperandNumber(scale) && Number.isFinite(scale)
    ? E.right({
        causal,
        scale,
        ...(mask === undefined ? {} : { mask: true }),
        ...(length === undefined ? {} : { length: true }),
      })
    : E.left(
        badAttribute(
          'causal: true or false, and a scale that f32 can hold',
          show(options),
          'give the scale where the size of a query is a symbol',
        ),
      )
}

/** Whether the heads of the queries can share those of the keys, and all other sizes are equal. */
const fits = ({ shape: q }: TensorSpec, { shape: k }: TensorSpec, { shape: v }: TensorSpec): boolean => {
  const same = (a: readonly Dim[], b: readonly Dim[]) =>
    a.length === b.length && a.every((size, d) => size === b[d])
  const [heads, groups] = [q.at(-3), k.at(-3)]
  const shared =
    heads === groups || (typeof heads === 'number' && typeof groups === 'number' && heads % groups === 0)
  return (
    shared &&
    same(k.slice(0, -1), v.slice(0, -1)) &&
    same(q.slice(0, -3), k.slice(0, -3)) &&
    q.at(-1) === k.at(-1)
  )
}

const scoresOf = (q: TensorSpec, k: TensorSpec): readonly Dim[] => [...q.shape.slice(0, -1), k.shape.at(-2)!]

/** Whether a mask broadcasts to the scores, and does so along all leading dimensions or none. */
const maskFits = (mask: readonly Dim[], scores: readonly Dim[]): 'yes' | 'expand' | 'no' => {
  const both = broadcast([scores, mask])
  if (both?.length !== scores.length || both.some((size, d) => size !== scores[d])) return 'no'
  const own = mask.slice(0, -3)
  const whole = own.length === scores.length - 3 && own.every((size, d) => size === scores[d])
  return whole || own.every(size => size === 1) ? 'yes' : 'expand'
}

export const inferAttention = (
  inputs: readonly TensorSpec[],
  attrs: Attrs,
): E.Either<UnplacedError, TensorSpec> => {
  const [q, k, v, ...others] = inputs as readonly [TensorSpec, TensorSpec, TensorSpec, ...TensorSpec[]]
  const { mask, length } = attrsFrom(attrs)
  const floats = ofFloats(q)
  if (E.isLeft(floats)) return floats
  if (q.shape.length < 3)
    return E.left(
      shapeMismatch(
        'queries of [..., heads, queries, size]',
        showSpec(q),
        'reshape them to three dimensions',
      ),
    )
  if (q.shape.at(-1) === 0)
    return E.left(
      shapeMismatch('queries of at least one element each', showSpec(q), 'give queries and keys a size'),
    )
  const found = [q, k, v].map(showSpec).join(', ')
  if (k.dtype !== q.dtype || v.dtype !== q.dtype)
    return E.left(dtypeMismatch('queries, keys and values of one element type', found, 'cast two of them'))
  if (!fits(q, k, v))
    return E.left(
      shapeMismatch(
        'keys [..., groups, keys, size] and values [..., groups, keys, n] for queries [..., heads, queries, size]',
        found,
        'make heads a multiple of groups, and all other leading dimensions equal',
      ),
    )
  const given = mask ? others[0] : undefined
  const scores = scoresOf(q, k)
  if (given !== undefined && given.dtype !== 'u8' && given.dtype !== 'i32')
    return E.left(dtypeMismatch('a mask of u8 or i32', showSpec(given), "cast it: pipe(cast('u8'))"))
  if (given !== undefined && maskFits(given.shape, scores) !== 'yes') {
    const wanted = `a mask of a shape that broadcasts to [${scores.join(', ')}], queries by keys`
    return E.left(shapeMismatch(wanted, showSpec(given), 'reshape it'))
  }
  const count = length ? others[mask ? 1 : 0]! : undefined
  if (count !== undefined && (count.dtype !== 'i32' || count.shape.some(size => size !== 1)))
    return E.left(dtypeMismatch('a length of one i32', showSpec(count), 'reshape it to [1], or cast it'))
  return E.right({ dtype: q.dtype, shape: [...q.shape.slice(0, -1), v.shape.at(-1)!] })
}

/** Rows one after the other, heads by heads. */
const dense = (heads: number, rows: number, row: number): AttentionOperand => ({
  offset: 0,
  strides: [heads * rows * row, rows * row, row],
})

// cuDNN's thread blocks count there which part of the work comes next.
const scratchBytes = 256
/** Elements of a row that cuDNN's kernels hold at most. */
const mostTiled = 256

/**
 * Whether cuDNN may compute it: rows are whole units of 16 bytes, more than a few queries share keys, each
 * query sees a key, the scale is positive, and there is no mask.
 */
const isLibrarys = (spec: AttentionSpec): boolean => {
  const { queries, keys, size, valueSize, causal, scale, dtype, mask, length, result } = spec
  return (
    result === undefined &&
    dtype !== 'f32' &&
    mask === undefined &&
    length === undefined &&
    [size, valueSize].every(each => each % 8 === 0 && each <= mostTiled) &&
    !canAppend(spec, 0) &&
    (!causal || queries <= keys) &&
    scale > 0
  )
}

export const attentionSpec = (inputs: readonly BoundSpec[], attrs: Attrs): AttentionSpec => {
  const [q, k, v, mask] = inputs as readonly [BoundSpec, BoundSpec, BoundSpec, BoundSpec?]
  const given = attrsFrom(attrs)
  const [heads, queries, size] = q.shape.slice(-3) as [number, number, number]
  const [groups, keys] = k.shape.slice(-3) as [number, number]
  const valueSize = v.shape.at(-1)!
  const batch = elements(q.shape.slice(0, -3))
  const masks = () => {
    const scores = scoresOf(q, k) as readonly number[]
    const [head, row, key] = broadcastStrides(mask!.shape, scores).slice(-3) as [number, number, number]
    const shared = elements(mask!.shape.slice(0, -3)) === 1
    const strides = [shared ? 0 : elements(mask!.shape.slice(-3)), head, row, key] as const
    return { mask: { dtype: mask!.dtype as 'u8' | 'i32', strides } }
  }
  const spec: AttentionSpec = {
    kind: 'attention',
    batch,
    heads,
    groups,
    queries,
    keys,
    size,
    valueSize,
    causal: given.causal,
    scale: given.scale,
    dtype: q.dtype as AttentionSpec['dtype'],
    q: dense(heads, queries, size),
    k: dense(groups, keys, size),
    v: dense(groups, keys, valueSize),
    y: dense(heads, queries, valueSize),
    ...(given.result === undefined ? {} : { result: given.result }),
    ...(given.mask ? masks() : {}),
    ...(given.length ? { length: true } : {}),
  }
  if (isLibrarys(spec)) return { ...spec, workspace: scratchBytes }
  const y = dense(...attentionYields(spec))
  return isAttentionGradient(spec) ? { ...spec, y, dy: spec.y } : { ...spec, y }
}

/** Scores that are computed, of queries by keys. */
export const scoresSeen = ({ batch, heads, queries, keys, causal }: AttentionSpec): number =>
  batch * heads * (causal ? queries * Math.max(1, keys - queries / 2) : queries * keys)

/** The scores of a query: those of key j, where `seen[j]` is 1, for j < `end`. It sees no key from there on. */
export interface QueryScores {
  readonly scores: Float64Array
  readonly seen: Uint8Array
  readonly end: number
}

/** The scores of each query, in arrays that the next query overwrites. */
export const eachQuery = (
  spec: AttentionSpec,
  inputs: readonly HostArray[],
  visit: (row: number, group: number, found: QueryScores) => void,
): void => {
  const { batch, heads, groups, queries, keys, size, causal, scale, mask } = spec
  const [q, k] = [0, 1].map(i => numbers(inputs[i]!, spec.dtype)) as [HostArray, HostArray]
  const there = spec.length ? Math.max(0, Math.min(keys, inputs[mask ? 4 : 3]![0]!)) : keys
  const [mb, mh, mi, mj] = mask?.strides ?? [0, 0, 0, 0]
  const [scores, seen] = [new Float64Array(keys), new Uint8Array(keys).fill(1)]
  for (let b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++)
      for (let i = 0; i < queries; i++) {
        const row = (b * heads + h) * queries + i
        const group = b * groups + Math.floor((h * groups) / heads)
        const end = causal ? Math.min(there, there - queries + i + 1) : there
        for (let j = 0; j < end; j++) {
          if (mask !== undefined) seen[j] = inputs[3]![b * mb + h * mh + i * mi + j * mj] === 0 ? 0 : 1
          if (seen[j] === 0) continue
          const key = (group * keys + j) * size
          let dot = 0
          for (let d = 0; d < size; d++) dot += q[row * size + d]! * k[key + d]!
          scores[j] = Math.fround(dot * scale)
        }
        visit(row, group, { scores, seen, end })
      }
}

/** The largest score that is there. A NaN among them makes the whole row NaN. */
export const largestOf = ({ scores, seen, end }: QueryScores): number => {
  let largest = Number.NEGATIVE_INFINITY
  for (let j = 0; j < end; j++) if (seen[j] === 1) largest = Math.max(largest, scores[j]!)
  return largest
}

const reference = (
  inputs: readonly HostArray[],
  specs: readonly BoundSpec[],
  output: BoundSpec,
  attrs: Attrs,
): HostArray => {
  const spec = attentionSpec(specs, attrs)
  const { keys, valueSize } = spec
  const v = numbers(inputs[2]!, spec.dtype)
  const sums = new Float64Array(elements(output.shape))
  eachQuery(spec, inputs, (row, group, found) => {
    const { scores, seen, end } = found
    const largest = largestOf(found)
    const to = row * valueSize
    let total = 0
    for (let j = 0; j < end; j++) {
      const weight = seen[j] === 0 ? 0 : Math.exp(scores[j]! - largest)
      total += weight
      if (weight === 0) continue
      const from = (group * keys + j) * valueSize
      for (let n = 0; n < valueSize; n++) sums[to + n]! += weight * v[from + n]!
    }
    for (let n = 0; n < valueSize; n++) sums[to + n]! /= total
  })
  return stored(sums, output.dtype)
}

/** The largest error of sums of f32 and of weights in the type, relative to the largest of the values. */
const roundedBy = ({ keys, dtype }: AttentionSpec): number =>
  (keys + 16) * roundoff.f32 + (dtype === 'f32' ? 0 : 4 * roundoff[dtype])

/** softmax(q · kᵀ · scale) · v as one node; see `attention`. */
export const attentionOperator: Operator = {
  name: 'attention',
  infer: inferAttention,
  lower: (inputs, output, attrs) => {
    const kernel = attentionSpec(inputs, attrs)
    return {
      as: 'run',
      kernel,
      flops: 2 * scoresSeen(kernel) * attentionProducts(kernel),
      movedBytes: inputs.reduce((sum, each) => sum + tensorBytes(each), tensorBytes(output)),
      workspace: kernel.workspace ?? 0,
    }
  },
  withEmpty: () => Number.NaN,
  reference,
  tolerance: (_output, inputs, attrs) => roundedBy(attentionSpec(inputs, attrs)),
  // A score is a sum of f32, whose error moves its weight: the larger the scores, the further.
  scale: ([q, k, v], inputs, attrs) => {
    const spec = attentionSpec(inputs, attrs)
    const score = spec.size * (q ?? 0) * (k ?? 0) * Math.abs(spec.scale)
    return (v ?? 0) * (1 + (2 * (spec.size + 4) * roundoff.f32 * score) / roundedBy(spec))
  },
}

/** A mask as the kernel reads it: copied where it broadcasts along some leading dimensions and not others. */
const takenMask = (q: FlowValue, k: FlowValue, at: Where, given: unknown): FlowValue => {
  const { builder, hint, spec } = q
  const mask = builder.take(given, 'device', at, 'attention', 'the mask', { ...spec, dtype: 'u8' })
  const value = new FlowValue(builder, mask.id, mask.spec, mask.place, hint)
  const scores = scoresOf(spec, k.spec)
  if (k.spec.shape.length < 2 || maskFits(mask.spec.shape, scores) !== 'expand') return value
  const shape = [...scores.slice(0, -3), ...mask.spec.shape.slice(-3)]
  return shape.every(size => typeof size === 'number')
    ? apply(expandOperator, at, value, [], { shape })
    : value
}

/**
 * softmax(q · kᵀ · scale) · v of floats: q is [..., heads, queries, size], k [..., groups, keys, size] and v
 * [..., groups, keys, n], where each group of keys is shared by heads / groups heads; the result is [...,
 * heads, queries, n] (torch.nn.functional.scaled_dot_product_attention with enable_gqa). Scores and their
 * softmax are of f32 and are never stored; the weights may be rounded to the element type before they meet
 * the values. A query that sees no key is NaN; one whose scores are all -∞ is NaN too, or 0 where a library
 * computes it. The values of keys that are not seen must be finite.
 */
export const attention = <
  E extends DType,
  K extends Shape,
  V extends Shape,
  M extends Shape = Shape,
  L extends Shape = Shape,
>(
  k: Device<E, K>,
  v: Device<NoInfer<E>, V>,
  options?: AttentionOptions<M, L>,
) => {
  const at = here()
  const attended = (x: unknown): unknown => {
    const q = piped(x, 'device', at, 'attention')
    if (q.place !== 'device') return q.builder.placeholder(q.spec, 'device', at)
    const { mask, length } = named(options)
    const keys = q.builder.take(k, 'device', at, 'attention', 'the keys', q.spec)
    const others = [
      ...(mask === undefined ? [] : [['the mask', takenMask(q, keys, at, mask)] as const]),
      ...(length === undefined ? [] : [['the length', length] as const]),
    ]
    return apply(
      attentionOperator,
      at,
      q,
      [['the keys', keys], ['the values', v], ...others],
      withOptions(options, ['causal', 'mask', 'scale', 'length'], spec => attrsOf(options, spec)),
    )
  }
  return attended as unknown as <D extends DType, S extends Shape>(
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
