// Cases 1 to 26: lanes and events. A gate blocks a lane, never a sleep, so work stays pending until the test
// opens the gate.
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import {
  AllocatorError,
  Device,
  DisposedError,
  type Event,
  errorsOf,
  type Lane,
} from '../../runtime/index.js'
import { present } from '../conformance/devices.js'
import {
  anotherDeviceOf,
  contentOf,
  deviceOf,
  hold,
  KiB,
  MiB,
  mirrorOf,
  poolOf,
  settles,
  thrownBy,
} from '../fixtures/allocator.js'
import { rejectionOf } from '../fixtures/errors.js'

const tagOf = (call: () => unknown): string | undefined => {
  const error = thrownBy(call)
  expect(error).toBeInstanceOf(AllocatorError)
  return (error as unknown as AllocatorError)._tag
}

describe.each(present)('lanes and events on %s', name => {
  test('1: every lane has a stream of its own; an unused lane is idle', async () => {
    await using device = await deviceOf(name)
    const [main, side, third] = [device.defaultLane, device.lane(), device.lane()]
    expect(new Set([main.stream, side.stream, third.stream]).size).toBe(3)
    expect(main.name).toBe('default')
    for (const lane of [main, side, third]) expect(lane.idle).toBe(true)
  })

  test('2: lanes and events report their state before a record, after it, and after disposal', async () => {
    const device = await deviceOf(name)
    const lane = device.lane({ name: 'copy' })
    expect(`${lane.name} ${lane.external} ${lane.disposed}`).toBe('copy false false')
    const event = lane.record()
    expect(`${event.lane.name}@${event.point} ${event.disposed}`).toBe('copy@1 false')
    event[Symbol.dispose]()
    lane[Symbol.dispose]()
    await device.close()
    expect(`${event.lane.name}@${event.point} ${event.disposed} ${lane.name} ${lane.disposed}`).toBe(
      'copy@1 true copy true',
    )
  })

  test('3, 21: work of a lane and of an external lane over its stream runs in one order', async () => {
    await using device = await deviceOf(name)
    const own = device.lane()
    const outside = device.externalLane(own.stream)
    expect([outside.stream, outside.external, own.external]).toEqual([own.stream, true, false])
    const block = own.malloc(64 * KiB)
    const gate = hold(device, own)
    outside.fill32(block, 1)
    own.fill32(block, 2)
    expect(outside.idle).toBe(false)
    gate.open()
    await outside.synchronize()
    expect(await contentOf(device, own, block)).toEqual([2])
  })

  test('21: an external stream outlives its lane, and Braid assumes that it has other work too', async () => {
    await using device = await deviceOf(name)
    const [known, own] = [device.lane(), device.lane()]
    const outside = device.externalLane(own.stream)
    const block = device.defaultLane.malloc(64 * KiB)
    const marked = (lane: typeof known): number => {
      const before = device.stats()['uses.recorded']!
      for (let i = 0; i < 3; i++) block.recordUse(lane)
      return device.stats()['uses.recorded']! - before
    }
    // Braid knows all work of a lane whose stream it gave to nobody, so three marks without work in between
    // share one event. It does not know the work of other streams.
    expect([known, own, outside].map(marked)).toEqual([1, 3, 3])
    outside[Symbol.dispose]()
    own.fill32(block, 5)
    await own.synchronize()
    expect(await contentOf(device, own, block)).toEqual([5])
  })

  test('4: an event is done when the work before it is done; synchronize waits for it', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    const idle = lane.record()
    await idle.synchronize()
    expect(idle.done).toBe(true)
    const gate = hold(device, lane)
    const behind = lane.record()
    expect(behind.done).toBe(false)
    expect(lane.idle).toBe(false)
    expect(idle.done).toBe(true)
    const waiting = behind.synchronize()
    expect(await settles(waiting)).toBe(false)
    gate.open()
    await waiting
    expect(behind.done).toBe(true)
  })

  test('6: events with no work between them are of one point; points follow the lane’s order', async () => {
    await using device = await deviceOf(name)
    const [lane, side] = [device.lane(), device.lane()]
    const block = lane.malloc(4 * KiB)
    const points: number[] = []
    for (let i = 0; i < 4; i++) {
      lane.fill32(block, i)
      const [one, same] = [lane.record(), lane.record()]
      expect(one.point).toBe(same.point)
      points.push(one.point)
      side.wait(same)
    }
    expect(points).toEqual([...points].sort((a, b) => a - b))
    expect(new Set(points).size).toBe(4)
    expect(device.stats()['uses.shared']).toBeGreaterThanOrEqual(4)
  })

  test('7: a value that is no lane, event or block is refused by name, without effect', async () => {
    await using device = await deviceOf(name)
    const [lane, block] = [device.defaultLane, device.defaultLane.malloc(4 * KiB)]
    const event = lane.record()
    const no = (value: unknown) => value as never
    for (const wrong of [undefined, null, 5, 'lane', {}, [], Symbol('event')]) {
      expect(tagOf(() => lane.wait(no(wrong)))).toBe('BadArgument')
      expect(tagOf(() => block.recordUse(no(wrong)))).toBe('BadArgument')
      expect(tagOf(() => block.recordStream(no(wrong)))).toBe('BadArgument')
      expect(tagOf(() => block.keepUntil(no(wrong)))).toBe('BadArgument')
      expect(tagOf(() => lane.copy(no(wrong), block))).toBe('BadArgument')
      expect(tagOf(() => lane.fill32(no(wrong), 0))).toBe('BadArgument')
    }
    expect(tagOf(() => lane.wait(no(lane)))).toBe('BadArgument')
    expect(tagOf(() => block.recordUse(no(event)))).toBe('BadArgument')
    expect(tagOf(() => block.keepUntil(no(block)))).toBe('BadArgument')
    expect(block.disposed).toBe(false)
    expect(lane.idle).toBe(true)
  })

  test('8: a disposed lane’s pending work runs, and its blocks stay valid', async () => {
    await using device = await deviceOf(name)
    const made = await (async () => {
      using lane = device.lane({ name: 'scoped' })
      const block = lane.malloc(64 * KiB)
      lane.fill32(block, 8)
      using end = lane.record()
      device.defaultLane.wait(end)
      return { lane, block }
    })()
    expect(made.lane.disposed).toBe(true)
    expect(thrownBy(() => made.lane.malloc(512))).toBeInstanceOf(DisposedError)
    expect(thrownBy(() => made.lane.record())).toBeInstanceOf(DisposedError)
    expect(await contentOf(device, device.defaultLane, made.block)).toEqual([8])
    made.block.free()
    expect(device.stats()['allocated_bytes.all.current']).toBe(0)
  })

  test('9, 17: scopes of two devices nest: on each device the innermost scope counts', async () => {
    await using one = await deviceOf(name)
    await using two = await deviceOf(name)
    const [a, b, c] = [one.pool(), two.pool(), one.pool()]
    const where = (): (number | undefined)[] =>
      [one, two].map(device => poolOf(device, device.defaultLane.malloc(4 * KiB)))
    expect(where()).toEqual([0, 0])
    a.use(() => {
      expect(where()).toEqual([a.id, 0])
      b.use(() => {
        expect(where()).toEqual([a.id, b.id])
        c.use(() => expect(where()).toEqual([c.id, b.id]))
        expect(() =>
          c.use(() => {
            throw new Error('out of the scope')
          }),
        ).toThrow('out of the scope')
        expect(where()).toEqual([a.id, b.id])
      })
      expect(where()).toEqual([a.id, 0])
    })
    expect(where()).toEqual([0, 0])
  })

  test('10: copies of pinned memory and its parts are correct when their event is done', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    const count = 3 * 16 * KiB
    const [from, to] = [device.pinned(4 * count, lane), device.pinned(4 * count, lane)]
    const block = lane.malloc(4 * count)
    const source = new Uint32Array(from.view())
    for (let i = 0; i < count; i++) source[i] = 7 * i
    new Uint32Array(to.view()).fill(0)
    const part = 4 * 16 * KiB
    // The three parts rotate: pinned offsets 0, 1, 2 go to device offsets 2, 0, 1, and back to 1, 2, 0.
    for (let i = 0; i < 3; i++) lane.copy(block.at(((i + 2) % 3) * part, part), from.at(i * part, part))
    for (let i = 0; i < 3; i++) lane.copy(to.at(((i + 2) % 3) * part, part), block.at(i * part, part))
    const event = lane.record()
    await event.synchronize()
    const got = new Uint32Array(to.view())
    for (let i = 0; i < count; i++) {
      const third = Math.floor(i / (16 * KiB))
      if (got[i] !== 7 * ((i % (16 * KiB)) + ((third + 2) % 3) * 16 * KiB))
        throw new Error(`word ${i}: ${got[i]}`)
    }
  })

  test('11: copies of one lane through pinned memory keep their order behind a delay', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    const bytes = 256 * KiB
    const [a, b] = [lane.malloc(bytes), lane.malloc(bytes)]
    const [through, end] = [mirrorOf(device, bytes, lane), mirrorOf(device, bytes, lane)]
    lane.fill32(a, 1)
    const gate = hold(device, lane)
    lane.copy(through.block, a)
    lane.copy(b, through.block)
    lane.fill32(a, 2)
    lane.copy(end.block, b)
    lane.copy(through.block, a)
    expect(through.all()).toEqual([0])
    gate.open()
    await lane.synchronize()
    expect([through.all(), end.all()]).toEqual([[2], [1]])
  })

  test('12, 13: a copy does not block its caller; synchronize waits for it', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    const block = lane.malloc(64 * KiB)
    const mirror = mirrorOf(device, 64 * KiB, lane)
    lane.fill32(block, 12)
    const gate = hold(device, lane)
    lane.copy(mirror.block, block)
    expect(lane.idle).toBe(false)
    const waiting = lane.synchronize()
    expect(await settles(waiting)).toBe(false)
    expect(mirror.all()).toEqual([0])
    gate.open()
    await waiting
    expect(lane.idle).toBe(true)
    expect(mirror.all()).toEqual([12])
  })

  test('14, 15: the default lane cannot be disposed of; unknown devices are refused', async () => {
    await using one = await deviceOf(name)
    await using two = await deviceOf(name)
    expect(one.defaultLane).toBe(one.defaultLane)
    expect(one.defaultLane).not.toBe(two.defaultLane)
    one.defaultLane[Symbol.dispose]()
    expect(one.defaultLane.disposed).toBe(false)
    one.defaultLane.malloc(512).free()
    for (const wrong of ['cpu', 'cuda', 'cuda:-1', 'gpu:0', '', 5, null]) {
      const opened = await Device.open(wrong as never)()
      if (E.isRight(opened)) await opened.right.close()
      expect(E.isLeft(opened) && errorsOf(opened.left)[0]?._tag, String(wrong)).toMatch(
        /^(NoDevice|BadOption)$/,
      )
    }
  })

  test('23: a lane waits for an event of another device', async () => {
    await using one = await deviceOf(name)
    await using two = await anotherDeviceOf(name)
    const [first, second] = [one.lane(), two.lane()]
    const mirror = mirrorOf(two, KiB, second)
    const block = second.malloc(KiB)
    second.fill32(block, 23)
    const gate = hold(one, first)
    const event = first.record()
    expect(second.wait(event)).toBe(true)
    second.copy(mirror.block, block)
    const done = second.record()
    expect(await settles(done.synchronize())).toBe(false)
    expect([event.done, done.done, mirror.all()]).toEqual([false, false, [0]])
    gate.open()
    await done.synchronize()
    expect([event.done, mirror.all()]).toEqual([true, [23]])
    event[Symbol.dispose]()
    expect(() => second.wait(event)).toThrow(DisposedError)
  })

  test('25: times between events of two devices are an error', async () => {
    await using one = await deviceOf(name)
    await using two = await anotherDeviceOf(name)
    const [a, b] = [one.defaultLane.record({ timed: true }), two.defaultLane.record({ timed: true })]
    await Promise.all([a.synchronize(), b.synchronize()])
    expect(tagOf(() => a.elapsed(b))).toBe('WrongDevice')
    expect(tagOf(() => b.elapsed(a))).toBe('WrongDevice')
    expect(a.elapsed(a)).toBe(0)
  })

  test('16: nothing of another device but an event is taken', async () => {
    await using one = await deviceOf(name)
    await using two = await anotherDeviceOf(name)
    const event = one.defaultLane.record()
    expect(event.lane).toBe(one.defaultLane)
    expect(tagOf(() => two.defaultLane.malloc(512).keepUntil(event))).toBe('WrongDevice')
    expect(tagOf(() => two.defaultLane.malloc(512).recordUse(one.defaultLane))).toBe('WrongDevice')
    expect(tagOf(() => two.defaultLane.copy(two.defaultLane.malloc(512), one.defaultLane.malloc(512)))).toBe(
      'WrongDevice',
    )
    expect(two.defaultLane.idle).toBe(true)
    expect(two.stats()['waits.issued']).toBe(0)
  })

  test('18, 24: lanes and events work whichever device was used last', async () => {
    await using one = await deviceOf(name)
    await using two = await anotherDeviceOf(name)
    const lanes = [one.lane(), two.lane()] as const
    const gate = hold(one, lanes[0])
    const events: readonly Event[] = lanes.map(lane => lane.record())
    await lanes[1].synchronize()
    expect(events.map(({ done }) => done)).toEqual([false, true])
    expect(lanes.map(({ idle }) => idle)).toEqual([false, true])
    gate.open()
    two.defaultLane.malloc(512)
    await events[0]!.synchronize()
    expect(events.map(({ done }) => done)).toEqual([true, true])
    expect(lanes.map(({ idle }) => idle)).toEqual([true, true])
  })

  test('19: lanes of two devices are never equal, even where all their properties are', async () => {
    await using one = await deviceOf(name)
    await using two = await anotherDeviceOf(name)
    const [a, b] = [one.lane({ name: 'copy' }), two.lane({ name: 'copy' })]
    expect(a).not.toBe(b)
    expect(new Set<Lane>([a, b, a, b]).size).toBe(2)
    const block = one.defaultLane.malloc(512)
    block.recordUse(a)
    expect(tagOf(() => block.recordUse(b))).toBe('WrongDevice')
  })

  test('20: lanes have one of three priorities, and lanes of each priority run their work', async () => {
    await using device = await deviceOf(name)
    for (const priority of ['low', 'normal', 'high'] as const) {
      const lane = device.lane({ priority })
      const block = lane.malloc(4 * KiB)
      lane.fill32(block, 3)
      expect(await contentOf(device, lane, block)).toEqual([3])
    }
    for (const priority of [-1, 0, 'higher', null])
      expect(tagOf(() => device.lane({ priority: priority as never }))).toBe('BadArgument')
  })

  test('22: waiting for one lane blocks no other lane, no allocation, and no other waiter', async () => {
    await using device = await deviceOf(name)
    const [stuck, free] = [device.lane(), device.lane()]
    const spare = device.pinned(4 * KiB, free)
    free.malloc(4 * MiB).free()
    const gate = hold(device, stuck)
    const event = stuck.record()
    const waiting = [stuck.synchronize(), event.synchronize(), stuck.synchronize()]
    for (let i = 0; i < 20; i++) {
      const block = free.malloc(4 * MiB)
      free.fill32(block.at(0, 4 * KiB), i)
      free.copy(spare, block.at(0, 4 * KiB))
      block.free()
      await free.synchronize()
      expect(new Uint32Array(spare.view())[0]).toBe(i)
    }
    expect(await settles(Promise.race(waiting))).toBe(false)
    gate.open()
    await Promise.all(waiting)
  })
})

describe('a device whose work fails', () => {
  // On a GPU such a failure ends CUDA for the process (docs/internals/decisions/sessions.md, 17), so the case
  // runs on the host device.
  test('26: failing work is reported with the driver’s code, and the process goes on', async () => {
    const device = await deviceOf('host', {}, { host: { faults: [{ call: 'run', nth: 3 }] } })
    const lane = device.lane()
    const block = lane.malloc(4 * KiB)
    // The failure may be reported by a later call, and at the latest by the wait for the lane.
    const working = async (): Promise<void> => {
      for (let i = 0; i < 4; i++) lane.fill32(block, i)
      await lane.synchronize()
    }
    const error = await rejectionOf(working())
    expect(error).toBeInstanceOf(AllocatorError)
    expect((error as unknown as AllocatorError)._tag).toBe('DriverFailed')
    expect((error as unknown as AllocatorError).code).toMatch(/^CUDA_ERROR_/)
    await device.close().catch(() => undefined)
    await using another = await deviceOf('host')
    expect(
      await contentOf(another, another.defaultLane, another.defaultLane.malloc(512).at(0, 0 + 512)),
    ).toHaveLength(1)
  })
})
