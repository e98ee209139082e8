// The memory reuse that `explain` lists for arenas: which buffers, and that each sentence is true of the
// plan.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { memoryReuseOf } from '../../../dsl/explain/facts/memory-reuse.js'
import { compile, explain, orThrow } from '../../../dsl/index.js'
import { patternGraph, patterns } from '../../fixtures/graphs/patterns.js'
import { runs } from '../../fixtures/runs.js'
import { goldens } from '../../golden/graphs.js'

describe('memory that buffers of an arena reuse', () => {
  test('is explained by the earlier buffer and by the order of the two', () => {
    const text = explain(orThrow(compile(goldens['weight-streaming'], { mode: 'eager', storage: 'planned' })))
    expect(text).toContain('w2, 16384 bytes from byte 0 on, has those of')
    expect(text).toContain('w0, after w0 and matmul[0]: copy does them in order; copy waits for matmul[0]')
    expect(text).toContain(
      'w3 of the tick before, after w3 and matmul[3]: ' +
        'copy does them in order; copy waits for matmul[3] of the tick before',
    )
    expect(explain(orThrow(compile(goldens['weight-streaming'], { mode: 'eager' })))).not.toContain(
      'taken over',
    )
  })

  test('is of buffers that share bytes, and each such pair is listed', () => {
    fc.assert(
      fc.property(patterns(40), fc.constantFrom(1, 2, 3), (pattern, inFlight) => {
        const plan = orThrow(compile(patternGraph(pattern), { mode: 'eager', inFlight, storage: 'planned' }))
        const placed = plan.buffers.filter(({ offset, life }) => offset !== undefined && life === 'tick')
        const named = new Map(placed.map(buffer => [buffer.name, buffer]))
        const reused = memoryReuseOf(plan)
        for (const { buffer, from, offset, because } of reused) {
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
        expect([...new Set(reused.map(({ buffer }) => buffer))].sort()).toEqual(
          sharing.map(({ name }) => name).sort(),
        )
      }),
      { numRuns: runs(60) },
    )
  })
})
