// Events: points of a lane, waits that order other lanes after them, and redundant waits.
import { describe, expect, it } from 'vitest'
import { Event } from '../../../runtime/index.js'
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

  it('2 mark one point if no work was queued in between', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    lane.fill32(block, 1)
    using first = lane.record()
    using second = lane.record()
    expect(second.point).toBe(first.point)
    expect(device.stats()['events.created']).toBe(1)
  })

  it('3 order another lane; a wait that is known to be redundant is not put on the lane', async () => {
    await using device = await openOn(name)
    const [a, b, c] = [device.lane(), device.lane(), device.lane()] as const
    using block = a.malloc(KiB)
    using _gate = hold(device, a)
    a.fill32(block, 1)
    using done = a.record()
    expect(b.wait(done)).toBe(true)
    expect(b.wait(done)).toBe(false)
    // A wait for b's event also orders a lane after everything that b waited for.
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

  it('5 are reused once disposed of: a loop creates no more driver events than are in use', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    for (let i = 0; i < 200; ++i) {
      lane.fill32(block, i)
      using _event = lane.record()
    }
    expect(device.stats()['events.created']).toBeLessThanOrEqual(2)
  })

  it('6 throw once disposed of; disposing again does nothing', async () => {
    await using device = await openOn(name)
    const event = device.defaultLane.record()
    event[Symbol.dispose]()
    event[Symbol.dispose]()
    expect(event.disposed).toBe(true)
    for (const use of [() => event.done, () => device.defaultLane.wait(event)])
      expect(use).toThrow(/an event is closed/)
    await expect(event.synchronize()).rejects.toThrow(/an event is closed/)
  })

  it('7 can be waited for concurrently, while JavaScript runs', async () => {
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

// TypeScript refuses it; JavaScript can.
it('an Event that no lane made is refused', () => {
  const Made = Event as unknown as new (...of: unknown[]) => Event
  for (const given of [[], [{}, 3]])
    expect(() => new Made(...given)).toThrow(/an? Event that lane.record\(\) makes/)
})
