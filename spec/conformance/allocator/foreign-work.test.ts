// Work that Braid did not give to a lane's stream: of a library that was given `lane.stream`, as the guide says
// it may be. Whatever asks for the lane's present point sees it.
import { describe, expect, it } from 'vitest'
import type { AllocatorPolicy, Block, Lane } from '../../../runtime/index.js'
import { contentOf, copyUnseen, deviceOf, hold, KiB, mirrorOf, settles } from '../../fixtures/allocator.js'
import { present } from '../devices.js'

const policies: readonly AllocatorPolicy[] = ['order-then-grow', 'order-then-wait', 'never-wait', 'poll']
const bytes = 64 * KiB

/** How the owner of a block says that the lane uses it. */
const marks: Readonly<Record<string, (block: Block, lane: Lane) => void>> = {
  recordUse: (block, lane) => block.recordUse(lane),
  recordStream: (block, lane) => block.recordStream(lane),
  keepUntil: (block, lane) => {
    using event = lane.record()
    block.keepUntil(event)
  },
}

describe.each(present)('work on a lane’s stream that Braid does not see, on %s', name => {
  const scene = async (policy: AllocatorPolicy) => {
    const device = await deviceOf(name, { policy })
    const [home, lane] = [device.lane({ name: 'home' }), device.lane({ name: 'lane' })]
    // An older mark of the lane, with nothing after it.
    using older = lane.record()
    await older.synchronize()
    const { stream } = lane
    /** The library's view of the stream. Its gate is work that the lane does not see. */
    const library = device.externalLane(stream, { name: 'library' })
    return { device, home, lane, library, older: older.point }
  }

  it.each(policies)('1 under %s is before events, idle and synchronize', async policy => {
    const { device, home, lane, library, older } = await scene(policy)
    const gate = hold(device, library)
    using event = lane.record()
    expect([event.done, event.point > older, lane.idle]).toEqual([false, true, false])
    home.wait(event)
    expect(home.idle).toBe(false)
    expect(await settles(lane.synchronize())).toBe(false)
    // Again, after that mark.
    copyUnseen(library, device.malloc(bytes), device.malloc(bytes))
    using again = lane.record()
    expect(again.point).toBeGreaterThan(event.point)
    gate.open()
    await lane.synchronize()
    expect([lane.idle, event.done, again.done]).toEqual([true, true, true])
    await device.close()
  })

  it.each(policies.flatMap(policy => Object.keys(marks).map(mark => [policy, mark] as const)))(
    '2 under %s is a use that %s marks',
    async (policy, mark) => {
      const { device, home, lane, library } = await scene(policy)
      using seen = library.malloc(bytes)
      const block = home.malloc(bytes)
      home.fill32(block, 7)
      await home.synchronize()
      const gate = hold(device, library)
      copyUnseen(library, seen, block)
      marks[mark]!(block, lane)
      block.free()
      const next = home.malloc(bytes)
      home.fill32(next, 9)
      gate.open()
      expect(await contentOf(device, lane, seen)).toEqual([7])
      expect(await contentOf(device, home, next)).toEqual([9])
      await device.close()
    },
  )

  it.each(policies)('3 under %s keeps what is freed on that lane from others', async policy => {
    const { device, home, lane, library } = await scene(policy)
    using seen = library.malloc(bytes)
    const mirror = mirrorOf(device, bytes, home)
    const block = lane.malloc(bytes)
    lane.fill32(block, 7)
    {
      using filled = lane.record()
      home.wait(filled)
    }
    const gate = hold(device, library)
    copyUnseen(library, seen, block)
    block.free()
    const next = home.malloc(bytes)
    home.fill32(next, 9)
    home.copy(mirror.block, next)
    gate.open()
    expect(await contentOf(device, lane, seen)).toEqual([7])
    await home.synchronize()
    expect(mirror.all()).toEqual([9])
    await device.close()
  })

  it('4 keeps pinned memory, which the host writes at once', async () => {
    const { device, lane, library } = await scene('order-then-grow')
    using seen = library.malloc(bytes)
    const block = device.pinned(bytes, lane)
    new Uint32Array(block.view()).fill(7)
    const gate = hold(device, library)
    copyUnseen(library, seen, block)
    block.free()
    using next = device.pinned(bytes, lane)
    new Uint32Array(next.view()).fill(9)
    gate.open()
    expect(await contentOf(device, lane, seen)).toEqual([7])
    await device.close()
  })

  it('5 is looked for only where the stream was given out', async () => {
    const device = await deviceOf(name)
    const [home, own, given, pooled] = [device.lane(), device.lane(), device.lane(), device.lane()]
    expect(given.stream).toBeTypeOf('bigint')
    // An allocator of the caller's is given the stream of the lane that it allocates for.
    const memory = device.arena(4 * bytes)
    using pool = device.pool({ allocator: { allocate: () => memory.address, release: () => {} } })
    pooled.malloc(512, { pool }).free()
    const block = home.malloc(bytes)
    const recorded = [own, given, pooled].map(lane => {
      const before = device.stats()['uses.recorded']!
      for (let i = 0; i < 3; i++) block.recordUse(lane)
      return device.stats()['uses.recorded']! - before
    })
    expect(recorded).toEqual([1, 3, 3])
    await device.close()
  })
})
