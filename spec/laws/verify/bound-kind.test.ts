// Law L9 by the kind of a plan's bound: of all ticks (exact), or of one tick on an idle device (enforced).
// What the pool takes is found anew by the slow oracle, which shares no code with the one in dsl/memory.

import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import { compile, orThrow, parsePlan, toJSON, verify } from '../../../dsl/index.js'
import type { BoundKind, Plan } from '../../../dsl/ir/plan.js'
import type { Graph } from '../../../dsl/language/graph.js'
import { granule, poolPeakOf } from '../../../dsl/memory/pool-peak.js'
import { gpt } from '../../bench/model-bodies.js'
import { generated } from '../../fixtures/graphs/generated.js'
import { graphOf, tasksOf } from '../../fixtures/graphs/of-tasks.js'
import { patternGraph, patterns } from '../../fixtures/graphs/patterns.js'
import { planFrom, type Recipe, recipes } from '../../fixtures/plans/random.js'
import { often, runs } from '../../fixtures/runs.js'
import { oracle } from '../../oracle/oracle.js'
import { slowPoolPeaks } from '../../oracle/slow-pool.js'

const withBound = (plan: Plan, boundKind: BoundKind, device: number): Plan => ({
  ...plan,
  boundKind,
  bound: { device: [device], pinned: 2 ** 40 },
})

const brokenL9 = (plan: Plan): boolean => verify(plan, { safety: true }).some(({ law }) => law === 'L9')

/** The law holds for these bytes, and not for one granule less. */
const isTight = (plan: Plan, boundKind: BoundKind, bytes: number): void => {
  expect(brokenL9(withBound(plan, boundKind, bytes))).toBe(false)
  if (bytes > 0) expect(brokenL9(withBound(plan, boundKind, bytes - granule))).toBe(true)
}

describe('an enforced bound', () => {
  test('is what one tick takes on an idle device, in plans by hand', () => {
    fc.assert(
      fc.property(recipes(8), recipe => {
        const plan = planFrom({ ...recipe, planned: false, devices: 1 })
        isTight(plan, 'enforced', slowPoolPeaks(plan, 1)[0]!)
      }),
      { numRuns: runs(100) },
    )
  })

  test('is what one tick takes on an idle device, where lanes rarely synchronise and sizes vary', () => {
    fc.assert(
      fc.property(patterns(40), fc.integer({ min: 1, max: 3 }), (pattern, inFlight) => {
        const plan = orThrow(compile(patternGraph(pattern), { mode: 'eager', inFlight }))
        isTight(plan, 'enforced', slowPoolPeaks(plan, 1)[0]!)
      }),
      { numRuns: runs(60) },
    )
  })

  test('covers pinned memory too', () => {
    const plan = orThrow(
      compile(patternGraph({ seed: 5, lanes: 2, nodes: 8, sizes: 'any', reach: 4, crossing: 20 }), {
        mode: 'eager',
      }),
    )
    const { device, pinned } = poolPeakOf(plan)
    const bounded = (bytes: number): Plan => ({
      ...withBound(plan, 'enforced', device[0]!),
      bound: { device, pinned: bytes },
    })
    expect(pinned).toBeGreaterThan(0)
    expect(brokenL9(bounded(pinned))).toBe(false)
    expect(brokenL9(bounded(pinned - granule))).toBe(true)
  })
})

describe('an exact bound', () => {
  test('is what the pool takes however many ticks run', () => {
    fc.assert(
      fc.property(patterns(40), fc.integer({ min: 1, max: 3 }), (pattern, inFlight) => {
        const plan = orThrow(compile(patternGraph(pattern), { mode: 'eager', inFlight }))
        const { ticks, exact } = poolPeakOf(plan)
        // Without a steady state near enough the bytes of later ticks are unknown, which is rare.
        fc.pre(exact)
        isTight(plan, 'exact', slowPoolPeaks(plan, ticks + 2).at(-1)!)
      }),
      { numRuns: runs(60) },
    )
  })
})

/** Its pool comes back to an earlier state after 69 ticks. */
const lateSteady: Recipe = {
  lanes: 2,
  devices: 1,
  inFlight: 2,
  planned: false,
  thrifty: false,
  steps: [
    { lane: 0, reads: [0], into: 'tick', bytes: 3072 },
    { lane: 0, reads: [7, 0], into: 'halves', bytes: 2048 },
    { lane: 0, reads: [0], into: 'tick', bytes: 2048 },
    { lane: 0, reads: [0], into: 'tick', bytes: 3072 },
    { lane: 0, reads: [7, 4], into: 'tick', bytes: 3072 },
    { lane: 1, reads: [4, 18], into: 'tick', bytes: 3072 },
    { lane: 1, reads: [9], into: 'tick', bytes: 1024 },
  ],
}

describe('the oracle', () => {
  test.each(['enforced', 'exact'] as const)('finds L9 where the verifier does, of an %s bound', boundKind => {
    const broken = { found: 0, kept: 0 }
    fc.assert(
      fc.property(recipes(8), fc.integer({ min: -2, max: 0 }), fc.boolean(), (recipe, granules, ofDevice) => {
        const made = planFrom({ ...recipe, planned: false })
        const { device, pinned, first } = poolPeakOf(made)
        const peaks = boundKind === 'exact' ? [...device, pinned] : first
        const less = (bytes: number, isIt: boolean) => Math.max(0, bytes + (isIt ? granules * granule : 0))
        const plan: Plan = {
          ...made,
          boundKind,
          bound: {
            device: peaks.slice(0, -1).map(bytes => less(bytes, ofDevice)),
            pinned: less(peaks.at(-1)!, !ofDevice),
          },
        }
        const found = verify(plan, { safety: true }).map(
          ({ law, command, buffer }) => `${law} ${command} ${buffer ?? -1}`,
        )
        expect(found.toSorted()).toEqual([...oracle(plan, false)].toSorted())
        broken[found.length > 0 ? 'found' : 'kept']++
      }),
      { numRuns: runs(60), examples: [[lateSteady, 0, false]] },
    )
    expect(Math.min(broken.found, broken.kept)).toBeGreaterThan(often(5))
  })
})

describe('the bound of a small graph', () => {
  test('is what the pool takes, where bytes are counted for thousands of ticks and come to no steady state', () => {
    const sizes = { vocabulary: 256, width: 768, heads: 12, layers: 1 }
    const plan = orThrow(
      compile(gpt({ ...sizes, batch: 8, tokens: 1024 }).graph, { mode: 'eager', fuse: false }),
    )
    expect(plan.boundKind).toBe('exact')
    expect(verify(plan)).toEqual([])
    expect(plan.bound.device).toEqual(poolPeakOf(plan).device)
  })
})

describe('the bound of a large graph', () => {
  const compiled = {
    cholesky: () => graphOf('cholesky', tasksOf('cholesky', 10_000), 8),
    layered: () => graphOf('layered', tasksOf('layered', 10_000), 8),
    chains: () => generated({ shape: 'chains', nodes: 10_000, lanes: 8 }),
  }

  test.each(Object.entries(compiled))(
    'of %s is at most 1.1 of what the pool takes in the end',
    (_, graph) => {
      const plan = orThrow(compile({ ir: graph() } as unknown as Graph, { mode: 'eager', fuse: false }))
      expect(plan.boundKind).toBeDefined()
      const bound = plan.bound.device[0]!
      const { device } = poolPeakOf(plan)
      expect(bound).toBeLessThanOrEqual(1.1 * device[0]!)
      expect(bound).toBeGreaterThanOrEqual(slowPoolPeaks(plan, 1)[0]!)
      const lower = { ...plan, bound: { ...plan.bound, device: [bound - granule] } }
      expect(verify(lower, { safety: true }).map(({ law }) => law)).toEqual(['L9'])
    },
  )

  test('is not exact by its own word: the steady state must be replayed', () => {
    const plan = orThrow(
      compile({ ir: compiled.layered() } as unknown as Graph, { mode: 'eager', fuse: false }),
    )
    expect(plan.boundKind).toBe('enforced')
    const roomy = { ...plan, boundKind: 'exact' as const, bound: { device: [2 ** 40], pinned: 2 ** 40 } }
    const [violation, ...others] = verify(roomy, { safety: true })
    expect(others).toEqual([])
    expect(violation).toMatchObject({ law: 'L9', command: -1 })
    expect(violation!.message).toContain("wanted boundKind 'enforced'")
  })
})

describe('the kind of a bound in a file', () => {
  const plan = orThrow(
    compile(patternGraph({ seed: 7, lanes: 3, nodes: 12, sizes: 'any', reach: 4, crossing: 20 }), {
      mode: 'eager',
    }),
  )

  test('is read and written', () => {
    const enforced = withBound(plan, 'enforced', plan.bound.device[0]!)
    const text = toJSON(enforced)
    expect(text).toContain('"boundKind": "enforced"')
    expect(orThrow(parsePlan(text)).boundKind).toBe('enforced')
    expect(toJSON(plan)).not.toContain('boundKind')
  })

  test('is one of two, and of pooled storage only', () => {
    const at = (value: unknown): string => {
      const read = parsePlan(value)
      return E.isLeft(read) ? read.left.map(({ at }) => at).join() : ''
    }
    const value = JSON.parse(toJSON(plan)) as Record<string, unknown>
    expect(at({ ...value, boundKind: 'exact' })).toBe('')
    expect(at({ ...value, boundKind: 'loose' })).toBe('plan.boundKind')
    const planned = orThrow(
      compile(patternGraph({ seed: 7, lanes: 3, nodes: 12, sizes: 'any', reach: 4, crossing: 20 }), {
        mode: 'eager',
        storage: 'planned',
      }),
    )
    expect(at({ ...(JSON.parse(toJSON(planned)) as object), boundKind: 'exact' })).toBe('plan.boundKind')
  })
})
