// What `explain` says of bytes that change hands in an arena: who had them, and that each such sentence is true of the plan.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { takeoversOf } from '../../../dsl/explain/takeovers.js'
import { compile, explain, orThrow } from '../../../dsl/index.js'
import { patternGraph, patterns } from '../../fixtures/graphs/patterns.js'
import { runs } from '../../fixtures/runs.js'
import { goldens } from '../../golden/graphs.js'

describe('bytes that are taken over', () => {
  test('are told with who had them and what orders the two', () => {
    const text = explain(orThrow(compile(goldens['weight-streaming'], { storage: 'planned' })))
    expect(text).toContain('w2, 16384 bytes from byte 0 on, has those of')
    expect(text).toContain('w0, after w0 and matmul[0]: copy does them in order; copy waits for matmul[0]')
    expect(text).toContain(
      'w3 of the tick before, after w3 and matmul[3]: copy does them in order; copy waits for matmul[3] of the tick before',
    )
    expect(explain(orThrow(compile(goldens['weight-streaming'])))).not.toContain('taken over')
  })

  test('are those of buffers that share bytes, each such pair told at least once', () => {
    fc.assert(
      fc.property(patterns(40), fc.constantFrom(1, 2, 3), (pattern, inFlight) => {
        const plan = orThrow(compile(patternGraph(pattern), { inFlight, storage: 'planned' }))
        const placed = plan.buffers.filter(({ offset, life }) => offset !== undefined && life === 'tick')
        const named = new Map(placed.map(buffer => [buffer.name, buffer]))
        const takeovers = takeoversOf(plan)
        for (const { buffer, from, offset, because } of takeovers) {
          const [own, other] = [named.get(buffer)!, named.get(from)!]
          expect(own.offset).toBe(offset)
          expect(own.offset! < other.offset! + other.bytes && other.offset! < own.offset! + own.bytes).toBe(
            true,
          )
          expect(because).not.toBe('')
        }
        const sharing = placed.filter(a =>
          placed.some(b => a !== b && a.offset! < b.offset! + b.bytes && b.offset! < a.offset! + a.bytes),
        )
        expect([...new Set(takeovers.map(({ buffer }) => buffer))].sort()).toEqual(
          sharing.map(({ name }) => name).sort(),
        )
      }),
      { numRuns: runs(60) },
    )
  })
})
