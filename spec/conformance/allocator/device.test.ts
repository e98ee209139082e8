// Devices: opening, figures, history, snapshots, shortages.
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import { parseSnapshot } from '../../../runtime/device/snapshot/read.js'
import { Device, OutOfMemoryError, type Shortage, toTorch } from '../../../runtime/index.js'
import { hold, KiB, MiB, openOn, thrownBy } from '../../fixtures/allocator.js'
import { present } from '../devices.js'

describe.each(present)('devices on %s', name => {
  it('1 open by name, and report their properties', async () => {
    await using device = await openOn(name)
    expect(device.name).toBe(name)
    expect(device.summary.totalBytes).toBe(device.memory.total)
    expect(device.memory.free).toBeGreaterThan(0)
    expect(Device.is(device)).toBe(true)
    expect(device.options.expandable).toBe(true)
  })

  it('1 allocate on their default lane, or on the one that is given', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const [own, other] = [device.malloc(KiB), device.malloc(KiB, lane)]
    expect([own.lane, other.lane]).toEqual([device.defaultLane, lane])
    expect(thrownBy(() => device.malloc(KiB, {} as never)).message).toContain('device.malloc')
    own.free()
    other.free()
    expect(device.stats()['allocation.all.current']).toBe(0)
  })

  it('1 need a name', async () => {
    const opened = await Device.open(undefined as never)()
    expect(E.isLeft(opened) && opened.left).toMatchObject({ _tag: 'BadOption', at: 'name' })
  })

  it("2 count under PyTorch's names", async () => {
    await using device = await openOn(name)
    const lane = device.defaultLane
    const small = lane.malloc(KiB)
    const large = lane.malloc(3 * MiB + 1)
    expect(device.stats()).toMatchObject({
      'allocation.all.current': 2,
      'allocation.small_pool.current': 1,
      'allocation.large_pool.current': 1,
      'allocated_bytes.small_pool.current': KiB,
      'allocated_bytes.large_pool.current': 3 * MiB + 512,
      'requested_bytes.large_pool.current': 3 * MiB + 1,
      'active_bytes.all.current': 3 * MiB + 512 + KiB,
      num_ooms: 0,
      max_split_size: -1,
    })
    small.free()
    large.free()
    expect(device.stats()).toMatchObject({
      'allocated_bytes.all.current': 0,
      'allocated_bytes.all.peak': 3 * MiB + 512 + KiB,
      'allocation.all.freed': 2,
    })
    device.resetPeaks()
    device.resetAccumulated()
    expect(device.stats()).toMatchObject({
      'allocated_bytes.all.peak': 0,
      'allocation.all.freed': 0,
      'allocation.all.allocated': 0,
    })
  })

  it('3 count the allocations served by each step of the fallback chain', async () => {
    await using device = await openOn(name)
    const lane = device.defaultLane
    for (let i = 0; i < 10; ++i) lane.malloc(KiB).free()
    const stats = device.stats()
    expect(stats['served.grow']).toBe(1)
    expect(stats['served.cache']).toBeGreaterThanOrEqual(8)
  })

  it("4 report their options in PyTorch's form, under PyTorch's names", async () => {
    await using plain = await openOn(name)
    expect(toTorch(plain.snapshot()).allocator_settings).toMatchObject({
      ...{ expandable_segments: true, max_split_size: -1, garbage_collection_threshold: 0 },
      roundup_power2_divisions: { '1': 0, '32768': 0 },
    })
    const divisions = [
      { from: MiB, steps: 2 },
      { from: 256 * MiB, steps: 8 },
    ]
    const allocator = { expandable: false, maxSplit: 64 * MiB, collectAbove: 0.75, divisions }
    await using other = await openOn(name, { allocator })
    const settings = toTorch(other.snapshot()).allocator_settings
    expect(settings).toMatchObject({
      ...{ expandable_segments: false, max_split_size: 64 * MiB, garbage_collection_threshold: 0.75 },
    })
    expect(Object.values(settings['roundup_power2_divisions']!)).toEqual(other.options.divisions)
    expect(other.options.divisions).toContain(8)
  })

  it('4 keep a history when started, and show pending uses in a snapshot', async () => {
    await using device = await openOn(name)
    const lane = device.lane({ name: 'home' })
    const other = device.lane({ name: 'reader' })
    device.history.start({ entries: 100 })
    expect(device.history.on).toBe(true)
    const block = lane.malloc(KiB, { site: 'weights' })
    const { address } = block
    using _gate = hold(device, other)
    block.recordUse(other)
    block.free()
    const snapshot = device.snapshot()
    const found = snapshot.segments.flatMap(({ blocks }) => blocks).find(each => each.address === address)!
    const byName = (of: string): number => snapshot.lanes.find(({ name: lane }) => lane === of)!.id
    expect(found).toMatchObject({
      state: 'pending',
      size: KiB,
      requested: KiB,
      lane: byName('home'),
      uses: [{ lane: byName('reader') }],
    })
    expect(snapshot.sites[found.site]).toEqual([{ filename: '', line: 0, name: 'weights' }])
    const mine = snapshot.history.filter(record => record.address === address && record.size === KiB)
    expect(mine.map(({ action }) => action)).toEqual(['alloc', 'use_recorded', 'free_requested'])
    expect(new Set(mine.map(({ id }) => id)).size).toBe(1)
    expect(Math.abs(mine[0]!.timeMicroseconds / 1000 - Date.now())).toBeLessThan(60_000)
    expect(E.isRight(parseSnapshot(JSON.parse(JSON.stringify(snapshot))))).toBe(true)
    device.history.stop()
    lane.malloc(KiB).free()
    expect(device.snapshot().history).toHaveLength(snapshot.history.length)
  })

  it('5 keep no more history than asked for, and stacks when asked', async () => {
    await using device = await openOn(name)
    device.history.start({ entries: 5, stacks: true })
    for (let i = 0; i < 10; ++i) device.defaultLane.malloc(KiB).free()
    const { history, sites } = device.snapshot()
    expect(history).toHaveLength(5)
    const site = history.find(({ action }) => action === 'alloc')!.site
    expect(sites[site]!.some(({ filename }) => filename.endsWith('device.test.ts'))).toBe(true)
    device.history.start({ entries: 50 })
    device.defaultLane.malloc(KiB).free()
    expect(device.snapshot().history.at(-1)!.site).toBe(0)
  })

  it('6 name the holders of memory in an out-of-memory error', async () => {
    await using device = await openOn(name, { allocator: { limit: 64 * MiB } })
    const lane = device.defaultLane
    const weights = lane.malloc(40 * MiB, { site: 'weights' })
    using _more = lane.malloc(2 * MiB, { site: 'activations' })
    const error = thrownBy(() => lane.malloc(30 * MiB)) as OutOfMemoryError & Record<string, unknown>
    expect(error).toBeInstanceOf(OutOfMemoryError)
    expect(error).toMatchObject({
      _tag: 'OutOfMemory',
      code: 'CUDA_ERROR_OUT_OF_MEMORY',
      wantedBytes: 30 * MiB,
      limit: 64 * MiB,
      live: 42 * MiB,
      memory: 'device',
    })
    expect(error.holders).toEqual([
      { bytes: 40 * MiB, count: 1, site: 'weights' },
      { bytes: 2 * MiB, count: 1, site: 'activations' },
    ])
    expect(error.message).toMatch(/weights/)
    expect(error.next).toMatch(/raise allocator.limit/)
    // An option that is on already is not advised.
    expect(error.next).not.toMatch(/expandable|order-then-wait/)
    expect(device.stats()['num_ooms']).toBe(1)
    weights.free()
    lane.malloc(30 * MiB).free()
  })

  it('7 call observers before an allocation fails, which may free blocks', async () => {
    await using device = await openOn(name, { allocator: { limit: 64 * MiB } })
    const lane = device.defaultLane
    const spare = lane.malloc(40 * MiB)
    const shortages: Shortage[] = []
    const stop = device.onOutOfMemory(shortage => {
      shortages.push(shortage)
      if (spare.disposed) return false
      spare.free()
      return true
    })
    lane.malloc(50 * MiB).free()
    expect(shortages).toHaveLength(1)
    expect(shortages[0]).toMatchObject({ memory: 'device', wanted: 50 * MiB, live: 40 * MiB })
    expect(() => lane.malloc(65 * MiB)).toThrow(OutOfMemoryError)
    expect(shortages.length).toBeGreaterThan(1)
    stop()
    const { length } = shortages
    expect(() => lane.malloc(65 * MiB)).toThrow(OutOfMemoryError)
    expect(shortages).toHaveLength(length)
  })

  it('8 give all memory back', async () => {
    await using device = await openOn(name)
    const free = device.memory.free
    const lanes = [device.lane(), device.lane()]
    for (let i = 1; i < 40; ++i) lanes[i % 2]!.malloc(i * 200 * KiB).free()
    await device.emptyCache()
    expect(device.stats()['reserved_bytes.all.current']).toBe(0)
    if (name === 'host') expect(device.memory.free).toBe(free)
  })

  it('9 accept a share of the device as a limit', async () => {
    const total = await openOn(name).then(async device => {
      const { total } = device.memory
      await device.close()
      return total
    })
    await using device = await openOn(name, { allocator: { fraction: (100 * MiB) / total } })
    const error = thrownBy(() => device.defaultLane.malloc(101 * MiB)) as unknown as OutOfMemoryError
    expect(error.limit! / MiB).toBeCloseTo(100, 3)
  })

  it('10 read the settings of the environment only when asked', async () => {
    const variable = 'PYTORCH_CUDA_ALLOC_CONF'
    const before = process.env[variable]
    try {
      process.env[variable] = 'expandable_segments:False,garbage_collection_threshold:0.5'
      await using plain = await openOn(name)
      expect(plain.options.expandable).toBe(true)
      await using overridden = await openOn(name, { environment: true, allocator: { collectAbove: 0.25 } })
      expect([overridden.options.expandable, overridden.options.collectAbove]).toEqual([false, 0.25])
      process.env[variable] = 'expandable_segments:Maybe'
      const refused = await Device.open(name, { environment: true })()
      expect(E.isLeft(refused) && refused.left.at).toMatch(/PYTORCH_CUDA_ALLOC_CONF, character/)
    } finally {
      if (before === undefined) delete process.env[variable]
      else process.env[variable] = before
    }
  })
})
