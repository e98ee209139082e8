// Cases 83 to 94: pools, and pools whose memory comes from the caller's own functions.
import { describe, expect, test } from 'vitest'
import {
  type Block,
  type Device,
  DisposedError,
  type MemPool,
  OutOfMemoryError,
} from '../../runtime/index.js'
import { present } from '../conformance/devices.js'
import { contentOf, deviceOf, KiB, MiB, poolOf, thrownBy } from '../fixtures/allocator.js'

const poolBytes = (device: Device, id: number): number =>
  device
    .snapshot()
    .segments.reduce(
      (sum, { pool, mappedSize, pinned }) => sum + (pool === id && !pinned ? mappedSize : 0),
      0,
    )
const segmentsOf = (device: Device, id: number) =>
  device.snapshot().segments.filter(({ pool }) => pool === id)

/**
 * An allocator of the caller's, over an arena, page by page. It records its calls.
 */
const sourceOf = (device: Device, pages: number) => {
  const arena = device.arena(pages * 2 * MiB)
  const base = arena.address
  const out = new Map<number, number>()
  const calls: string[] = []
  let next = 0
  const allocator = {
    allocate: (bytes: number, stream: unknown): number | null => {
      calls.push(`allocate ${bytes / MiB}`)
      expect(stream).toBeDefined()
      if (next + bytes > pages * 2 * MiB) return null
      const address = base + next
      next += bytes
      out.set(address, bytes)
      return address
    },
    release: (address: number, bytes: number): void => {
      calls.push(`release ${bytes / MiB}`)
      expect(out.get(address)).toBe(bytes)
      out.delete(address)
    },
  }
  return { allocator, calls, out, base, end: base + pages * 2 * MiB }
}

describe.each(present)('pools on %s', name => {
  test('83, 90: each pool has a number, growing from 1, that is never used again', async () => {
    await using device = await deviceOf(name)
    const ids: number[] = []
    for (let i = 0; i < 20; i++) {
      const pool = device.pool()
      ids.push(pool.id)
      if (i % 3 === 0) pool.close()
    }
    expect(ids[0]).toBeGreaterThanOrEqual(1)
    expect(ids).toEqual([...new Set(ids)].sort((a, b) => a - b))
    // Also when many are made concurrently.
    const more = await Promise.all(Array.from({ length: 20 }, async () => device.pool().id))
    expect(new Set([...ids, ...more]).size).toBe(40)
  })

  test('84: a pool closed before its block is freed gives the memory back with the free', async () => {
    await using device = await deviceOf(name)
    const { allocator, calls, out } = sourceOf(device, 4)
    const pool = device.pool({ allocator })
    const home = device.defaultLane
    const block = home.malloc(2 * MiB, { pool })
    home.fill32(block, 84)
    pool.close()
    expect(calls).toEqual(['allocate 2'])
    expect(await contentOf(device, home, block)).toEqual([84])
    block.free()
    await home.synchronize()
    await device.emptyCache()
    expect(calls).toEqual(['allocate 2', 'release 2'])
    expect(out.size).toBe(0)
    expect(thrownBy(() => home.malloc(512, { pool }))).toBeInstanceOf(DisposedError)
  })

  test('84: a pool closed with no block in use gives its memory back', async () => {
    await using device = await deviceOf(name)
    const pool = device.pool()
    device.defaultLane.malloc(6 * MiB, { pool }).free()
    expect(poolBytes(device, pool.id)).toBeGreaterThanOrEqual(6 * MiB)
    await device.defaultLane.synchronize()
    pool.close()
    await device.emptyCache()
    expect(poolBytes(device, pool.id)).toBe(0)
    expect(device.stats()['reserved_bytes.all.current']).toBe(0)
  })

  test('85: a pool’s own allocator is asked for 2 MiB at a time, which small blocks share', async () => {
    await using device = await deviceOf(name)
    const { allocator, calls } = sourceOf(device, 8)
    using pool = device.pool({ allocator })
    const home = device.defaultLane
    const counts: number[] = []
    const blocks = Array.from({ length: 3 }, () => {
      const block = home.malloc(MiB, { pool })
      counts.push(segmentsOf(device, pool.id).length)
      return block
    })
    expect(counts).toEqual([1, 1, 2])
    expect(calls).toEqual(['allocate 2', 'allocate 2'])
    expect(new Set(blocks.map(({ address }) => address)).size).toBe(3)
    for (const block of blocks) block.free()
    await pool.emptyCache()
    expect(calls.filter(call => call === 'release 2')).toHaveLength(2)
    home.malloc(5 * MiB - 1, { pool }).free()
    expect(calls.at(-1)).toBe('allocate 6')
    await pool.emptyCache()
  })

  test('86: blocks outlive their pool; their frees reach the pool’s own allocator', async () => {
    await using device = await deviceOf(name)
    const { allocator, out } = sourceOf(device, 8)
    const home = device.defaultLane
    const made = (() => {
      using pool = device.pool({ allocator })
      return [home.malloc(MiB, { pool }), home.malloc(3 * MiB, { pool }), home.malloc(MiB, { pool })]
    })()
    expect(out.size).toBeGreaterThan(0)
    for (const block of made) home.fill32(block, 86)
    for (const block of made) expect(await contentOf(device, home, block)).toEqual([86])
    for (const block of made.reverse()) block.free()
    await home.synchronize()
    await device.emptyCache()
    expect(out.size).toBe(0)
  })

  // With plain segments: pages of expandable ones move to where they are needed anyway.
  const plain = { expandable: false, limit: 36 * MiB }

  test('87: out of memory, only pools with useOnOutOfMemory lend free memory', async () => {
    await using device = await deviceOf(name, plain)
    const home = device.defaultLane
    const [own, lent] = [device.pool(), device.pool({ useOnOutOfMemory: true })]
    const [a, b] = [home.malloc(12 * MiB, { pool: own }), home.malloc(12 * MiB, { pool: lent })]
    home.malloc(12 * MiB)
    const free = b.address
    b.free()
    const borrowed = home.malloc(12 * MiB)
    expect(borrowed.address).toBe(free)
    expect(poolOf(device, borrowed)).toBe(lent.id)
    expect(thrownBy(() => home.malloc(12 * MiB))).toBeInstanceOf(OutOfMemoryError)
    // Free memory of the other pool goes back to the driver instead, and the default pool takes it from
    // there.
    a.free()
    await home.synchronize()
    const again = home.malloc(12 * MiB)
    expect(poolOf(device, again)).toBe(0)
  })

  test('88: a closed pool lends no memory', async () => {
    await using device = await deviceOf(name, plain)
    const home = device.defaultLane
    const lent = device.pool({ useOnOutOfMemory: true })
    const [first, second] = [home.malloc(12 * MiB, { pool: lent }), home.malloc(12 * MiB, { pool: lent })]
    home.malloc(12 * MiB)
    first.free()
    lent.close()
    // The freed part goes back to the driver, and the default pool takes it from there.
    const block = home.malloc(12 * MiB)
    expect(poolOf(device, block)).toBe(0)
    expect(thrownBy(() => home.malloc(12 * MiB))).toBeInstanceOf(OutOfMemoryError)
    second.free()
  })

  test('89: a pool with noSplit gives each block a segment of its own', async () => {
    await using device = await deviceOf(name)
    const [whole, split] = [device.pool({ noSplit: true }), device.pool()]
    const home = device.defaultLane
    const held = [whole, split].map(pool => Array.from({ length: 6 }, () => home.malloc(256 * KiB, { pool })))
    expect(segmentsOf(device, whole.id)).toHaveLength(6)
    for (const { blocks } of segmentsOf(device, whole.id)) expect(blocks).toHaveLength(1)
    expect(poolBytes(device, split.id)).toBeLessThan(poolBytes(device, whole.id))
    for (const block of held.flat()) block.free()
  })

  test('91: emptying the cache in a pool’s scope takes no memory in use', async () => {
    await using device = await deviceOf(name)
    const home = device.defaultLane
    const pools = Array.from({ length: 4 }, () => device.pool())
    await Promise.all(
      pools.map((pool, i) =>
        pool.use(async () => {
          const block = home.malloc(2 * MiB)
          home.fill32(block, 91 + i)
          for (let turn = 0; turn < 3; turn++) {
            home.malloc(4 * MiB).free()
            await device.emptyCache()
            expect(poolOf(device, block)).toBe(pool.id)
            expect(await contentOf(device, home, block)).toEqual([91 + i])
          }
        }),
      ),
    )
  })

  test('92: scopes nest: each allocation comes from the innermost pool', async () => {
    await using device = await deviceOf(name)
    const home = device.defaultLane
    const [outer, inner] = [device.pool({ noSplit: true }), device.pool({ noSplit: true })]
    outer.use(() => {
      home.malloc(2 * MiB)
      inner.use(() => {
        home.malloc(2 * MiB)
        home.malloc(2 * MiB)
        home.malloc(2 * MiB, { pool: outer })
      })
    })
    home.malloc(2 * MiB)
    expect([outer, inner].map(({ id }) => segmentsOf(device, id).length)).toEqual([2, 2])
    expect(
      segmentsOf(device, 0).filter(({ blocks }) => blocks.some(({ state }) => state === 'live')),
    ).toHaveLength(1)
  })

  test('93: a pool with its own allocator has plain segments, whatever segments the device has', async () => {
    await using device = await deviceOf(name, { expandable: true })
    const { allocator } = sourceOf(device, 2)
    const [own, others] = [device.pool({ allocator }), device.pool()]
    const blocks = [own, others].map(pool => device.defaultLane.malloc(2 * MiB, { pool }))
    expect(segmentsOf(device, own.id).map(({ expandable }) => expandable)).toEqual([false])
    expect(segmentsOf(device, others.id).map(({ expandable }) => expandable)).toEqual([true])
    for (const block of blocks) block.free()
    await device.emptyCache()
  })

  test('94: allocations of other code while a scope’s body awaits are outside the scope', async () => {
    await using device = await deviceOf(name)
    const home = device.defaultLane
    const pool = device.pool()
    const blocks: [MemPool | undefined, Block][] = []
    let go = (): void => undefined
    const gate = new Promise<void>(resolve => {
      go = resolve
    })
    const inside = pool.use(async () => {
      blocks.push([pool, home.malloc(2 * MiB)])
      await gate
      blocks.push([pool, home.malloc(2 * MiB)])
    })
    blocks.push([undefined, home.malloc(2 * MiB)])
    go()
    await new Promise(resolve => setImmediate(resolve))
    blocks.push([undefined, home.malloc(2 * MiB)])
    await inside
    expect(blocks).toHaveLength(4)
    for (const [pool, block] of blocks) expect(poolOf(device, block)).toBe(pool?.id ?? 0)
  })
})
