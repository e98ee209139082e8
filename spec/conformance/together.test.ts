// One source for several inputs, on every device: what a tick is given, when the source is asked, and how it ends.
import { lastValueFrom, map, toArray } from 'rxjs'
import { afterEach, describe, expect, it } from 'vitest'
import { add, download, graph, mul, tensor, upload } from '../../dsl/index.js'
import { pulled, pulledTogether, type Session } from '../../runtime/index.js'
import { opened, pause, present, until } from './devices.js'

const one = tensor('f32', [1])
const pairs = graph('pairs', { x: one, y: one }, ({ x, y }) => ({
  z: x.pipe(upload(), mul(100), add(y.pipe(upload())), download()),
}))
type Pairs = Session<{ x: typeof one; y: typeof one }, { z: typeof one }>
const pair = (n: number) => ({ x: Float32Array.of(n), y: Float32Array.of(n + 1) })
const names = ['x', 'y'] as const

describe.each(present)('pulledTogether on %s', device => {
  const open: Pairs[] = []
  const start = async (): Promise<Pairs> => {
    const session = (await opened(pairs, device)) as Pairs
    open.push(session)
    return session
  }
  afterEach(async () => {
    for (const session of open.splice(0)) await session.close()
  })
  const run = (
    session: Pairs,
    source: Iterable<ReturnType<typeof pair>> | AsyncIterable<ReturnType<typeof pair>>,
  ) =>
    lastValueFrom(
      session.run(pulledTogether(source, names)).pipe(
        map(lease => {
          using held = lease
          return held.z[0]!
        }),
        toArray(),
      ),
    )

  it('gives both parts of a value to one tick, and begins anew in each run', async () => {
    const session = await start()
    const feeds = pulledTogether([0, 1, 2].map(pair), names)
    for (const _ of [1, 2]) {
      const seen: number[] = []
      for await (using lease of session.run(feeds)) seen.push(lease.z[0]!)
      expect(seen).toEqual([1, 102, 203])
    }
  })

  it('waits for a source that answers later, and asks no further than there are slots', async () => {
    const session = await start()
    let made = 0
    let given = 0
    let ahead = 0
    let returned = 0
    const source = (async function* () {
      try {
        for (let n = 0; ; n++) {
          await pause(1)
          made++
          yield pair(n)
        }
      } finally {
        returned++
      }
    })()
    for await (using lease of session.run(pulledTogether(source, names))) {
      expect(lease.z[0]).toBe(100 * given + given + 1)
      given++
      await pause(3)
      ahead = Math.max(ahead, made - given)
      if (given === 12) break
    }
    expect(ahead).toBeLessThanOrEqual(session.inFlight + 1)
    await until(() => returned === 1)
  })

  it('ends with the source, with what it throws, and with a value that is none', async () => {
    const session = await start()
    expect(await run(session, [])).toEqual([])
    const failing = async function* () {
      yield pair(0)
      throw new Error('the disk is gone')
    }
    await expect(run(session, failing())).rejects.toThrow('the disk is gone')
    await expect(run(session, [pair(0), 7 as never])).rejects.toThrow('wanted values of x, y by name')
    await expect(run(session, [pair(0), { x: Float32Array.of(1) } as never])).rejects.toMatchObject({
      _tag: 'WrongValue',
      subject: 'y',
    })
    expect(await run(session, [pair(4)])).toEqual([405])
  })

  it('returns a generator that ends its own run, once', async () => {
    for (const isAsync of [false, true]) {
      const session = await start()
      const stop = new AbortController()
      let returned = 0
      const body = function* () {
        try {
          yield pair(0)
          stop.abort()
          yield pair(1)
        } finally {
          returned++
        }
      }
      const later = async function* () {
        yield* body()
      }
      const source = isAsync ? later() : body()
      const running = session.run(pulledTogether(source, names), { signal: stop.signal })
      await lastValueFrom(running.pipe(map(lease => lease[Symbol.dispose]()))).catch(() => undefined)
      await until(() => returned === 1)
    }
  })

  it('stands beside other feeds, and is typed', async () => {
    const session = await start()
    const feeds = { ...pulledTogether([pair(1)], ['x']), y: pulled([Float32Array.of(7)]) }
    for await (using lease of session.run(feeds)) expect(lease.z[0]).toBe(107)
    // @ts-expect-error a part that the values do not have
    pulledTogether([pair(1)], ['x', 'q'])
    const ints = pulledTogether([{ x: Int32Array.of(1), y: Float32Array.of(1) }], names)
    // @ts-expect-error values of another type than the input's
    await expect(lastValueFrom(session.run(ints))).rejects.toMatchObject({ subject: 'x' })
    expect(() => pulledTogether(7 as never, [])).toThrow(TypeError)
  })
})
