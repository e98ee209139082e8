// The gradients of attention on a device against their meaning, of sizes that are multiples of nothing and of
// those that kernels like. The error that is allowed is of rounding alone, which the last test shows.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as b from '../../dsl/index.js'
import { type DType, elements } from '../../dsl/ir/tensor.js'
import { numbers } from '../../dsl/language/values.js'
import { filled } from '../fixtures/filled.js'
import { runs } from '../fixtures/runs.js'
import { present } from './devices.js'
import { meantOf, mismatch } from './meant.js'
import { ran } from './yields.js'

// biome-ignore lint/suspicious/noExplicitAny: shapes and options vary, which no type follows
type Any = any

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
  readonly masked: boolean
  /** Of the keys; beyond them too. Undefined: all are there. */
  readonly length: number | undefined
}

const count = fc.oneof(fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 150 }), fc.constant(64))
const size = fc.oneof(fc.integer({ min: 1, max: 70 }), fc.constantFrom(16, 32, 48, 64, 80, 96, 128, 136))
const cases: fc.Arbitrary<Case> = fc.record({
  dtype: fc.constantFrom('f32', 'f16', 'bf16', 'bf16'),
  batch: fc.integer({ min: 1, max: 2 }),
  groups: fc.integer({ min: 1, max: 3 }),
  shared: fc.constantFrom(1, 1, 2, 3),
  queries: count,
  keys: count,
  size,
  valueSize: size,
  causal: fc.boolean(),
  scale: fc.constantFrom(0.25, 0.125, -0.25, 0),
  masked: fc.boolean(),
  length: fc.oneof(fc.constant(undefined), fc.integer({ min: 1, max: 160 })),
})

/** The gradients of sum(attention(q, k, v) · dy). A mask hides the first key from no query. */
const made = (one: Case, change: Partial<Case> & { readonly swapped?: boolean } = {}) => {
  const { dtype, batch, groups, shared, queries, keys, size, valueSize } = one
  const { causal, scale, length, masked, swapped = false } = { ...one, ...change }
  const heads = groups * shared
  const shapes: Record<string, readonly [DType, readonly number[]]> = {
    q: [dtype, [batch, heads, queries, size]],
    k: [dtype, [batch, groups, keys, size]],
    v: [dtype, [batch, groups, keys, valueSize]],
    dy: [dtype, [batch, heads, queries, valueSize]],
    ...(masked ? { mask: ['u8', [heads, queries, keys]] as const } : {}),
    ...(length === undefined ? {} : { length: ['i32', [1]] as const }),
  }
  const ports = Object.fromEntries(
    Object.entries(shapes).map(([name, [type, shape]]) => [name, b.tensor(type, shape)]),
  )
  const graph = b.graph(ports, (flows: Any) => {
    const there = Object.fromEntries(
      Object.entries(flows).map(([name, flow]: Any) => [name, flow.pipe(b.upload())]),
    )
    const { q, k, v, dy, ...others } = there as Any
    const y = q.pipe(b.attention(k, v, { causal, scale, ...others }))
    const loss = y.pipe(b.cast('f32'), b.mul(dy.pipe(b.cast('f32'))), b.sum())
    const found: Any = b.gradients(loss, { q, k, v })
    const { q: byQ, k: byK, v: byV } = found
    return Object.fromEntries(
      Object.entries(swapped ? { q: byK, k: byQ, v: byV } : { q: byQ, k: byK, v: byV }).map(
        ([name, flow]) => [`d${name}`, (flow as Any).pipe(b.download())],
      ),
    )
  })
  const feeds = Object.fromEntries(
    Object.entries(shapes).map(([name, [type, shape]], i) => [
      name,
      [name === 'length' ? Int32Array.of(length!) : filled(type, elements(shape), i, 1)],
    ]),
  )
  // Each query sees the first key.
  for (let row = 0; masked && row < heads * queries; row++) feeds['mask']![0]![row * keys] = 1
  const outputs = { dq: dtype, dk: dtype, dv: dtype }
  return { graph, params: {}, dims: {}, feeds, ticks: 1, outputs } as Any
}

/** A case in which each query sees a key. */
const seeing = (one: Case): Case => {
  const there = Math.min(one.length ?? one.keys, one.keys)
  return one.causal && there < one.queries ? { ...one, causal: false } : one
}

const plain: Case = {
  dtype: 'bf16',
  batch: 2,
  groups: 2,
  shared: 2,
  queries: 100,
  keys: 100,
  size: 64,
  valueSize: 64,
  causal: true,
  scale: 0.125,
  masked: false,
  length: undefined,
}

describe.each(present)('gradients of attention on %s', device => {
  const expectMeant = async (one: Case) => {
    const sample = made(one)
    const wanted = await meantOf(sample)
    const mode = one.queries % 2 === 0 ? 'eager' : 'graph'
    const got = await ran(sample.graph, device, sample.feeds, { compile: { mode, fuse: one.keys % 3 > 0 } })
    expect(mismatch(sample, wanted, got)).toBeUndefined()
  }

  it('are what they mean', { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(cases, one => expectMeant(seeing(one))),
      { numRuns: runs(30) },
    )
  })

  it.each<Partial<Case>>([
    {},
    { queries: 80, keys: 230, length: 200, batch: 1 },
    { queries: 140, keys: 150, size: 128, valueSize: 128, shared: 1, batch: 1, dtype: 'f16' },
    { queries: 90, keys: 70, causal: false, masked: true, size: 32, valueSize: 80 },
    { queries: 3, keys: 200, dtype: 'f32', size: 20, valueSize: 75, length: 120 },
  ])('are what they mean, of many keys: %o', given => expectMeant({ ...plain, ...given }))

  // Of 20 queries of 12 keys the first 8 see none, so their values are NaN.
  it.each(['f32', 'bf16'] as const)('are 0 by a query that sees no key, and numbers, in %s', async dtype => {
    const sample = made({ ...plain, dtype, queries: 20, keys: 12, batch: 1, groups: 1, shared: 1 })
    const [got] = await ran(sample.graph, device, sample.feeds)
    const [dq, dk, dv] = ['dq', 'dk', 'dv'].map(name => [...numbers(got![name]!, dtype)])
    expect(dq!.slice(0, 8 * plain.size).every(by => by === 0)).toBe(true)
    expect([...dq!, ...dk!, ...dv!].every(Number.isFinite)).toBe(true)
    expect(mismatch(sample, await meantOf(sample), [got!])).toBeUndefined()
  })

  it('read and write rows where they lie', async () => {
    const [tokens, heads, size] = [70, 3, 32]
    const net = b.graph({ x: b.tensor('bf16', [2, tokens, 3 * heads * size]) }, ({ x }: Any) => {
      const all = x.pipe(b.upload())
      const [q, k, v] = all
        .pipe(b.split({ axis: 2, parts: 3 }))
        .map((part: Any) => part.pipe(b.reshape([2, tokens, heads, size]), b.transpose([0, 2, 1, 3])))
      const y = q.pipe(b.attention(k, v, { causal: true }), b.transpose([0, 2, 1, 3]))
      const loss = y.pipe(b.cast('f32'), b.sin(), b.sum())
      return { dx: (b.gradients(loss, { all }) as Any).all.pipe(b.download()) }
    })
    const feeds = { x: [filled('bf16', 2 * tokens * 3 * heads * size, 3, 1)] }
    const sample = { graph: net, params: {}, dims: {}, feeds, ticks: 1, outputs: { dx: 'bf16' } } as Any
    const kernels = b.orThrow(b.compile(net as Any)).nodes.flatMap(({ kernel }) => kernel ?? [])
    expect(kernels.filter(({ kind }) => kind === 'attention')).toHaveLength(3)
    const wanted = await meantOf(sample)
    expect(mismatch(sample, wanted, await ran(net as Any, device, feeds))).toBeUndefined()
  })
})

it('differ by more than rounding where gradients are swapped, or one key more or less is seen', async () => {
  const one: Case = { ...plain, queries: 40, keys: 40, size: 32, valueSize: 32, length: 39, causal: false }
  const right = await meantOf(made(one))
  const changes = [{ swapped: true }, { length: 38 }, { length: 40 }, { causal: true }, { scale: 0.3 }]
  for (const change of changes) {
    const other = made(one, change)
    const got = (await meantOf(other)).map(({ values }) => values)
    expect(mismatch(other, right, got)).toBeDefined()
  }
})
