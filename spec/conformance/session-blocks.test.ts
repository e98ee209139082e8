// What sessions and lanes share besides outputs (record-use.test.ts): parameters, pinned memory that is fed,
// and a memory whose Devices come and go. one-memory.test.ts has its threads.
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import {
  add,
  compile,
  device as deviceNumber,
  download,
  graph,
  lane,
  mul,
  on,
  orThrow,
  param,
  relu,
  tensor,
  upload,
} from '../../dsl/index.js'
import { Device, DisposedError, errorsOf, open, params, pulled, type Session } from '../../runtime/index.js'
import { copyUnseen, deviceOf, hold, MiB, settles, thrownBy } from '../fixtures/allocator.js'
import { fleets, present } from './devices.js'

const size = 2 ** 14
const bytes = 4 * size
const [copy, math] = [lane('copy'), lane('math')]
const filled = (value: number): Float32Array => new Float32Array(size).fill(value)
const soon = (promise: Promise<unknown>): Promise<boolean> => settles(promise, 30_000)
const row = tensor('f32', [size])
const doubled = orThrow(
  compile(
    graph('doubled', { x: row }, ({ x }) => ({ y: x.pipe(upload(copy), on(math), mul(2), download(copy)) })),
    { mode: 'eager', inFlight: 2 },
  ),
)
const kept = orThrow(
  compile(
    graph('kept', { x: row }, ({ x }) => ({ kept: x.pipe(upload(copy), on(math), relu(), add(1)) })),
    { mode: 'eager', inFlight: 1 },
  ),
)

describe.each(present)('a parameter that sessions share, read by a lane, on %s', name => {
  const weighted = (['pooled', 'planned'] as const).map(storage =>
    orThrow(
      compile(
        graph(storage, { x: row }, ({ x }) => ({
          y: x.pipe(upload(copy), on(math), mul(param('w', row)), download(copy)),
        })),
        { mode: 'eager', storage },
      ),
    ),
  )
  const answer = async (session: unknown): Promise<number> => {
    let found = 0
    for await (using out of (session as Session).run({ x: pulled([filled(2), filled(4)]) } as never))
      found = (out as unknown as { readonly y: Float32Array }).y[size - 1]!
    return found
  }

  it('a read holds back no session, and outlives them and the parameters', async () => {
    await using device = await deviceOf(name, { policy: 'order-then-wait' })
    const reader = device.lane({ name: 'reader' })
    const seen = device.pinned(bytes, reader)
    const weights = await params(device, { w: filled(3) })
    await expect(weights.block('w')).rejects.toThrow(/"w", which no session has opened with/)
    await expect(weights.block('v')).rejects.toThrow(/"v".*there are w/)
    const sessions = []
    for (const plan of weighted) sessions.push(orThrow(await open(plan, { device, params: weights })()))
    const w = await weights.block('w')
    expect(await weights.block('w')).toBe(w)
    expect([w.bytes, w.pinned]).toEqual([bytes, false])
    expect(() => w.free()).toThrow(/a parameter that sessions share/)
    const gate = hold(device, reader)
    copyUnseen(reader, seen, w)
    w.recordUse(reader)
    for (const session of sessions) {
      expect(await answer(session)).toBe(12)
      expect(await soon(session.close())).toBe(true)
    }
    expect(await soon(weights[Symbol.asyncDispose]())).toBe(true)
    expect(thrownBy(() => w.recordUse(reader))).toBeInstanceOf(DisposedError)
    expect(device.stats()['allocated_bytes.all.current']).toBe(0)
    const emptied = device.emptyCache()
    expect(await settles(emptied)).toBe(false)
    gate.open()
    await emptied
    expect(new Set(new Float32Array(seen.view()))).toEqual(new Set([3]))
  })
})

describe.each(fleets)('shared parameters of a session on %s and %s', (...fleet) => {
  const two = orThrow(
    compile(
      graph('two', { x: row }, ({ x }) => {
        const w = param('w', row)
        const near = x.pipe(upload(), on(deviceNumber(0)), mul(w))
        return { y: near.pipe(on(deviceNumber(1)), mul(w), download()) }
      }),
      { mode: 'eager', inFlight: 2 },
    ),
  )
  const opened = () => Promise.all(fleet.slice(0, 2).map(async name => orThrow(await Device.open(name)())))

  it('are shared on their device; on another one each session has its own', async () => {
    const devices = await opened()
    const [first, second] = devices as [Device, Device]
    await using _first = first
    await using _second = second
    const shared = (device: Device): number => {
      const { segments, sites } = device.snapshot()
      const live = segments.flatMap(({ blocks }) => blocks.filter(({ state }) => state === 'live'))
      return live.filter(({ site }) => sites[site]?.[0]?.name === 'params w').length
    }
    for (const at of devices) {
      await using weights = await params(at, { w: filled(3) })
      const sessions = []
      for (let n = 0; n < 3; n++)
        sessions.push(orThrow(await open(two, { device: [first, second], params: weights })()))
      expect(shared(at)).toBe(1)
      for (const session of sessions) {
        const seen: number[] = []
        for await (using out of session.run({ x: pulled([filled(1), filled(2)]) })) seen.push(out.y[7]!)
        expect(seen).toEqual([9, 18])
        await session.close()
      }
    }
    for (const each of devices) expect(each.stats()['allocated_bytes.all.current']).toBe(0)
  })

  it('name one device: a plan for two needs to be told the other', async () => {
    const devices = await opened()
    await using weights = await params(devices[0]!, { w: filled(3) })
    const refused = await open(two, { params: weights })()
    expect(E.isLeft(refused) && errorsOf(refused.left)[0]).toMatchObject({
      wanted: expect.stringMatching(/2 devices/),
    })
    for (const each of devices) await each.close()
  })
})

describe.each(present)('pinned memory that a lane writes and a session is fed, on %s', name => {
  it('is copied when it is taken: a feed that awaits the lane gives each tick its value', async () => {
    await using device = await deviceOf(name)
    await using session = orThrow(await open(doubled, { device, poison: true })())
    const writer = device.lane({ name: 'writer' })
    const source = writer.malloc(bytes)
    const pinned = device.pinned(bytes, writer)
    const word = new Uint32Array(1)
    const fed = async function* () {
      for (let value = 1; value <= 8; value++) {
        word.set(new Uint32Array(new Float32Array([value]).buffer))
        writer.fill32(source, word[0]!)
        writer.copy(pinned, source)
        await writer.synchronize()
        yield new Float32Array(pinned.view())
      }
    }
    const found: number[][] = []
    for await (using out of session.run({ x: pulled(fed()) })) found.push([...new Set(out.y)])
    expect(found).toEqual(Array.from({ length: 8 }, (_, i) => [2 * (i + 1)]))
  })

  it('without that it is fed as it is: what the lane writes later is not seen', async () => {
    await using device = await deviceOf(name)
    await using session = orThrow(await open(doubled, { device, poison: true })())
    const writer = device.lane({ name: 'writer' })
    const source = writer.malloc(bytes)
    const pinned = device.pinned(bytes, writer)
    new Float32Array(pinned.view()).fill(5)
    writer.fill32(source, 0)
    const gate = hold(device, writer)
    writer.copy(pinned, source)
    const run = session.run({ x: pulled([new Float32Array(pinned.view())]) })[Symbol.asyncIterator]()
    using out = (await run.next()).value!
    gate.open()
    await writer.synchronize()
    expect([new Set(out.y), new Set(new Float32Array(pinned.view()))]).toEqual([new Set([10]), new Set([0])])
  })

  it('a Block itself and the view of a freed block are errors that say what to feed', async () => {
    await using device = await deviceOf(name)
    await using session = orThrow(await open(doubled, { device })())
    const feed = (value: unknown) =>
      session.run({ x: pulled([value as Float32Array]) }).forEach(lease => {
        lease[Symbol.dispose]()
      })
    const pinned = device.pinned(bytes)
    const array = new Float32Array(pinned.view())
    await expect(feed(pinned)).rejects.toMatchObject({
      _tag: 'WrongValue',
      found: 'a Block of pinned memory',
      next: expect.stringMatching(/await the lane that writes it/),
    })
    await expect(feed(device.malloc(bytes))).rejects.toMatchObject({
      found: 'a Block of device memory',
      next: expect.stringMatching(/copy it into a pinned block/),
    })
    pinned.free()
    await expect(feed(array)).rejects.toMatchObject({ _tag: 'WrongValue', found: /given back/ })
  })
})

describe.each(present)('Devices of one memory, on %s', name => {
  // Joined by name, so without options of the host device; and by a limit that no Device of another file has.
  const shared = async () => orThrow(await Device.open(name, { allocator: { limit: 63 * MiB } })())

  it('a Device that closes while its lane reads ends its reads first; the session goes on', async () => {
    await using device = await shared()
    const other = await shared()
    await using session = orThrow(await open(kept, { device, poison: true })())
    const reader = other.lane({ name: 'reader' })
    const seen = device.pinned(bytes)
    const run = session.run({ x: pulled([filled(1), filled(5)]) })[Symbol.asyncIterator]()
    const first = (await run.next()).value!
    hold(other, reader)
    copyUnseen(reader, seen, first.kept)
    first.kept.recordUse(reader)
    first[Symbol.dispose]()
    const second = run.next()
    expect(await settles(second)).toBe(false)
    expect(await soon(other.close())).toBe(true)
    using lease = (await second).value!
    expect(new Set(new Float32Array(seen.view()))).toEqual(new Set([2]))
    device.defaultLane.copy(seen, lease.kept)
    await device.defaultLane.synchronize()
    expect(new Set(new Float32Array(seen.view()))).toEqual(new Set([6]))
  })

  it('the Device that a session was opened with may close: the session goes on, its leased blocks end', async () => {
    const device = await shared()
    const session = orThrow(await open(kept, { device, poison: true })())
    const run = session.run({ x: pulled([filled(1), filled(5)]) })[Symbol.asyncIterator]()
    const first = (await run.next()).value!
    await device.close()
    expect(thrownBy(() => first.kept.address).message).toMatch(/its device .* is closed/)
    first[Symbol.dispose]()
    using second = (await run.next()).value!
    expect(second.kept.bytes).toBe(bytes)
    await session.close()
  })
})
