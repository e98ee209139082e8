// The pool of a session and the compiler's model of it follow one rule (docs/internals/decisions/sessions.md,
// 5 and 10): the furthest byte is the same, tick by tick, whatever the timing. A session has more memory than
// its plan needs, so that only the rule limits it.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { compile, orThrow } from '../../dsl/index.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { Graph } from '../../dsl/language/graph.js'
import { poolPeakOf } from '../../dsl/memory/pool-peak.js'
import { open, pulled } from '../../runtime/index.js'
import { generated } from '../fixtures/graphs/generated.js'
import { largeGraph } from '../fixtures/graphs/large.js'
import { patternGraph, patternInput, patterns } from '../fixtures/graphs/patterns.js'
import { often, runs } from '../fixtures/runs.js'
import { slowPoolPeaks } from '../oracle/slow-pool.js'

const roomy = (plan: Plan): Plan => ({
  ...plan,
  bound: { ...plan.bound, device: plan.bound.device.map(bytes => 2 * bytes + 2 ** 20) },
})

/** The furthest byte after each tick, of a session of this plan on `host`. */
const poolPeaks = async (plan: Plan, length: number, ticks: number, jitter: number): Promise<number[]> => {
  await using session = orThrow(
    await open(plan, { device: 'host', host: { jitter, jitterMicroseconds: 20 } })(),
  )
  const x = new Float32Array(length).fill(1)
  const peaks: number[] = []
  for (let tick = 0; tick < ticks; tick++) {
    await session.run({ x: pulled([x]) } as never).forEach(lease => {
      lease[Symbol.dispose]()
    })
    peaks.push(session.stats().poolPeak)
  }
  return peaks
}

/** All ticks of one run, so that as many are in flight as may be. */
const poolPeak = async (plan: Plan, length: number, ticks: number, jitter: number): Promise<number> => {
  await using session = orThrow(
    await open(plan, { device: 'host', host: { jitter, jitterMicroseconds: 20 } })(),
  )
  const x = new Float32Array(length).fill(1)
  await session.run({ x: pulled(Array.from({ length: ticks }, () => x)) } as never).forEach(lease => {
    lease[Symbol.dispose]()
  })
  expect(session.stats().ticks).toBe(ticks)
  return session.stats().poolPeak
}

describe('the pool on host', () => {
  it('takes what the compiler says it takes, in the end', async () => {
    let steady = 0
    await fc.assert(
      fc.asyncProperty(
        patterns(40),
        fc.integer({ min: 1, max: 3 }),
        fc.integer({ min: 1, max: 2 ** 16 }),
        async (pattern, inFlight, jitter) => {
          const plan = orThrow(compile(patternGraph(pattern), { mode: 'eager', inFlight }))
          const { device, first, ticks, exact } = poolPeakOf(plan)
          if (exact) steady++
          // The compiler looks for a steady state less long than this does. Without one it enforces the bound
          // of a tick on an idle device.
          const enforced = plan.boundKind === 'enforced'
          // Without a steady state within the limit on work, the peak is that of the replayed ticks, many
          // more than the ticks of this run.
          const length = exact && !enforced ? ticks + 4 : 200
          const peaks = [
            await poolPeak(roomy(plan), patternInput, length, jitter),
            await poolPeak(plan, patternInput, length, jitter + 1),
          ]
          if (enforced) expect(peaks).toEqual([first[0], first[0]])
          else if (exact) expect(peaks).toEqual([device[0], device[0]])
          else expect(Math.max(...peaks)).toBeLessThanOrEqual(device[0]!)
        },
      ),
      { numRuns: runs(80) },
    )
    expect(steady).toBeGreaterThan(often(70))
  })

  it('takes it tick by tick', async () => {
    await fc.assert(
      fc.asyncProperty(
        patterns(30),
        fc.integer({ min: 1, max: 3 }),
        fc.integer({ min: 1, max: 2 ** 16 }),
        async (pattern, inFlight, jitter) => {
          const plan = orThrow(compile(patternGraph(pattern), { mode: 'eager', inFlight }))
          expect(await poolPeaks(plan, patternInput, 12, jitter)).toEqual(slowPoolPeaks(plan, 12))
        },
      ),
      { numRuns: runs(20) },
    )
  })

  it.each([
    ['layered', 4],
    ['layered', 8],
    ['chains', 4],
    ['chains', 8],
  ] as const)('takes it in %s graphs of a thousand nodes on %i lanes', async (shape, lanes) => {
    const plan = orThrow(
      compile({ ir: generated({ shape, nodes: 1_000, lanes }) } as unknown as Graph, { mode: 'eager' }),
    )
    const { device, ticks, exact } = poolPeakOf(plan)
    const length = exact ? ticks + 2 : 40
    const measured = await poolPeak(roomy(plan), 16, length, lanes)
    if (exact) expect(measured).toBe(device[0])
    else expect(measured).toBeLessThanOrEqual(device[0]!)
    // Each tick of an enforced bound takes what the first one takes.
    expect(measured).toBe(slowPoolPeaks(plan, plan.boundKind === 'enforced' ? 1 : length).at(-1))
  })

  it('takes it where thousands of ranges are free, which both pools find by an index', async () => {
    const plan = orThrow(compile(largeGraph('unet', 6_000, 4), { mode: 'eager' }))
    const { device, ticks, exact } = poolPeakOf(plan)
    expect(exact).toBe(true)
    expect(await poolPeak(roomy(plan), 64 * 64, ticks + 2, 1)).toBe(device[0])
  })
})
