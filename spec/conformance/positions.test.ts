// Positions in the kernels that read them: a fused plan yields what the graph means, and on the host bit for bit
// what it yields with kernels of their own. A kernel that counts along another dimension is noticed.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  add,
  argmax,
  compile,
  download,
  type Graph,
  graph,
  iota,
  less,
  matmul,
  mul,
  orThrow,
  type Plan,
  param,
  parsePlan,
  softmax,
  sum,
  tensor,
  toJSON,
  where,
} from '../../dsl/index.js'
import { open } from '../../runtime/index.js'
import { positioned, positionedSample } from '../fixtures/graphs/positions.js'
import { type Sample, valuesOf } from '../fixtures/graphs/random.js'
import { often, runs } from '../fixtures/runs.js'
import { present } from './devices.js'
import { expectMeant, meantOf, mismatch, outputsOf, type Values } from './meant.js'

const planOf = ({ graph }: Sample, fuse: boolean): Plan => orThrow(compile(graph as Graph, { fuse })) as Plan

const ran = async (plan: Plan, made: Sample, device: string): Promise<readonly Values[]> => {
  const host = device === 'host' ? { host: { poison: true } } : {}
  const options = { device, params: made.params as never, poison: true, ...host }
  await using session = orThrow(await open(plan, options)())
  return await outputsOf(session as never, made)
}

const bits = (ticks: readonly Values[]) =>
  ticks.map(tick => Object.values(tick).map(value => new Uint8Array(value.buffer)))

const kinds = ({ nodes }: Plan): readonly string[] =>
  nodes.flatMap(({ kernel }) => (kernel === undefined || kernel.kind === 'copy' ? [] : [kernel.kind]))

/** Whether an operation that counts is in one kernel with others. */
const counts = ({ nodes }: Plan): boolean =>
  nodes.some(
    ({ op, kernel }) =>
      op === 'fused' && kernel?.kind === 'map' && kernel.code.some(([what]) => what === 'index'),
  )

const sampleOf = (made: unknown, params: Sample['params'], y: 'f32' | 'i32'): Sample => ({
  ...{ graph: made as Graph, dims: {}, inFlight: 1, ticks: 1, text: '', feeds: {} },
  ...{ params, outputs: { y } },
})

const [rows, columns] = [48, 96]
const matrix = tensor('f32', [rows, columns])
const params = { x: valuesOf('f32', rows * columns, 3), w: valuesOf('f32', columns * columns, 5) }

/** A product whose later columns are left out, and its softmax: causal attention, written out. */
const masked = () =>
  sampleOf(
    graph('masked', {}, () => {
      const scores = param('x', matrix).pipe(matmul(param('w', tensor('f32', [columns, columns]))))
      const seen = scores.pipe(iota({ axis: 1 }), less(scores.pipe(iota({ axis: 0 }), add(1))))
      return { y: seen.pipe(where(scores, -1e9), softmax(), download()) }
    }),
    params,
    'f32',
  )

/** The place of the largest of what is computed in the same kernel. */
const chosen = (axis: 0 | 1) =>
  sampleOf(
    graph('chosen', {}, () => ({
      y: param('x', matrix).pipe(mul(-3), add(0.5), argmax({ axis }), download()),
    })),
    { x: params.x },
    'i32',
  )

/** A sum of positions alone: a kernel of rows that reads nothing. */
const total = (axis: 0 | 1) =>
  sampleOf(
    graph('total', {}, () => ({
      y: param('x', matrix).pipe(iota({ axis: 1 }), mul(3), sum(axis), download()),
    })),
    { x: params.x },
    'i32',
  )

/** The plan whose kernels count along another dimension. */
const changed = (plan: Plan): Plan => {
  const json = JSON.parse(toJSON(plan))
  for (const { kernel } of json.nodes)
    if (kernel?.kind === 'map')
      for (const instruction of kernel.code)
        if (instruction[0] === 'index') instruction[1] = 1 - instruction[1]
  return orThrow(parsePlan(JSON.stringify(json)))
}

describe.each(present)('a kernel that counts on %s', device => {
  it('yields what the graph means, and on the host what positions apart yield', {
    timeout: 120_000,
  }, async () => {
    let fused = 0
    await fc.assert(
      fc.asyncProperty(positioned, async drawn => {
        const made = positionedSample(drawn)
        const plan = planOf(made, true)
        if (counts(plan)) fused++
        const got = await ran(plan, made, device)
        await expectMeant(made, got)
        if (device === 'host') expect(bits(got)).toEqual(bits(await ran(planOf(made, false), made, device)))
      }),
      { numRuns: runs(200) },
    )
    expect(fused).toBeGreaterThan(often(100))
  })

  it.each<readonly [string, () => Sample, readonly string[]]>([
    ['a mask with softmax', masked, ['matmul', 'map']],
    ['the place of the largest of a row with what is before it', () => chosen(1), ['map']],
    ['the place of the largest of a column with what is before it', () => chosen(0), ['map']],
    ['a sum of the positions of a row', () => total(1), ['map']],
    ['a sum of the positions of a column', () => total(0), ['map']],
  ])('is one: %s', async (_, sampled, kernels) => {
    const made = sampled()
    const plan = planOf(made, true)
    expect(kinds(plan)).toEqual(kernels)
    const got = await ran(plan, made, device)
    await expectMeant(made, got)
    const broken = await ran(changed(plan), made, device)
    expect(mismatch(made, await meantOf(made), broken)).toBeDefined()
  })
})
