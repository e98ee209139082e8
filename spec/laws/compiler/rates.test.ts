// Graphs with rates: every law holds of their plans, and nothing that looks at a plan minds its copies.
import fc from 'fast-check'
import { isLeft } from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import { compile, explain, orThrow, parsePlan, renderAll, simulate, toJSON } from '../../../dsl/index.js'
import { textOf } from '../../../dsl/ir/text.js'
import { verify } from '../../../dsl/verify/verify.js'
import { sample } from '../../fixtures/graphs/random.js'
import { runs } from '../../fixtures/runs.js'

describe('compile, of graphs with rates', () => {
  test('makes plans that break no law, the same each time, which a file brings back', () => {
    fc.assert(
      fc.property(
        sample({ rates: true }),
        fc.constantFrom(1, 2, 3),
        fc.constantFrom(1, 2, 99),
        fc.constantFrom('fast' as const, 'small' as const),
        fc.constantFrom('pooled' as const, 'planned' as const),
        fc.boolean(),
        fc.constantFrom('eager' as const, 'auto' as const),
        (made, inFlight, lanes, memory, storage, fuse, mode) => {
          const options = { dims: made.dims, inFlight, lanes, memory, storage, fuse, mode }
          const plan = compile(made.graph, options)
          if (isLeft(plan)) throw new Error(renderAll(plan.left))
          expect(verify(plan.right)).toEqual([])
          expect(JSON.stringify(compile(made.graph, options))).toBe(JSON.stringify(plan))
          expect(orThrow(parsePlan(toJSON(plan.right)))).toEqual(plan.right)
          expect(explain(plan.right)).toContain(plan.right.name)
          expect(textOf(plan.right)).toContain('run')
          expect(simulate(plan.right, 'h200').tickMs).toBeGreaterThan(0)
        },
      ),
      { numRuns: runs(80) },
    )
  })
})
