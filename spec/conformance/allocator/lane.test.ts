// Lanes: they are made and disposed of, and memory that was allocated on one is never lost.
import { describe, expect, it } from 'vitest'
import { hold, KiB, MiB, openOn, wordsOf } from '../../fixtures/allocator.js'
import { present } from '../devices.js'

describe.each(present)('lanes on %s', name => {
  it('1 have a name, a stream, and a priority', async () => {
    await using device = await openOn(name)
    const high = device.lane({ name: 'math', priority: 'high' })
    const low = device.lane({ name: 'copy', priority: 'low' })
    expect([high.name, low.name, high.external]).toEqual(['math', 'copy', false])
    expect(high.stream).not.toBe(low.stream)
    expect(device.defaultLane.name).toBe('default')
  })

  it('2 run their pending work after they were disposed of, and their blocks stay valid', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const block = lane.malloc(64 * KiB)
    const gate = hold(device, lane)
    lane.fill32(block, 8)
    using done = lane.record()
    lane[Symbol.dispose]()
    expect(lane.disposed).toBe(true)
    expect(() => lane.malloc(1)).toThrow(/it was disposed of; call lane.malloc before that/)
    device.defaultLane.wait(done)
    gate.open()
    expect((await wordsOf(device, block))[0]).toBe(8)
    block.free()
  })

  it('3 lose no memory: memory freed on a lane that is gone serves another lane', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const block = lane.malloc(8 * MiB)
    const reserved = device.stats()['reserved_bytes.all.current']
    block.free()
    lane[Symbol.dispose]()
    using _next = device.defaultLane.malloc(8 * MiB)
    expect(device.stats()['reserved_bytes.all.current']).toBe(reserved)
  })

  it('4 can be made and disposed of by the hundred', async () => {
    await using device = await openOn(name)
    for (let i = 0; i < 400; ++i) {
      using lane = device.lane()
      const block = lane.malloc(KiB)
      lane.fill32(block, i)
      block.free()
      if (i % 50 === 0) await lane.synchronize()
    }
  })

  it('5 copy between all kinds of memory', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using from = device.pinned(KiB, lane)
    using a = lane.malloc(KiB)
    using b = lane.malloc(KiB)
    using mid = device.pinned(KiB, lane)
    using to = device.pinned(KiB, lane)
    new Uint32Array(from.view()).forEach((_, i, all) => {
      all[i] = i
    })
    lane.copy(a, from)
    lane.copy(b, a)
    lane.copy(mid, b)
    lane.copy(to, mid, 512)
    lane.copy(to.at(512, 512), mid.at(512, 512))
    await lane.synchronize()
    expect(new Uint32Array(to.view())[255]).toBe(255)
  })

  it('6 copy no more bytes than both blocks have', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using short = lane.malloc(100)
    using long = lane.malloc(1000)
    expect(() => lane.copy(short, long, 101)).toThrow(/at most 100: to has 100 bytes, from 1000/)
    expect(() => lane.copy(long, short, -1)).toThrow(/a whole number from 0/)
    expect(() => lane.fill32(short.at(1, 4), 0)).toThrow(/whole words of 4 bytes/)
    expect(() => lane.fill32(long.at(0, 7), 0)).toThrow(/whole words of 4 bytes/)
    expect(() => lane.fill32(long, 2 ** 32)).toThrow(/from 0 to 4294967295/)
    lane.copy(short, long)
    await lane.synchronize()
  })

  it('7 the default lane stays as long as its device', async () => {
    await using device = await openOn(name)
    device.defaultLane[Symbol.dispose]()
    expect(device.defaultLane.disposed).toBe(false)
    device.defaultLane.malloc(1).free()
  })
})
