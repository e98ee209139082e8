// What a plan of fused kernels yields is what the graph means, and on one device bit for bit what the plan
// without them yields. A fused kernel that drops an operand, or swaps two, is noticed.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  compile,
  download,
  type Graph,
  graph,
  mul,
  orThrow,
  type Plan,
  parsePlan,
  sub,
  tensor,
  toJSON,
  upload,
} from '../../dsl/index.js'
import type { MapInstruction } from '../../dsl/ir/kernel-spec.js'
import { open, type Session } from '../../runtime/index.js'
import { type Sample, sample, valuesOf } from '../fixtures/graphs/random.js'
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

const differ = (one: readonly Values[], other: readonly Values[]): boolean =>
  JSON.stringify(one.map(tick => Object.values(tick).map(value => [...value]))) !==
  JSON.stringify(other.map(tick => Object.values(tick).map(value => [...value])))

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

describe.each(present)('on %s a fused plan', device => {
  const options = [{ kernels: device === 'host' }, { kernels: device === 'host', rates: true }] as const

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
        expect(differ(got, await ran(planOf(made, false), made, device))).toBe(false)
      }),
      { numRuns: runs(16) },
    )
    expect(kernels).toBeGreaterThan(often(0))
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
        const broken = await ran(changed(plan, change), made, device)
        expect(differ(await ran(plan, made, device), broken)).toBe(true)
      }),
      { numRuns: runs(20) },
    )
  })
})
