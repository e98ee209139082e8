// Sessions and a Device's lanes share one memory: everything on a device is a block of its Device.
import * as E from 'fp-ts/lib/Either.js'
import { lastValueFrom, take, toArray } from 'rxjs'
import { describe, expect, it } from 'vitest'
import { compile } from '../../dsl/compiler/compile.js'
import { download, graph, lane, matmul, on, orThrow, relu, tensor, upload } from '../../dsl/index.js'
import { Device, errorsOf, type OpenOptions, open, pulled } from '../../runtime/index.js'
import { present } from './devices.js'

const KiB = 1024
const size = 256
const copy = lane('copy')
const math = lane('math')
const net = graph({ x: tensor('f32', [size, size]), w: tensor('f32', [size, size]) }, ({ x, w }) => ({
  y: x.pipe(upload(copy), on(math), matmul(w.pipe(upload(copy))), relu(), download(copy)),
}))
const feed = new Float32Array(size * size).fill(0.5)

const failures = async (options: OpenOptions) => {
  const result = await open(orThrow(compile(net)), options)()
  expect(E.isLeft(result)).toBe(true)
  return errorsOf((result as E.Left<never>).left)
}

describe.each(present)('one memory, on %s', name => {
  const plans = { pooled: orThrow(compile(net)), planned: orThrow(compile(net, { storage: 'planned' })) }

  it.each(['pooled', 'planned'] as const)('a %s session takes blocks of its Device', async storage => {
    const plan = plans[storage]
    await using device = orThrow(await Device.open(name, { allocator: { maxSplit: 2 ** 30 } })())
    const before = device.stats()['allocated_bytes.all.current']!
    {
      await using session = orThrow(await open(plan, { device })())
      const during = device.stats()['allocated_bytes.all.current']! - before
      expect(during).toBeGreaterThanOrEqual(size * size * 4)
      expect(during).toBeLessThanOrEqual(plan.bound.device[0]! + 4 * KiB)
      expect(device.stats('pinned')['allocated_bytes.all.current']).toBeGreaterThan(0)
      const held = device.snapshot()
      const live = held.segments.flatMap(({ blocks }) => blocks.filter(({ state }) => state === 'live'))
      const words = live.map(({ site }) => held.sites[site]![0]?.name)
      const range = storage === 'pooled' ? 'pool' : 'arena'
      expect(words).toContain(`session \`${plan.name}\`: ${range}`)
      expect(words).toContain(`session \`${plan.name}\`: input slot x`)
      expect(words).toContain(`session \`${plan.name}\`: output slot y`)
      const run = session.run({ x: pulled([feed, feed, feed]), w: pulled([feed, feed, feed]) })
      const sums: number[] = []
      for await (using out of run) sums.push(out.y[7]!)
      expect(sums).toEqual([64, 64, 64])
    }
    expect(device.stats()['allocated_bytes.all.current']).toBe(before)
    expect(device.closed).toBe(false)
  })

  it('what a session gives back serves a lane, and what a lane frees serves a session', async () => {
    await using device = orThrow(await Device.open(name, { allocator: { maxSplit: 2 ** 30 } })())
    const bytes = 8 * 2 ** 20
    const block = device.malloc(bytes)
    block.lane.fill32(block, 7)
    block.free()
    const reserved = device.stats()['reserved_bytes.all.current']!
    for (let i = 0; i < 5; i++) {
      await using session = orThrow(await open(plans.planned, { device })())
      const out = await lastValueFrom(
        session.run({ x: pulled([feed]), w: pulled([feed]) }).pipe(take(1), toArray()),
      )
      expect(out[0]!.y[0]).toBe(64)
      out[0]![Symbol.dispose]()
    }
    using again = device.malloc(bytes)
    expect(again.bytes).toBe(bytes)
    expect(device.stats()['reserved_bytes.all.current']).toBeLessThanOrEqual(reserved + 4 * 2 ** 20)
  })

  it('a name joins the Device that is open, in any order', async () => {
    await using device = orThrow(await Device.open(name, { allocator: { policy: 'order-then-wait' } })())
    await using session = orThrow(await open(plans.pooled, { device: name })())
    expect(session.device.device).toBe(name)
    expect(device.stats()['allocated_bytes.all.current']).toBeGreaterThan(0)
    await using other = orThrow(await Device.open(name)())
    expect(other.options.policy).toBe('order-then-wait')
    const block = other.malloc(KiB)
    const reader = device.lane({ name: 'reader' })
    block.recordUse(reader)
    reader.copy(block, block)
    expect(other.stats()).toEqual(device.stats())
    block.free()
  })

  it('a pool says where on the device, and which device', async () => {
    await using device = orThrow(await Device.open(name, { allocator: { maxSplit: 2 ** 30 } })())
    const pool = device.pool()
    const session = orThrow(await open(plans.planned, { pool })())
    const ours = device.snapshot().segments.filter(segment => segment.pool === pool.id)
    expect(ours.flatMap(({ blocks }) => blocks).some(({ state }) => state === 'live')).toBe(true)
    pool.close()
    await session.close()
  })

  it('a device or pool that cannot be taken is an error with its reason', async () => {
    const device = orThrow(await Device.open(name, { allocator: { maxSplit: 2 ** 30 } })())
    await using other = orThrow(await Device.open(name, { allocator: { maxSplit: 2 ** 31 } })())
    const pool = other.pool()
    const [foreign] = await failures({ device, pool })
    expect(foreign).toMatchObject({ _tag: 'BadOption', at: 'pool' })
    pool.close()
    const [closed] = await failures({ device: other, pool })
    expect(closed).toMatchObject({ _tag: 'BadOption', at: 'pool', found: 'one that is closed' })
    const scripted = other.pool({ allocator: { allocate: () => null, release: () => undefined } })
    expect((await failures({ pool: scripted }))[0]).toMatchObject({ _tag: 'BadOption', at: 'pool' })
    await device.close()
    expect((await failures({ device }))[0]).toMatchObject({ _tag: 'BadOption', at: 'device' })
    expect((await failures({ device: {} as never }))[0]).toMatchObject({ _tag: 'BadOption', at: 'device' })
  })

  it('a limit holds sessions and blocks together, and the error names who holds the memory', async () => {
    const limit = 24 * 2 ** 20
    await using device = orThrow(await Device.open(name, { allocator: { limit } })())
    await using session = orThrow(await open(plans.planned, { device })())
    expect(() => device.malloc(limit - KiB)).toThrow(`session \`${session.plan.name}\`: arena`)
    using held = device.malloc(limit - 4 * 2 ** 20, undefined, { site: 'weights of mine' })
    const wide = graph({ x: tensor('f32', [1024, 1024]) }, ({ x }) => ({
      y: x.pipe(upload(copy), relu(), download(copy)),
    }))
    const result = await open(orThrow(compile(wide, { storage: 'planned' })), { device })()
    expect(E.isLeft(result)).toBe(true)
    const [error] = errorsOf((result as E.Left<never>).left)
    expect(error).toMatchObject({ _tag: 'OutOfMemory' })
    expect(error!.found).toContain('weights of mine')
    expect(held.disposed).toBe(false)
  })
})
