// The law of the project: for every graph and every feed, the compiled plan yields what `interpret` yields. On `host` under jitter and
// with poisoned memory, so that a missing wait or a lifetime too short shows as a wrong answer.
import fc from 'fast-check'
import { lastValueFrom, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { interpret } from '../../dsl/index.js'
import type { HostArray } from '../../dsl/operators/operator.js'
import { pulled } from '../../runtime/index.js'
import { firstDifference, type Sample, sample } from '../support/generate.js'
import { opened, present } from './devices.js'

type Values = Readonly<Record<string, HostArray>>

const meant = ({ graph, params, dims, feeds, ticks }: Sample): Promise<readonly Values[]> =>
  lastValueFrom(interpret(graph, { params: params as never, dims, ticks })(feeds as never).pipe(toArray())) as never

const ran = async (made: Sample, device: string, seed: number): Promise<readonly Values[]> => {
  const { graph, params, dims, inFlight, feeds, ticks } = made
  const host = device === 'host' ? { host: { jitter: seed, jitterMicroseconds: 60, poison: true } } : {}
  await using session = await opened(graph, device, { compile: { dims, inFlight }, params, poison: true, ...host })
  const outputs: Values[] = []
  const pulls = Object.fromEntries(Object.entries(feeds).map(([name, values]) => [name, pulled(values)]))
  await session.run(pulls as never, { ticks }).forEach(lease => {
    using held = lease as unknown as Values & Disposable
    outputs.push(Object.fromEntries(Object.entries(held).map(([name, value]) => [name, value.slice()])))
  })
  const { peak, bound } = session.stats()
  expect(peak.reserved).toBeLessThanOrEqual(bound.device)
  expect(peak.pinned).toBeLessThanOrEqual(bound.pinned)
  return outputs
}

describe.each(present)('what a plan yields on %s is what interpret yields', device => {
  it('for 200 generated graphs', { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(sample({ kernels: device === 'host' }), fc.integer({ min: 1, max: 1e6 }), async (made, seed) => {
        const [wanted, got] = [await meant(made), await ran(made, device, seed)]
        expect(got).toHaveLength(wanted.length)
        wanted.forEach((values, tick) => {
          for (const [name, { dtype, slack }] of Object.entries(made.outputs)) {
            const difference = firstDifference(got[tick]![name]!, values[name]!, dtype, slack)
            expect(difference, `output ${name} of tick ${tick}`).toBeUndefined()
          }
        })
      }),
      { numRuns: 200 },
    )
  })
})
