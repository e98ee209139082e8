// Attention on a device against its meaning, of sizes that are multiples of nothing and of those that kernels
// like. The error that is allowed is of rounding alone: a swapped operand, or a place more or less of what a
// query sees, is far beyond it, which the last test shows.
import fc from 'fast-check'
import { lastValueFrom, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { attention, download, type Graph, graph, interpret, tensor, upload } from '../../dsl/index.js'
import { type DType, elements } from '../../dsl/ir/tensor.js'
import { type HostArray, numbers, roundoff } from '../../dsl/language/values.js'
import { filled } from '../fixtures/filled.js'
import { runs } from '../fixtures/runs.js'
import { hasCudnn, yieldedBy } from './by-cudnn.js'
import { present } from './devices.js'
import { ran } from './yields.js'

// biome-ignore lint/suspicious/noExplicitAny: shapes and options vary, which no type follows
type Anything = any

interface Case {
  readonly dtype: 'f32' | 'f16' | 'bf16'
  readonly batch: number
  readonly groups: number
  readonly shared: number
  readonly queries: number
  readonly keys: number
  readonly size: number
  readonly valueSize: number
  readonly causal: boolean
  readonly scale: number
  /** The dimensions of the mask that are of size 1, as bits; -1: no mask. */
  readonly mask: number
  /** Of the keys; beyond them, and below 0, too. Undefined: all are there. */
  readonly length: number | undefined
}

const anySize = fc.oneof(
  fc.integer({ min: 1, max: 70 }),
  fc.constantFrom(8, 16, 32, 48, 64, 80, 96, 128, 136, 256),
)
const anyCount = fc.oneof(fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 150 }), fc.constant(64))
const cases: fc.Arbitrary<Case> = fc.record({
  dtype: fc.constantFrom('f32', 'f16', 'bf16', 'bf16'),
  batch: fc.integer({ min: 1, max: 2 }),
  groups: fc.integer({ min: 1, max: 3 }),
  shared: fc.constantFrom(1, 1, 2, 3),
  queries: anyCount,
  keys: anyCount,
  size: anySize,
  valueSize: anySize,
  causal: fc.boolean(),
  scale: fc.constantFrom(0.25, 0.125, -0.5, 0),
  mask: fc.constantFrom(-1, -1, -1, 0, 1, 2, 4, 7),
  length: fc.oneof(fc.constant(undefined), fc.integer({ min: -1, max: 160 })),
})

interface Made {
  readonly net: Graph
  readonly feeds: Readonly<Record<string, readonly HostArray[]>>
}

const made = (one: Case, swapped = false): Made => {
  const { dtype, batch, groups, shared, queries, keys, size, valueSize, causal, scale } = one
  const heads = groups * shared
  const masked = [batch, heads, queries].map((n, d) => ((one.mask >> d) & 1 ? 1 : n))
  const shapes: Record<string, readonly [DType, readonly number[]]> = {
    q: [dtype, [batch, heads, queries, size]],
    k: [dtype, [batch, groups, keys, size]],
    v: [dtype, [batch, groups, keys, valueSize]],
    ...(one.mask < 0 ? {} : { mask: ['u8', [...masked, keys]] as const }),
    ...(one.length === undefined ? {} : { length: ['i32', [1]] as const }),
  }
  const ports = Object.fromEntries(
    Object.entries(shapes).map(([name, [type, shape]]) => [name, tensor(type, shape)]),
  )
  const net = graph(ports, (flows: Anything) => {
    const there = Object.fromEntries(
      Object.entries(flows).map(([name, flow]: Anything) => [name, flow.pipe(upload())]),
    )
    const { q, k, v, ...others } = there as Anything
    const [first, second] = swapped ? [v, k] : [k, v]
    return { y: q.pipe(attention(first, second, { causal, scale, ...others }), download()) }
  })
  const feeds = Object.fromEntries(
    Object.entries(shapes).map(([name, [type, shape]], i) => [
      name,
      [name === 'length' ? Int32Array.of(one.length!) : filled(type, elements(shape), i, 2)],
    ]),
  )
  return { net: net as unknown as Graph, feeds }
}

const meant = async ({ net, feeds }: Made): Promise<HostArray> => {
  const ticks = await lastValueFrom(interpret(net)(feeds as never).pipe(toArray()))
  return (ticks[0] as Anything).y
}

/**
 * Values are at most 2: the weights are rounded to the type, and so is their sum. Of f32 a weight is off by as
 * much of itself as its score is, which is a sum of products and may be large: on a GPU 2.3e-5 was found.
 */
const allowed = (dtype: DType): number => (dtype === 'f32' ? 4e-5 : 8 * roundoff[dtype])

/** The largest distance of two results; infinite where only one of two elements is a number. */
const apart = (a: HostArray, b: HostArray, dtype: DType): number => {
  const [one, other] = [numbers(a, dtype), numbers(b, dtype)]
  let most = one.length === other.length ? 0 : Number.POSITIVE_INFINITY
  for (let i = 0; i < one.length; i++) {
    if (Number.isNaN(one[i]!) && Number.isNaN(other[i]!)) continue
    const by = Math.abs(one[i]! - other[i]!)
    most = Math.max(most, Number.isNaN(by) ? Number.POSITIVE_INFINITY : by)
  }
  return most
}

const plain: Case = {
  dtype: 'bf16',
  batch: 2,
  groups: 2,
  shared: 2,
  queries: 1,
  keys: 1,
  size: 64,
  valueSize: 64,
  causal: false,
  scale: 0.125,
  mask: -1,
  length: undefined,
}

describe.each(present)('attention on %s', device => {
  it('is what it means', { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(cases, async one => {
        const { net, feeds } = made(one)
        const [got] = await ran(net as Anything, device, feeds)
        expect(apart(got!['y']!, await meant({ net, feeds }), one.dtype)).toBeLessThanOrEqual(
          allowed(one.dtype),
        )
      }),
      { numRuns: runs(150) },
    )
  })

  it.each<Partial<Case>>([
    { queries: 200, keys: 200, causal: true },
    { queries: 130, keys: 330, causal: true, length: 300 },
    { queries: 300, keys: 70, size: 128, valueSize: 128, causal: true },
    { queries: 1, keys: 1024, size: 64, length: 1000, batch: 1, groups: 12, shared: 1 },
    { queries: 2, keys: 1000, size: 128, shared: 3, causal: true },
    { queries: 5, keys: 100, dtype: 'f32', size: 20, valueSize: 300 },
  ])('is what it means, of many keys: %o', async given => {
    const one: Case = { ...plain, ...given }
    const { net, feeds } = made(one)
    const [got] = await ran(net as Anything, device, feeds)
    expect(apart(got!['y']!, await meant({ net, feeds }), one.dtype)).toBeLessThanOrEqual(allowed(one.dtype))
  })
})

it('differs by more than rounding where an operand is swapped, or one key more or less is seen', async () => {
  const one: Case = {
    dtype: 'bf16',
    batch: 1,
    groups: 2,
    shared: 2,
    queries: 40,
    keys: 40,
    size: 32,
    valueSize: 32,
    causal: true,
    scale: 0.125,
    mask: -1,
    length: 39,
  }
  const right = await meant(made(one))
  const wrong = [
    made(one, true),
    made({ ...one, length: 38 }),
    made({ ...one, length: 40 }),
    made({ ...one, causal: false }),
    made({ ...one, scale: 0.15 }),
  ]
  for (const other of wrong)
    expect(apart(await meant(other), right, one.dtype)).toBeGreaterThan(4 * allowed(one.dtype))
})

// What the library computes: many queries of f16 or bf16 in rows of whole 16 bytes, each of which sees a key.
const librarys: fc.Arbitrary<Case> = cases
  .map(one => ({
    ...one,
    dtype: one.dtype === 'f32' ? ('f16' as const) : one.dtype,
    mask: -1,
    length: undefined,
  }))
  .chain(one =>
    fc
      .record({
        queries: fc.oneof(fc.integer({ min: 17, max: 300 }), fc.constantFrom(64, 128, 256)),
        more: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 300 })),
        size: fc.integer({ min: 1, max: 32 }).map(eighths => 8 * eighths),
        valueSize: fc.integer({ min: 1, max: 32 }).map(eighths => 8 * eighths),
        scale: fc.constantFrom(0.25, 0.125, 1),
      })
      .map(({ more, ...sizes }) => ({
        ...one,
        ...sizes,
        keys: one.causal ? sizes.queries + more : 1 + more,
      })),
  )

describe.runIf(hasCudnn)('attention by cuDNN', () => {
  const agrees = async (one: Case, poke: (feeds: Made['feeds']) => void = () => {}) => {
    const { net, feeds } = made(one)
    poke(feeds)
    const wanted = await meant({ net, feeds })
    let calls = 0
    for (const use of ['always', 'off'] as const)
      for (const mode of ['eager', 'graph'] as const) {
        const got = await yieldedBy(use, { net, feeds }, mode)
        expect(apart(got.y, wanted, one.dtype), `${use}, ${mode}`).toBeLessThanOrEqual(allowed(one.dtype))
        if (use === 'off') expect(got.calls).toBe(0)
        calls += got.calls
      }
    return calls
  }

  it('is what it means, as by the kernel of our own', { timeout: 300_000 }, async () => {
    let calls = 0
    await fc.assert(
      fc.asyncProperty(librarys, async one => {
        calls += await agrees(one)
      }),
      { numRuns: runs(60) },
    )
    expect(calls).toBeGreaterThan(0)
  })

  it.each<Partial<Case>>([
    { queries: 256, keys: 256, causal: true },
    { queries: 200, keys: 333, causal: true, dtype: 'f16' },
    { queries: 130, keys: 130, size: 128, valueSize: 128 },
    { queries: 128, keys: 512, causal: true, shared: 4, scale: 0.35 },
  ])('computes in both modes: %o', { timeout: 120_000 }, async given => {
    expect(await agrees({ ...plain, ...given })).toBe(2)
  })

  // A score that is no number, and one that is infinite, make the whole row NaN; the last key is seen by one
  // query.
  const unusual = { f32: [], f16: [0x7e00, 0x7c00, 0xfc00], bf16: [0x7fc0, 0x7f80, 0xff80] } as const
  it.each(['f16', 'bf16'] as const)('keeps NaN and infinities of %s', { timeout: 120_000 }, async dtype => {
    for (const causal of [true, false])
      await agrees({ ...plain, dtype, queries: 130, keys: 130, causal }, ({ q, k }) => {
        const [nan, infinite] = unusual[dtype]
        const [rows, keys] = [q![0]!, k![0]!]
        rows[2 * 64 + 1] = nan!
        rows[5 * 64] = infinite!
        keys[129 * 64] = nan!
      })
  })

  // The first query sees one key, and its score is -∞: the sum of its weights is 0.
  it('is 0 where all that a query sees is -∞', { timeout: 120_000 }, async () => {
    const one: Case = { ...plain, queries: 130, keys: 130, causal: true }
    const { net, feeds } = made(one)
    feeds['q']![0]![0] = unusual.bf16[2]
    feeds['k']![0]![0] = 0x3f80
    const wanted = (await meant({ net, feeds })).slice(0)
    expect([...numbers(wanted, 'bf16')].slice(0, one.valueSize).every(Number.isNaN)).toBe(true)
    const off = await yieldedBy('off', { net, feeds }, 'eager')
    expect(apart(off.y, wanted, 'bf16')).toBeLessThanOrEqual(allowed('bf16'))
    const always = await yieldedBy('always', { net, feeds }, 'eager')
    expect(always.calls).toBe(1)
    wanted.fill(0, 0, one.valueSize)
    expect(apart(always.y, wanted, 'bf16')).toBeLessThanOrEqual(allowed('bf16'))
  })

  // The library's fastest kernel takes the largest score before it is scaled.
  it.each([0, -0.25])('is left to the kernel of our own with a scale of %s', async scale => {
    expect(await agrees({ ...plain, queries: 130, keys: 130, scale })).toBe(0)
  })
})
