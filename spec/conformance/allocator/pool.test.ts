// Pools: separate memory, scopes, and memory from users' own allocators.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import type { CallbackAllocator } from '../../../runtime/index.js'
import { KiB, MiB, openOn, poolOf, thrownBy, wordsOf } from '../../fixtures/allocator.js'
import { pause, present } from '../devices.js'

describe.each(present)('pools on %s', name => {
  it('1 keep their memory separate, and give it back when they are closed', async () => {
    await using device = await openOn(name)
    const lane = device.defaultLane
    const before = lane.malloc(KiB)
    const pool = device.pool()
    const inside = lane.malloc(KiB, { pool })
    expect([poolOf(device, before), poolOf(device, inside)]).toEqual([0, pool.id])
    before.free()
    inside.free()
    // Free memory of one pool serves no other pool.
    using again = lane.malloc(KiB, { pool })
    expect(poolOf(device, again)).toBe(pool.id)
    const { 'reserved_bytes.all.current': reserved } = device.stats()
    again.free()
    pool.close()
    expect(device.stats()['reserved_bytes.all.current']).toBeLessThan(reserved!)
    expect(() => lane.malloc(KiB, { pool })).toThrow(/a pool is closed/)
    expect(() => pool.close()).toThrow(/was not closed/)
  })

  it('2 leave blocks valid that are alive when they are closed', async () => {
    await using device = await openOn(name)
    const pool = device.pool()
    const block = device.defaultLane.malloc(KiB, { pool })
    pool.close()
    device.defaultLane.fill32(block, 5)
    expect((await wordsOf(device, block))[0]).toBe(5)
    const { 'reserved_bytes.all.current': reserved } = device.stats()
    block.free()
    await device.emptyCache()
    expect(device.stats()['reserved_bytes.all.current']).toBeLessThan(reserved!)
  })

  it('3 are numbered from 1 on, and no number is used twice', async () => {
    await using device = await openOn(name)
    const ids = [0, 1, 2].map(() => {
      using pool = device.pool()
      return pool.id
    })
    expect(ids).toEqual([1, 2, 3])
  })

  it('4 serve what their scope allocates; the innermost counts, and a named one before it', async () => {
    await using device = await openOn(name)
    const lane = device.defaultLane
    using outer = device.pool()
    using inner = device.pool()
    using named = device.pool()
    const seen = outer.use(() => {
      using a = lane.malloc(KiB)
      const [b, c] = inner.use(() => [lane.malloc(KiB), lane.malloc(KiB, { pool: named })] as const)
      using d = lane.malloc(KiB)
      const pools = [a, b, c, d].map(block => poolOf(device, block))
      b.free()
      c.free()
      return pools
    })
    expect(seen).toEqual([outer.id, inner.id, named.id, outer.id])
    using after = lane.malloc(KiB)
    expect(poolOf(device, after)).toBe(0)
  })

  it('5 a scope follows an async body through its awaits, and excludes concurrent code', async () => {
    await using device = await openOn(name)
    const lane = device.defaultLane
    using pool = device.pool()
    const body = pool.use(async () => {
      await pause(5)
      return lane.malloc(KiB)
    })
    using meanwhile = lane.malloc(KiB)
    using inside = await body
    expect([poolOf(device, meanwhile), poolOf(device, inside)]).toEqual([0, pool.id])
  })

  it('6 leave their scope when its body throws', async () => {
    await using device = await openOn(name)
    using pool = device.pool()
    expect(() =>
      pool.use(() => {
        throw new Error('mine')
      }),
    ).toThrow('mine')
    using block = device.defaultLane.malloc(KiB)
    expect(poolOf(device, block)).toBe(0)
  })

  it('7 belong to one device: a scope does not affect another device', async () => {
    await using device = await openOn(name)
    await using other = await openOn('host')
    using pool = device.pool()
    using block = pool.use(() => other.defaultLane.malloc(KiB))
    expect(poolOf(other, block)).toBe(0)
    expect(thrownBy(() => other.defaultLane.malloc(KiB, { pool }))._tag).toBe('WrongDevice')
  })

  it('8 with noSplit hold one block a segment', async () => {
    await using device = await openOn(name)
    using pool = device.pool({ noSplit: true })
    const blocks = [0, 1, 2].map(() => device.defaultLane.malloc(KiB, { pool }))
    expect(device.snapshot().segments.filter(segment => segment.pool === pool.id)).toHaveLength(3)
    for (const block of blocks) block.free()
  })

  it('9 lend their free memory only with useOnOutOfMemory', async () => {
    await using device = await openOn(name, { allocator: { limit: 64 * MiB } })
    const lane = device.defaultLane
    using lent = device.pool({ useOnOutOfMemory: true })
    lane.malloc(60 * MiB, { pool: lent }).free()
    using borrowed = lane.malloc(60 * MiB)
    expect(borrowed.bytes).toBe(60 * MiB)
  })
})

describe.each(present)("users' allocators on %s", name => {
  it('1 as functions give and take back segments, on the lane they are for', async () => {
    const device = await openOn(name)
    const backing = device.defaultLane.malloc(64 * MiB)
    const calls: unknown[][] = []
    let used = 0
    const pool = device.pool({
      allocator: {
        allocate(bytes, stream) {
          calls.push(['allocate', bytes, stream])
          const address = base + used
          used += bytes
          return address
        },
        release(address, bytes, stream) {
          calls.push(['release', address - base, bytes, stream])
        },
      },
    })
    const base = backing.address
    const lane = device.lane()
    const block = lane.malloc(5 * MiB, { pool })
    expect(block.address).toBe(base)
    lane.fill32(block, 4)
    expect((await wordsOf(device, block, lane))[0]).toBe(4)
    block.free()
    const [[, bytes]] = calls as [[string, number]]
    expect(calls).toEqual([['allocate', bytes, lane.stream]])
    expect(bytes).toBeGreaterThanOrEqual(5 * MiB)
    pool.close()
    await device.emptyCache()
    expect(calls[1]).toEqual(['release', 0, bytes, lane.stream])
    await device.close()
    expect(calls).toHaveLength(2)
  })

  it('6 get all memory back when the device is closed, whichever blocks are alive', async () => {
    const device = await openOn(name)
    const backing = device.defaultLane.malloc(64 * MiB)
    const { address } = backing
    const released: number[] = []
    const pool = device.pool({
      allocator: {
        allocate: () => address,
        release: given => released.push(given - address),
      } as CallbackAllocator,
    })
    device.defaultLane.malloc(KiB, { pool })
    await device.close()
    expect(released).toEqual([0])
    expect(pool.disposed).toBe(true)
  })

  it('2 that have no memory, throw, or return a wrong value give different errors', async () => {
    await using device = await openOn(name)
    const release = (): void => {}
    const failure = (allocate: () => unknown): Record<string, unknown> => {
      using pool = device.pool({ allocator: { allocate: allocate as () => number, release } })
      return thrownBy(() => device.defaultLane.malloc(KiB, { pool }))
    }
    const none = failure(() => null)
    expect([none._tag, none.asked]).toEqual(['OutOfMemory', 2 * MiB])
    expect(none.message).toMatch(/the pool's own allocator gave none of the 2,097,152 bytes/)
    expect(none.message).not.toMatch(/free on the device/)
    expect(none.next).not.toMatch(/limit|fraction|other processes/)
    expect(failure(() => 0)._tag).toBe('OutOfMemory')
    const mine = new Error('mine')
    const thrown = failure(() => {
      throw mine
    })
    expect([thrown._tag, thrown.cause]).toEqual(['SourceFailed', mine])
    for (const nonsense of ['x', -1, 0.5, Number.NaN, 2 ** 53, {}])
      expect(failure(() => nonsense)._tag).toBe('SourceFailed')
    // The device goes on.
    device.defaultLane.malloc(KiB).free()
  })

  it('3 must not call the device that calls them', async () => {
    await using device = await openOn(name)
    const lane = device.defaultLane
    const errors: Error[] = []
    using pool = device.pool({
      allocator: {
        allocate() {
          const calls = [
            () => lane.malloc(1),
            () => device.stats(),
            () => device.snapshot(),
            () => device.pool(),
            () => lane.idle,
            () => device.close(),
          ]
          errors.push(...calls.map(call => thrownBy(call)))
          return null
        },
        release() {},
      },
    })
    expect(thrownBy(() => lane.malloc(KiB, { pool }))._tag).toBe('OutOfMemory')
    // One call for each retry of the allocator.
    expect(errors.length % 6).toBe(0)
    expect(errors.length).toBeGreaterThan(0)
    for (const error of errors) expect(error.message).toMatch(/allocate or release function/)
    lane.malloc(1).free()
  })

  const folder = mkdtempSync(join(tmpdir(), 'braid-pool-'))
  afterAll(() => rmSync(folder, { recursive: true, force: true }))
  const library = join(folder, 'pool.so')
  const source = join(folder, 'pool.c')
  // Plain memory of the process, which neither device can copy to: it is only allocated and released.
  writeFileSync(
    source,
    `#include <stdlib.h>
     static int live, device_;
     void *take(size_t size, int device, void *stream) {
       void *p = 0;
       device_ = device; (void)stream;
       return posix_memalign(&p, 512, size) ? 0 : (++live, p);
     }
     void give(void *p, size_t size, int device, void *stream) {
       (void)size; (void)stream;
       if (p && device == device_) --live;
       free(p);
     }
     void *none(size_t size, int device, void *stream) { (void)size; (void)device; (void)stream; return 0; }
    `,
  )
  const compiled =
    spawnSync('cc', ['-shared', '-fPIC', '-o', library, source], { encoding: 'utf8' }).status === 0

  it('4 as symbols of a shared library', async context => {
    if (!compiled) return context.skip('cc, the C compiler, is not installed')
    await using device = await openOn(name)
    const pool = device.pool({ allocator: { library, allocate: 'take', release: 'give' } })
    const block = device.defaultLane.malloc(KiB, { pool })
    expect(poolOf(device, block)).toBe(pool.id)
    expect(block.address % 512).toBe(0)
    block.free()
    pool.close()
    using empty = device.pool({ allocator: { library, allocate: 'none', release: 'give' } })
    expect(thrownBy(() => device.defaultLane.malloc(KiB, { pool: empty }))._tag).toBe('OutOfMemory')
  })

  it('5 whose library or symbol is not there are refused by name', async () => {
    await using device = await openOn(name)
    const missing = thrownBy(() =>
      device.pool({ allocator: { library: join(folder, 'nothing.so'), allocate: 'a', release: 'b' } }),
    )
    expect([missing._tag, missing.subject]).toEqual(['BadArgument', 'options.allocator'])
    expect(missing.message).toMatch(/nothing\.so/)
    expect(missing.next).not.toMatch(/close the device/)
    if (compiled)
      expect(() => device.pool({ allocator: { library, allocate: 'take', release: 'missing' } })).toThrow(
        /missing/,
      )
  })
})
