// Under `memory: BYTES` the compiler looks for waits that keep the pool inside it before it makes a window
// narrower.

import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import { compile } from '../../../dsl/compiler/compile.js'
import { orThrow, verify } from '../../../dsl/index.js'
import { poolPeakOf } from '../../../dsl/memory/pool-peak.js'
import { largeGraph } from '../../fixtures/graphs/large.js'
import { sample } from '../../fixtures/graphs/random.js'
import { streamed, streamedLeast } from '../../fixtures/graphs/streamed.js'
import { runs } from '../../fixtures/runs.js'

const KiB = 2 ** 10

describe('memory: BYTES', () => {
  it.each([1, 2, 3])('holds no more than a plan by hand, with ahead %i', ahead => {
    const least = streamedLeast(ahead)
    const plan = orThrow(compile(streamed(12, ahead), { mode: 'eager', memory: least }))
    expect(plan.bound.device).toEqual([least])
    // The window is whole: before the first matmul, all its uploads are issued.
    const runs = plan.commands.flatMap(command => (command[0] === 'run' ? [plan.nodes[command[1]]!.op] : []))
    expect(runs.indexOf('matmul')).toBe(ahead + 1)
    expect(verify(plan)).toEqual([])
  })

  it('makes a window narrower only where no waits are enough', () => {
    const plan = orThrow(compile(streamed(12, 3), { mode: 'eager', memory: (4 + 2 * 4 + 3 * 64) * KiB }))
    expect(plan.bound.device[0]).toBeLessThanOrEqual((4 + 2 * 4 + 3 * 64) * KiB)
    const runs = plan.commands.flatMap(command => (command[0] === 'run' ? [plan.nodes[command[1]]!.op] : []))
    expect(runs.indexOf('matmul')).toBeGreaterThanOrEqual(1)
    expect(runs.indexOf('matmul')).toBeLessThanOrEqual(3)
  })

  it('names what is in memory at the peak where nothing is enough', () => {
    const refused = compile(streamed(12, 3), { mode: 'eager', memory: 64 * KiB })
    expect(E.isLeft(refused) && refused.left[0]).toMatchObject({ _tag: 'OverBudget', at: 'options.memory' })
    expect(E.isLeft(refused) && refused.left[0].found).toContain('w')
  })

  it('is within every budget between the least and the most, and every law holds', () => {
    fc.assert(
      fc.property(
        sample({ steps: 12 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        ({ graph: net, dims, inFlight }, at) => {
          const most = orThrow(compile(net, { mode: 'eager', dims, inFlight })).bound.device[0]!
          const least = orThrow(compile(net, { mode: 'eager', dims, inFlight, memory: 'small' })).bound
            .device[0]!
          const memory = Math.max(1, Math.floor(Math.min(least, most) + at * Math.abs(most - least)))
          const plan = orThrow(compile(net, { mode: 'eager', dims, inFlight, memory }))
          expect(plan.bound.device[0]).toBeLessThanOrEqual(memory)
          expect(poolPeakOf(plan).device[0]).toBeLessThanOrEqual(memory)
          expect(verify(plan)).toEqual([])
        },
      ),
      { numRuns: runs(60) },
    )
  })
})

// The search for waits that memory does not need ends at a limit of work, and the proof takes out the rest:
// more than 32 in the example.
describe('of graphs of hundreds of operations no wait is redundant, and the pool is within the bound', () => {
  const shapes = ['chains', 'cholesky', 'layered', 'streamed', 'stencil', 'fft', 'transformer'] as const

  it('in plans of the least memory and of the shortest tick', () => {
    fc.assert(
      fc.property(
        fc.record({
          shape: fc.constantFrom(...shapes),
          nodes: fc.integer({ min: 100, max: 500 }),
          lanes: fc.constantFrom(2, 4, 8),
          inFlight: fc.constantFrom(1, 2, 3),
          memory: fc.constantFrom('small', 'fast'),
        }),
        ({ shape, nodes, lanes, inFlight, memory }) => {
          const options = { inFlight, mode: 'eager', fuse: false, memory } as const
          // The laws hold of a plan that is there: `compile` refuses any other.
          const plan = orThrow(compile(largeGraph(shape, nodes, lanes), options))
          // L9 does not ask for the pool of a bound without a kind.
          if (plan.boundKind !== undefined) return
          expect(poolPeakOf(plan).device[0]).toBeLessThanOrEqual(plan.bound.device[0]!)
        },
      ),
      {
        numRuns: runs(4),
        // A smaller graph says no more, and is looked for in minutes.
        endOnFailure: true,
        examples: [[{ shape: 'chains', nodes: 561, lanes: 4, inFlight: 3, memory: 'small' }]],
      },
    )
  })
})
