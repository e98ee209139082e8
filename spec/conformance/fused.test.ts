// What a plan of fused kernels yields is what the graph means, and on one device bit for bit what the plan
// without them yields. A fused kernel that drops an operand, or swaps two, is noticed.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  add,
  compile,
  div,
  download,
  type Graph,
  graph,
  layerNorm,
  logSoftmax,
  max,
  mul,
  orThrow,
  type Plan,
  param,
  parsePlan,
  rmsNorm,
  softmax,
  sub,
  sum,
  tensor,
  toJSON,
  upload,
} from '../../dsl/index.js'
import type { MapInstruction } from '../../dsl/ir/kernel-spec.js'
import { hasRows, isRowReduction } from '../../dsl/ir/map-rows.js'
import { open, type Session } from '../../runtime/index.js'
import { type Sample, sample, valuesOf } from '../fixtures/graphs/random.js'
import { graphOf, siblings } from '../fixtures/graphs/siblings.js'
import { often, runs } from '../fixtures/runs.js'
import { present } from './devices.js'
import { expectMeant, outputsOf, type Values } from './meant.js'

const planOf = ({ graph, dims, inFlight }: Sample, fuse: boolean): Plan =>
  orThrow(compile(graph as Graph, { dims, inFlight, fuse })) as Plan

const ran = async (plan: Plan, made: Sample, device: string): Promise<readonly Values[]> => {
  const host = device === 'host' ? { host: { poison: true } } : {}
  const options = { device, params: made.params as never, poison: true, ...host }
  await using session = orThrow(await open(plan, options)()) as Session
  return await outputsOf(session as never, made)
}

/** Whether a node is a kernel with rows. */
const reduces = ({ kernel }: Plan['nodes'][number]): boolean => kernel?.kind === 'map' && hasRows(kernel)

const isFused = ({ op }: Plan['nodes'][number]): boolean => op === 'fused'

/** The plan with the code of each fused kernel changed. */
const changed = (
  plan: Plan,
  change: (code: readonly MapInstruction[]) => readonly MapInstruction[],
): Plan => {
  const json = JSON.parse(toJSON(plan))
  for (const node of json.nodes) if (node.op === 'fused') node.kernel.code = change(node.kernel.code)
  return orThrow(parsePlan(JSON.stringify(json)))
}

const swapped = (code: readonly MapInstruction[]) => {
  const last = code.findLastIndex(([op]) => op === 'sub')
  return code.map((each, i) => (i === last ? (['sub', each[2], each[1]] as MapInstruction) : each))
}
const dropped = (code: readonly MapInstruction[]) => {
  const last = code.findLastIndex(([op]) => op === 'operand')
  return code.map((each, i): MapInstruction => (i === last ? ['const', 0.5] : each))
}

const reductionDropped = (code: readonly MapInstruction[]) => {
  const last = code.findLastIndex(each => isRowReduction(each))
  return code.map((each, i): MapInstruction => (i === last ? ['const', 0.5] : each))
}

const differ = (one: readonly Values[], other: readonly Values[]): boolean =>
  JSON.stringify(one.map(tick => Object.values(tick).map(value => [...value]))) !==
  JSON.stringify(other.map(tick => Object.values(tick).map(value => [...value])))

/** Whether a plan with other code yields something else. */
const broken = async (plan: Plan, change: Parameters<typeof changed>[1], made: Sample, device: string) =>
  differ(await ran(plan, made, device), await ran(changed(plan, change), made, device))

/** By step: how far back its second operand lies. */
const chains = fc.array(fc.nat(5), { minLength: 2, maxLength: 8 })

/** Differences of which no two are alike, so that no operand can hide. */
const chainOf = (steps: readonly number[]): Sample => {
  const vector = tensor('f32', [32])
  const graphOf = graph('chain', { x: vector, z: vector }, ({ x, z }) => {
    const values = [x.pipe(upload()), z.pipe(upload())]
    steps.forEach((back, i) => {
      const second = values[Math.max(0, values.length - 2 - back)]!
      values.push(values.at(-1)!.pipe(mul(1 + i / 8), sub(second)))
    })
    return { y: values.at(-1)!.pipe(download()) }
  })
  const feeds = { x: [valuesOf('f32', 32, 1)], z: [valuesOf('f32', 32, 2)] }
  const base = { dims: {}, inFlight: 1, params: {}, ticks: 1, outputs: { y: 'f32' as const }, text: '' }
  return { ...base, graph: graphOf as unknown as Graph, feeds }
}

/** Of softmax, norms and what goes in and out of them: by step which of them. */
const rowSteps = fc.array(fc.nat(5), { minLength: 1, maxLength: 4 })

const rowsOf = (
  steps: readonly number[],
  shape: readonly [number, number],
  dtype: 'f32' | 'bf16',
): Sample => {
  // For the types any one dtype and shape does.
  const [rows, length] = shape as unknown as readonly [8, 16]
  const matrix = tensor(dtype as 'f32', [rows, length])
  const weight = tensor(dtype as 'f32', [length])
  // The weight is there before the first tick: a kernel of the rows alone would not wait for it to come.
  const graphOf = graph('rows', { x: matrix }, ({ x }) => {
    const given = param('w', weight)
    let value = x.pipe(upload())
    for (const step of steps) {
      if (step === 0) value = value.pipe(mul(2), softmax())
      else if (step === 1) value = value.pipe(layerNorm({ scale: given }), mul(0.25))
      else if (step === 2) value = value.pipe(rmsNorm({ scale: given }), sub(given))
      else if (step === 3) value = value.pipe(sub(value.pipe(max({ axis: 1, keepDims: true }))))
      else if (step === 4)
        value = value.pipe(div(value.pipe(mul(value), sum({ axis: 1, keepDims: true }), add(1))))
      else value = value.pipe(logSoftmax(), mul(0.1))
    }
    const last = value.pipe(mul(given))
    return { y: steps.length % 2 === 0 ? last.pipe(download()) : last.pipe(sum(1), download()) }
  })
  const count = shape[0] * shape[1]
  const feeds = { x: [valuesOf(dtype, count, 1)] }
  const params = { w: valuesOf(dtype, shape[1], 2) }
  const base = { dims: {}, inFlight: 1, params, ticks: 1, outputs: { y: dtype }, text: '' }
  return { ...base, graph: graphOf as unknown as Graph, feeds }
}

const rowSamples = fc
  .tuple(
    rowSteps,
    fc.tuple(fc.integer({ min: 1, max: 9 }), fc.constantFrom(2, 7, 33, 128, 600, 1024, 1500, 4096)),
    fc.constantFrom('f32' as const, 'bf16' as const),
  )
  .map(([steps, shape, dtype]) => rowsOf(steps, shape, dtype))

describe.each(present)('on %s a fused plan', device => {
  const options = [{}, { rates: true }] as const

  it.each(options)('yields what the graph means, and what the unfused plan yields: %j', async option => {
    let kernels = 0
    await fc.assert(
      fc.asyncProperty(sample({ steps: 20, ...option }), async made => {
        const plan = planOf(made, true)
        const found = plan.nodes.filter(isFused).length
        fc.pre(found > 0)
        kernels += found
        const got = await ran(plan, made, device)
        await expectMeant(made, got)
        // Of rows the host adds in the order of its reductions; another device may add in another. Products
        // with an epilogue round once where the operations apart round several times.
        const isExact = plan.nodes.every(({ kernel }) => kernel?.kind !== 'matmul' || !kernel.epilogue)
        if (isExact && (device === 'host' || !plan.nodes.some(reduces)))
          expect(differ(got, await ran(planOf(made, false), made, device))).toBe(false)
      }),
      { numRuns: runs(16) },
    )
    expect(kernels).toBeGreaterThan(often(0))
  })

  it.each([
    [3, 20],
    [20, 60],
    [60, 200],
  ])('of %i to %i steps yields what the graph means', { timeout: 120_000 }, async (least, steps) => {
    let kernels = 0
    await fc.assert(
      fc.asyncProperty(sample({ least, steps, kernels: false }), async made => {
        const plan = planOf(made, true)
        kernels += plan.nodes.filter(isFused).length
        await expectMeant(made, await ran(plan, made, device))
      }),
      { numRuns: runs(steps > 100 ? 6 : 12) },
    )
    expect(kernels).toBeGreaterThan(often(0))
  })

  it('of rows yields what the graph means, and on the host bit for bit what the unfused plan yields', async () => {
    let cases = 0
    let noticed = 0
    await fc.assert(
      fc.asyncProperty(rowSamples, async made => {
        const plan = planOf(made, true)
        expect(plan.nodes.filter(reduces)).toHaveLength(1)
        const got = await ran(plan, made, device)
        await expectMeant(made, got)
        if (device === 'host') expect(differ(got, await ran(planOf(made, false), made, device))).toBe(false)
        cases++
        if (await broken(plan, reductionDropped, made, device)) noticed++
      }),
      { numRuns: runs(20) },
    )
    // Softmax after softmax of bf16 is the same for all elements, and the norm of that is 0 in any case.
    expect(noticed).toBeGreaterThan(0.5 * cases)
  })

  it('of siblings yields what the graph means, and on the host bit for bit what the unfused plan yields', async () => {
    let results = 0
    await fc.assert(
      fc.asyncProperty(siblings, async chains => {
        const made = graphOf(chains)
        const plan = planOf(made, true)
        const got = await ran(plan, made, device)
        await expectMeant(made, got)
        for (const { kernel } of plan.nodes) if (kernel?.kind === 'map') results += kernel.results.length - 1
        if (device === 'host') expect(differ(got, await ran(planOf(made, false), made, device))).toBe(false)
      }),
      { numRuns: runs(20) },
    )
    expect(results).toBeGreaterThan(often(0))
  })

  it.each([
    ['swaps the operands of an instruction', swapped],
    ['drops an operand', dropped],
  ])('whose kernel %s yields something else', async (_, change) => {
    await fc.assert(
      fc.asyncProperty(chains, async steps => {
        const made = chainOf(steps)
        const plan = planOf(made, true)
        expect(plan.nodes.filter(isFused).length).toBeGreaterThan(0)
        expect(await broken(plan, change, made, device)).toBe(true)
      }),
      { numRuns: runs(20) },
    )
  })
})
