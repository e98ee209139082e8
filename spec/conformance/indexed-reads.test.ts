// Gathers in the kernels that read them: a fused plan yields what the graph means, and on the host bit for
// bit what it yields with kernels of their own. A kernel that reads other rows is noticed.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  add,
  compile,
  download,
  embedding,
  type Graph,
  graph,
  layerNorm,
  mul,
  orThrow,
  type Plan,
  param,
  parsePlan,
  state,
  tensor,
  toJSON,
  upload,
} from '../../dsl/index.js'
import type { MapIndex } from '../../dsl/ir/kernel-spec.js'
import { open } from '../../runtime/index.js'
import { indexed, indexedSample } from '../fixtures/graphs/indexed.js'
import type { Sample } from '../fixtures/graphs/random.js'
import { often, runs } from '../fixtures/runs.js'
import { present } from './devices.js'
import { expectMeant, meantOf, mismatch, outputsOf, type Values } from './meant.js'

// biome-ignore lint/suspicious/noExplicitAny: what is parsed is of no type
type Any = any

const planOf = ({ graph }: Sample, fuse: boolean): Plan => orThrow(compile(graph as Graph, { fuse })) as Plan

const ran = async (plan: Plan, made: Sample, device: string): Promise<readonly Values[]> => {
  const host = device === 'host' ? { host: { poison: true } } : {}
  await using session = orThrow(
    await open(plan, { device, params: made.params as never, poison: true, ...host })(),
  )
  return await outputsOf(session as never, made)
}

const bits = (ticks: readonly Values[]) =>
  ticks.map(tick => Object.values(tick).map(value => new Uint8Array(value.buffer)))

const indices = ({ nodes }: Plan): readonly MapIndex[] =>
  nodes.flatMap(({ kernel }) =>
    kernel?.kind === 'map' ? kernel.operands.flatMap(({ indexed }) => indexed ?? []) : [],
  )

const kinds = ({ nodes }: Plan): readonly string[] =>
  nodes.flatMap(({ kernel }) => (kernel === undefined || kernel.kind === 'copy' ? [] : [kernel.kind]))

/** Tokens and positions, embedded and normalised. */
const embedded = (width: number, dtype: 'f32' | 'bf16'): Sample => {
  const [batch, tokens, words] = [3, 5, 11]
  const sizes = { table: words * width, places: tokens * width, scale: width }
  const made = graph('embedded', { at: tensor('i32', [batch, tokens]) }, ({ at }) => {
    // For the types any one dtype does.
    const of = (name: string, shape: readonly number[]): Any => param(name, tensor(dtype as 'f32', shape))
    const places = param('order', tensor('i32', [tokens])).pipe(embedding(of('places', [tokens, width])))
    const x = at.pipe(upload(), embedding(of('table', [words, width])), add(places as Any)) as Any
    const y = x.pipe(layerNorm({ scale: of('scale', [width]) }))
    return { y: y.pipe(download()), x: x.pipe(download()) }
  })
  const random = (count: number) => Float32Array.from({ length: count }, (_, i) => Math.sin(1.7 * i))
  const halves = (values: Float32Array) => new Uint16Array(new Uint32Array(values.buffer).map(n => n >>> 16))
  const values = (count: number) => (dtype === 'f32' ? random(count) : halves(random(count)))
  const order = Int32Array.from({ length: tokens }, (_, i) => tokens - 1 - i)
  const params = Object.fromEntries(Object.entries(sizes).map(([name, count]) => [name, values(count)]))
  const outside = [-1, words, -(2 ** 31), 2 ** 31 - 1, words - 1]
  const at = Int32Array.from({ length: batch * tokens }, (_, i) => (i < 5 ? outside[i]! : (7 * i) % words))
  return {
    ...{ graph: made as unknown as Graph, dims: {}, inFlight: 1, ticks: 1, text: '' },
    ...{ params: { ...params, order }, feeds: { at: [at] }, outputs: { y: dtype, x: dtype } },
  }
}

/** The plan whose kernels read by another index. */
const changed = (plan: Plan, change: (operand: Any, operands: Any[]) => void): Plan => {
  const json = JSON.parse(toJSON(plan))
  for (const { kernel } of json.nodes)
    if (kernel?.kind === 'map')
      for (const operand of kernel.operands) if (operand.indexed) change(operand, kernel.operands)
  return orThrow(parsePlan(JSON.stringify(json)))
}

describe.each(present)('a kernel that gathers on %s', device => {
  it('yields what the graph means, and on the host what a gather apart yields', {
    timeout: 120_000,
  }, async () => {
    let fused = 0
    await fc.assert(
      fc.asyncProperty(indexed, async drawn => {
        const made = indexedSample(drawn)
        const plan = planOf(made, true)
        if (indices(plan).length > 0) fused++
        const got = await ran(plan, made, device)
        await expectMeant(made, got)
        if (device === 'host') expect(bits(got)).toEqual(bits(await ran(planOf(made, false), made, device)))
      }),
      { numRuns: runs(150) },
    )
    expect(fused).toBeGreaterThan(often(100))
  })

  it.each([
    [8, 'f32'],
    [64, 'bf16'],
    [768, 'bf16'],
    [765, 'bf16'],
    [4096, 'f32'],
  ] as const)('is one with embeddings of %i %s and their norm', async (width, dtype) => {
    const made = embedded(width, dtype)
    const plan = planOf(made, true)
    expect([kinds(plan), indices(plan).length]).toEqual([['map'], 2])
    const got = await ran(plan, made, device)
    await expectMeant(made, got)
    if (device === 'host') expect(bits(got)).toEqual(bits(await ran(planOf(made, false), made, device)))
    // Of a token that is in no table the sum is the position alone.
    const places = (made.params['places'] as Float32Array).slice(4 * width, 5 * width)
    expect(got[0]!['x']!.slice(0, width)).toEqual(places)
  })

  it('reads zeros alone where every index is outside', async () => {
    const made = indexedSample({
      ...{ dtype: 'f32', shape: [1, 64], axis: 0, counts: [6], along: false, leaves: false },
      ...{ table: 'given', indices: 'given', second: 'none', then: 'elements' },
    })
    const at = Int32Array.from([-1, 1, 2, -(2 ** 31), 2 ** 31 - 1, 65536])
    const plan = planOf(made, true)
    expect(indices(plan)).toEqual([{ by: expect.any(Number), length: 1, step: 64 }])
    for (const { y } of await ran(plan, { ...made, feeds: { at: [at, at] } }, device))
      expect(y).toEqual(new Float32Array(6 * 64))
  })

  it.each<readonly [string, (operand: Any, operands: Any[]) => void]>([
    ['a step less', operand => operand.indexed.step--],
    ['a row less', operand => operand.indexed.length--],
    ['no index', operand => delete operand.indexed],
    [
      'another index',
      (operand, operands) => {
        const others = operands.flatMap(({ dtype }, i) => (dtype === 'i32' ? [i] : []))
        operand.indexed.by = others.find(i => i !== operand.indexed.by)
      },
    ],
  ])('is noticed where it reads by %s', async (_, change) => {
    const made = embedded(64, 'f32')
    const plan = planOf(made, true)
    const meant = await meantOf(made)
    expect(mismatch(made, meant, await ran(plan, made, device))).toBeUndefined()
    expect(mismatch(made, meant, await ran(changed(plan, change), made, device))).toBeDefined()
  })

  it('makes a state of what it gathers from the state before', async () => {
    // The next state is no row of the memory that it is read from.
    const made = graph('turned', { at: tensor('i32', [4]) }, ({ at }) => {
      const s = state({ x: tensor('f32', [4, 8]) })
      const next = at.pipe(upload(), embedding(s.x.pipe(add(1)) as Any)).pipe(mul(0.5), add(2)) as Any
      const direct = at.pipe(upload(), embedding(s.x)).pipe(add(next), mul(0.5)) as Any
      s.next({ x: direct })
      return { y: direct.pipe(download()) }
    })
    const feeds = { at: [1, 2, 3].map(n => Int32Array.from([3, n, -1, 0])) }
    const sample = {
      ...{ graph: made as unknown as Graph, dims: {}, inFlight: 1, ticks: 3, text: '', params: {} },
      ...{ feeds, outputs: { y: 'f32' as const } },
    }
    const got = await ran(planOf(sample, true), sample, device)
    await expectMeant(sample, got)
  })
})
