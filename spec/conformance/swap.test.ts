// A session that goes over to another plan of the same states: nothing is lost, nothing is seen twice.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type CompileOptions,
  compile,
  orThrow,
  type Plan,
} from '../../dsl/index.js'
import { Device, open, params, pulled, pushed, type Session, SwapError } from '../../runtime/index.js'
import { type Sample, sample } from '../fixtures/graphs/random.js'
import { runs } from '../fixtures/runs.js'
import { opened, present, until } from './devices.js'
import { meantOf, mismatch, outputsOf, type Values } from './meant.js'

const ways: fc.Arbitrary<CompileOptions> = fc.record(
  {
    storage: fc.constantFrom('planned' as const, 'pooled' as const),
    inFlight: fc.integer({ min: 1, max: 4 }),
    fuse: fc.boolean(),
    lanes: fc.integer({ min: 1, max: 3 }),
  },
  { requiredKeys: [] },
)
const modes: fc.Arbitrary<CompileOptions> = fc.constantFrom(
  {},
  {},
  { storage: 'planned', mode: 'graph' },
  { storage: 'planned', mode: 'auto' },
  { storage: 'planned', mode: 'eager' },
)
const variant = fc.tuple(ways, modes).map(([way, mode]): CompileOptions => ({ ...way, ...mode }))

interface Swap {
  readonly tick: number
  readonly as: CompileOptions
}
const swaps = fc.array(fc.record({ tick: fc.nat(5), as: variant }), { minLength: 1, maxLength: 3 })

/** One run over all ticks. The swaps are begun when the outputs of their ticks arrive, and fall where they fall. */
const swappedInRun = async (
  session: Session,
  made: Sample,
  plans: readonly (readonly [number, Plan])[],
): Promise<readonly Values[]> => {
  const outputs: Values[] = []
  const swapping: Promise<number>[] = []
  const begin = (tick: number): void => {
    for (const [at, plan] of plans) if (at === tick) swapping.push(session.swap(plan as never))
  }
  begin(0)
  const pulls = Object.fromEntries(Object.entries(made.feeds).map(([name, all]) => [name, pulled(all)]))
  await session.run(pulls as never, { ticks: made.ticks }).forEach(lease => {
    using held = lease as unknown as Values & Disposable
    outputs.push(Object.fromEntries(Object.entries(held).map(([name, value]) => [name, value.slice()])))
    begin(outputs.length)
  })
  await Promise.all(swapping)
  return outputs
}

/** A run a tick, with the swaps before their ticks: each begins with the tick that it says. */
const swappedBetween = async (
  session: Session,
  made: Sample,
  plans: readonly (readonly [number, Plan])[],
): Promise<readonly Values[]> => {
  const outputs: Values[] = []
  for (let tick = 0; tick < made.ticks; tick++) {
    for (const [at, plan] of plans) if (at === tick) expect(await session.swap(plan as never)).toBe(tick)
    const feeds = Object.fromEntries(
      Object.entries(made.feeds).map(([name, values]) => [name, values.slice(tick, tick + 1)]),
    )
    outputs.push(...(await outputsOf(session, { feeds, ticks: 1 })))
  }
  return outputs
}

const check = async (
  made: Sample,
  first: CompileOptions,
  all: readonly Swap[],
  device: string,
  seed: number,
  within: boolean,
): Promise<void> => {
  const { graph, params, dims, inFlight } = made
  const host = device === 'host' ? { host: { jitter: seed, jitterMicroseconds: 60, poison: true } } : {}
  const options = { compile: { dims, inFlight, ...first }, params, poison: true, ...host }
  const plans = all.map(
    ({ tick, as }) => [tick, orThrow(compile(graph, { dims, inFlight, ...as })) as unknown as Plan] as const,
  )
  await using session = (await opened(graph, device, options)) as Session
  const got = await (within ? swappedInRun : swappedBetween)(session, made, plans)
  expect(mismatch(made, await meantOf(made), got)).toBeUndefined()
  expect(session.stats().ticks).toBe(made.ticks)
}

describe.each(present)('going over to another plan on %s', device => {
  const host = device === 'host' ? { host: { poison: true } } : {}

  it('yields what interpret yields, whatever the plans of a graph and the ticks', { timeout: 60_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(
        sample({ kernels: device === 'host' }),
        variant,
        swaps,
        fc.integer({ min: 1, max: 1e6 }),
        fc.boolean(),
        (made, first, all, seed, within) => check(made, first, all, device, seed, within),
      ),
      { numRuns: runs(40) },
    )
  })
})
