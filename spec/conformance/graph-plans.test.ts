// Plans in graph mode, on every device: one launch where eager issue has a call for every command, and the
// same bits.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { CompileOptions, Graph, Ports } from '../../dsl/index.js'
import type { HostArray } from '../../dsl/language/values.js'
import { patternGraph, patternInput, patterns } from '../fixtures/graphs/patterns.js'
import { sample } from '../fixtures/graphs/random.js'
import { runs } from '../fixtures/runs.js'
import { opened, present } from './devices.js'
import { expectMeant, outputsOf, type Values } from './meant.js'

interface Case {
  readonly graph: Graph<Ports, Ports>
  readonly compile?: CompileOptions
  readonly params?: Readonly<Record<string, HostArray>>
  readonly feeds: Readonly<Record<string, readonly HostArray[]>>
  readonly ticks?: number
}

const floats = (length: number, of: (i: number) => number): Float32Array =>
  Float32Array.from({ length }, (_, i) => of(i))

describe.each(present)('a plan in graph mode on %s', device => {
  const shaken = (seed: number) =>
    device === 'host' ? { host: { jitter: seed, jitterMicroseconds: 60, poison: true } } : {}

  const outputs = async (made: Case, mode: 'eager' | 'graph', seed: number): Promise<readonly Values[]> => {
    const compile: CompileOptions = { ...made.compile, storage: 'planned', mode }
    const options = { compile, params: made.params ?? {}, poison: true, ...shaken(seed) }
    await using session = await opened(made.graph, device, options)
    const got = await outputsOf(session as never, made)
    const { ticks, graphLaunches } = session.stats()
    expect(graphLaunches).toBe(ticks * (session.plan.graphs?.length ?? 0))
    return got
  }
  const expectSame = async (made: Case, seed: number): Promise<readonly Values[]> => {
    const eager = await outputs(made, 'eager', seed)
    expect(eager.length).toBeGreaterThan(0)
    expect(await outputs(made, 'graph', seed + 1)).toEqual(eager)
    return eager
  }

  it('yields what the graph means, and the bits of eager issue', { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(
        sample({ kernels: device === 'host' }),
        fc.integer({ min: 1, max: 1e6 }),
        fc.constantFrom('fast' as const, 'small' as const),
        async (made, seed, memory) => {
          const { graph, params, dims, inFlight } = made
          const running = { graph, params, feeds: made.feeds, compile: { dims, inFlight, memory } }
          const got = await expectSame({ ...running, ...(made.ticks ? { ticks: made.ticks } : {}) }, seed)
          await expectMeant(made, got)
        },
      ),
      { numRuns: runs(100) },
    )
  })

  it('over lanes that hardly meet, with up to 4 ticks in flight', { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(
        patterns(60),
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 1, max: 1e6 }),
        async (pattern, inFlight, seed) => {
          const x = Array.from({ length: 10 }, (_, tick) =>
            floats(patternInput, i => Math.sin(i + 1000 * tick)),
          )
          await expectSame({ graph: patternGraph(pattern), compile: { inFlight }, feeds: { x } }, seed)
        },
      ),
      { numRuns: runs(40) },
    )
  })
})
