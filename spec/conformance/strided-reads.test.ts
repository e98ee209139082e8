// Attention and products whose operands are transposed, sliced and reshaped: a fused plan has no copies of
// rows that lie dense elsewhere, and yields what the graph means.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  attention,
  compile,
  download,
  type Graph,
  graph,
  orThrow,
  type Plan,
  param,
  parsePlan,
  reshape,
  split,
  tensor,
  toJSON,
  transpose,
  upload,
} from '../../dsl/index.js'
import { open } from '../../runtime/index.js'
import type { Sample } from '../fixtures/graphs/random.js'
import { strided, stridedPlan, stridedSample, stridesOf } from '../fixtures/graphs/strided.js'
import { often, runs } from '../fixtures/runs.js'
import { present } from './devices.js'
import { expectMeant, meantOf, mismatch, outputsOf, type Values } from './meant.js'

// biome-ignore lint/suspicious/noExplicitAny: the shapes are drawn
type Any = any

interface Drawn {
  readonly batch: number
  readonly heads: number
  readonly rows: number
  readonly size: number
  /**
   * Whether queries, keys and values come as [batch, rows, heads, size], one beside the other in one tensor.
   */
  readonly together: boolean
  /** The order of the axes in which the result leaves. */
  readonly leaves: readonly number[]
}

const drawn: fc.Arbitrary<Drawn> = fc.record({
  batch: fc.integer({ min: 1, max: 3 }),
  heads: fc.integer({ min: 1, max: 3 }),
  rows: fc.integer({ min: 1, max: 20 }),
  size: fc.constantFrom(1, 3, 8, 16),
  together: fc.boolean(),
  leaves: fc.shuffledSubarray([0, 1, 2, 3], { minLength: 4 }),
})

const sampleOf = ({ batch, heads, rows, size, together, leaves }: Drawn): Sample => {
  const width = heads * size
  const all = tensor('f32', [batch, rows, 3 * width])
  const count = batch * rows * 3 * width
  const made = graph('strided', { all }, ({ all }: Any) => {
    const parts: Any[] = all.pipe(upload(), split({ axis: 2, parts: 3 }))
    const [q, k, v] = parts.map(part =>
      together
        ? part.pipe(reshape([batch, rows, heads, size]), transpose([0, 2, 1, 3]))
        : part.pipe(reshape([batch, heads, rows, size])),
    )
    return { y: q.pipe(attention(k, v, { causal: true }), transpose(leaves), download()) }
  })
  const values = Float32Array.from({ length: count }, (_, i) => Math.sin(i * 1.7) * 2)
  return {
    graph: made as never,
    params: {},
    dims: {},
    feeds: { all: [values] },
    ticks: 1,
    inFlight: 1,
    outputs: { y: 'f32' },
  } as unknown as Sample
}

const kinds = ({ nodes }: Plan): readonly string[] =>
  nodes.flatMap(({ kernel }) => (kernel === undefined || kernel.kind === 'copy' ? [] : [kernel.kind]))

describe.each(present)('attention of rows that lie apart on %s', name => {
  it('yields what the graph means', async () => {
    await fc.assert(
      fc.asyncProperty(drawn, async each => {
        const made = sampleOf(each)
        const plan = orThrow(compile(made.graph as Graph, { fuse: true })) as Plan
        await using session = orThrow(await open(plan, { device: name, poison: true })())
        await expectMeant(made, await outputsOf(session as never, made))
        // Rows of several elements stay dense where the last axis stays the last.
        if (each.together && each.size > 1 && each.leaves[3] === 3) expect(kinds(plan)).toEqual(['attention'])
      }),
      { numRuns: runs(30) },
    )
  })

  it('copies what has other readers for them alone', () => {
    const of = graph('read', {}, () => {
      const x = param('x', tensor('f32', [2, 5, 8])).pipe(transpose([1, 0, 2]))
      return { x: x.pipe(download()), y: x.pipe(attention(x, x), download()) }
    })
    const plan = orThrow(compile(of, { fuse: true }))
    const source = plan.buffers.findIndex(({ name }) => name === 'x')
    const reads = plan.commands.flatMap(command =>
      command[0] === 'run' && plan.nodes[command[1]]!.kernel?.kind === 'attention' ? [command[3]] : [],
    )
    expect([kinds(plan), reads]).toEqual([['map', 'attention'], [[source, source, source]]])
  })
})

const ran = async (plan: Plan, one: Sample, device: string): Promise<readonly Values[]> => {
  await using session = orThrow(await open(plan, { device, params: one.params, poison: true })())
  return await outputsOf(session as never, one)
}

/** The plan whose product reads elsewhere. */
const moved = (plan: Plan, change: (operand: Any) => void): Plan => {
  const json = JSON.parse(toJSON(plan))
  for (const { kernel } of json.nodes) if (kernel?.kind === 'matmul') change(kernel.b)
  return orThrow(parsePlan(JSON.stringify(json)))
}

describe.each(present)('products of matrices that lie apart on %s', name => {
  it('yield what the graph means, and on the host bit for bit what they yield of copies', async () => {
    let inPlace = 0
    await fc.assert(
      fc.asyncProperty(strided, async drawn => {
        const one = stridedSample(drawn)
        const plan = stridedPlan(one, true)
        if (stridesOf(plan).inPlace) inPlace++
        const got = await ran(plan, one, name)
        await expectMeant(one, got)
        if (name !== 'host') return
        const apart = await ran(stridedPlan(one, false), one, name)
        expect(got.map(({ y }) => new Uint8Array(y!.buffer))).toEqual(
          apart.map(({ y }) => new Uint8Array(y!.buffer)),
        )
      }),
      { numRuns: runs(80) },
    )
    expect(inPlace).toBeGreaterThan(often(8))
  })

  const apart = {
    before: [0, 8, 8],
    after: [0, 8, 8],
    repeated: false,
    made: false,
    read: false,
    turned: false,
  }
  const dense = { ...apart, before: [0, 0, 0], after: [0, 0, 0] }
  const order = [0, 1, 2]
  const one = stridedSample({
    ...{ dtype: 'f32', layers: 1, m: 8, n: 16, k: 16 },
    ...{ x: { ...dense, order }, w: { ...apart, order } },
  })

  it.each<readonly [string, (operand: Any) => void]>([
    ['at another row stride', operand => operand.rowStride--],
    ['from another element on', operand => operand.offset--],
    ['as if its rows were dense', operand => delete operand.rowStride],
  ])('are noticed where one reads %s', async (_, change) => {
    const plan = stridedPlan(one, true)
    expect(stridesOf(plan)).toEqual({ copies: 0, inPlace: true })
    const meant = await meantOf(one)
    expect(mismatch(one, meant, await ran(plan, one, name))).toBeUndefined()
    expect(mismatch(one, meant, await ran(moved(plan, change), one, name))).toBeDefined()
  })
})
