// The pass `fuse` under a limit of memory: the plan that is taken fits, is never slower for more memory, and
// where none fits the error names the least that does.
import fc from 'fast-check'
import { isRight } from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import {
  compile,
  download,
  type Graph,
  graph,
  orThrow,
  type Plan,
  simulate,
  tensor,
  uniform,
  upload,
} from '../../../dsl/index.js'
import { verify } from '../../../dsl/verify/verify.js'
import { largeGraph } from '../../fixtures/graphs/large.js'
import { type Sample, sample } from '../../fixtures/graphs/random.js'
import { isFullRun, runs } from '../../fixtures/runs.js'

const planned = ({ graph, dims, inFlight }: Sample, memory: number | 'fast' | 'small', fuse = true) =>
  compile(graph as Graph, { dims, inFlight, memory, fuse })

const bytesOf = ({ bound }: Plan): number => bound.device[0]!

describe('fuse, under a limit of memory', () => {
  test('fits, and is not slower for more', () => {
    fc.assert(
      fc.property(sample({ steps: 12 }), fc.double({ min: 0, max: 1, noNaN: true }), (made, part) => {
        const [small, fast] = [planned(made, 'small'), planned(made, 'fast')].map(
          plan => orThrow(plan) as Plan,
        )
        const [least, most] = [bytesOf(small!), bytesOf(fast!)]
        expect(least).toBeLessThanOrEqual(most)
        let before = Number.POSITIVE_INFINITY
        for (const memory of [least, Math.floor(least + part * (most - least)), most]) {
          const plan = orThrow(planned(made, memory)) as Plan
          expect(bytesOf(plan)).toBeLessThanOrEqual(memory)
          expect(verify(plan)).toEqual([])
          const { tickMs } = simulate(plan, 'h200')
          expect(tickMs).toBeLessThanOrEqual(before * 1.03)
          before = tickMs
        }
      }),
      { numRuns: runs(12) },
    )
  })

  // The counter of the numbers is made before they are in the program, and stored at the end of the tick.
  test.each(['eager', 'graph'] as const)('small holds no more than fast: random numbers, %s', mode => {
    const numbers = graph('numbers', { x: tensor('f32', [1, 1]) }, ({ x }) => ({
      y: x.pipe(upload(), uniform({ seed: 0 }), download()),
    }))
    const [small, fast] = (['small', 'fast'] as const).map(memory =>
      orThrow(compile(numbers, { memory, mode, inFlight: 1 })),
    )
    expect(bytesOf(small as Plan)).toBeLessThanOrEqual(bytesOf(fast as Plan))
  })

  test('names bytes that do where none fits, no more than without it', () => {
    fc.assert(
      fc.property(sample({ steps: 12 }), made => {
        const error = planned(made, 1)
        if (isRight(error) || error.left[0]._tag !== 'OverBudget') throw new Error('it fits in one byte')
        const least = error.left[0].parts!.reduce((sum, { bytes }) => sum + bytes, 0)
        expect(least).toBe(bytesOf(orThrow(planned(made, 'small')) as Plan))
        expect(least).toBeLessThanOrEqual(bytesOf(orThrow(planned(made, 'small', false)) as Plan))
        expect(isRight(planned(made, least))).toBe(true)
      }),
      { numRuns: runs(12) },
    )
  })

  // Without one of its waits the pool of this plan comes back to no earlier state for many thousands of
  // ticks.
  test.runIf(isFullRun)('comes to an end where a pool does not settle without a wait', () => {
    const plan = orThrow(compile(largeGraph('cholesky', 900, 8), { fuse: true })) as Plan
    expect(verify(plan)).toEqual([])
  })
})
