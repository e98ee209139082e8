// Cases 33 to 48: a freed block and its pending readers. The delay stands before the read, and the words that
// were read are copied out: a block given out too early shows as the next owner's words. Every case runs
// under every policy.
import { describe, expect, test } from 'vitest'
import {
  AllocatorError,
  type AllocatorPolicy,
  type Block,
  type Device,
  type Lane,
  OutOfMemoryError,
} from '../../runtime/index.js'
import { present } from '../conformance/devices.js'
import {
  anotherDeviceOf,
  busy,
  contentOf,
  copyUnseen,
  deviceOf,
  hold,
  KiB,
  MiB,
  mirrorOf,
  settles,
  thrownBy,
  wordsOf,
} from '../fixtures/allocator.js'

const policies: readonly AllocatorPolicy[] = ['order-then-wait', 'order-then-grow', 'poll', 'never-wait']
// Two pages, so that no remainder of another segment can serve it.
const bytes = 4 * MiB
const sample = 64 * KiB

interface Scene {
  readonly device: Device
  readonly home: Lane
  readonly reader: Lane
  readonly block: Block
  /** The words that the reader read, once it has read them. */
  readonly seen: () => readonly number[]
  readonly release: () => Promise<void>
}

/** A block filled with 7s whose reader, on another lane, is blocked right before it reads. */
const scene = async (
  device: Device,
  from?: (block: Block) => Parameters<Lane['copy']>[1],
): Promise<Scene> => {
  const [home, reader] = [device.lane({ name: 'home' }), device.lane({ name: 'reader' })]
  const mirror = mirrorOf(device, sample, reader)
  const block = home.malloc(bytes)
  home.fill32(block, 7)
  reader.wait(home.record())
  await home.synchronize()
  const gate = hold(device, reader)
  copyUnseen(reader, mirror.block, from?.(block) ?? block.at(0, sample))
  const release = async (): Promise<void> => {
    await chance(home)
    gate.open()
    await reader.synchronize()
    await home.synchronize()
  }
  return { device, home, reader, block, seen: mirror.all, release }
}

/**
 * Gives a lane time for an error: a next owner that does not wait has written by then.
 */
const chance = async (lane: Lane): Promise<void> => {
  await settles(lane.synchronize())
}

/** The next owner's write, which may have to wait on the device. */
const reuse = ({ home }: Scene, word = 9): Block => {
  const next = home.malloc(bytes)
  home.fill32(next, word)
  return next
}

const all = present.flatMap(name => policies.map(policy => [name, policy] as const))

describe.each(all)('a block and its readers on %s, %s', (name, policy) => {
  const open = () => deviceOf(name, { policy })

  test('33: after recordStream the next owner writes only after a delayed reader has read', async () => {
    await using device = await open()
    const it = await scene(device)
    const { address } = it.block
    it.block.recordStream(it.reader)
    it.block.free()
    const next = reuse(it)
    // Either another block, or the same one, whose new owner waits on the device.
    if (next.address === address) expect(it.home.idle).toBe(false)
    else expect(device.stats()['reserved_bytes.all.current']).toBe(2 * bytes)
    await it.release()
    expect(it.seen()).toEqual([7])
    expect(await contentOf(device, it.home, next)).toEqual([9])
    // Once the reader has read, both blocks are reused, and no more memory is taken.
    const known = [address, next.address]
    const reserved = device.stats()['reserved_bytes.all.current']!
    next.free()
    expect(known).toContain(it.home.malloc(bytes).address)
    expect(device.stats()['reserved_bytes.all.current']).toBe(reserved)
  })

  test('33: the check can fail: without the mark the schedule reads the next owner’s words', async () => {
    await using device = await open()
    const it = await scene(device)
    const { address } = it.block
    it.block.free()
    const next = reuse(it)
    expect(next.address).toBe(address)
    await it.home.synchronize()
    await it.release()
    expect(it.seen()).toEqual([9])
  })

  test('34: a mark protects the whole block, whichever part of it is read', async () => {
    await using device = await open()
    const it = await scene(device, block => block.at(bytes - sample, sample))
    const part = it.block.at(bytes - sample, sample)
    part.block.recordStream(it.reader)
    it.block.free()
    reuse(it)
    await it.release()
    expect(it.seen()).toEqual([7])
  })

  test('35: under pressure allocations wait for deferred frees: 100 blocks in the memory of 8', async () => {
    await using device = await deviceOf(
      name,
      { policy, limit: 8 * bytes + 8 * MiB },
      { host: { copyRate: 2 ** 31 } },
    )
    const [home, reader] = [device.lane(), device.lane()]
    const scratch = reader.malloc(8 * MiB)
    const mirror = device.pinned(100 * 4 * KiB, reader)
    for (let i = 0; i < 100; i++) {
      using block = home.malloc(bytes)
      home.fill32(block, i + 1)
      using written = home.record()
      reader.wait(written)
      if (i % 10 === 0) busy(reader, scratch, 4)
      copyUnseen(reader, mirror.at(i * 4 * KiB, 4 * KiB), block.at(bytes - 4 * KiB, 4 * KiB))
      block.recordStream(reader)
    }
    await reader.synchronize()
    const words = new Uint32Array(mirror.view())
    expect(Array.from({ length: 100 }, (_, i) => words[i * KiB])).toEqual(
      Array.from({ length: 100 }, (_, i) => i + 1),
    )
    expect(device.stats()['num_ooms']).toBe(0)
    expect(device.stats()['reserved_bytes.all.peak']).toBeLessThanOrEqual(8 * bytes + 8 * MiB)
  })

  test('36: a block freed with a pending use is reused at once only under policies that wait', async () => {
    await using device = await open()
    const it = await scene(device)
    const { address } = it.block
    it.block.recordUse(it.reader)
    it.block.free()
    const waits = device.stats()['waits.issued']!
    const next = reuse(it)
    if (policy === 'order-then-wait') {
      expect(next.address).toBe(address)
      expect(device.stats()['waits.issued']).toBe(waits + 1)
      expect(device.stats()['reserved_bytes.all.current']).toBe(bytes)
    } else {
      expect(next.address).not.toBe(address)
      expect(device.stats()['waits.issued']).toBe(waits)
    }
    await it.release()
    expect(it.seen()).toEqual([7])
    expect(await contentOf(device, it.home, next)).toEqual([9])
  })

  test('36: a reader’s work after its mark delays no reuse; after recordStream it does', async () => {
    for (const mark of ['recordUse', 'recordStream'] as const) {
      await using device = await open()
      const [home, reader] = [device.lane(), device.lane()]
      const mirror = mirrorOf(device, sample, reader)
      const block = home.malloc(bytes)
      const { address } = block
      home.fill32(block, 7)
      reader.wait(home.record())
      copyUnseen(reader, mirror.block, block.at(0, sample))
      block[mark](reader)
      using read = reader.record()
      const gate = hold(device, reader)
      block.free()
      await read.synchronize()
      const next = home.malloc(bytes)
      home.fill32(next, 9)
      const through = home.synchronize()
      // The reader has passed its mark: the block is reused, and nothing waits for the reader's later work.
      if (mark === 'recordUse') expect(next.address).toBe(address)
      if (mark === 'recordUse') expect(await settles(through, 10_000)).toBe(true)
      else expect(next.address !== address || !(await settles(through))).toBe(true)
      gate.open()
      await through
      await reader.synchronize()
      expect(mirror.all()).toEqual([7])
    }
  })

  test('37: a use on the home lane is free: no event, no wait, and the block is reused at once', async () => {
    await using device = await open()
    const home = device.lane()
    const block = home.malloc(bytes)
    const { address } = block
    home.fill32(block, 7)
    const before = device.stats()
    block.recordUse(home)
    block.recordStream(home)
    using own = home.record()
    block.keepUntil(own)
    block.free()
    const next = home.malloc(bytes)
    const after = device.stats()
    expect(next.address).toBe(address)
    expect(after['waits.issued']).toBe(before['waits.issued'])
    // The one event is the test's own.
    expect(after['uses.recorded']).toBe(before['uses.recorded']! + 1)
  })

  /**
   * Three delayed readers of one block, marked in one of the ways, and its free; the last reader reads long
   * after the others.
   */
  const three = async (
    last: number,
    mark: (block: Block, readers: readonly Lane[]) => void,
  ): Promise<void> => {
    await using device = await open()
    const home = device.lane()
    const readers = [device.lane(), device.lane(), device.lane()]
    const mirrors = readers.map(reader => mirrorOf(device, sample, reader))
    const block = home.malloc(bytes)
    home.fill32(block, 7)
    const written = home.record()
    const gates = readers.map(reader => {
      reader.wait(written)
      return hold(device, reader)
    })
    for (const [i, reader] of readers.entries())
      copyUnseen(reader, mirrors[i]!.block, block.at(i * sample, sample))
    mark(block, readers)
    block.free()
    const next = home.malloc(bytes)
    home.fill32(next, 9)
    for (const [i, gate] of gates.entries()) if (i !== last) gate.open()
    await chance(home)
    // Once more, now that all readers but one have read.
    const late = home.malloc(bytes)
    home.fill32(late, 8)
    await chance(home)
    gates[last]!.open()
    for (const lane of [...readers, home]) await lane.synchronize()
    expect(mirrors.map(mirror => mirror.all())).toEqual([[7], [7], [7]])
    expect(await contentOf(device, home, next)).toEqual([9])
  }

  test('38: a block with several readers is reused only after the last one, on whichever lane', async () => {
    for (const last of [0, 1, 2])
      await three(last, (block, readers) => {
        for (const reader of readers) block.recordUse(reader)
      })
  })

  test('39: recordUse, recordStream and keepUntil compose on one block, in any order', async () => {
    for (const last of [0, 1, 2])
      await three(last, (block, readers) => {
        const marks = [
          () => block.recordUse(readers[0]!),
          () => block.recordStream(readers[1]!),
          () => {
            using event = readers[2]!.record()
            block.keepUntil(event)
          },
        ]
        for (let i = 0; i < 3; i++) marks[(i + last) % 3]!()
      })
  })

  test('40: a block of a side lane is reused by that lane after its reader on another', async () => {
    await using device = await open()
    const [side, reader] = [device.lane(), device.defaultLane]
    const mirror = mirrorOf(device, sample, reader)
    const block = side.malloc(bytes)
    side.fill32(block, 7)
    reader.wait(side.record())
    const gate = hold(device, reader)
    copyUnseen(reader, mirror.block, block.at(0, sample))
    block.recordUse(reader)
    block.free()
    const next = side.malloc(bytes)
    side.fill32(next, 9)
    await chance(side)
    gate.open()
    await reader.synchronize()
    await side.synchronize()
    expect(mirror.all()).toEqual([7])
  })

  test('40: another lane reuses it only once that lane is after the reader and after the free', async () => {
    await using device = await open()
    const it = await scene(device)
    const other = device.lane()
    const { address } = it.block
    it.block.recordUse(it.reader)
    it.block.free()
    const elsewhere = other.malloc(bytes)
    other.fill32(elsewhere, 8)
    expect(elsewhere.address).not.toBe(address)
    await it.release()
    expect(it.seen()).toEqual([7])
    // All work has completed: any lane may have the block, except under a policy that keeps lanes apart.
    const reserved = device.stats()['reserved_bytes.all.current']!
    const later = other.malloc(bytes)
    if (policy !== 'poll') expect(later.address).toBe(address)
    expect(device.stats()['reserved_bytes.all.current']).toBe(policy === 'poll' ? reserved + bytes : reserved)
  })

  // A block with its own segment, so that no remainder of another segment is taken first.
  const page = 16 * MiB

  test('41: a pinned block is not given out again while a copy of its home lane still reads it', async () => {
    await using device = await open()
    const lane = device.lane()
    const target = lane.malloc(page)
    const pinned = device.pinned(page, lane)
    const { address } = pinned
    new Uint32Array(pinned.view()).fill(7)
    const gate = hold(device, lane)
    lane.copy(target, pinned)
    pinned.free()
    // The host writes at any time: it is in no lane's order.
    const next = device.pinned(page, lane)
    expect(next.address).not.toBe(address)
    new Uint32Array(next.view()).fill(9)
    gate.open()
    await lane.synchronize()
    expect(await contentOf(device, lane, target.at(page - sample, sample))).toEqual([7])
  })

  test('41: a pinned block is given out again only when a recorded use of another lane is done', async () => {
    await using device = await open()
    const [home, reader] = [device.lane(), device.lane()]
    const target = reader.malloc(page)
    const pinned = device.pinned(page, home)
    const { address } = pinned
    new Uint32Array(pinned.view()).fill(7)
    const gate = hold(device, reader)
    copyUnseen(reader, target, pinned)
    pinned.recordUse(reader)
    pinned.free()
    const next = device.pinned(page, home)
    expect(next.address).not.toBe(address)
    new Uint32Array(next.view()).fill(9)
    gate.open()
    await reader.synchronize()
    expect(await contentOf(device, reader, target.at(page - sample, sample))).toEqual([7])
    const reserved = device.stats('pinned')['reserved_bytes.all.current']!
    expect(device.pinned(page, home).address).toBe(address)
    expect(device.stats('pinned')['reserved_bytes.all.current']).toBe(reserved)
  })

  test('45: uses recorded in a pool’s scope hold its memory back until they are done', async () => {
    await using device = await open()
    const pool = device.pool()
    const it = await pool.use(() => scene(device))
    const poolBytes = (): number =>
      device
        .snapshot()
        .segments.reduce((sum, { pool: id, mappedSize }) => sum + (id === pool.id ? mappedSize : 0), 0)
    it.block.recordStream(it.reader)
    it.block.free()
    const next = pool.use(() => reuse(it))
    await it.release()
    expect(it.seen()).toEqual([7])
    const reserved = poolBytes()
    expect(reserved).toBeGreaterThanOrEqual(bytes)
    next.free()
    const blocks = pool.use(() => Array.from({ length: reserved / bytes }, () => it.home.malloc(bytes)))
    expect(poolBytes()).toBe(reserved)
    expect(blocks).toHaveLength(reserved / bytes)
  })

  test('47: 200 small blocks behind a delayed reader overlap neither its block nor each other', async () => {
    await using device = await open()
    const [home, reader] = [device.lane(), device.lane()]
    const small = 8 * KiB
    const mirror = mirrorOf(device, small, reader)
    const block = home.malloc(small)
    home.fill32(block, 7)
    reader.wait(home.record())
    const gate = hold(device, reader)
    copyUnseen(reader, mirror.block, block)
    block.recordUse(reader)
    block.free()
    const made = Array.from({ length: 200 }, (_, i) => {
      const one = home.malloc(small)
      home.fill32(one, 1000 + i)
      return one
    })
    await chance(home)
    gate.open()
    await reader.synchronize()
    expect(mirror.all()).toEqual([7])
    expect(new Set(made.map(({ address }) => address)).size).toBe(200)
    const back = device.pinned(200 * small, home)
    for (const [i, one] of made.entries()) home.copy(back.at(i * small, small), one)
    await home.synchronize()
    const words = new Uint32Array(back.view())
    for (let i = 0; i < 200; i++)
      expect(new Set(words.subarray((i * small) / 4, ((i + 1) * small) / 4))).toEqual(new Set([1000 + i]))
  })

  test('48: the source of a download on another lane is not reused while the copy runs', async () => {
    await using device = await open()
    const [comm, offload] = [device.lane(), device.lane()]
    const layers = 4
    const host = Array.from({ length: layers }, () => mirrorOf(device, sample, offload))
    const gate = hold(device, offload)
    for (let layer = 0; layer < layers; layer++) {
      using gradient = comm.malloc(bytes)
      comm.fill32(gradient, 100 + layer)
      using reduced = comm.record()
      offload.wait(reduced)
      copyUnseen(offload, host[layer]!.block, gradient.at(0, sample))
      gradient.recordUse(offload)
    }
    await chance(comm)
    gate.open()
    await offload.synchronize()
    await comm.synchronize()
    expect(host.map(mirror => mirror.all())).toEqual([[100], [101], [102], [103]])
  })
})

describe.each(present)('a block and its readers on %s', name => {
  test('42: a use of a pinned block by a lane of another device is an error', async () => {
    await using one = await deviceOf(name)
    await using two = await anotherDeviceOf(name)
    const pinned = one.pinned(sample)
    const { address } = pinned
    const error = thrownBy(() => pinned.recordUse(two.defaultLane))
    expect(error).toBeInstanceOf(AllocatorError)
    expect((error as unknown as AllocatorError)._tag).toBe('WrongDevice')
    expect(thrownBy(() => two.defaultLane.copy(two.defaultLane.malloc(sample), pinned))).toBeInstanceOf(
      AllocatorError,
    )
    expect(pinned.address).toBe(address)
    pinned.free()
  })

  test('43: copying parts of a pinned block with gaps between them leaves the gaps untouched', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    const rows = 64
    const [pinned, block] = [device.pinned(rows * 4 * KiB, lane), lane.malloc(rows * 4 * KiB)]
    const words = new Uint32Array(pinned.view())
    words.fill(1)
    lane.fill32(block, 2)
    for (let row = 0; row < rows; row++) {
      words.fill(100 + row, row * KiB, row * KiB + 256)
      lane.copy(block.at(row * 4 * KiB, KiB), pinned.at(row * 4 * KiB, KiB))
    }
    const got = await wordsOf(device, block, lane)
    for (let row = 0; row < rows; row++) {
      expect(new Set(got.subarray(row * KiB, row * KiB + 256))).toEqual(new Set([100 + row]))
      expect(new Set(got.subarray(row * KiB + 256, (row + 1) * KiB))).toEqual(new Set([2]))
    }
  })

  test.each(policies)(
    '44: an allocation that fails would fail again at once, and one that could succeed does not fail: %s',
    async policy => {
      const limit = 4 * bytes
      await using device = await deviceOf(name, { policy, limit })
      const [home, reader] = [device.lane(), device.lane()]
      const kept = home.malloc(2 * bytes)
      const scratch = device.pinned(2 * bytes, reader)
      // An allocation that fits only after the reader waits for it, and tries again, in the same call.
      const read = home.malloc(2 * bytes)
      home.fill32(read, 7)
      reader.wait(home.record())
      for (let turn = 0; turn < 8; turn++) copyUnseen(reader, scratch, read)
      read.recordUse(reader)
      read.free()
      const next = home.malloc(2 * bytes)
      expect(device.stats()['num_ooms']).toBe(0)
      home.fill32(next, 9)
      // An allocation that cannot fit fails every time, and changes nothing.
      const before = device.stats()['allocated_bytes.all.current']
      for (let turn = 0; turn < 3; turn++)
        expect(thrownBy(() => home.malloc(bytes))).toBeInstanceOf(OutOfMemoryError)
      expect(device.stats()['allocated_bytes.all.current']).toBe(before)
      await reader.synchronize()
      expect([...new Set(new Uint32Array(scratch.view()))]).toEqual([7])
      kept.free()
      home.malloc(bytes).free()
    },
  )
})
