// No value of a feed is lost in silence: of each input, what its source gave is what ticks have, and drops.
import fc from 'fast-check'
import { concatMap, delay, from, map, of } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { add, compile, download, graph, orThrow, sum, tensor, upload, window } from '../../dsl/index.js'
import { open, pulled, pushed } from '../../runtime/index.js'
import { runs } from '../fixtures/runs.js'
import { pause, present } from './devices.js'

const row = tensor('f32', [4])
const net = graph('net', { x: row, y: row, z: row }, ({ x, y, z }) => {
  const pair = x.pipe(upload(), window(2), sum(0))
  return { s: pair.pipe(add(y.pipe(upload())), add(z.pipe(upload())), download()) }
})
const plan = orThrow(compile(net, { inFlight: 2 }))
const value = new Float32Array(4)

const source = fc.record({
  kind: fc.constantFrom('values', 'promises', 'generator', 'late', 'dropOldest', 'dropNewest', 'timed'),
  length: fc.nat({ max: 9 }),
})

describe.each(present)('feeds of any length on %s', device => {
  it('lose no value in silence', async () => {
    await using session = orThrow(await open(plan, { device })())
    const given = { x: 0, y: 0, z: 0 }
    let ticks = 0
    const feedOf = (input: keyof typeof given, { kind, length }: { kind: string; length: number }) => {
      const next = (): Float32Array => {
        given[input]++
        return value
      }
      const counted = from(Array.from({ length })).pipe(map(next))
      const timed = from(Array.from({ length })).pipe(
        concatMap(() => of(0).pipe(delay(0))),
        map(next),
      )
      if (kind === 'dropOldest' || kind === 'dropNewest') return pushed(counted, kind)
      if (kind === 'timed') return pushed(timed, 'dropOldest')
      if (kind === 'values')
        return pulled({
          *[Symbol.iterator]() {
            for (let i = 0; i < length; i++) yield next()
          },
        })
      if (kind === 'promises')
        return pulled({
          *[Symbol.iterator]() {
            for (let i = 0; i < length; i++) yield Promise.resolve().then(next)
          },
        } as unknown as Iterable<Float32Array>)
      return pulled({
        async *[Symbol.asyncIterator]() {
          for (let i = 0; i < length; i++) {
            if (kind === 'late') await pause(0)
            yield next()
          }
        },
      })
    }
    await fc.assert(
      fc.asyncProperty(
        fc.record({ x: source, y: source, z: source }),
        fc.option(fc.nat({ max: 4 }), { nil: undefined }),
        fc.option(fc.nat({ max: 4 }), { nil: undefined }),
        async (sources, limit, leave) => {
          const before = { ...session.stats().drops }
          const had = { ...given }
          ticks = session.stats().ticks
          const feeds = { x: feedOf('x', sources.x), y: feedOf('y', sources.y), z: feedOf('z', sources.z) }
          let seen = 0
          for await (using _ of session.run(feeds, limit === undefined ? {} : { ticks: limit }))
            if (leave !== undefined && ++seen > leave) break
          const balances = () => {
            const { drops, ticks: now } = session.stats()
            return (
              [
                ['x', 2],
                ['y', 1],
                ['z', 1],
              ] as const
            ).map(([input, rate]) => {
              const kept = rate * (now - ticks) + drops[input]! - before[input]!
              return [input, given[input] - had[input] - kept]
            })
          }
          // What was asked for before the end comes after it, on a busy machine long after.
          for (let turn = 0; turn < 500 && balances().some(([, lost]) => lost !== 0); turn++) await pause(4)
          await pause(4)
          expect(balances()).toEqual([
            ['x', 0],
            ['y', 0],
            ['z', 0],
          ])
        },
      ),
      { numRuns: runs(120) },
    )
  })
})
