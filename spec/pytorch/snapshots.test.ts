// Cases 73 to 82: snapshots of memory, their history, and that PyTorch's tools can read them.
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import {
  type AllocatorSnapshot,
  type Block,
  type Device,
  parseSnapshot,
  type SnapshotBlock,
  type SnapshotFrame,
  snapshotSvg,
  snapshotText,
  type TorchSnapshot,
  torchPickle,
  toTorch,
} from '../../runtime/index.js'
import { present } from '../conformance/devices.js'
import { deviceOf, hold, KiB, MiB } from '../fixtures/allocator.js'
import { play, unread } from '../fixtures/torch-viewer.js'
import { unpickle } from '../fixtures/unpickle.js'
import { parseXml } from '../fixtures/xml.js'

const blocksOf = (snapshot: AllocatorSnapshot): readonly SnapshotBlock[] =>
  snapshot.segments.flatMap(({ blocks }) => blocks)
const at = (snapshot: AllocatorSnapshot, address: number): SnapshotBlock | undefined =>
  blocksOf(snapshot).find(block => block.address === address)
const framesOf = (snapshot: AllocatorSnapshot, site: number): readonly SnapshotFrame[] =>
  snapshot.sites[site] ?? []
const ofThisFile = ({ filename }: SnapshotFrame): boolean => filename.endsWith('snapshots.test.ts')

/** Three blocks on two lanes, one of them freed behind a blocked reader. */
const life = async (device: Device): Promise<{ kept: Block; release: () => Promise<void> }> => {
  const [home, reader] = [device.lane({ name: 'home' }), device.lane({ name: 'reader' })]
  const kept = home.malloc(3 * MiB, { site: 'kept' })
  const given = home.malloc(5 * MiB, { site: 'given' })
  home.malloc(64 * KiB, { site: 'short' }).free()
  home.fill32(given, 1)
  reader.wait(home.record())
  const gate = hold(device, reader)
  reader.copy(kept, given)
  given.recordUse(reader)
  given.free()
  return {
    kept,
    release: async () => {
      gate.open()
      await reader.synchronize()
    },
  }
}

describe.each(present)('a snapshot on %s', name => {
  test('73: shows a block’s requested size and place; an emptied cache is the last record', async () => {
    await using device = await deviceOf(name)
    device.history.start({ stacks: true })
    const odd = 311 * KiB + 4
    const block = device.defaultLane.malloc(odd)
    const snapshot = device.snapshot()
    const found = blocksOf(snapshot).filter(({ state, requested }) => state === 'live' && requested === odd)
    expect(found).toHaveLength(1)
    expect(found[0]).toMatchObject({ address: block.address, size: block.size, state: 'live' })
    expect(framesOf(snapshot, found[0]!.site).some(ofThisFile)).toBe(true)
    block.free()
    await device.emptyCache()
    const after = device.snapshot().history.filter(({ pinned }) => pinned !== true)
    expect(['segment_free', 'segment_unmap']).toContain(after.at(-1)?.action)
    expect(after.map(({ action }) => action)).toContain('alloc')
  })

  test('73: blocks tile their segments, and their sums equal the figures', async () => {
    await using device = await deviceOf(name)
    const { release } = await life(device)
    const snapshot = device.snapshot()
    const stats = device.stats()
    for (const { address, totalSize, mappedSize, blocks } of snapshot.segments) {
      expect(blocks[0]?.address).toBe(address)
      blocks.forEach((block, i) => {
        const next = blocks[i + 1]?.address ?? address + totalSize
        expect(block.address + block.size).toBe(next)
      })
      const mapped = blocks.reduce((sum, { state, size }) => sum + (state === 'unmapped' ? 0 : size), 0)
      expect(mapped).toBe(mappedSize)
    }
    const own = snapshot.segments.filter(({ pinned }) => !pinned)
    const sum = (...states: string[]): number =>
      own
        .flatMap(({ blocks }) => blocks)
        .reduce((all, { state, size }) => all + (states.includes(state) ? size : 0), 0)
    expect(sum('live')).toBe(stats['allocated_bytes.all.current'])
    expect(sum('live', 'pending')).toBe(stats['active_bytes.all.current'])
    expect(own.reduce((all, { mappedSize }) => all + mappedSize, 0)).toBe(stats['reserved_bytes.all.current'])
    await release()
  })

  test('74: a live block has a site, a freed one none; without recording there are no sites', async () => {
    await using device = await deviceOf(name)
    const early = device.defaultLane.malloc(2 * MiB)
    expect(framesOf(device.snapshot(), at(device.snapshot(), early.address)!.site)).toEqual([])
    device.history.start({ stacks: true })
    const late = device.defaultLane.malloc(6 * MiB)
    const { address } = late
    const during = device.snapshot()
    expect(framesOf(during, at(during, address)!.site).some(ofThisFile)).toBe(true)
    late.free()
    const torch = toTorch(device.snapshot())
    const gone = torch.segments.flatMap(({ blocks }) => blocks).find(block => block.address === address)
    expect(gone === undefined || (gone.state === 'inactive' && gone.frames.length === 0)).toBe(true)
    device.history.stop()
    const after = device.defaultLane.malloc(10 * MiB)
    expect(framesOf(device.snapshot(), at(device.snapshot(), after.address)!.site)).toEqual([])
  })

  test('75: sites are kept as asked: none, labels, or stacks; records keep them after the free', async () => {
    for (const [stacks, label] of [
      [false, false],
      [false, true],
      [true, false],
      [true, true],
    ]) {
      await using device = await deviceOf(name)
      device.history.start({ stacks: stacks === true })
      device.defaultLane.malloc(MiB, label ? { site: 'the label' } : {}).free()
      const snapshot = device.snapshot()
      for (const action of ['alloc', 'free_requested', 'free_completed'] as const) {
        const record = snapshot.history.find(each => each.action === action)!
        const frames = framesOf(snapshot, record.site)
        expect(frames.some(ofThisFile), `${action} ${stacks}`).toBe(stacks)
        expect(frames.some(({ name, filename }) => name === 'the label' && filename === '')).toBe(label)
      }
    }
  })

  test('75: the text and SVG pictures name the blocks and their sizes', async () => {
    await using device = await deviceOf(name)
    device.history.start()
    const { release } = await life(device)
    const snapshot = device.snapshot()
    const text = snapshotText(snapshot)
    expect(text).toMatch(/3\.0+ MiB.*kept/)
    const svg = parseXml(snapshotSvg(snapshot))
    expect(svg[0]?.name).toBe('svg')
    expect(svg.map(({ text }) => text).join('\n')).toContain('kept')
    await release()
  })

  test('76: a block’s label stands in every record of the block', async () => {
    await using device = await deviceOf(name)
    device.history.start()
    const { release } = await life(device)
    await release()
    const snapshot = device.snapshot()
    const of = (label: string): string[] =>
      snapshot.history
        .filter(({ site }) => framesOf(snapshot, site)[0]?.name === label)
        .map(({ action }) => action)
    expect(of('kept')).toEqual(['alloc', 'use_recorded'])
    expect(of('short')).toEqual(['alloc', 'free_requested', 'free_completed'])
    expect(of('given')).toEqual(expect.arrayContaining(['alloc', 'use_recorded', 'free_requested']))
    const torch = toTorch(snapshot)
    const named = torch.device_traces.flat().filter(({ frames }) => frames[0]?.name === 'short')
    expect(named.map(({ action }) => action)).toEqual(['alloc', 'free_requested', 'free_completed'])
  })

  test('77: a history keeps the given number of newest entries; a stopped one keeps no more', async () => {
    await using device = await deviceOf(name)
    device.history.start({ entries: 10 })
    for (let i = 0; i < 50; i++) device.defaultLane.malloc(4 * KiB, { site: `turn ${i}` }).free()
    const snapshot = device.snapshot()
    expect(snapshot.history).toHaveLength(10)
    expect(new Set(snapshot.history.map(({ site }) => framesOf(snapshot, site)[0]?.name))).toContain(
      'turn 49',
    )
    device.history.stop()
    device.defaultLane.malloc(4 * KiB, { site: 'unheard' }).free()
    const after = device.snapshot()
    expect(after.history.map(({ id, action }) => [id, action])).toEqual(
      snapshot.history.map(({ id, action }) => [id, action]),
    )
    device.history.start({ entries: 10 })
    expect(device.snapshot().history).toEqual([])
  })

  test('78: JSON keeps a snapshot unchanged, and PyTorch’s pickle has the same memory', async () => {
    await using device = await deviceOf(name)
    device.history.start({ stacks: true })
    const { release, kept } = await life(device)
    const snapshot = device.snapshot()
    expect(parseSnapshot(JSON.stringify(snapshot))).toEqual(E.right(JSON.parse(JSON.stringify(snapshot))))
    const read = unpickle(torchPickle(snapshot)) as unknown as TorchSnapshot
    const inPickle = read.segments.flatMap(({ blocks }) => blocks)
    expect(inPickle.find(({ address }) => address === kept.address)).toMatchObject({
      size: kept.size,
      requested_size: kept.bytes,
      state: 'active_allocated',
    })
    const live = inPickle.filter(({ state }) => state === 'active_allocated')
    expect(live.map(({ address, size }) => [address, size])).toEqual(
      blocksOf(snapshot).flatMap(({ state, address, size }) => (state === 'live' ? [[address, size]] : [])),
    )
    await release()
  })

  test('80: PyTorch’s viewer finds every key that it reads, and plays the history back', async () => {
    await using device = await deviceOf(name)
    device.history.start({ stacks: true })
    const { release } = await life(device)
    for (const during of [true, false]) {
      if (!during) {
        await release()
        await device.emptyCache()
      }
      const torch = toTorch(device.snapshot())
      expect(unread(torch)).toEqual([])
      expect(() => play(torch)).not.toThrow()
      expect(torch.braid.dropped).toBe(0)
    }
  })

  test('81: a snapshot shows the same memory with a history and without one', async () => {
    const segmentsOf = async (kept: boolean) => {
      await using device = await deviceOf(name)
      if (kept) device.history.start()
      const { release } = await life(device)
      const { segments, history } = device.snapshot()
      await release()
      expect(history.length > 0).toBe(kept)
      return segments.map(({ address, blocks, ...segment }) => ({
        ...segment,
        blocks: blocks.map(block => ({ ...block, address: block.address - address })),
      }))
    }
    expect(await segmentsOf(true)).toEqual(await segmentsOf(false))
  })

  test('82: segments and records name their pool', async () => {
    await using device = await deviceOf(name)
    device.history.start()
    const pool = device.pool()
    const [own, others] = [device.defaultLane.malloc(2 * MiB, { pool }), device.defaultLane.malloc(2 * MiB)]
    const snapshot = device.snapshot()
    const poolOf = (address: number): number | undefined =>
      snapshot.segments.find(({ blocks }) =>
        blocks.some(block => block.address === address && block.state === 'live'),
      )?.pool
    expect([poolOf(own.address), poolOf(others.address)]).toEqual([pool.id, 0])
    const allocs = snapshot.history.filter(({ action }) => action === 'alloc')
    expect(allocs.map(({ pool }) => pool)).toEqual([pool.id, 0])
    const mapped = snapshot.history.filter(
      ({ action }) => action === 'segment_map' || action === 'segment_alloc',
    )
    expect(new Set(mapped.map(({ pool }) => pool))).toEqual(new Set([pool.id, 0]))
    const torch = toTorch(snapshot)
    const ids = torch.segments.map(({ segment_pool_id }) => segment_pool_id.items)
    expect(ids).toContainEqual([0, pool.id])
    expect(ids).toContainEqual([0, 0])
  })
})
