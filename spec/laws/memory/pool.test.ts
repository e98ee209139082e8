import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { compile, orThrow } from '../../../dsl/index.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import type { Graph } from '../../../dsl/language/graph.js'
import { peakOf } from '../../../dsl/memory/peak.js'
import { poolPeakOf } from '../../../dsl/memory/pool-peak.js'
import { generated } from '../../fixtures/graphs/generated.js'
import { patternGraph, patterns } from '../../fixtures/graphs/patterns.js'
import { sample } from '../../fixtures/graphs/random.js'
import { withCountedBound } from '../../fixtures/plans/counted.js'
import { planFrom, recipes } from '../../fixtures/plans/random.js'
import { runs } from '../../fixtures/runs.js'
import { oraclePeak } from '../../oracle/oracle.js'
import { slowPoolPeaks } from '../../oracle/slow-pool.js'

/**
 * From the last of its `ticks` ticks on, the pool's peak is that of the slow oracle, which stays the same.
 */
const agrees = (plan: Plan): void => {
  const { device, exact, ticks } = poolPeakOf(plan)
  expect(exact).toBe(true)
  expect(slowPoolPeaks(plan, 2 * ticks + 4).slice(Math.max(0, ticks - 1))).toEqual(
    new Array(ticks + 4 + Math.min(1, ticks)).fill(device[0]),
  )
}

describe('the pool of a session', () => {
  test('has the peak of the slow oracle, in plans by hand', () => {
    fc.assert(
      fc.property(recipes(8), recipe => agrees(planFrom({ ...recipe, planned: false, devices: 1 }))),
      { numRuns: runs(60) },
    )
  })

  test('has the peak of the slow oracle, in plans of generated graphs', () => {
    fc.assert(
      fc.property(sample(), ({ graph, dims, inFlight }) =>
        agrees(orThrow(compile(graph, { mode: 'eager', dims, inFlight }))),
      ),
      { numRuns: runs(60) },
    )
  })

  test('has the peak of the slow oracle where lanes rarely synchronise and sizes vary', () => {
    fc.assert(
      fc.property(patterns(60), fc.integer({ min: 1, max: 3 }), (pattern, inFlight) => {
        const plan = orThrow(compile(patternGraph(pattern), { mode: 'eager', inFlight }))
        // Now and then a pool has no steady state within the ticks that are replayed.
        fc.pre(plan.boundKind !== 'enforced')
        agrees(plan)
      }),
      { numRuns: runs(60) },
    )
  })

  test('is exact for a graph of thousands of nodes', () => {
    agrees(
      orThrow(
        compile({ ir: generated({ shape: 'layered', nodes: 2_000, lanes: 4 }) } as unknown as Graph, {
          mode: 'eager',
        }),
      ),
    )
  })
})

describe('the peak of law L9', () => {
  test('is not exceeded where lanes rarely synchronise', () => {
    fc.assert(
      fc.property(patterns(24), fc.integer({ min: 1, max: 3 }), (pattern, inFlight) => {
        const plan = withCountedBound(
          orThrow(compile(patternGraph(pattern), { mode: 'eager', inFlight })) as Plan,
        )
        const { device, exact } = peakOf(plan)
        expect(exact).toBe(true)
        // An enforced bound is what the pool takes in one tick: the oracle counts bytes over ticks that
        // overlap.
        fc.pre(plan.boundKind !== 'enforced')
        expect(oraclePeak(plan, 8).bytes[0]).toBeLessThanOrEqual(device[0]!)
      }),
      { numRuns: runs(20) },
    )
  })
})
