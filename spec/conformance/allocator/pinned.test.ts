// Pinned host memory under the same protocol: a block is not given out again while a copy may still read or
// write it.
import { describe, expect, it } from 'vitest'
import { copyUnseen, hold, KiB, MiB, openOn } from '../../fixtures/allocator.js'
import { present } from '../devices.js'

describe.each(present)('pinned memory on %s', name => {
  it('1 is seen by JavaScript through one view', async () => {
    await using device = await openOn(name)
    using block = device.pinned(4 * KiB)
    expect(block.pinned).toBe(true)
    expect(block.view()).toBe(block.view())
    expect(block.view().byteLength).toBe(4 * KiB)
    const bytes = new Uint8Array(block.view())
    bytes[4095] = 9
    expect(new Uint8Array(block.view())[4095]).toBe(9)
  })

  // The host writes to new pinned memory at once: so no copy may be pending, neither of a lane that marked
  // its use nor of the home lane.
  it.each(['home', 'foreign'])('2 is not reused while a copy on its %s lane still reads it', async which => {
    await using device = await openOn(name)
    const upload = device.lane({ name: 'upload' })
    using target = upload.malloc(4 * KiB)
    const staged = device.pinned(4 * KiB, which === 'home' ? upload : device.defaultLane)
    const { address } = staged
    new Uint32Array(staged.view()).fill(1)
    const gate = hold(device, upload)
    copyUnseen(upload, target, staged)
    if (which === 'foreign') staged.recordUse(upload)
    staged.free()
    const next = device.pinned(4 * KiB, upload)
    new Uint32Array(next.view()).fill(2)
    gate.open()
    await upload.synchronize()
    next.free()
    using back = device.pinned(4 * KiB, upload)
    copyUnseen(upload, back, target)
    await upload.synchronize()
    expect(new Set(new Uint32Array(back.view()))).toEqual(new Set([1]))
    const later = [device.pinned(4 * KiB), device.pinned(4 * KiB)]
    expect([...later, back].map(block => block.address)).toContain(address)
    for (const block of later) block.free()
  })

  it.each([false, true])('8 is kept for later work of its home lane, marked before: %s', async marked => {
    await using device = await openOn(name)
    const upload = device.lane()
    using target = upload.malloc(4 * KiB)
    const staged = device.pinned(4 * KiB, upload)
    new Uint32Array(staged.view()).fill(1)
    copyUnseen(upload, target, staged)
    if (marked) staged.recordUse(upload)
    await upload.synchronize()
    {
      using _gate = hold(device, upload)
      copyUnseen(upload, target, staged)
      staged.free()
      const next = device.pinned(4 * KiB, upload)
      new Uint32Array(next.view()).fill(2)
    }
    using back = device.pinned(4 * KiB, upload)
    copyUnseen(upload, back, target)
    await upload.synchronize()
    expect(new Set(new Uint32Array(back.view()))).toEqual(new Set([1]))
  })

  it('3 has views of length 0 once it is freed, whichever way', async () => {
    const device = await openOn(name)
    const freed = device.pinned(KiB)
    const kept = device.pinned(KiB)
    const views = [freed.view(), kept.view()]
    freed.free()
    expect(views[0]!.byteLength).toBe(0)
    await device.close()
    expect(views[1]!.byteLength).toBe(0)
    expect(() => kept.view()).toThrow(/its device .* is closed/)
  })

  it('9 that is reserved is taken when the device is opened, and refused there where it cannot be', async () => {
    await using device = await openOn(name, { allocator: { pinned: { reserveFirst: 4 * MiB } } })
    const reserved = (): readonly unknown[] =>
      ['reserved_bytes.all.current', 'num_device_alloc'].map(key => device.stats('pinned')[key])
    expect(reserved()).toEqual([4 * MiB, 1])
    const blocks = [KiB, 3 * MiB, 2 * KiB].map(bytes => device.pinned(bytes))
    for (const block of blocks) block.free()
    await device.emptyCache()
    expect(reserved()).toEqual([4 * MiB, 1])
    const limited = { pinned: { reserveFirst: 4 * MiB, limit: 2 * MiB } }
    await expect(openOn(name, { allocator: limited })).rejects.toThrow(/pinned\.reserveFirst/)
  })

  it('4 has figures of its own', async () => {
    await using device = await openOn(name)
    using _block = device.pinned(3 * KiB)
    expect(device.stats('pinned')['allocated_bytes.all.current']).toBe(3 * KiB)
    expect(device.stats()['allocated_bytes.all.current']).toBe(0)
  })

  it('5 cannot be moved to another thread', async () => {
    await using device = await openOn(name)
    using block = device.pinned(KiB)
    const { port1, port2 } = new MessageChannel()
    try {
      port1.postMessage(block.view(), [block.view()])
    } catch {
      // Newer versions of Node throw; older ones copy.
    }
    expect(block.view().byteLength).toBe(KiB)
    port1.close()
    port2.close()
  })

  it('6 is given out again only when a buffer that its view moved to has been collected', async context => {
    await using device = await openOn(name)
    const block = device.pinned(KiB)
    const { address } = block
    const view = block.view() as ArrayBuffer & { transfer?: () => ArrayBuffer }
    if (view.transfer === undefined)
      return context.skip('this version of Node moves no ArrayBuffer that is marked')
    const moved = view.transfer()
    expect(() => block.view()).toThrow(/moved into another ArrayBuffer/)
    new Uint8Array(moved).fill(5)
    block.free()
    using next = device.pinned(KiB)
    expect(next.address).not.toBe(address)
    new Uint8Array(next.view()).fill(6)
    expect(new Uint8Array(moved)[0]).toBe(5)
  })

  it('7 has no view of device memory, and no pool', async () => {
    await using device = await openOn(name)
    using block = device.defaultLane.malloc(KiB)
    expect(() => block.view()).toThrow(/a pinned block\n +found +one of device memory/)
    using pool = device.pool()
    expect(() => device.pinned(KiB, device.defaultLane, { pool } as object)).toThrow(
      /pools are of device memory/,
    )
  })
})
