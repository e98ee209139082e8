// Plans of planned storage: every law holds, every wait is needed, and no arena is larger than it must be where that can be told.
import fc from 'fast-check'
import { isLeft } from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import {
  type CompileOptions,
  compile,
  type Graph,
  orThrow,
  type Plan,
  parsePlan,
  renderAll,
  toJSON,
} from '../../dsl/index.js'
import { verify } from '../../dsl/ir/verify.js'
import { sample } from '../support/generate.js'
import { patternGraph, patterns } from '../support/patterns.js'

const planned = (graph: Graph, options: CompileOptions = {}): Plan => {
  const plan = compile(graph, { ...options, storage: 'planned' })
  if (isLeft(plan)) throw new Error(renderAll(plan.left))
  return plan.right
}

const rounded = (bytes: number): number => Math.ceil(bytes / 512) * 512

/** All that is in device memory, each with bytes of its own. */
const sum = ({ buffers }: Plan): number =>
  buffers.reduce(
    (all, { alias, space, bytes }) => (alias === undefined && space === 'device' ? all + rounded(bytes) : all),
    0,
  )

describe('planned storage', () => {
  test('obeys every law, for generated graphs, and is the same each time', () => {
    fc.assert(
      fc.property(
        sample(),
        fc.constantFrom(1, 2, 3),
        fc.constantFrom(1, 2, 99),
        fc.constantFrom('fast' as const, 'small' as const),
        (made, inFlight, lanes, memory) => {
          const options = { dims: made.dims, inFlight, lanes, memory }
          const plan = planned(made.graph, options)
          expect(verify(plan)).toEqual([])
          expect(plan.arena![0]).toBe(plan.bound.device[0])
          expect(plan.arena![0]).toBeLessThanOrEqual(sum(plan))
          expect(JSON.stringify(planned(made.graph, options))).toBe(JSON.stringify(plan))
          expect(orThrow(parsePlan(toJSON(plan)))).toEqual(plan)
        },
      ),
      { numRuns: 150 },
    )
  })

  test('obeys every law, for graphs of 2 to 8 lanes that hardly meet', () => {
    fc.assert(
      fc.property(
        patterns(60),
        fc.constantFrom(1, 2, 3),
        fc.constantFrom('fast' as const, 'small' as const),
        (pattern, inFlight, memory) => {
          const plan = planned(patternGraph(pattern), { inFlight, memory })
          expect(verify(plan)).toEqual([])
          expect(plan.arena![0]).toBeLessThanOrEqual(sum(plan))
        },
      ),
      { numRuns: 100 },
    )
  })
})
