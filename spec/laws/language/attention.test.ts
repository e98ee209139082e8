// Attention against plain loops over numbers.
import fc from 'fast-check'
import { expect, it } from 'vitest'
import * as braid from '../../../dsl/index.js'
import { type DType, elements } from '../../../dsl/ir/tensor.js'
import { numbers, roundoff } from '../../../dsl/language/values.js'
import { type AnyOp, arrayOf, compute, f32, type Given, problemsOf, typed } from '../../fixtures/compute.js'
import { runs } from '../../fixtures/runs.js'

const size = fc.integer({ min: 1, max: 4 })
const waves = (dtype: DType, shape: readonly number[], by: number): Given =>
  typed(dtype, shape, ...Array.from({ length: elements(shape) }, (_, i) => Math.sin(i * by + by) * 2))

interface Sizes {
  readonly batch: number
  readonly groups: number
  readonly shared: number
  readonly queries: number
  readonly keys: number
  readonly depth: number
  readonly width: number
}

/** By element of the result: the mean of the values, weighted by the exponentials of the scores. */
const attended = (
  { batch, groups, shared, queries, keys, depth, width }: Sizes,
  [q, k, v]: readonly (readonly number[])[],
  scale: number,
  sees: (b: number, head: number, query: number, key: number) => boolean,
): number[] => {
  const result: number[] = []
  for (let b = 0; b < batch; b++)
    for (let head = 0; head < groups * shared; head++)
      for (let query = 0; query < queries; query++) {
        const group = b * groups + Math.floor(head / shared)
        const scores = Array.from({ length: keys }, (_, key) => {
          let dot = 0
          for (let d = 0; d < depth; d++)
            dot +=
              q![((b * groups * shared + head) * queries + query) * depth + d]! *
              k![(group * keys + key) * depth + d]!
          return sees(b, head, query, key) ? Math.exp(dot * scale) : 0
        })
        const total = scores.reduce((x, y) => x + y, 0)
        for (let n = 0; n < width; n++) {
          let sum = 0
          for (let key = 0; key < keys; key++)
            if (scores[key]! > 0) sum += (scores[key]! / total) * v![(group * keys + key) * width + n]!
          result.push(total === 0 ? Number.NaN : sum)
        }
      }
  return result
}

const given = fc.record({
  sizes: fc.record({
    batch: size,
    groups: size,
    shared: size,
    queries: size,
    keys: size,
    depth: size,
    width: size,
  }),
  causal: fc.boolean(),
  masked: fc.boolean(),
  scale: fc.constantFrom(undefined, 0.25, -1),
  dtype: fc.constantFrom<DType>('f32', 'f32', 'bf16', 'f16'),
})

it('is the mean of the values that a query sees, by the softmax of its scores', async () => {
  await fc.assert(
    fc.asyncProperty(given, async ({ sizes, causal, masked, scale, dtype }) => {
      const { batch, groups, shared, queries, keys, depth, width } = sizes
      const heads = groups * shared
      const all = [
        waves(dtype, [batch, heads, queries, depth], 1.3),
        waves(dtype, [batch, groups, keys, depth], 2.1),
        waves(dtype, [batch, groups, keys, width], 0.7),
      ]
      const mask = typed(
        'u8',
        [heads, 1, keys],
        ...Array.from({ length: heads * keys }, (_, i) => ((i * 7) % 3 > 0 ? 5 : 0)),
      )
      const options = { causal, ...(scale === undefined ? {} : { scale }) }
      const got = await compute(masked ? [...all, mask] : all, (q, k, v, m) =>
        q.pipe(braid.attention(k, v, masked ? { ...options, mask: m } : options)),
      )
      expect([got.dtype, got.shape]).toEqual([dtype, [batch, heads, queries, width]])
      const exact = all.map(one => Array.from(numbers(arrayOf(one), dtype)))
      const sees = (_: number, head: number, query: number, key: number) =>
        (!causal || key - (keys - queries) <= query) && (!masked || mask.values[head * keys + key]! !== 0)
      const wanted = attended(sizes, exact, scale ?? 1 / Math.sqrt(depth), sees)
      // The weights are rounded to the type, and so is the result; values are at most 2.
      const error = dtype === 'f32' ? 5e-6 : 8 * roundoff[dtype]
      got.values.forEach((value, i) => {
        if (Number.isNaN(wanted[i]!)) expect(value).toBeNaN()
        else expect(Math.abs(value - wanted[i]!)).toBeLessThanOrEqual(error)
      })
    }),
    { numRuns: runs(60) },
  )
})

it('keeps symbols of leading dimensions', () => {
  const net = braid.graph(
    { q: braid.tensor('f32', ['batch', 4, 3, 8]), k: braid.tensor('f32', ['batch', 2, 5, 8]) },
    flows => {
      const k = flows.k.pipe(braid.upload())
      return { y: flows.q.pipe(braid.upload(), braid.attention(k, k, { causal: true }), braid.download()) }
    },
  )
  expect(braid.irOf(net).problems).toEqual([])
  expect(braid.irOf(net).nodes.at(-1)!.spec.shape).toEqual(['batch', 4, 3, 8])
  for (const batch of [1, 3]) expect(braid.compile(net, { dims: { batch } })).toMatchObject({ _tag: 'Right' })
})

it('refuses shapes, masks and options that do not fit', () => {
  const [q, k] = [f32([4, 3, 8]), f32([2, 5, 8])]
  const tags = (all: readonly Given[], options?: unknown) =>
    problemsOf(all, (a, b, c, m) =>
      a.pipe(braid.attention(b, c, (m ? { mask: m } : options) as never) as AnyOp),
    )
  expect(tags([q, k, k])).toEqual([])
  expect(tags([q, f32([3, 5, 8]), f32([3, 5, 8])])).toEqual(['ShapeMismatch'])
  expect(tags([q, k, f32([2, 4, 8])])).toEqual(['ShapeMismatch'])
  expect(tags([q, f32([2, 5, 7]), k])).toEqual(['ShapeMismatch'])
  expect(tags([q, f32([1, 2, 5, 8]), f32([1, 2, 5, 8])])).toEqual(['ShapeMismatch'])
  expect(tags([f32([3, 8]), k, k])).toEqual(['ShapeMismatch'])
  expect(tags([q, typed('f16', [2, 5, 8]), k])).toEqual(['DTypeMismatch'])
  expect(tags([typed('i32', [4, 3, 8]), k, k])).toEqual(['DTypeMismatch'])
  expect(tags([q, k, k, f32([3, 5])])).toEqual(['DTypeMismatch'])
  expect(tags([q, k, k, typed('u8', [5, 3])])).toEqual(['ShapeMismatch'])
  expect(tags([q, k, k, typed('u8', [2, 4, 3, 5])])).toEqual(['ShapeMismatch'])
  for (const options of [{ causal: 1 }, { scale: Number.NaN }, { scale: '1' }])
    expect(tags([q, k, k], options)).toEqual(['BadAttribute'])
})
