// A tick with more work for one lane than a stream's queue takes: the work is issued as the queue drains, and
// the results are those of any other tick. And a plan at the limits of lanes and of ticks in flight.
import { lastValueFrom, map, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { add, download, graph, lane, on, param, tensor, upload } from '../../dsl/index.js'
import { limits } from '../../dsl/ir/limits.js'
import { type OpenOptions, pulled } from '../../runtime/index.js'
import { opened, present } from './devices.js'

const links = 2_500

/** y = x + links · w, one link at a time, each longer on the device than it takes to issue. */
const chain = (elements: number) => {
  const values = tensor('f32', [elements])
  const math = lane('math')
  return graph('chain', { x: values }, ({ x }) => {
    const w = param('w', values)
    let y = x.pipe(upload(math))
    for (let i = 0; i < links; i++) y = y.pipe(add(w))
    return { y: y.pipe(download(math)) }
  })
}

describe.each(present)('more than a queue takes, on %s', device => {
  const onHost = device === 'host'
  const elements = onHost ? 256 : 1 << 23
  const host: OpenOptions = onHost ? { host: { queueDepth: 64, deviceRate: 3 * 4 * 256 * 5e4 } } : {}
  const row = (value: number): Float32Array => new Float32Array(elements).fill(value)

  it.each([{ storage: 'pooled' as const }, { storage: 'planned' as const }])(
    '$storage',
    async ({ storage }) => {
      await using session = await opened(chain(elements), device, {
        ...host,
        poison: true,
        params: { w: row(2) },
        compile: { mode: 'eager', storage, fuse: false },
      })
      await using other = await opened(chain(elements), device, {
        ...host,
        params: { w: row(3) },
        compile: { mode: 'eager', storage, fuse: false },
      })
      const answers = (of: typeof session) =>
        lastValueFrom(
          of.run({ x: pulled([row(1), row(10), row(100)]) }).pipe(
            map(lease => {
              using held = lease
              return [held.y[0], held.y[elements - 1]]
            }),
            toArray(),
          ),
        )
      const wanted = (w: number) => [1, 10, 100].map(x => [x + links * w, x + links * w])
      const [own, others] = await Promise.all([answers(session), answers(other)])
      expect(own).toEqual(wanted(2))
      expect(others).toEqual(wanted(3))
      expect(session.stats().fullQueues).toBeGreaterThan(0)
    },
  )
})

it('a plan of as many lanes and ticks in flight as there may be can be opened', {
  timeout: 60_000,
}, async () => {
  const { lanes, inFlight } = limits
  const wide = graph('wide', { x: tensor('f32', [4]) }, ({ x }) => {
    const at = (i: number) => lane(`lane ${i}`)
    const outputs = Array.from({ length: lanes + 6 }, (_, i) => {
      const y = x.pipe(upload(), on(at(i)), add(i), download(at(i)))
      return [`y${i}`, y] as const
    })
    return Object.fromEntries(outputs)
  })
  // A stream of the host device is a thread, so one device is enough.
  await using session = await opened(wide, 'host', { compile: { mode: 'eager', inFlight } })
  expect(session.plan.lanes).toHaveLength(lanes)
  const got = await lastValueFrom(
    session.run({ x: pulled([new Float32Array(4).fill(1)]) }).pipe(
      map(lease => {
        using held = lease
        return [held.y0![0], held[`y${lanes}`]![3]]
      }),
    ),
  )
  expect(got).toEqual([1, lanes + 1])
})
