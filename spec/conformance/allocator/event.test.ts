// Events: points of a lane, waits that order others after them, and waits that are known to be needless.
import { describe, expect, it } from 'vitest'
import { hold, KiB, openOn } from '../../fixtures/allocator.js'
import { present } from '../devices.js'

describe.each(present)('events on %s', name => {
  it('1 are done when their lane has passed them, in order', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    const gate = hold(device, lane)
    lane.fill32(block, 1)
    using first = lane.record()
    lane.fill32(block, 2)
    using second = lane.record()
    expect([first.done, second.done, lane.idle]).toEqual([false, false, false])
    expect(second.point).toBeGreaterThan(first.point)
    expect(first.lane).toBe(lane)
    gate.open()
    await second.synchronize()
    expect([first.done, second.done]).toEqual([true, true])
    await lane.synchronize()
    expect(lane.idle).toBe(true)
  })

  it('2 mark one point where nothing was queued in between', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    lane.fill32(block, 1)
    using first = lane.record()
    using second = lane.record()
    expect(second.point).toBe(first.point)
    expect(device.stats()['events.created']).toBe(1)
  })

  it('3 order another lane, and a wait that is known to hold is not put on it', async () => {
    await using device = await openOn(name)
    const [a, b, c] = [device.lane(), device.lane(), device.lane()] as const
    using block = a.malloc(KiB)
    using _gate = hold(device, a)
    a.fill32(block, 1)
    using done = a.record()
    expect(b.wait(done)).toBe(true)
    expect(b.wait(done)).toBe(false)
    // What b waited for passes on through b's own event.
    using after = b.record()
    expect(c.wait(after)).toBe(true)
    expect(c.wait(done)).toBe(false)
    expect([b.idle, c.idle]).toEqual([false, false])
  })

  it('4 are never shared on a lane over a stream of the caller', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const external = device.externalLane(lane.stream, { name: 'mine' })
    expect([external.external, external.stream, external.name]).toEqual([true, lane.stream, 'mine'])
    using first = external.record()
    using second = external.record()
    expect(second.point).toBeGreaterThan(first.point)
    external[Symbol.dispose]()
    await lane.synchronize()
  })

  it('5 serve again once disposed of: a loop makes no more of them than are outstanding', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    for (let i = 0; i < 200; ++i) {
      lane.fill32(block, i)
      using _event = lane.record()
    }
    expect(device.stats()['events.created']).toBeLessThanOrEqual(2)
  })

  it('6 throw once disposed of, and disposing again is nothing', async () => {
    await using device = await openOn(name)
    const event = device.defaultLane.record()
    event[Symbol.dispose]()
    event[Symbol.dispose]()
    expect(event.disposed).toBe(true)
    for (const use of [() => event.done, () => device.defaultLane.wait(event)])
      expect(use).toThrow(/an event is closed/)
    await expect(event.synchronize()).rejects.toThrow(/an event is closed/)
  })

  it('7 let two waits go on at once, beside JavaScript', async () => {
    await using device = await openOn(name)
    const lanes = [device.lane(), device.lane()]
    const gates = lanes.map(lane => hold(device, lane))
    const waits = lanes.map(lane => lane.synchronize().then(() => lane.name))
    let turns = 0
    await new Promise<void>(resolve => {
      const turn = (): void => (++turns < 10 ? void setImmediate(turn) : resolve())
      turn()
    })
    expect(turns).toBe(10)
    for (const gate of gates) gate.open()
    expect(await Promise.all(waits)).toEqual(lanes.map(lane => lane.name))
  })
})
