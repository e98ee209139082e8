// Orders without data, on devices: an operation after another's start begins no earlier than the end of
// everything that the other waits for; an operation after another's end begins no earlier than that end.
import fc from 'fast-check'
import { lastValueFrom, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { interpret } from '../../dsl/index.js'
import { pulled } from '../../runtime/index.js'
import { steps, stepsGraph } from '../fixtures/graphs/steps.js'
import { often, runs } from '../fixtures/runs.js'
import { opened, present } from './devices.js'

type Values = Readonly<Record<string, Float32Array>>

describe.each(present)('orders without data on %s', device => {
  // A GPU's times have a resolution of half a microsecond.
  const slack = device === 'host' ? 0 : 0.002

  it('are kept in every tick, and change no value', { timeout: 120_000 }, async () => {
    const ticks = 4
    const feed = Array.from({ length: ticks }, (_, tick) => new Float32Array(16).map((_, i) => i - 3 * tick))
    let overlapped = 0
    await fc.assert(
      fc.asyncProperty(
        steps(10),
        fc.constantFrom(1, 2, 3),
        fc.constantFrom('pooled' as const, 'planned' as const),
        fc.integer({ min: 1, max: 1e6 }),
        async (made, inFlight, storage, seed) => {
          const graph = stepsGraph(made, false)
          const host = { jitter: seed, jitterMicroseconds: 200, poison: true }
          await using session = await opened(graph, device, {
            compile: { inFlight, storage },
            trace: true,
            ...(device === 'host' ? { host } : {}),
          })
          const seen: Values[] = []
          await session.run({ x: pulled(feed) } as never).forEach(lease => {
            using held = lease as unknown as Values & Disposable
            seen.push(Object.fromEntries(Object.entries(held).map(([name, value]) => [name, value.slice()])))
          })
          expect(seen).toEqual(await lastValueFrom(interpret(graph)({ x: feed } as never).pipe(toArray())))

          const { plan } = session
          const runs = plan.commands.filter(command => command[0] === 'run')
          const records = new Map(session.trace().map(record => [`${record.tick} ${record.node}`, record]))
          /**
           * The operations before this one without `after`: its lane's previous one, and the writers of its
           * reads.
           */
          const needs = (node: number): readonly number[] => {
            const at = runs.findIndex(run => run[1] === node)
            const [, , lane, reads] = runs[at]!
            const earlier = runs.slice(0, at)
            const onLane = earlier.findLast(run => run[2] === lane)
            const writers = reads.map(read => earlier.findLast(run => run[4].includes(read)))
            return [onLane, ...writers].flatMap(run => (run === undefined ? [] : [run[1]]))
          }
          for (const { id, after = [] } of plan.nodes)
            for (const [node, when] of after)
              for (let tick = 0; tick < ticks; tick++) {
                const { startMs } = records.get(`${tick} ${id}`)!
                for (const before of when === 'start' ? needs(node) : [node])
                  expect(startMs).toBeGreaterThanOrEqual(records.get(`${tick} ${before}`)!.endMs - slack)
                if (when === 'start' && startMs < records.get(`${tick} ${node}`)!.endMs) overlapped++
              }
        },
      ),
      { numRuns: runs(40) },
    )
    // To come after a start is not to come after the end.
    if (device === 'host') expect(overlapped).toBeGreaterThan(often(0))
  })
})
