// The bound is found before there are any commands: from the order, its waits and its lifetimes. It is what the plan's own commands say.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { expect, test } from 'vitest'
import { bound } from '../../../dsl/compiler/passes/bound.js'
import { check } from '../../../dsl/compiler/passes/check.js'
import { outlineOf } from '../../../dsl/compiler/passes/emit.js'
import { lifetimes } from '../../../dsl/compiler/passes/lifetimes.js'
import { lower } from '../../../dsl/compiler/passes/lower.js'
import { order } from '../../../dsl/compiler/passes/order.js'
import { place } from '../../../dsl/compiler/passes/place.js'
import { simplify } from '../../../dsl/compiler/passes/simplify.js'
import { synchronize } from '../../../dsl/compiler/passes/synchronize.js'
import { irOf } from '../../../dsl/language/graph.js'
import { peakOf } from '../../../dsl/memory/peak.js'
import { poolPeakOf, rounded } from '../../../dsl/memory/pool.js'
import { sample } from '../../fixtures/generate.js'
import { patternGraph, patterns } from '../../fixtures/patterns.js'
import { runs } from '../../fixtures/runs.js'

const law = (graph: Parameters<typeof irOf>[0], options: object, keep: boolean): void => {
  const lived = pipe(
    check(options)(irOf(graph)),
    E.chain(simplify),
    E.chain(lower),
    E.chain(place()),
    E.chain(order({ by: 'critical path', ahead: Number.POSITIVE_INFINITY, keep })),
    E.chain(synchronize),
    E.chain(lifetimes),
  )
  if (E.isLeft(lived)) throw new Error(JSON.stringify(lived.left))
  const ir = { ...lived.right, windows: [] }
  const bounded = bound(ir)
  if (E.isLeft(bounded)) throw new Error(JSON.stringify(bounded.left))
  const plan = outlineOf(ir)
  const peak = peakOf(plan)
  const slots = plan.buffers
    .filter(({ space, alias }) => space === 'pinned' && alias === undefined)
    .reduce((sum, { bytes, life }) => sum + rounded(bytes) * (/put/.test(life) ? plan.inFlight : 1), 0)
  expect(bounded.right.peak).toEqual(peak)
  expect(bounded.right.bound).toEqual({
    device: [Math.max(rounded(peak.device[0]!), poolPeakOf(plan).device[0]!)],
    pinned: Math.max(slots, peak.pinned),
  })
}

test('of generated graphs', () => {
  fc.assert(
    fc.property(sample(), fc.constantFrom(1, 2, 3), fc.boolean(), ({ graph, dims }, inFlight, keep) =>
      law(graph as Parameters<typeof irOf>[0], { dims, inFlight }, keep),
    ),
    { numRuns: runs(100) },
  )
})

test('of graphs that are hard on a pool', () => {
  fc.assert(
    fc.property(patterns(60), fc.constantFrom(1, 2, 3), (pattern, inFlight) =>
      law(patternGraph(pattern), { inFlight }, true),
    ),
    { numRuns: runs(100) },
  )
})
