// Kernels that a lane launches on blocks: what they compute, what is recorded of them, and what is refused.
import { describe, expect, it } from 'vitest'
import { type Block, type Device, DisposedError } from '../../../runtime/index.js'
import { hold, KiB, openOn, wordsOf } from '../../fixtures/allocator.js'
import { addOn, axpnOn } from '../../fixtures/device-kernels.js'
import { present } from '../devices.js'

// biome-ignore lint/suspicious/noExplicitAny: wrong arguments are the subject
type Anything = any

const elements = (KiB / 4) as number
const whole = { grid: 1, block: elements }

it('kernels of a host device that is slowed take as long as their bytes', async () => {
  await using device = await openOn('host', { host: { deviceRate: 1e6 } })
  const lane = device.lane()
  using axpn = await axpnOn(device)
  const [x, y] = [lane.malloc(KiB), lane.malloc(KiB)]
  lane.fill32(x, 5)
  const start = lane.record({ timed: true })
  for (let i = 0; i < 4; i++)
    lane.launch(axpn, { reads: { x }, writes: { y }, ...whole, scalars: { a: 1, n: 0, count: elements } })
  const end = lane.record({ timed: true })
  await lane.synchronize()
  // Four launches over 2 KiB each, at 1 MB a second.
  expect(start.elapsed(end)).toBeGreaterThanOrEqual(8)
})

describe.each(present)('kernels on lanes on %s', name => {
  it('1 read, write, and take scalars, in the order of the lane', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using axpn = await axpnOn(device)
    using x = lane.malloc(KiB)
    using y = lane.malloc(KiB)
    lane.fill32(x, 5)
    lane.launch(axpn, { reads: { x }, writes: { y }, ...whole, scalars: { a: 2, n: 1, count: elements } })
    lane.launch(axpn, {
      reads: { x: y },
      writes: { y: x.at(16, 32) },
      grid: [2, 1],
      block: [4, 1, 1],
      scalars: { a: -1, n: 0, count: 8 },
    })
    const words = new Int32Array((await wordsOf(device, x, lane)).buffer)
    expect([...words.slice(0, 14)]).toEqual([5, 5, 5, 5, -11, -11, -11, -11, -11, -11, -11, -11, 5, 5])
    expect((await wordsOf(device, y, lane)).every(word => word === 11)).toBe(true)
  })

  it('2 find in a write what is in memory', async () => {
    await using device = await openOn(name)
    const lane = device.defaultLane
    using add = await addOn(device)
    using y = lane.malloc(KiB)
    lane.fill32(y, 0)
    for (let i = 1; i <= 20; i++)
      lane.launch(add, { writes: { y }, ...whole, scalars: { by: i / 4, count: elements } })
    const floats = new Float32Array((await wordsOf(device, y, lane)).buffer)
    expect([floats[0], floats[elements - 1]]).toEqual([52.5, 52.5])
  })

  it('3 keep the memory of other lanes from its next owner until they have run', async () => {
    await using device = await openOn(name)
    const home = device.lane()
    const reader = device.lane()
    using axpn = await axpnOn(device)
    using y = reader.malloc(KiB)
    const x = home.malloc(KiB)
    home.fill32(x, 7)
    using written = home.record()
    reader.wait(written)
    {
      using _gate = hold(device, reader)
      reader.launch(axpn, { reads: { x }, writes: { y }, ...whole, scalars: { a: 1, n: 0, count: elements } })
      x.free()
      // Whatever these blocks are made of, they come after the launch.
      const next = Array.from({ length: 8 }, () => home.malloc(KiB))
      for (const block of next) home.fill32(block, 9)
      for (const block of next) block.free()
    }
    expect((await wordsOf(device, y, reader)).every(word => word === 7)).toBe(true)
  })

  it('4 record one event for all blocks of other lanes, and none for their own', async () => {
    await using device = await openOn(name)
    const home = device.lane()
    const lane = device.lane()
    using axpn = await axpnOn(device)
    using x = home.malloc(KiB)
    using y = home.malloc(KiB)
    using own = lane.malloc(KiB)
    home.fill32(x, 1)
    lane.wait(home.record())
    const recorded = (): number => device.stats()['uses.recorded']!
    const scalars = { a: 1, n: 0, count: elements }
    const before = recorded()
    lane.launch(axpn, { reads: { x: own }, writes: { y: own }, ...whole, scalars })
    expect(recorded()).toBe(before)
    lane.launch(axpn, { reads: { x }, writes: { y }, ...whole, scalars })
    expect(recorded()).toBe(before + 1)
  })

  it('5 refuse what is not a launch of theirs, and the device goes on', async () => {
    await using device = await openOn(name)
    await using other = await openOn('host')
    const lane = device.lane()
    using axpn = await axpnOn(device)
    using x = lane.malloc(KiB)
    using y = lane.malloc(KiB)
    const gone = lane.malloc(KiB)
    gone.free()
    const good = {
      reads: { x },
      writes: { y },
      grid: 1,
      block: 32,
      scalars: { a: 1, n: 0, count: 1 },
    }
    const wrong: readonly (readonly [change: Anything, message: RegExp])[] = [
      [{ reads: undefined }, /reads of kernel axpn.*x/s],
      [{ reads: {} }, /none that is called x/],
      [{ reads: { x, z: y } }, /z too/],
      [{ writes: { x: y } }, /x too|called y/],
      [{ reads: { x: 5 } }, /a Block, or a part of one/],
      [{ reads: { x: gone } }, /it was freed/],
      [{ reads: { x: other.defaultLane.malloc(KiB) } }, /of another Device object/],
      [{ reads: { x: x.at(2, 8) } }, /aligned to 4 bytes/],
      [{ grid: 0 }, /grid 0/],
      [{ grid: [1, 65536] }, /grid/],
      [{ grid: 1.5 }, /grid/],
      [{ block: 1025 }, /at most 1,024 threads/],
      [{ block: [64, 64] }, /at most 1,024 threads/],
      [{ shared: -1 }, /shared -1/],
      [{ scalars: { a: 1, n: 0 } }, /none that is called count/],
      [{ scalars: { ...good.scalars, a: 2 ** 31 } }, /scalars.a.*32 bits/s],
      [{ scalars: { ...good.scalars, n: 0.5 } }, /scalars.n/],
      [{ scalars: { ...good.scalars, count: '1' } }, /scalars.count/],
    ]
    for (const [change, message] of wrong)
      expect(() => lane.launch(axpn, { ...good, ...change })).toThrow(message)
    for (const given of [undefined, null, 5, {}, lane] as Anything[])
      expect(() => lane.launch(given, good)).toThrow(/a Kernel, from device.kernel/)
    for (const given of [undefined, null, 5, 'x'] as Anything[])
      expect(() => lane.launch(axpn, given)).toThrow(/an object of reads, writes/)
    lane.launch(axpn, good)
    await lane.synchronize()
    axpn[Symbol.dispose]()
    expect(axpn.disposed).toBe(true)
    expect(() => lane.launch(axpn, good)).toThrow(DisposedError)
    const closed = device.lane()
    closed[Symbol.dispose]()
    expect(() => closed.launch(axpn, good)).toThrow(DisposedError)
  })

  it('6 refuse definitions that no device could compile', async () => {
    await using device = await openOn(name)
    const good = { name: 'k', cuda: 'extern "C" __global__ void k(float* y) {}', writes: { y: 'f32' } }
    const wrong: readonly (readonly [change: Anything, message: RegExp])[] = [
      [{ name: '9k' }, /a name that C can have/],
      [{ cuda: '' }, /CUDA C\+\+/],
      [{ writes: {} }, /at least one write/],
      [{ writes: { y: 'f64' } }, /u8, i32, f16, bf16 or f32/],
      [{ reads: { x: 4 } }, /u8, i32, f16, bf16 or f32/],
      [{ scalars: { n: 'u8' } }, /i32 or f32/],
      [{ reference: 5 }, /a function/],
      [{ reference: async () => undefined }, /an async function/],
    ]
    for (const [change, message] of wrong)
      await expect(device.kernel({ ...good, ...change } as Anything)).rejects.toThrow(message)
    for (const given of [undefined, null, 5] as Anything[])
      await expect(device.kernel(given)).rejects.toThrow(/an object of name, cuda/)
  })

  it('7 refuse two writes that share bytes, and take parts of one block that do not', async () => {
    await using device = await openOn(name)
    const lane = device.defaultLane
    using two = await device.kernel({
      name: 'two',
      cuda: 'extern "C" __global__ void two(int* y, int* z) { y[threadIdx.x] = 1; z[threadIdx.x] = 2; }',
      writes: { y: 'i32', z: 'i32' },
      reference: (_, { y, z }) => {
        y.fill(1)
        z.fill(2)
      },
    })
    using x = lane.malloc(KiB)
    const launch = (y: Anything, z: Anything) =>
      lane.launch(two, { writes: { y, z }, grid: 1, block: elements / 2 })
    for (const [y, z] of [
      [x, x],
      [x, x.at(16, 16)],
      [x.at(0, 32), x.at(28, 32)],
    ])
      expect(() => launch(y, z)).toThrow(/y and z share bytes/)
    launch(x.at(0, KiB / 2), x.at(KiB / 2, KiB / 2))
    const words = await wordsOf(device, x, lane)
    expect([words[0], words[elements / 2 - 1], words[elements / 2], words[elements - 1]]).toEqual([
      1, 1, 2, 2,
    ])
  })

  it('8 run though their handle and the blocks are given back at once', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const seen = device.pinned(KiB, lane)
    const words = new Uint32Array(seen.view())
    {
      using axpn = await axpnOn(device)
      using x = lane.malloc(KiB)
      using y = lane.malloc(KiB)
      lane.fill32(x, 3)
      lane.launch(axpn, { reads: { x }, writes: { y }, ...whole, scalars: { a: 3, n: 3, count: elements } })
      lane.copy(seen, y)
    }
    lane[Symbol.dispose]()
    await device.emptyCache()
    expect([...new Set(words)]).toEqual([12])
  })

  it('8 end with their device: closing it waits for them', async () => {
    const device = await openOn(name)
    const axpn = await axpnOn(device)
    const lane = device.lane()
    const x = lane.malloc(KiB)
    lane.fill32(x, 1)
    for (let i = 0; i < 50; i++)
      lane.launch(axpn, { reads: { x }, writes: { y: x }, ...whole, scalars: { a: 1, n: i, count: 256 } })
    await device.close()
    expect(axpn.disposed).toBe(true)
    await expect(axpnOn(device)).rejects.toThrow(DisposedError)
  })
})

describe('a kernel of the host device', () => {
  it('1 needs its meaning in TypeScript', async () => {
    await using device = await openOn('host')
    const definition = {
      name: 'k',
      cuda: 'extern "C" __global__ void k(float* y) {}',
      writes: { y: 'f32' },
    } as const
    await expect(device.kernel(definition)).rejects.toThrow(/the host device does not run CUDA/)
  })

  it('2 whose reference throws breaks the device, and the error says what it threw', async () => {
    await using device = await openOn('host')
    const lane = device.lane()
    const bad = await device.kernel({
      name: 'bad',
      cuda: 'extern "C" __global__ void bad(float* y) {}',
      writes: { y: 'f32' },
      reference: () => {
        throw new Error('no such row')
      },
    })
    const y = lane.malloc(KiB)
    lane.launch(bad, { writes: { y }, grid: 1, block: 1 })
    await expect(lane.synchronize()).rejects.toThrow(/the reference of kernel bad failed: no such row/)
    expect(() => lane.fill32(y, 1)).toThrow(/no such row/)
  })
})

it('types name the operands of a kernel, and their elements', () => {
  const types = async (device: Device, block: Block): Promise<void> => {
    const axpn = await axpnOn(device)
    const add = await addOn(device)
    const lane = device.lane()
    const shape = { grid: 1, block: 1 }
    const scalars = { a: 1, n: 0, count: 1 }
    lane.launch(axpn, { ...shape, reads: { x: block }, writes: { y: block.at(0, 4) }, scalars })
    // A kernel without reads is launched without them.
    lane.launch(add, { ...shape, writes: { y: block }, scalars: { by: 1, count: 1 } })
    // @ts-expect-error: its read x is missing
    lane.launch(axpn, { ...shape, reads: {}, writes: { y: block }, scalars })
    // @ts-expect-error: it has reads
    lane.launch(axpn, { ...shape, writes: { y: block }, scalars })
    // @ts-expect-error: there is no write z
    lane.launch(axpn, { ...shape, reads: { x: block }, writes: { z: block }, scalars })
    // @ts-expect-error: its scalar count is missing
    lane.launch(axpn, { ...shape, reads: { x: block }, writes: { y: block }, scalars: { a: 1, n: 0 } })
    const reference = ({ x }: { x: Float32Array }, { y }: { y: Uint8Array }): void => void y.set(x)
    await device.kernel({ name: 'k', cuda: 'k', reads: { x: 'f32' }, writes: { y: 'u8' }, reference })
    // @ts-expect-error: elements of 64 bits do not exist
    await device.kernel({ name: 'k', cuda: 'k', writes: { y: 'f64' } })
  }
  expect(types).toBeTypeOf('function')
})
