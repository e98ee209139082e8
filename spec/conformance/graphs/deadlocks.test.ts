// While an ordered callback is to run, JavaScript must not wait for the device: the device waits for it. Each
// call that might is refused, on both devices; whatever does not is served.
import { describe, expect, it } from 'vitest'
import {
  type Device,
  type DeviceOptions,
  ExecutableGraph,
  GraphDefinition,
  type Lane,
} from '../../../runtime/index.js'
import { contentOf, deviceOf, KiB, MiB, thrownBy } from '../../fixtures/allocator.js'
import { axpnOn } from '../../fixtures/device-kernels.js'
import { present } from '../devices.js'

/** A queue that is soon full; that of a GPU holds some thousand pieces. */
const short: DeviceOptions = { host: { queueDepth: 64 } }
const most = 5000

describe.each(present)('calls that would wait for an ordered callback, on %s', name => {
  /** Queues a callback that runs once JavaScript does. */
  const pending = (device: Device, lane: Lane) => {
    const state = { called: false }
    using definition = GraphDefinition.create(device)
    definition.callback(() => void (state.called = true), { ordered: true })
    using graph = ExecutableGraph.instantiate(definition)
    graph.launch(lane)
    return state
  }
  const wouldDeadlock = (call: () => unknown): void => {
    const error = thrownBy(call)
    expect([error['_tag'], error.message]).toEqual([
      'WouldDeadlock',
      expect.stringMatching(/await lane.synchronize\(\)/),
    ])
  }

  // What fills a queue: no call may wait for room in it.
  const pieces: Readonly<Record<string, (device: Device, lane: Lane, other: Lane) => () => unknown>> = {
    copy: (_, lane) => {
      const block = lane.malloc(2 * KiB)
      return () => lane.copy(block.at(0, KiB), block.at(KiB, KiB))
    },
    fill: (_, lane) => {
      const block = lane.malloc(KiB)
      return () => lane.fill(block, 1)
    },
    'a wait for a lane': (_, lane, other) => {
      const block = other.malloc(KiB)
      return () => {
        other.fill32(block, 1)
        using event = other.record()
        lane.wait(event)
      }
    },
    'a timed event': (_, lane) => () => lane.record({ timed: true })[Symbol.dispose](),
    'a record of an event of graphs': (device, lane) => {
      const event = device.event()
      return () => lane.record(event)
    },
    'a wait for an event of graphs': (device, lane, other) => {
      const event = device.event()
      other.record(event)
      return () => lane.wait(event)
    },
    'a callback': (_, lane) => () => lane.callback(() => {}),
    'a launch of a graph': (device, lane) => {
      const block = lane.malloc(KiB)
      const definition = GraphDefinition.create(device)
      definition.fill(block, 1)
      const graph = ExecutableGraph.instantiate(definition)
      return () => graph.launch(lane)
    },
    'a use of a block': (_, lane, other) => {
      const [mine, foreign] = [lane.malloc(KiB), other.malloc(KiB)]
      return () => lane.copy(mine, foreign)
    },
  }

  it.each(Object.keys(pieces))(
    '%s is refused before the queue is full, and served afterwards',
    async piece => {
      await using device = await deviceOf(name, {}, short)
      const [lane, other] = [device.lane(), device.lane()]
      const call = pieces[piece]!(device, lane, other)
      call()
      const state = pending(device, lane)
      let served = 0
      wouldDeadlock(() => {
        for (; served < most; served++) call()
      })
      expect(served).toBeGreaterThan(5)
      expect(state.called).toBe(false)
      await lane.synchronize()
      expect(state.called).toBe(true)
      call()
      await lane.synchronize()
    },
  )

  it('a launch of a kernel too', async () => {
    await using device = await deviceOf(name, {}, short)
    const [lane, axpn] = [device.lane(), await axpnOn(device)]
    const block = lane.malloc(KiB)
    const launch = () =>
      lane.launch(axpn, {
        reads: { x: block },
        writes: { y: block },
        grid: 1,
        block: 1,
        scalars: { a: 1, n: 1, count: 1 },
      })
    launch()
    await lane.synchronize()
    const state = pending(device, lane)
    wouldDeadlock(() => {
      for (let i = 0; i < most; i++) launch()
    })
    await lane.synchronize()
    expect(state.called).toBe(true)
  })

  it('emptyCache and the preparation of a kernel are refused', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    const word = lane.malloc(4)
    const state = pending(device, lane)
    await expect(axpnOn(device)).rejects.toMatchObject({ _tag: 'WouldDeadlock' })
    // The first condition of a device prepares the kernel that sets it.
    const again = pending(device, lane)
    using definition = GraphDefinition.create(device)
    wouldDeadlock(() => definition.setCondition(definition.condition(), word))
    await lane.synchronize()
    expect([state.called, again.called]).toEqual([true, true])
    definition.setCondition(definition.condition(), word)
    await axpnOn(device)
    await device.emptyCache()
  })

  it('memory is not given back to the driver meanwhile, which might wait for all work', async () => {
    await using device = await deviceOf(name, { expandable: false })
    const segments = (): number => device.stats()['segment.all.current'] ?? 0
    const [lane, other] = [device.lane(), device.lane()]
    const closed = (): void => {
      const pool = device.pool()
      lane.malloc(2 * MiB, { pool }).free()
      pool[Symbol.dispose]()
    }
    closed()
    await lane.synchronize()
    await device.emptyCache()
    expect(segments()).toBe(0)
    const state = pending(device, other)
    closed()
    expect([segments(), state.called]).toEqual([1, false])
    await other.synchronize()
    closed()
    await device.emptyCache()
    expect([segments(), state.called]).toEqual([0, true])
  })

  it('a first launch with memory nodes is served; giving back the memory of graphs is refused', async () => {
    await using device = await deviceOf(name)
    const [lane, other] = [device.lane(), device.lane()]
    using result = device.pinned(KiB, other)
    const state = pending(device, lane)
    using definition = GraphDefinition.create(device)
    const made = definition.malloc(64 * MiB)
    const part = made.memory.at(0, KiB)
    const filled = definition.fill(part, 5, { bits: 32, after: [made] })
    const copied = definition.copy(result, part, { after: [filled] })
    definition.free(made.memory, { after: [copied] })
    using graph = ExecutableGraph.instantiate(definition)
    graph.launch(other)
    wouldDeadlock(() => device.trimGraphMemory())
    expect(state.called).toBe(false)
    await other.synchronize()
    expect(await contentOf(device, other, result)).toEqual([5])
    await lane.synchronize()
    device.trimGraphMemory()
    // On the callback's own lane too, where it comes after the callback.
    const again = pending(device, lane)
    graph.launch(lane)
    expect(again.called).toBe(false)
    await lane.synchronize()
    expect(again.called).toBe(true)
  })

  it('what waits on another thread is served: synchronize, close, and what neither waits nor queues', async () => {
    const device = await deviceOf(name)
    const [lane, other] = [device.lane(), device.lane()]
    const state = pending(device, lane)
    const block = other.malloc(KiB)
    block.recordUse(lane)
    block.free()
    expect([lane.idle, other.idle, state.called]).toEqual([false, true, false])
    using definition = GraphDefinition.create(device)
    definition.empty()
    using graph = ExecutableGraph.instantiate(definition)
    graph.upload(other)
    graph.launch(other)
    await other.synchronize()
    using event = lane.record()
    await event.synchronize()
    expect(state.called).toBe(true)
    const last = pending(device, lane)
    await device.close()
    expect(last.called).toBe(true)
  })
})
