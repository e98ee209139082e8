// The law of the project with states that are written and reset between ticks: for every graph, every feed
// and every write, the compiled plan yields what `interpret` yields.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Between, type CompileOptions, irOf } from '../../dsl/index.js'
import type { Session } from '../../runtime/index.js'
import { type Sample, sample, valuesOf } from '../fixtures/graphs/random.js'
import { often, runs } from '../fixtures/runs.js'
import { opened, present } from './devices.js'
import { meantOf, mismatch, outputsOf, type Values } from './meant.js'

/** What happens before a tick: writes of states by their place in the list of names, or a reset. */
interface Edit {
  readonly tick: number
  readonly reset: boolean
  readonly states: readonly number[]
  readonly seed: number
}

const edit: fc.Arbitrary<Edit> = fc.record({
  tick: fc.nat(5),
  reset: fc.boolean(),
  states: fc.array(fc.nat(5), { maxLength: 3 }),
  seed: fc.nat(1e6),
})

/** The values that an edit writes. */
const valuesIn = ({ plan, state }: Session, { states, seed }: Edit): Values => {
  const names = state.names.length === 0 ? [] : states.map(i => state.names[i % state.names.length]!)
  return Object.fromEntries(
    names.map((name, i) => {
      const { dtype, shape } = plan.buffers.find(buffer => buffer.name === name && buffer.life === 'state')!
      return [
        name,
        valuesOf(
          dtype!,
          shape!.reduce((product, size) => product * size, 1),
          seed + i,
        ),
      ]
    }),
  )
}

/** Runs the ticks one after the other, with the edits before them. */
const edited = async (session: Session, made: Sample, edits: readonly Edit[]): Promise<readonly Values[]> => {
  const outputs: Values[] = []
  for (let tick = 0; tick < made.ticks; tick++) {
    for (const one of edits.filter(each => each.tick === tick)) {
      if (one.reset) expect(await session.state.reset()).toBe(tick)
      const values = valuesIn(session, one)
      expect(await session.state.write(values)).toBe(tick)
      for (const [name, value] of Object.entries(values))
        expect(await session.state.read(name)).toEqual(value)
    }
    const feeds = Object.fromEntries(
      Object.entries(made.feeds).map(([name, values]) => [name, values.slice(tick, tick + 1)]),
    )
    outputs.push(...(await outputsOf(session, { feeds, ticks: 1 })))
  }
  return outputs
}

const check = async (
  made: Sample,
  edits: readonly Edit[],
  device: string,
  seed: number,
  compiling: Pick<CompileOptions, 'storage' | 'mode' | 'fuse'>,
): Promise<number> => {
  const { graph, params, dims, inFlight } = made
  const host = device === 'host' ? { host: { jitter: seed, jitterMicroseconds: 60, poison: true } } : {}
  const options = { compile: { dims, inFlight, ...compiling }, params, poison: true, ...host }
  await using session = (await opened(graph, device, options)) as Session
  const named = irOf(graph).nodes.flatMap(({ op, name, attrs }) =>
    op === 'delay' && attrs['name'] !== undefined ? [name] : [],
  )
  expect(session.state.names).toEqual(expect.arrayContaining(named))
  const between: Between = (tick, states) => {
    for (const one of edits.filter(each => each.tick === tick)) {
      if (one.reset) states.reset()
      for (const [name, value] of Object.entries(valuesIn(session, one))) states.write(name, value)
    }
  }
  const wanted = await meantOf(made, between)
  expect(mismatch(made, wanted, await edited(session, made, edits))).toBeUndefined()
  return session.state.names.length
}

describe.each(present)('states that are written between ticks on %s', device => {
  it('make what interpret makes of them', { timeout: 60_000 }, async () => {
    let states = 0
    await fc.assert(
      fc.asyncProperty(
        sample(),
        fc.array(edit, { minLength: 1, maxLength: 4 }),
        fc.integer({ min: 1, max: 1e6 }),
        fc.constantFrom(
          { mode: 'eager' } as const,
          { mode: 'eager', storage: 'planned' } as const,
          { storage: 'planned', mode: 'graph' } as const,
        ),
        fc.boolean(),
        async (made, edits, seed, compiling, fuse) => {
          states += await check(made, edits, device, seed, { ...compiling, fuse })
        },
      ),
      { numRuns: runs(30) },
    )
    expect(states).toBeGreaterThan(often(0))
  })
})
