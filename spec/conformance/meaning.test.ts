// The law of the project: for every graph and every feed, the compiled plan yields what `interpret` yields,
// with pooled storage and with planned, with fused kernels and without, in eager mode and in the mode that is
// chosen. On `host` under jitter and with poisoned memory, so that a missing wait or a lifetime that ends too
// early gives a wrong result.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { CompileOptions } from '../../dsl/index.js'
import { type Sample, sample } from '../fixtures/graphs/random.js'
import { often, runs } from '../fixtures/runs.js'
import { opened, present } from './devices.js'
import { expectMeant, outputsOf } from './meant.js'

const check = async (
  made: Sample,
  device: string,
  seed: number,
  compiling: Pick<CompileOptions, 'storage' | 'memory' | 'fuse' | 'mode'>,
) => {
  const { graph, params, dims, inFlight } = made
  const host = device === 'host' ? { host: { jitter: seed, jitterMicroseconds: 60, poison: true } } : {}
  const options = { compile: { dims, inFlight, ...compiling }, params, poison: true, ...host }
  await using session = await opened(graph, device, options)
  await expectMeant(made, await outputsOf(session as never, made))
  const { peak, bound } = session.stats()
  if (compiling.storage === 'planned')
    expect(peak).toMatchObject({ reserved: bound.device, pinned: bound.pinned })
  expect(peak.reserved).toBeLessThanOrEqual(bound.device)
  expect(peak.pinned).toBeLessThanOrEqual(bound.pinned)
}

describe.each(present)('what a plan yields on %s is what interpret yields', device => {
  const samples = sample()
  const withRates = sample({ rates: true })
  const seeds = fc.integer({ min: 1, max: 1e6 })
  const modes = fc.constantFrom('eager' as const, 'auto' as const)

  it('for 200 generated graphs', { timeout: 240_000 }, async () => {
    const kernels = new Set<string>()
    await fc.assert(
      fc.asyncProperty(samples, seeds, fc.boolean(), (made, seed, fuse) => {
        for (const [, name] of made.text.matchAll(/^\d+ kernel ([a-z]+)/gm)) kernels.add(name!)
        return check(made, device, seed, { fuse })
      }),
      { numRuns: runs(200) },
    )
    // Users' kernels are among them, on every device.
    expect(kernels.size).toBeGreaterThan(often(3))
  })

  it('for 200 generated graphs whose buffers share the bytes of an arena', { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(
        samples,
        seeds,
        fc.constantFrom('fast' as const, 'small' as const),
        fc.boolean(),
        modes,
        (made, seed, memory, fuse, mode) =>
          check(made, device, seed, { storage: 'planned', memory, fuse, mode }),
      ),
      { numRuns: runs(200) },
    )
  })

  it('for 60 generated graphs of several rates', { timeout: 120_000 }, async () => {
    const storages = fc.constantFrom('pooled' as const, 'planned' as const)
    await fc.assert(
      fc.asyncProperty(withRates, seeds, storages, fc.boolean(), modes, (made, seed, storage, fuse, mode) =>
        check(made, device, seed, { storage, fuse, mode }),
      ),
      { numRuns: runs(60) },
    )
  })
})
