// `memory: BYTES` is enough from the bytes on that `memory: 'small'` holds, and never below: of every kind of
// graph, storage and mode. The error names these bytes, and no other option of memory holds less.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { expect, test } from 'vitest'
import { provenanceOf } from '../../../dsl/compiler/analysis/provenance.js'
import { type CompileOptions, compile, type Graph, orThrow, type Plan } from '../../../dsl/index.js'
import { patternGraph, patterns } from '../../fixtures/graphs/patterns.js'
import { sample } from '../../fixtures/graphs/random.js'
import { streamed } from '../../fixtures/graphs/streamed.js'
import { trainingGraph, trainingSteps } from '../../fixtures/graphs/training-steps.js'
import { runs } from '../../fixtures/runs.js'

type Subject = { readonly graph: Graph; readonly dims?: Readonly<Record<string, number>> }

const subjects: fc.Arbitrary<Subject> = fc.oneof(
  trainingSteps(3).map(step => ({ graph: trainingGraph(step) })),
  patterns(20).map(pattern => ({ graph: patternGraph(pattern) })),
  sample({ steps: 10 }).map(({ graph, dims }) => ({ graph, dims })),
  fc
    .tuple(fc.integer({ min: 2, max: 8 }), fc.constantFrom(undefined, 1, 2))
    .map(([layers, ahead]) => ({ graph: streamed(layers, ahead) as unknown as Graph })),
)

const options: fc.Arbitrary<CompileOptions> = fc
  .tuple(
    fc.constantFrom<CompileOptions>(
      { mode: 'eager', storage: 'pooled' },
      { mode: 'eager', storage: 'planned' },
      { mode: 'graph' },
      { mode: 'auto' },
    ),
    fc.record({ inFlight: fc.constantFrom(1, 2), fuse: fc.boolean() }),
  )
  .map(([how, rest]) => ({ ...how, ...rest }))

const held = ({ bound }: Plan): number => Math.max(...bound.device)
const tickOf = (plan: Plan): number => provenanceOf(plan)!.decisions.choice!.chosen.tick

test('the bytes that are enough are those from the least on, and more of them are no slower', () => {
  fc.assert(
    fc.property(
      subjects,
      options,
      fc.double({ min: 0, max: 1, noNaN: true }),
      ({ graph, dims = {} }, given, part) => {
        const within = (memory: NonNullable<CompileOptions['memory']>) =>
          compile(graph, { ...given, dims, memory })
        const least = held(orThrow(within('small')))
        const most = held(orThrow(within('fast')))
        expect(most).toBeGreaterThanOrEqual(least)
        if (least === 0) return
        const tight = orThrow(within(least))
        expect(held(tight)).toBe(least)
        const bytes = Math.floor(least + part * (most - least))
        const looser = orThrow(within(bytes))
        expect(held(looser)).toBeLessThanOrEqual(bytes)
        // Ticks that differ by less than a hundredth count as equal, of orders and of ways to fuse.
        if (given.fuse === false && given.mode === 'eager')
          expect(tickOf(looser)).toBeLessThanOrEqual(1.0101 * tickOf(tight))
        for (const memory of new Set([least - 1, Math.max(1, Math.floor(part * least))])) {
          if (memory >= least || memory < 1) continue
          const refused = within(memory)
          expect(E.isLeft(refused) && refused.left[0]).toMatchObject({
            _tag: 'OverBudget',
            found: expect.stringMatching(new RegExp(`^${least} bytes at the least`)),
          })
        }
      },
    ),
    { numRuns: runs(8) },
  )
})
