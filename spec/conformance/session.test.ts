// The contract of a session, on every device: credits, leases, feeds, ends of runs, disposal. Cases are
// numbered.
import { firstValueFrom, interval, lastValueFrom, map, NEVER, of, Subject, take, toArray } from 'rxjs'
import { afterEach, describe, expect, it } from 'vitest'
import { add, download, graph, lane, mul, param, scan, tensor, upload } from '../../dsl/index.js'
import type { Lease } from '../../dsl/language/feed.js'
import { DisposedError, pulled, pushed, RunError, type Session } from '../../runtime/index.js'
import { rejectionOf } from '../fixtures/errors.js'
import { listenForWarnings } from '../fixtures/warnings.js'
import { opened, pause, present, turn, until } from './devices.js'

const four = tensor('f32', [4])
const copy = lane('copy')
const math = lane('math')
const double = graph('double', { x: four }, ({ x }) => {
  const device = x.pipe(upload(copy))
  return { y: device.pipe(mul(2), download(math)) }
})
const sum = graph('sum', { a: four, b: four }, ({ a, b }) => ({
  y: a.pipe(upload(copy), add(b.pipe(upload(copy))), download(copy)),
}))
const row = (value: number): Float32Array => new Float32Array(4).fill(value)
const rows = function* (count: number) {
  for (let i = 0; i < count; i++) yield row(i)
}
const first = (lease: Lease<{ readonly y: Float32Array }>): number => {
  using held = lease
  return held.y[0]!
}
const errorOf = async (running: Promise<unknown>): Promise<RunError> => {
  const error = await rejectionOf(running)
  expect(error).toBeInstanceOf(RunError)
  return error as RunError
}

describe.each(present)('a session on %s', device => {
  const open: { close(): Promise<void> }[] = []
  const start = async <S extends { close(): Promise<void> }>(opening: Promise<unknown>): Promise<S> => {
    const session = (await opening) as S
    open.push(session)
    return session
  }
  const doubling = (options: Parameters<typeof opened>[2] = {}) =>
    start<Session<{ x: typeof four }, { y: typeof four }>>(opened(double, device, options))
  const sumSession = (options: Parameters<typeof opened>[2] = {}) =>
    start<Session<{ a: typeof four; b: typeof four }, { y: typeof four }>>(opened(sum, device, options))
  afterEach(async () => {
    for (const session of open.splice(0)) await session.close()
  })

  it('1 gives one output a tick, in order, and completes with its feed', async () => {
    const session = await doubling()
    expect(await lastValueFrom(session.run({ x: pulled(rows(20)) }).pipe(map(first), toArray()))).toEqual(
      Array.from({ length: 20 }, (_, i) => 2 * i),
    )
    expect(session.stats().ticks).toBe(20)
  })

  it('2 is cold: each subscription is a run of its own', async () => {
    const session = await doubling()
    const run = session.run({ x: pulled([row(1), row(2)]) }).pipe(map(first), toArray())
    expect(await lastValueFrom(run)).toEqual([2, 4])
    expect(await lastValueFrom(run)).toEqual([2, 4])
  })

  it('3 pulls only with a credit: at most inFlight values ahead of the leases given back', async () => {
    const session = await doubling({ compile: { inFlight: 3 } })
    let asked = 0
    const feed = (function* () {
      for (;;) yield row(asked++)
    })()
    const leases: Lease<{ readonly y: Float32Array }>[] = []
    const subscription = session.run({ x: pulled(feed) }).subscribe(lease => leases.push(lease))
    await until(() => leases.length === 3)
    await pause(30)
    expect(asked).toBe(3)
    expect(session.stats().credits).toEqual({ inFlight: 3, free: 0, flying: 0, leased: 3 })
    leases[0]![Symbol.dispose]()
    await until(() => leases.length === 4)
    await pause(20)
    expect(asked).toBe(4)
    expect(leases[3]!.y[0]).toBe(6)
    // Any slot that is free serves the next tick.
    leases[2]![Symbol.dispose]()
    await until(() => leases.length === 5)
    await pause(20)
    expect(asked).toBe(5)
    leases[1]![Symbol.dispose]()
    await until(() => leases.length === 6)
    expect(asked).toBe(6)
    subscription.unsubscribe()
  })

  it('4 may be opened with fewer slots than the plan has', async () => {
    const session = await doubling({ compile: { inFlight: 4 }, inFlight: 1 })
    const leases: Disposable[] = []
    const subscription = session.run({ x: pulled(rows(9)) }).subscribe(lease => leases.push(lease))
    await until(() => leases.length === 1)
    await pause(20)
    expect(leases.length).toBe(1)
    for (let i = 0; i < 9; i++) {
      await until(() => leases.length === i + 1)
      leases[i]![Symbol.dispose]()
    }
    await until(() => subscription.closed)
  })

  it('5 empties the views of a lease when it is given back, and giving it back twice is once', async () => {
    const session = await doubling({ compile: { inFlight: 1 } })
    const lease = await firstValueFrom(session.run({ x: pulled([row(5)]) }))
    const { y } = lease
    expect([...y]).toEqual([10, 10, 10, 10])
    lease[Symbol.dispose]()
    expect(y.length).toBe(0)
    expect(lease.y.length).toBe(0)
    lease[Symbol.dispose]()
    expect(session.stats().credits).toMatchObject({ free: 1, leased: 0 })
    expect(await firstValueFrom(session.run({ x: pulled([row(6)]) }).pipe(map(first)))).toBe(12)
  })

  it('6 iterates: for await gives leases, and leaving the loop stops the run', async () => {
    const session = await doubling()
    let returned = false
    const feed = (async function* () {
      try {
        for (let i = 0; ; i++) yield row(i)
      } finally {
        returned = true
      }
    })()
    const seen: number[] = []
    for await (const lease of session.run({ x: pulled(feed) })) {
      seen.push(first(lease))
      if (seen.length === 5) break
    }
    expect(seen).toEqual([0, 2, 4, 6, 8])
    await until(() => returned)
    await until(() => session.stats().credits.free === session.inFlight)
  })

  it('7 waits for values that come later, and for all inputs of a tick', async () => {
    const session = await sumSession()
    const slow = (async function* () {
      for (let i = 0; i < 4; i++) {
        await pause(5)
        yield row(i)
      }
    })()
    expect(
      await lastValueFrom(session.run({ a: pulled(slow), b: pulled(rows(100)) }).pipe(map(first), toArray())),
    ).toEqual([0, 2, 4, 6])
  })

  it('8 ends with the shortest feed, pulls at most one value more, and returns the iterators', async () => {
    const session = await sumSession()
    let asked = 0
    let returned = 0
    const long: Iterable<Float32Array> = {
      [Symbol.iterator]: () => ({
        next: () => ({ done: false, value: row(asked++) }),
        return: () => {
          returned++
          return { done: true, value: undefined }
        },
      }),
    }
    expect(
      await lastValueFrom(session.run({ a: pulled(long), b: pulled(rows(3)) }).pipe(map(first), toArray())),
    ).toEqual([0, 2, 4])
    expect(asked).toBeLessThanOrEqual(4)
    expect(returned).toBe(1)
  })

  it('9 completes at once when a feed is empty', async () => {
    const session = await doubling()
    expect(await lastValueFrom(session.run({ x: pulled([]) }).pipe(toArray()))).toEqual([])
    expect(await lastValueFrom(session.run({ x: pushed(of(), 'fail') }).pipe(toArray()))).toEqual([])
  })

  it('10 ends after the ticks that were asked for', async () => {
    const session = await doubling()
    expect(
      await lastValueFrom(session.run({ x: pulled(rows(100)) }, { ticks: 7 }).pipe(map(first), toArray())),
    ).toHaveLength(7)
    expect(await lastValueFrom(session.run({ x: pulled(rows(100)) }, { ticks: 0 }).pipe(toArray()))).toEqual(
      [],
    )
  })

  it('11 runs a graph without inputs for its ticks, and keeps state from run to run', async () => {
    const counter = graph('counter', {}, () => {
      const seed = param('seed', four)
      return {
        y: seed.pipe(
          scan((total, value) => total.pipe(add(value)), 0),
          download(),
        ),
      }
    })
    const session = await start<Session<never, { y: typeof four }>>(
      opened(counter, device, { params: { seed: row(3) } }),
    )
    expect(await lastValueFrom(session.run({} as never, { ticks: 3 }).pipe(map(first), toArray()))).toEqual([
      3, 6, 9,
    ])
    expect(await lastValueFrom(session.run({} as never).pipe(map(first), take(2), toArray()))).toEqual([
      12, 15,
    ])
  })

  it('12 drops the newest, and counts', async () => {
    const session = await doubling()
    const source = new Subject<Float32Array>()
    const got: number[] = []
    const leases: Lease<{ readonly y: Float32Array }>[] = []
    session.run({ x: pushed(source, 'dropNewest') }).subscribe(lease => leases.push(lease))
    for (let i = 0; i < 6; i++) source.next(row(i))
    await until(() => leases.length === 2)
    for (const lease of leases.splice(0)) got.push(first(lease))
    source.next(row(10))
    await until(() => leases.length === 1)
    got.push(first(leases[0]!))
    expect(got).toEqual([0, 2, 20])
    expect(session.stats().drops).toEqual({ x: 4 })
    source.complete()
  })

  it('13 drops the oldest that waits, keeps the newest for the next slot, and counts', async () => {
    const session = await doubling()
    const source = new Subject<Float32Array>()
    const leases: Lease<{ readonly y: Float32Array }>[] = []
    session.run({ x: pushed(source, 'dropOldest') }).subscribe(lease => leases.push(lease))
    for (let i = 0; i < 6; i++) source.next(row(i))
    await until(() => leases.length === 2)
    expect(leases.splice(0).map(first)).toEqual([0, 2])
    await until(() => leases.length === 1)
    expect(first(leases[0]!)).toBe(10)
    expect(session.stats().drops).toEqual({ x: 3 })
    source.complete()
  })

  it('14 ends with FeedFull where a feed may not drop', async () => {
    const session = await doubling()
    const error = await errorOf(
      lastValueFrom(session.run({ x: pushed(of(1, 2, 3, 4).pipe(map(row)), 'fail') }).pipe(map(first))),
    )
    expect(error).toMatchObject({ _tag: 'FeedFull', subject: 'x' })
    expect(error.next).toContain('dropOldest')
  })

  it('15 lets completion pass by data: a full session with leases out still completes', async () => {
    const session = await doubling()
    for (const policy of ['dropOldest', 'dropNewest'] as const) {
      const source = new Subject<Float32Array>()
      const leases: Disposable[] = []
      let completed = false
      session
        .run({ x: pushed(source, policy) })
        .subscribe({ next: lease => leases.push(lease), complete: () => (completed = true) })
      for (let i = 0; i < 5; i++) source.next(row(i))
      source.complete()
      await until(() => completed)
      expect(leases).toHaveLength(2)
      for (const lease of leases) lease[Symbol.dispose]()
    }
  })

  it('16 still runs the newest value of a source that has completed, where leases come back', async () => {
    const session = await doubling()
    const got = await lastValueFrom(
      session.run({ x: pushed(of(1, 2, 3, 4, 5).pipe(map(row)), 'dropOldest') }).pipe(map(first), toArray()),
    )
    expect(got).toEqual([2, 4, 10])
    expect(session.stats().drops).toEqual({ x: 2 })
  })

  it('17 lets an error pass by data, after what is in flight', async () => {
    const session = await doubling()
    const source = new Subject<Float32Array>()
    const leases: Disposable[] = []
    let error: unknown
    session
      .run({ x: pushed(source, 'dropOldest') })
      .subscribe({ next: lease => leases.push(lease), error: thrown => (error = thrown) })
    for (let i = 0; i < 5; i++) source.next(row(i))
    const boom = new Error('the camera fell')
    source.error(boom)
    await until(() => error !== undefined)
    expect(error).toMatchObject({ _tag: 'FeedFailed', subject: 'x', cause: boom })
    expect(leases).toHaveLength(2)
    for (const lease of leases) lease[Symbol.dispose]()
    expect(await lastValueFrom(session.run({ x: pulled(rows(3)) }).pipe(map(first), toArray()))).toEqual([
      0, 2, 4,
    ])
  })

  it.each([
    [
      'a generator',
      function* () {
        yield row(1)
        throw new Error('disk gone')
      },
    ],
    [
      'an async generator',
      async function* () {
        yield row(1)
        throw new Error('disk gone')
      },
    ],
  ])('18 ends with FeedFailed when %s throws, and can run again', async (_, source) => {
    const session = await doubling()
    const got: number[] = []
    const error = await errorOf(
      session
        .run({ x: pulled(source() as AsyncIterable<Float32Array>) })
        .forEach(lease => void got.push(first(lease))),
    )
    expect(error).toMatchObject({ _tag: 'FeedFailed', subject: 'x' })
    expect(error.message).toContain('disk gone')
    expect(error.cause).toMatchObject({ message: 'disk gone' })
    expect(got).toEqual([2])
    expect(await lastValueFrom(session.run({ x: pulled(rows(2)) }).pipe(map(first), toArray()))).toEqual([
      0, 2,
    ])
  })

  it.each([
    ['another type', new Float64Array(4), 'Float64Array of 4 elements'],
    ['another length', new Float32Array(5), 'Float32Array of 5 elements'],
    ['a plain array', [1, 2, 3, 4], 'a plain array of 4 elements'],
    ['nothing', undefined, 'undefined'],
    ['a buffer of other bytes', new ArrayBuffer(15), 'ArrayBuffer of 15 bytes'],
  ])('19 refuses %s by name', async (_, value, found) => {
    const session = await doubling()
    const error = await errorOf(lastValueFrom(session.run({ x: pulled([value as never]) })))
    expect(error).toMatchObject({
      _tag: 'WrongValue',
      subject: 'x',
      found: expect.stringContaining(found),
      wanted: expect.stringContaining('f32[4]'),
    })
    expect(error.message).toMatch(/session\.test\.ts/)
  })

  it('20 takes bytes where they are as many as the value has', async () => {
    const session = await doubling()
    const bytes = row(3).buffer
    const values = [bytes, Buffer.from(bytes), new DataView(bytes)] as never[]
    expect(await lastValueFrom(session.run({ x: pulled(values) }).pipe(map(first), toArray()))).toEqual([
      6, 6, 6,
    ])
  })

  it('21 refuses feeds that are missing, too many, or no feeds', async () => {
    const session = await doubling()
    const x = pulled(rows(1))
    expect(await errorOf(lastValueFrom(session.run({} as never)))).toMatchObject({
      _tag: 'WrongFeeds',
      found: 'none for x',
    })
    expect(await errorOf(lastValueFrom(session.run({ x, z: x } as never)))).toMatchObject({
      _tag: 'WrongFeeds',
      found: 'one for z, which is no input',
    })
    const bare = await errorOf(lastValueFrom(session.run({ x: interval(1) } as never)))
    expect(bare).toMatchObject({ _tag: 'WrongFeeds', subject: 'x' })
    expect(bare.next).toContain('pushed(observable')
    expect(() => pulled(new Float32Array(4) as never)).toThrow('pulled([value])')
    expect(() => pulled(NEVER as never)).toThrow('pushed')
    expect(() => pushed(NEVER, 'drop' as never)).toThrow("'dropOldest'")
    expect(() => pushed(5 as never, 'fail')).toThrow('Observable')
  })

  it('22 runs one at a time', async () => {
    const session = await doubling()
    const running = session.run({ x: pushed(new Subject<Float32Array>(), 'fail') }).subscribe()
    const error = await errorOf(lastValueFrom(session.run({ x: pulled(rows(1)) })))
    expect(error).toMatchObject({ _tag: 'AlreadyRunning' })
    expect(error.found).toContain('session.test.ts')
    running.unsubscribe()
    expect(await lastValueFrom(session.run({ x: pulled(rows(2)) }).pipe(map(first), toArray()))).toEqual([
      0, 2,
    ])
  })

  it('23 stops when it is unsubscribed from: no more pulls, and another run may start at once', async () => {
    const session = await doubling()
    let asked = 0
    let returned = false
    const feed = (function* () {
      try {
        for (;;) yield row(asked++)
      } finally {
        returned = true
      }
    })()
    expect(
      await lastValueFrom(session.run({ x: pulled(feed) }).pipe(map(first), take(3), toArray())),
    ).toEqual([0, 2, 4])
    expect(returned).toBe(true)
    const before = asked
    expect(await lastValueFrom(session.run({ x: pulled(rows(4)) }).pipe(map(first), toArray()))).toEqual([
      0, 2, 4, 6,
    ])
    expect(asked).toBe(before)
  })

  it('24 ends with the reason of its signal', async () => {
    const session = await doubling()
    const controller = new AbortController()
    const reason = new Error('enough')
    const seen: number[] = []
    const running = session.run({ x: pulled(rows(1e6)) }, { signal: controller.signal }).forEach(lease => {
      seen.push(first(lease))
      if (seen.length === 10) controller.abort(reason)
    })
    await expect(running).rejects.toBe(reason)
    expect(seen).toHaveLength(10)
    await until(() => session.stats().credits.free === 2)
    await expect(
      lastValueFrom(session.run({ x: pulled(rows(1)) }, { signal: controller.signal })),
    ).rejects.toBe(reason)
  })

  it('25 closes while a run is active: the run drains; it and later calls get a DisposedError', async () => {
    const session = await doubling()
    let error: unknown
    const leases: Lease<{ readonly y: Float32Array }>[] = []
    session
      .run({ x: pulled(rows(1e6)) })
      .subscribe({ next: lease => leases.push(lease), error: thrown => (error = thrown) })
    await until(() => leases.length === 2)
    const closing = session.close()
    expect(session.close()).toBe(closing)
    expect(session.closed).toBe(true)
    await closing
    expect(error).toBeInstanceOf(DisposedError)
    expect(leases[0]!.y.length).toBe(0)
    leases[0]![Symbol.dispose]()
    expect(() => session.run({ x: pulled(rows(1)) })).toThrow(DisposedError)
    expect(() => session.stats()).toThrow(DisposedError)
    expect(() => session.trace()).toThrow(DisposedError)
    await expect(session.read('s')).rejects.toThrow(DisposedError)
  })

  it('26 is disposed of by `await using`', async () => {
    let kept: Session<never, never>
    {
      await using session = await opened(double, device)
      kept = session as never
      expect(await firstValueFrom(session.run({ x: pulled([row(1)]) }).pipe(map(first)))).toBe(2)
    }
    expect(kept.closed).toBe(true)
  })

  it('27 warns once of leases that are not given back, and names them', async () => {
    const session = await doubling({ leaseWarningMs: 60 })
    using warned = await listenForWarnings()
    const { warnings } = warned
    const leases: Disposable[] = []
    const running = session.run({ x: pulled(rows(10)) }).subscribe(lease => leases.push(lease))
    await until(() => warnings.length > 0)
    await pause(150)
    expect(warnings).toHaveLength(1)
    expect(warnings[0]!.message).toContain('ticks 0, 1')
    expect(warnings[0]!.message).toContain('Symbol.dispose')
    expect(warnings[0]).toMatchObject({
      code: 'BRAID_LEASES_OUT',
      detail: expect.stringContaining('session.test.ts'),
    })
    running.unsubscribe()
    for (const lease of leases) lease[Symbol.dispose]()
  })

  it('28 returns the credit of a lease that was lost, once the collector notices, and warns', async () => {
    const collect = (globalThis as unknown as { gc: () => void }).gc
    const session = await doubling()
    using warned = await listenForWarnings()
    let seen = 0
    let done = false
    const running = session.run({ x: pulled(rows(6)) }).forEach(() => void seen++)
    void running.finally(() => {
      done = true
    })
    for (let i = 0; i < 500 && !done; i++) {
      collect()
      await turn()
    }
    await running
    expect(seen).toBe(6)
    expect(warned.messages.some(text => text.includes('was lost'))).toBe(true)
  })

  it('29 makes no driver objects and grows no pool once it runs', async () => {
    const session = await doubling()
    await session.run({ x: pulled(rows(200)) }).forEach(lease => void lease[Symbol.dispose]())
    const { eventsCreated, peak, bound, enqueueUs } = session.stats()
    expect(eventsCreated).toBe(0)
    expect(peak.reserved).toBeLessThanOrEqual(bound.device)
    expect(peak.pinned).toBeLessThanOrEqual(bound.pinned)
    expect(enqueueUs.median).toBeGreaterThan(0)
  })

  it('30 records every run with its lane, if it was opened with trace', async () => {
    const session = await doubling({ trace: true })
    await session.run({ x: pulled(rows(5)) }).forEach(lease => void lease[Symbol.dispose]())
    const records = session.trace()
    expect(records).toHaveLength(5 * session.plan.commands.filter(([kind]) => kind === 'run').length)
    for (const { tick, startMs, endMs, lane } of records) {
      expect(tick).toBeGreaterThanOrEqual(0)
      expect(endMs).toBeGreaterThanOrEqual(startMs)
      expect(session.plan.lanes.map(({ name }) => name)).toContain(lane)
    }
    const plain = await doubling()
    expect(() => plain.trace()).toThrow('trace: true')
  })

  it('31 iterates over all completed ticks, also where it closes before they are taken', async () => {
    for (const values of [8, 3]) {
      const session = await doubling({ compile: { inFlight: 3 } })
      const seen: number[] = []
      const iterating = (async () => {
        for await (using lease of session.run({ x: pulled(rows(values)) })) {
          seen.push(lease.y[0]!)
          if (seen.length > 1) continue
          await until(() => session.stats().credits.leased === 3)
          await session.close()
        }
      })()
      if (values === 8) expect(await rejectionOf(iterating)).toBeInstanceOf(DisposedError)
      await iterating.catch(() => undefined)
      expect(seen).toEqual([0, 2, 4])
    }
  })

  it('32 hands out no block of a session that is closed: the iteration ends in a DisposedError', async () => {
    const there = graph('there', { x: four }, ({ x }) => ({ y: x.pipe(upload(copy), mul(2)) }))
    const session = await opened(there, device, { compile: { inFlight: 3 } })
    let seen = 0
    const iterating = (async () => {
      for await (using lease of session.run({ x: pulled(rows(3)) })) {
        expect(lease.y.disposed).toBe(false)
        if (seen++ > 0) continue
        await until(() => session.stats().credits.leased === 3)
        await session.close()
      }
    })()
    expect(await rejectionOf(iterating)).toMatchObject({ _tag: 'Disposed', next: /every lease of a run/ })
    expect(seen).toBe(1)
  })
})
