// An enforced bound is kept when the plan runs: by answers that are right, in no more memory than one tick
// takes on an idle device, however many ticks are in flight, and whatever the timing.
import fc from 'fast-check'
import { lastValueFrom, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { compile, interpret, orThrow, parsePlan, toJSON } from '../../dsl/index.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { Graph } from '../../dsl/language/graph.js'
import { poolPeakOf } from '../../dsl/memory/pool-peak.js'
import { type OpenOptions, open, pulled } from '../../runtime/index.js'
import { graphOf, tasksOf } from '../fixtures/graphs/of-tasks.js'
import { patternGraph, patternInput, patterns } from '../fixtures/graphs/patterns.js'
import { often, runs } from '../fixtures/runs.js'
import { present } from './devices.js'

type Values = Readonly<Record<string, Float32Array>>

/** As a file would be read: the session knows nothing of this plan but what it says. */
const enforced = (plan: Plan): Plan => {
  const { first } = poolPeakOf(plan)
  const bound = { device: first.slice(0, plan.devices), pinned: first.at(-1)! }
  return orThrow(parsePlan(toJSON({ ...plan, boundKind: 'enforced', bound })))
}

const inputs = (ticks: number): Float32Array[] =>
  Array.from({ length: ticks }, (_, t) => Float32Array.from({ length: patternInput }, (_, i) => i - 100 * t))

/** Runs all ticks at once; the outputs of each, and the furthest byte of the pool. */
const ran = async (plan: Plan, x: readonly Float32Array[], options: OpenOptions) => {
  await using session = orThrow(await open(plan, { poison: true, ...options })())
  const outputs: Values[] = []
  await session.run({ x: pulled(x) } as never).forEach(lease => {
    using held = lease as unknown as Values & Disposable
    outputs.push(Object.fromEntries(Object.entries(held).map(([name, value]) => [name, value.slice()])))
  })
  return { outputs, peak: session.stats().poolPeak, reserved: session.stats().peak.reserved }
}

const meant = async (graph: Graph, x: readonly Float32Array[]): Promise<readonly Values[]> =>
  (await lastValueFrom(interpret(graph)({ x } as never).pipe(toArray()))) as unknown as readonly Values[]

describe.each(present)('an enforced bound, on %s', device => {
  it('1. is kept, with the values of interpret, where ticks that overlap would take more', async () => {
    let below = 0
    await fc.assert(
      fc.asyncProperty(
        patterns(40),
        fc.integer({ min: 1, max: 3 }),
        fc.integer({ min: 1, max: 2 ** 16 }),
        async (pattern, inFlight, jitter) => {
          const graph = patternGraph(pattern)
          const compiled = orThrow(compile(graph, { mode: 'eager', inFlight }))
          const plan = enforced(compiled)
          const bound = plan.bound.device[0]!
          if (bound < compiled.bound.device[0]!) below++
          const x = inputs(24)
          const host = device === 'host' ? { host: { jitter, jitterMicroseconds: 20 } } : {}
          const { outputs, peak, reserved } = await ran(plan, x, { device, ...host })
          expect(peak).toBe(bound)
          expect(reserved).toBeLessThanOrEqual(bound)
          expect(outputs).toEqual(await meant(graph, x))
        },
      ),
      // A GPU compiles the kernels of each graph.
      { numRuns: runs(device === 'host' ? 60 : 20) },
    )
    if (device === 'host') expect(below).toBeGreaterThan(often(10))
  }, 240_000)

  it('2. is kept by a plan of ten thousand operations on eight lanes', async () => {
    const graph = { ir: graphOf('layered', tasksOf('layered', 10_000), 8) } as unknown as Graph
    // Fused, they are thousands of kernels, each of which a GPU compiles.
    const plan = orThrow(compile(graph, { mode: 'eager', fuse: false }))
    expect(plan.boundKind).toBe('enforced')
    await using session = orThrow(await open(plan, { device })())
    const [port] = plan.buffers.filter(({ life }) => life === 'input')
    const x = new Float32Array(port!.bytes / 4).fill(1)
    const sums: number[] = []
    await session.run({ [port!.name]: pulled([x, x, x, x]) } as never).forEach(lease => {
      using held = lease as unknown as Values & Disposable
      sums.push(Object.values(held)[0]!.reduce((sum, value) => sum + value, 0))
    })
    expect(session.stats().poolPeak).toBeLessThanOrEqual(plan.bound.device[0]!)
    expect(new Set(sums).size).toBe(1)
  })
})
