// Cases 49 to 72: sizes, limits, settings, memory pressure, figures.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import {
  add,
  compile,
  download,
  type Graph,
  graph,
  lane,
  matmul,
  mul,
  neg,
  on,
  orThrow,
  type Ports,
  tensor,
  upload,
} from '../../dsl/index.js'
import {
  AllocatorError,
  allocConfVariables,
  type Block,
  Device,
  errorsOf,
  OutOfMemoryError,
  open,
  parseAllocConf,
  pulled,
} from '../../runtime/index.js'
import { pause, present, until } from '../conformance/devices.js'
import { busy, contentOf, deviceOf, hold, KiB, MiB, thrownBy } from '../fixtures/allocator.js'
import { xorshift } from '../fixtures/graphs/tasks.js'

const current = (device: Device, memory: 'device' | 'pinned' = 'device') => {
  const stats = device.stats(memory)
  return {
    blocks: stats['allocation.all.current'],
    allocated: stats['allocated_bytes.all.current'],
    active: stats['active_bytes.all.current'],
    requested: stats['requested_bytes.all.current'],
  }
}
const reserved = (device: Device, memory: 'device' | 'pinned' = 'device'): number =>
  device.stats(memory)['reserved_bytes.all.current']!
const nothing = { blocks: 0, allocated: 0, active: 0, requested: 0 }
const outOfMemory = (call: () => unknown): OutOfMemoryError => {
  const error = thrownBy(call)
  expect(error).toBeInstanceOf(OutOfMemoryError)
  return error as unknown as OutOfMemoryError
}
const withEnvironment = async <T>(text: string, body: () => Promise<T>): Promise<T> => {
  const before = allocConfVariables.map(name => [name, process.env[name]] as const)
  for (const [name] of before) delete process.env[name]
  process.env['PYTORCH_ALLOC_CONF'] = text
  try {
    return await body()
  } finally {
    for (const [name, value] of before)
      if (value === undefined) delete process.env[name]
      else process.env[name] = value
  }
}

describe.each(present)('the allocator on %s', name => {
  test('49: allocating and freeing leaves the figures unchanged, at every size', async () => {
    await using device = await deviceOf(name)
    const home = device.defaultLane
    for (const bytes of [1, 511, 512, 513, 1000, 64 * KiB, MiB, MiB + 1, 9 * MiB, 10 * MiB, 23 * MiB]) {
      const block = home.malloc(bytes)
      expect(block.bytes).toBe(bytes)
      expect(block.size).toBeGreaterThanOrEqual(bytes)
      expect(block.size % 512).toBe(0)
      expect(block.size - bytes).toBeLessThan(512)
      expect(current(device)).toEqual({
        blocks: 1,
        allocated: block.size,
        active: block.size,
        requested: bytes,
      })
      block.free()
      expect(current(device)).toEqual(nothing)
    }
  })

  test('50: sizes that are no positive integer are refused by name, and nothing is allocated', async () => {
    await using device = await deviceOf(name)
    for (const bytes of [
      -1,
      -(2 ** 40),
      0,
      0.5,
      Number.NaN,
      Number.POSITIVE_INFINITY,
      2 ** 60,
      '4',
      null,
      undefined,
      {},
    ])
      for (const call of [
        () => device.defaultLane.malloc(bytes as never),
        () => device.pinned(bytes as never),
        () => device.arena(bytes as never),
      ]) {
        const error = thrownBy(call)
        expect(error).toBeInstanceOf(AllocatorError)
        expect((error as unknown as AllocatorError)._tag).toBe('BadArgument')
      }
    expect(current(device)).toEqual(nothing)
    expect(reserved(device)).toBe(0)
  })

  test('51: allocating one KiB adds 1,024 bytes, freeing it removes them; peaks can be reset', async () => {
    await using device = await deviceOf(name)
    const before = device.stats()
    const block = device.defaultLane.malloc(KiB)
    const during = device.stats()
    block.free()
    const after = device.stats()
    for (const figure of ['active_bytes', 'allocated_bytes', 'requested_bytes'])
      for (const pool of ['all', 'small_pool']) {
        const key = `${figure}.${pool}`
        expect(during[`${key}.current`]! - before[`${key}.current`]!).toBe(1024)
        expect(during[`${key}.allocated`]! - before[`${key}.allocated`]!).toBe(1024)
        expect(after[`${key}.freed`]! - during[`${key}.freed`]!).toBe(1024)
        expect([after[`${key}.current`], after[`${key}.peak`]]).toEqual([0, 1024])
      }
    device.resetPeaks()
    expect(device.stats()['active_bytes.all.peak']).toBe(0)
    device.resetAccumulated()
    expect(device.stats()['active_bytes.all.allocated']).toBe(0)
    expect(device.stats()['reserved_bytes.all.current']).toBe(after['reserved_bytes.all.current'])
  })

  test('52: an out-of-memory error names the wanted size and the holders of memory', async () => {
    await using device = await deviceOf(name, { limit: 32 * MiB })
    const home = device.defaultLane
    const kept = home.malloc(8 * MiB, { site: 'the model' })
    home.fill32(kept, 52)
    const error = outOfMemory(() => home.malloc(30 * MiB))
    expect(error).toMatchObject({
      _tag: 'OutOfMemory',
      at: 'lane.malloc',
      wantedBytes: 30 * MiB,
      limit: 32 * MiB,
      live: 8 * MiB,
      reserved: 8 * MiB,
    })
    expect(error.message).toContain('the model')
    expect(error.holders[0]).toMatchObject({ bytes: 8 * MiB, count: 1, site: 'the model' })
    expect(outOfMemory(() => home.malloc(Number.MAX_SAFE_INTEGER)).wantedBytes).toBe(Number.MAX_SAFE_INTEGER)
    expect(await contentOf(device, home, kept)).toEqual([52])
    expect(device.stats()['num_ooms']).toBe(2)
  })

  test('53: after a free the request that failed succeeds', async () => {
    await using device = await deviceOf(name, { limit: 32 * MiB })
    const home = device.defaultLane
    const [a, b] = [home.malloc(16 * MiB), home.malloc(12 * MiB)]
    outOfMemory(() => home.malloc(16 * MiB))
    a.free()
    const again = home.malloc(16 * MiB)
    expect(again.address).not.toBe(b.address)
    outOfMemory(() => home.malloc(16 * MiB))
  })

  test('54: a share of the device is a limit; invalid shares are refused', async () => {
    const share = 0.01
    await using device = await deviceOf(name, { fraction: share }, { host: { memory: 4096 * MiB } })
    const bound = Math.floor(share * device.memory.total)
    const page = 2 * MiB
    const most = Math.floor(bound / page) * page
    const block = device.defaultLane.malloc(most)
    expect(reserved(device)).toBe(most)
    const error = outOfMemory(() => device.defaultLane.malloc(page))
    expect(error.limit).toBe(bound)
    block.free()
    outOfMemory(() => device.defaultLane.malloc(most + page))
    device.defaultLane.malloc(most).free()
    for (const wrong of [-0.1, 1.1, Number.NaN, '0.5', null, {}]) {
      const opened = await Device.open(name, { allocator: { fraction: wrong as never } })()
      if (E.isRight(opened)) await opened.right.close()
      expect(
        E.isLeft(opened) && errorsOf(opened.left).map(({ _tag, at }) => [_tag, at]),
        String(wrong),
      ).toEqual([['BadOption', 'allocator.fraction']])
    }
  })

  test('55: a share in the environment is a limit where the environment is read', async () => {
    await withEnvironment('per_process_memory_fraction:0.01', async () => {
      await using without = await deviceOf(name)
      expect(without.options.fraction).toBe(1)
      await using device = await deviceOf(name, {}, { environment: true })
      expect(device.options.fraction).toBe(0.01)
      const bound = Math.floor(0.01 * device.memory.total)
      expect(outOfMemory(() => device.defaultLane.malloc(bound + 2 * MiB)).limit).toBe(bound)
      await using own = await deviceOf(name, { fraction: 0.5 }, { environment: true })
      expect(own.options.fraction).toBe(0.5)
    })
    await withEnvironment('per_process_memory_fraction:1.5', async () => {
      const opened = await Device.open(name, { environment: true })()
      if (E.isRight(opened)) await opened.right.close()
      expect(E.isLeft(opened) && errorsOf(opened.left)).toMatchObject([
        { at: expect.stringContaining('PYTORCH_ALLOC_CONF'), found: '1.5' },
      ])
    })
  })

  test.each([
    [true, false],
    [false, false],
    [true, true],
    [false, true],
  ])(
    '56: under a limit, with expandable segments %s and a longest split %s, all memory goes back in the end',
    async (expandable, capped) => {
      const limit = 160 * MiB
      const maxSplit = capped ? 20 * MiB : Number.POSITIVE_INFINITY
      await using device = await deviceOf(name, { limit, expandable, maxSplit }, { host: { jitter: 0 } })
      const home = device.defaultLane
      const random = xorshift(56)
      const held: Block[] = []
      let failed = 0
      for (let i = 0; i < 150; i++) {
        if (held.length > 0 && random() < 0.5) held.splice(Math.floor(random() * held.length), 1)[0]!.free()
        try {
          held.push(home.malloc(1 + Math.floor(random() ** 3 * 40 * MiB)))
        } catch (error) {
          expect(error).toBeInstanceOf(OutOfMemoryError)
          failed++
          held.shift()?.free()
        }
        expect(reserved(device)).toBeLessThanOrEqual(limit)
      }
      expect(failed).toBeGreaterThan(0)
      for (const block of held) block.free()
      await device.emptyCache()
      expect(reserved(device)).toBe(0)
      expect(current(device)).toEqual(nothing)
      home.malloc(limit - 20 * MiB).free()
    },
  )

  test('57: free plain segments go back above the collection threshold, expandable ones do not', async () => {
    const settings = { limit: 128 * MiB, collectAbove: 0.5, movePages: false }
    for (const expandable of [false, true]) {
      await using device = await deviceOf(name, { ...settings, expandable })
      const home = device.defaultLane
      const blocks = Array.from({ length: 6 }, () => home.malloc(12 * MiB))
      for (const block of blocks) block.free()
      await home.synchronize()
      expect(reserved(device)).toBe(72 * MiB)
      home.malloc(80 * MiB)
      const stats = device.stats()
      if (expandable) {
        expect(stats['reserved_bytes.all.freed']).toBe(0)
        expect(stats['num_device_free']).toBe(0)
      } else {
        expect(stats['num_device_free']).toBeGreaterThan(0)
        expect(reserved(device)).toBeLessThanOrEqual(128 * MiB)
      }
    }
  })

  test('58: sizes are rounded to steps between powers of two; bad settings are errors', async () => {
    const sizesOf = async (text: string, wanted: readonly (readonly [number, number])[]): Promise<void> => {
      const { options } = orThrow(parseAllocConf(text))
      await using device = await deviceOf(name, options)
      for (const [bytes, size] of wanted) {
        using block = device.defaultLane.malloc(Math.ceil(bytes))
        expect(block.size, `${bytes} under ${text}`).toBe(size)
      }
    }
    await sizesOf('roundup_power2_divisions:4', [
      [512 * 4, 2048],
      [2049, 2560],
      [1.1 * MiB, 1.25 * MiB],
      [1.26 * MiB, 1.5 * MiB],
      [2 * MiB, 2 * MiB],
      [2.1 * MiB, 2.5 * MiB],
      [4 * MiB + 1, 5 * MiB],
      [7.01 * MiB, 8 * MiB],
      [9 * MiB, 10 * MiB],
    ])
    await sizesOf('roundup_power2_divisions:[1:1,2:2,4:4,>:8]', [
      [5000, 5120],
      [MiB + 1, MiB + 512],
      [2 * MiB + 1, 3 * MiB],
      [4 * MiB + 1, 5 * MiB],
      [8 * MiB + 1, 9 * MiB],
      [17 * MiB, 18 * MiB],
    ])
    await sizesOf('roundup_power2_divisions:[1:2,2:4,4:8,>:0]', [
      [1.1 * MiB, 1.5 * MiB],
      [2.1 * MiB, 2.5 * MiB],
      [4.1 * MiB, 4.5 * MiB],
      [9.1 * MiB, Math.ceil((9.1 * MiB) / 512) * 512],
    ])
    await sizesOf('max_split_size_mb:40', [[1.1 * MiB, Math.ceil((1.1 * MiB) / 512) * 512]])
    for (const text of [
      'roundup_power2_divisions:3',
      'roundup_power2_divisions:[3:4]',
      'roundup_power2_divisions:[1:x]',
      'garbage_collection_threshold:1.2',
      'garbage_collection_threshold:0',
      'max_split_size_mb:2',
      'expandable_segments:true',
      'no_such_key:1',
      'max_split_size_mb',
      'a:b:c',
    ])
      expect(E.isLeft(parseAllocConf(text)), text).toBe(true)
  })

  test('59: with refuseEarly an allocation beyond the limit fails before memory goes back', async () => {
    await using device = await deviceOf(name, { limit: 32 * MiB, refuseEarly: true })
    const home = device.defaultLane
    home.malloc(12 * MiB).free()
    const kept = home.malloc(16 * MiB)
    const before = device.stats()
    outOfMemory(() => home.malloc(30 * MiB))
    const after = device.stats()
    expect(after['num_oom_rejections']).toBe(before['num_oom_rejections']! + 1)
    expect(after['num_alloc_retries']).toBe(before['num_alloc_retries'])
    expect(after['num_sync_all_streams']).toBe(before['num_sync_all_streams'])
    expect(after['reserved_bytes.all.current']).toBe(before['reserved_bytes.all.current'])
    kept.free()
  })

  test('60: the environment may name the native backend and no other', async () => {
    await withEnvironment('backend:native', async () => {
      await using device = await deviceOf(name, {}, { environment: true })
      device.defaultLane.malloc(KiB).free()
    })
    await withEnvironment('backend:cudaMallocAsync', async () => {
      const opened = await Device.open(name, { environment: true })()
      if (E.isRight(opened)) await opened.right.close()
      expect(E.isLeft(opened) && errorsOf(opened.left)).toMatchObject([{ wanted: 'native' }])
    })
  })

  test('61: with cacheUpTo 0 freed pinned memory goes back to the driver', async () => {
    await using device = await deviceOf(name, { pinned: { cacheUpTo: 0 } })
    const before = device.stats()['allocation.all.allocated']
    for (let turn = 0; turn < 3; turn++) {
      device.pinned(3 * MiB).free()
      await device.defaultLane.synchronize()
      // The next allocation finds the use completed, and the memory gone.
      device.pinned(KiB).free()
      expect(device.stats('pinned')['num_device_free']).toBeGreaterThan(turn)
    }
    await device.emptyCache()
    expect(reserved(device, 'pinned')).toBe(0)
    expect(device.stats()['allocation.all.allocated']).toBe(before)
  })

  test('61: with caching off, memory is the driver’s, one piece for each block', async () => {
    await using device = await deviceOf(name, { cacheUpTo: 0 })
    expect(device.options.expandable).toBe(false)
    const lane = device.defaultLane
    for (let turn = 1; turn <= 3; turn++) {
      const block = lane.malloc(8 * MiB)
      lane.fill32(block, turn)
      expect(reserved(device)).toBeGreaterThanOrEqual(8 * MiB)
      block.free()
      expect(reserved(device)).toBe(0)
      expect(device.stats()['num_device_free']).toBe(turn)
    }
    const [kept, read] = [lane.malloc(4 * MiB), device.lane()]
    lane.fill32(kept, 61)
    read.wait(lane.record())
    const mirror = device.pinned(KiB, read)
    read.copy(mirror, kept.at(0, KiB))
    kept.free()
    await read.synchronize()
    expect(new Set(new Uint32Array(mirror.view()))).toEqual(new Set([61]))
    lane.malloc(KiB).free()
    await device.emptyCache()
    expect(reserved(device)).toBe(0)
  })

  test.each([
    ['with', 20 * MiB],
    ['without', Number.POSITIVE_INFINITY],
  ])('62: memory ends the same %s a longest split', async (_, maxSplit) => {
    await using device = await deviceOf(name, { limit: 128 * MiB, expandable: false, maxSplit })
    const home = device.defaultLane
    const held = Array.from({ length: 5 }, () => home.malloc(24 * MiB))
    const error = outOfMemory(() => home.malloc(24 * MiB))
    expect(error.live).toBe(120 * MiB)
    for (const block of held) block.free()
    home.malloc(100 * MiB).free()
  })

  test('63: observers are called before an allocation fails; memory that they free serves it', async () => {
    await using device = await deviceOf(name, { limit: 32 * MiB })
    const home = device.defaultLane
    let spare: Block | undefined = home.malloc(24 * MiB)
    const heard: number[] = []
    const stop = device.onOutOfMemory(shortage => {
      heard.push(shortage.wanted)
      const had = spare !== undefined
      spare?.free()
      spare = undefined
      return had
    })
    const block = home.malloc(20 * MiB)
    expect(heard).toEqual([20 * MiB])
    outOfMemory(() => home.malloc(16 * MiB))
    expect(heard.slice(0, 2)).toEqual([20 * MiB, 16 * MiB])
    const count = heard.length
    stop()
    outOfMemory(() => home.malloc(16 * MiB))
    expect(heard).toHaveLength(count)
    expect(device.stats()['num_ooms']).toBe(2)
    block.free()
  })

  test('64: blocks keep their words over ten thousand allocations and frees on three lanes', async () => {
    await using device = await deviceOf(name, {}, { host: { jitter: 0 } })
    const lanes = [device.lane(), device.lane(), device.lane()]
    const random = xorshift(fc.readConfigureGlobal().seed ?? 64)
    const back = device.pinned(4 * KiB, lanes[0])
    const words = new Uint32Array(back.view())
    const held: { readonly block: Block; readonly word: number }[] = []
    let checked = 0
    for (let i = 0; i < 10_000; i++) {
      const dice = random()
      if (dice < 0.52 && held.length < 400) {
        const home = lanes[Math.floor(random() * 3)]!
        const block = home.malloc(4 * (1 + Math.floor(random() ** 4 * 64 * KiB)))
        home.fill32(block, i)
        held.push({ block, word: i })
      } else if (held.length > 0) {
        const { block } = held.splice(Math.floor(random() * held.length), 1)[0]!
        // Now and then another lane uses the block last.
        if (dice > 0.9) {
          const other = lanes[Math.floor(random() * 3)]!
          using written = block.lane.record()
          other.wait(written)
          other.fill32(block, 0xdead)
          block.recordUse(other)
        }
        block.free()
      }
      if (i % 250 === 249) {
        const { block, word } = held[Math.floor(random() * held.length)]!
        const last = Math.max(0, block.bytes - 4 * KiB)
        block.lane.copy(back, block.at(last, Math.min(4 * KiB, block.bytes)))
        await block.lane.synchronize()
        const got = new Set(words.subarray(0, Math.min(KiB, block.bytes / 4)))
        expect([...got]).toEqual([word])
        checked++
      }
      if (i % 2500 === 2499) await device.emptyCache()
    }
    expect(checked).toBe(40)
    for (const { block, word } of held) expect(await contentOf(device, block.lane, block)).toEqual([word])
    for (const { block } of held) block.free()
    back.free()
    await device.emptyCache()
    expect([reserved(device), reserved(device, 'pinned')]).toEqual([0, 0])
  })

  test('65: the same requests in the same order get the same addresses', async () => {
    const placesOf = async (): Promise<readonly number[]> => {
      await using device = await deviceOf(name)
      const home = device.defaultLane
      const random = xorshift(65)
      const held: Block[] = []
      const addresses: number[] = []
      for (let i = 0; i < 400; i++) {
        if (held.length > 20 && random() < 0.5) held.splice(Math.floor(random() * held.length), 1)[0]!.free()
        const block = home.malloc(1 + Math.floor(random() ** 3 * 3 * MiB))
        held.push(block)
        addresses.push(block.address)
      }
      const bases = device.snapshot().segments.map(({ address, totalSize }) => [address, totalSize] as const)
      return addresses.map(address => {
        const segment = bases.findIndex(([base, size]) => address >= base && address < base + size)
        return segment * 2 ** 42 + address - bases[segment]![0]
      })
    }
    const [first, second] = [await placesOf(), await placesOf()]
    expect(second).toEqual(first)
  })

  test('66: which block is chosen depends on the order of segments, not on addresses', async () => {
    const reuse = async (order: readonly number[]): Promise<readonly number[]> => {
      await using device = await deviceOf(name)
      using arena = device.arena(order.length * 2 * MiB)
      const given: number[] = []
      await device.defaultLane.synchronize()
      const base = arena.address
      using pool = device.pool({
        noSplit: true,
        allocator: {
          allocate: () => {
            given.push(base + order[given.length]! * 2 * MiB)
            return given.at(-1)!
          },
          release: () => undefined,
        },
      })
      const home = device.defaultLane
      const make = (): Block[] => Array.from({ length: order.length }, () => home.malloc(2 * MiB, { pool }))
      const first = make()
      for (const block of first.toReversed()) block.free()
      const second = make()
      const came = second.map(({ address }) => given.indexOf(address))
      for (const block of second) block.free()
      await pool.emptyCache()
      return came
    }
    const ascending = await reuse([0, 1, 2, 3, 4, 5])
    expect([...ascending].sort()).toEqual([0, 1, 2, 3, 4, 5])
    expect(await reuse([5, 4, 3, 2, 1, 0])).toEqual(ascending)
    expect(await reuse([3, 0, 5, 1, 4, 2])).toEqual(ascending)
  })

  test('67: the driver’s free memory falls by the reserved bytes, and rises again with the emptied cache', {
    timeout: 120_000,
  }, async () => {
    await using device = await deviceOf(name)
    // Other programs on the GPU allocate and free memory between any two measurements. So each half is
    // measured by itself, twice, for up to a minute.
    const falls: number[] = []
    const rises: number[] = []
    const quiet = (seen: readonly number[]): boolean => seen.filter(bytes => bytes === 64 * MiB).length >= 2
    for (
      const end = performance.now() + 60_000;
      !(quiet(falls) && quiet(rises)) && performance.now() < end;
    ) {
      const { free, total } = device.memory
      expect(free).toBeLessThanOrEqual(total)
      const block = device.defaultLane.malloc(64 * MiB)
      const during = device.memory
      expect(during.total).toBe(total)
      falls.push(free - during.free)
      block.free()
      await device.defaultLane.synchronize()
      const before = device.memory.free
      await device.emptyCache()
      rises.push(device.memory.free - before)
      await pause(falls.length % 50)
    }
    expect({ falls: quiet(falls), rises: quiet(rises) }, `it fell by ${falls}, rose by ${rises}`).toEqual({
      falls: true,
      rises: true,
    })
  })

  test('68: in development blocks that are lost, or alive at the end, are reported and freed', async () => {
    const leaks: string[] = []
    const hear = (warning: Error): void => {
      if (warning.name === 'BraidLeak') leaks.push(warning.message)
    }
    process.on('warning', hear)
    try {
      const device = await deviceOf(name, {}, { development: true })
      const lose = (): void => {
        device.defaultLane.malloc(48 * KiB, { site: 'lost cargo' })
      }
      lose()
      expect(device.stats()['allocation.all.current']).toBe(1)
      for (let turn = 0; turn < 3000 && leaks.length === 0; turn++) {
        ;(globalThis as { gc?: () => void }).gc?.()
        await new Promise(resolve => setTimeout(resolve, 10))
      }
      expect(leaks).toHaveLength(1)
      expect(leaks[0]).toContain('lost cargo')
      expect(device.stats()['allocation.all.current']).toBe(0)
      const kept = device.defaultLane.malloc(KiB, { site: 'kept to the end' })
      await device.close()
      await until(() => leaks.length === 2)
      expect(leaks[1]).toContain('kept to the end')
      expect(kept.disposed).toBe(true)
    } finally {
      process.off('warning', hear)
    }
  })

  test('69: pinned memory has its own figures; its cache is emptied too; initial bytes stay', async () => {
    await using device = await deviceOf(name)
    const before = device.stats()
    const [a, b] = [device.pinned(KiB), device.pinned(3 * MiB)]
    expect(current(device, 'pinned')).toMatchObject({ blocks: 2, requested: KiB + 3 * MiB })
    expect(device.stats()['allocation.all.allocated']).toBe(before['allocation.all.allocated'])
    expect(reserved(device)).toBe(0)
    a.free()
    b.free()
    await device.emptyCache()
    expect(reserved(device, 'pinned')).toBe(0)
    expect(device.stats('pinned')['allocated_bytes.all.peak']).toBeGreaterThanOrEqual(KiB + 3 * MiB)
    await using first = await deviceOf(name, { pinned: { reserveFirst: 8 * MiB } })
    for (let turn = 0; turn < 3; turn++) {
      const blocks = Array.from({ length: 8 }, (_, i) => first.pinned(i % 2 === 0 ? 512 * KiB : MiB))
      for (const block of blocks) block.free()
      await first.emptyCache()
      expect(reserved(first, 'pinned')).toBe(8 * MiB)
    }
    expect(first.stats('pinned')['num_device_alloc']).toBe(1)
  })

  test('69: settings of how pinned memory is made are read, and noted as changing nothing', () => {
    const text =
      'pinned_use_cuda_host_register:True,pinned_num_register_threads:8,pinned_use_background_threads:True'
    const { options, notes } = orThrow(parseAllocConf(text))
    expect(options).toEqual({})
    expect(notes.map(({ effect }) => effect)).toEqual(['noted', 'noted', 'noted'])
    expect(E.isLeft(parseAllocConf('pinned_num_register_threads:3'))).toBe(true)
  })

  test('70: devices opened concurrently are independent: using one does not wait for another', async () => {
    const devices = await Promise.all(Array.from({ length: 4 }, () => deviceOf(name)))
    const contents = await Promise.all(
      devices.map(async (device, i) => {
        const block = device.defaultLane.malloc(MiB)
        device.defaultLane.fill32(block, i + 70)
        return contentOf(device, device.defaultLane, block)
      }),
    )
    expect(contents).toEqual([[70], [71], [72], [73]])
    await Promise.all(devices.map(device => device.close()))
  })

  test('71: graphs with the same meaning have the same bound, and reserve the same memory', async () => {
    const square = tensor('f32', [64, 64])
    const [copy, math] = [lane('copy'), lane('math')]
    const once = graph('once', { x: square }, ({ x }) => {
      const y = x.pipe(upload(copy), on(math), matmul(x.pipe(upload(copy))))
      return { y: y.pipe(add(y.pipe(neg())), mul(2), download(copy)) }
    }) as unknown as Graph<Ports, Ports>
    const twice = graph('twice', { x: square }, ({ x }) => {
      const device = x.pipe(upload(copy), on(math))
      device.pipe(neg(), mul(3))
      const [y, same] = [device.pipe(matmul(device)), device.pipe(matmul(device))]
      return { y: y.pipe(add(same.pipe(neg())), mul(2), download(copy)) }
    }) as unknown as Graph<Ports, Ports>
    const peaks = await Promise.all(
      [once, twice].map(async net => {
        const plan = orThrow(compile(net, { mode: 'eager' }))
        await using session = orThrow(await open(plan, { device: name })())
        const x = new Float32Array(64 * 64).fill(1)
        await session.run({ x: pulled([x, x, x]) } as never).forEach(lease => {
          using _ = lease as Disposable
        })
        return { bound: plan.bound, peak: session.stats().peak }
      }),
    )
    expect(peaks[1]).toEqual(peaks[0])
  })

  test('72: a matmul’s workspace is in the bound: one a lane, only for matmuls that need it', () => {
    const wide = (size: number, times: number): Graph<Ports, Ports> =>
      graph('wide', { x: tensor('f32', [size, size]) }, ({ x }) => {
        let y = x.pipe(upload(lane('copy')), on(lane('math')))
        for (let i = 0; i < times; i++) y = y.pipe(matmul(y))
        return { y: y.pipe(download(lane('copy'))) }
      }) as unknown as Graph<Ports, Ports>
    const plans = [wide(64, 3), wide(2048, 1), wide(2048, 3)].map(net =>
      orThrow(compile(net, { mode: 'eager' })),
    )
    const workspaces = plans.map(({ buffers }) => buffers.filter(({ name }) => name.startsWith('workspace')))
    expect(workspaces.map(({ length }) => length)).toEqual([0, 1, 1])
    const [, one, three] = plans
    const bytes = workspaces[1]![0]!.bytes
    expect(bytes).toBeGreaterThan(0)
    expect(one!.bound.device[0]).toBeGreaterThanOrEqual(bytes + 2 * 4 * 2048 * 2048)
    expect(three!.bound.device[0]! - one!.bound.device[0]!).toBeLessThan(bytes)
  })
})

describe('a host device', () => {
  test('52: a device without a limit that is out of memory gives the same error, and goes on', async () => {
    await using device = await deviceOf('host', {}, { host: { memory: 32 * MiB } })
    const home = device.defaultLane
    const kept = home.malloc(16 * MiB)
    const error = outOfMemory(() => home.malloc(24 * MiB))
    expect(error).toMatchObject({ limit: undefined, live: 16 * MiB, deviceTotal: 32 * MiB })
    kept.free()
    home.malloc(24 * MiB).free()
  })

  test('53: an allocation waits for pending work instead of failing, if that frees enough', async () => {
    await using device = await deviceOf(
      'host',
      { policy: 'poll', limit: 32 * MiB },
      { host: { deviceRate: 2 ** 31 } },
    )
    const [home, reader] = [device.lane(), device.lane()]
    const scratch = reader.malloc(8 * MiB)
    const block = home.malloc(20 * MiB)
    busy(reader, scratch, 8)
    block.recordUse(reader)
    block.free()
    home.malloc(22 * MiB).free()
    expect(device.stats()['num_ooms']).toBe(0)
    expect(device.stats()['num_sync_all_streams']).toBeGreaterThan(0)
    const gate = hold(device, reader)
    gate.open()
  })
})
