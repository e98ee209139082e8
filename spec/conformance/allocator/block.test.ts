// Blocks: memory, marks of uses, and that no byte is given out again while a lane may still read or write it.
import { describe, expect, it } from 'vitest'
import { copyUnseen, hold, KiB, MiB, openOn, wordsOf } from '../../fixtures/allocator.js'
import { present } from '../devices.js'

describe.each(present)('blocks on %s', name => {
  it('1 hold what is written to them', async () => {
    await using device = await openOn(name)
    const lane = device.lane({ name: 'a' })
    using block = lane.malloc(4 * KiB)
    lane.fill32(block, 0xc0ffee)
    lane.fill32(block.at(8, 4), 7)
    expect([...(await wordsOf(device, block, lane)).subarray(0, 4)]).toEqual([
      0xc0ffee, 0xc0ffee, 7, 0xc0ffee,
    ])
  })

  it('2 are rounded up, aligned, and do not overlap', async () => {
    await using device = await openOn(name)
    const blocks = [1, 511, 512, 513, 3 * MiB, 1, 20 * MiB].map(bytes => device.defaultLane.malloc(bytes))
    expect(blocks.slice(0, 4).map(({ size }) => size)).toEqual([512, 512, 512, 1024])
    const ranges = blocks
      .map(({ address, size }) => [address, address + size] as const)
      .sort((a, b) => a[0] - b[0])
    for (const [start] of ranges) expect(start % 512).toBe(0)
    for (let i = 1; i < ranges.length; ++i) expect(ranges[i]![0]).toBeGreaterThanOrEqual(ranges[i - 1]![1])
    for (const block of blocks) block.free()
    expect(device.stats()['allocated_bytes.all.current']).toBe(0)
  })

  it('3 are reused at once on their home lane, without a mark', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const first = lane.malloc(MiB)
    const { address } = first
    lane.fill32(first, 1)
    first.free()
    const second = lane.malloc(MiB)
    expect(second.address).toBe(address)
    expect(device.stats()['uses.recorded']).toBe(0)
    second.free()
  })

  it('4 are not overwritten while a lane that marked its use still reads them', async () => {
    await using device = await openOn(name, { allocator: { policy: 'order-then-wait' } })
    const home = device.lane({ name: 'home' })
    const reader = device.lane({ name: 'reader' })
    using copied = reader.malloc(4 * MiB)
    const block = home.malloc(4 * MiB)
    const { address } = block
    home.fill32(block, 11)
    using filled = home.record()
    reader.wait(filled)
    {
      // The delay stands before the read: a reuse that does not wait for the reader overwrites the words
      // before they are read.
      using _gate = hold(device, reader)
      copyUnseen(reader, copied, block)
      block.recordUse(reader)
      block.free()
      const next = home.malloc(4 * MiB)
      expect(next.address).toBe(address)
      home.fill32(next, 22)
      expect(device.stats()['waits.issued']).toBeGreaterThanOrEqual(2)
      expect(home.idle).toBe(false)
      next.free()
    }
    await home.synchronize()
    expect(new Set(await wordsOf(device, copied, reader))).toEqual(new Set([11]))
  })

  it('5 keep one point of a lane, however often it marks a use', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const other = device.lane()
    using scratch = other.malloc(512)
    const block = lane.malloc(MiB)
    using _gate = hold(device, other)
    for (let i = 0; i < 100; ++i) {
      other.fill32(scratch, i)
      block.recordUse(other)
    }
    const [segment] = device
      .snapshot()
      .segments.filter(({ blocks }) => blocks.some(({ address }) => address === block.address))
    expect(segment!.blocks.find(({ address }) => address === block.address)!.uses).toHaveLength(1)
    block.free()
  })

  it('6 share the newest event of a lane that already marks its point', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const other = device.lane()
    const blocks = Array.from({ length: 8 }, () => lane.malloc(2 * KiB))
    for (const block of blocks) block.recordUse(other)
    const stats = device.stats()
    expect(stats['uses.recorded']).toBe(1)
    expect(stats['uses.shared']).toBe(7)
    for (const block of blocks) block.free()
  })

  it('7 need no mark on their home lane, where a mark counts as no use', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const block = lane.malloc(KiB)
    block.recordUse(lane)
    block.recordStream(lane)
    using event = lane.record()
    block.keepUntil(event)
    expect(
      device
        .snapshot()
        .segments.flatMap(({ blocks }) => blocks.flatMap(({ uses, noted }) => [...uses, ...noted])),
    ).toEqual([])
    block.free()
  })

  it('8 with recordStream are kept until the lane has run all work given to it before the free', async () => {
    await using device = await openOn(name)
    const home = device.lane()
    const other = device.lane()
    using copied = other.malloc(4 * KiB)
    const block = home.malloc(4 * KiB)
    home.fill32(block, 3)
    using ready = home.record()
    other.wait(ready)
    block.recordStream(other)
    {
      using _gate = hold(device, other)
      // Work after recordStream and before the free counts too.
      copyUnseen(other, copied, block)
      block.free()
      const next = home.malloc(4 * KiB)
      home.fill32(next, 4)
      next.free()
    }
    expect((await wordsOf(device, copied, other))[0]).toBe(3)
  })

  it('9 with keepUntil are kept until the event has completed, even if it is disposed of', async () => {
    await using device = await openOn(name)
    const home = device.lane()
    const other = device.lane()
    using copied = other.malloc(4 * KiB)
    const block = home.malloc(4 * KiB)
    home.fill32(block, 5)
    {
      using ready = home.record()
      other.wait(ready)
    }
    {
      using _gate = hold(device, other)
      copyUnseen(other, copied, block)
      {
        using done = other.record()
        block.keepUntil(done)
      }
      block.free()
      const next = home.malloc(4 * KiB)
      home.fill32(next, 6)
      next.free()
    }
    expect((await wordsOf(device, copied, other))[0]).toBe(5)
  })

  it('10 keep their data through thousands of reuses across lanes', async () => {
    await using device = await openOn(name)
    const lanes = [0, 1, 2].map(i => device.lane({ name: `lane ${i}` }))
    const out = device.pinned(64 * 4)
    const words: { at: number; word: number }[] = []
    let seed = 12345
    const next = (below: number): number => (seed = (seed * 1103515245 + 12345) % 2147483648) % below
    for (let i = 0; i < 600; ++i) {
      const home = lanes[next(3)]!
      const reader = lanes[next(3)]!
      const block = home.malloc(512 * (1 + next(64)))
      home.fill32(block, i)
      using written = home.record()
      reader.wait(written)
      if (i % 10 === 9 && words.length < 64) {
        copyUnseen(reader, out.at(words.length * 4, 4), block.at(block.bytes - 4, 4))
        words.push({ at: words.length, word: i })
      } else {
        // A read into memory that only this lane uses; its result is not checked.
        const sink = reader.malloc(block.bytes)
        copyUnseen(reader, sink, block)
        sink.free()
      }
      block.recordUse(reader)
      block.free()
    }
    for (const lane of lanes) await lane.synchronize()
    const read = new Uint32Array(out.view())
    expect(words.map(({ at }) => read[at])).toEqual(words.map(({ word }) => word))
    out.free()
    expect(device.stats()['allocated_bytes.all.current']).toBe(0)
    await device.emptyCache()
    expect(device.stats()['reserved_bytes.all.current']).toBe(0)
  })

  it('11 report their properties, and only their sizes once they are freed', async () => {
    await using device = await openOn(name)
    const block = device.defaultLane.malloc(1000)
    expect([block.bytes, block.size, block.pinned, block.disposed, block.lane]).toEqual([
      1000,
      1024,
      false,
      false,
      device.defaultLane,
    ])
    block.free()
    expect([block.bytes, block.size, block.disposed]).toEqual([1000, 1024, true])
    for (const use of [
      () => block.address,
      () => block.free(),
      () => block.recordUse(device.defaultLane),
      () => block.at(0, 1),
    ])
      expect(use).toThrow(/a block of 1,000 bytes is closed: it was freed/)
    block[Symbol.dispose]()
  })

  it('12 have parts that own nothing, inside their bounds', async () => {
    await using device = await openOn(name)
    const arena = device.arena(MiB)
    const part = arena.at(4096, 8)
    expect(part.address).toBe(arena.address + 4096)
    expect([part.bytes, part.offset, part.block]).toEqual([8, 4096, arena.block])
    for (const [offset, bytes] of [
      [MiB, 1],
      [MiB - 8, 9],
      [0, MiB + 1],
    ] as const)
      expect(() => arena.at(offset, bytes)).toThrow(/a range inside the 1048576 bytes/)
    arena.free()
    expect(() => part.address).toThrow(/it was freed/)
  })
})
