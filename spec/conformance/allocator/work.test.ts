// What a lane does besides copies and kernels: fills, times, calls of functions; and that all of its work
// marks the blocks of other lanes.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type Block,
  type Device,
  DisposedError,
  ExecutableGraph,
  GraphDefinition,
  type Lane,
} from '../../../runtime/index.js'
import { hold, KiB, MiB, openOn, wordsOf } from '../../fixtures/allocator.js'
import { axpnOn } from '../../fixtures/device-kernels.js'
import { runs } from '../../fixtures/runs.js'
import { present } from '../devices.js'

// biome-ignore lint/suspicious/noExplicitAny: wrong arguments are the subject
type Anything = any

describe.each(present)('fills on %s', name => {
  it('1 are of 8, 16 or 32 bits, and of whole blocks or parts', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    lane.fill(block, 0)
    lane.fill(block.at(1, 6), 0xab)
    lane.fill(block.at(8, 6), 0x1234, { bits: 16 })
    lane.fill(block.at(16, 8), 0xdead_beef, { bits: 32 })
    const bytes = new Uint8Array((await wordsOf(device, block, lane)).buffer)
    const hex = Buffer.from(bytes.subarray(0, 28)).toString('hex')
    expect(hex).toBe('00abababababab00341234123412' + '0000' + 'efbeadde' + 'efbeadde' + '00000000')
  })

  it('2 fill the first elements of each row, and nothing between the rows', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    for (const bits of [8, 16, 32] as const) {
      const element = bits / 8
      const [rows, width, pitch] = [5, 3, 4 * element]
      using block = lane.malloc(rows * pitch)
      lane.fill(block, 1)
      lane.fill(block, 7, { bits, rows, width, pitch })
      const bytes = new Uint8Array((await wordsOf(device, block, lane)).buffer)
      const wanted = Array.from({ length: rows * pitch }, (_, i) =>
        i % pitch >= width * element ? 1 : i % element === 0 ? 7 : 0,
      )
      expect([...bytes]).toEqual(wanted)
    }
  })

  it('3 end at the last row, though no pitch follows it', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(20)
    lane.fill(block, 0)
    lane.fill(block.at(0, 12), 3, { rows: 2, width: 4, pitch: 8 })
    const words = await wordsOf(device, block, lane)
    expect([...words]).toEqual([0x03030303, 0, 0x03030303, 0, 0])
  })

  it('4 that do not fit are refused', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(64)
    const wrong: readonly (readonly [value: Anything, options: Anything, message: RegExp])[] = [
      [256, {}, /from 0 to 255/],
      [-1, {}, /from 0 to 255/],
      [2 ** 16, { bits: 16 }, /from 0 to 65535/],
      [0, { bits: 64 }, /8, 16 or 32/],
      [0, { rows: 0 }, /rows/],
      [0, { rows: 2, width: 33 }, /2 rows of 33 bytes inside its 64 bytes/],
      [0, { rows: 2, width: 8, pitch: 4 }, /rows 4 bytes apart/],
      [0, { bits: 16, rows: 2, width: 2, pitch: 5 }, /whole words of 2 bytes/],
      [0, null, /an object of bits, rows, width, pitch/],
    ]
    for (const [value, options, message] of wrong)
      expect(() => lane.fill(block, value, options)).toThrow(message)
    expect(() => lane.fill(block.at(1, 4), 0, { bits: 16 })).toThrow(/whole words of 2 bytes/)
    lane.fill(block, 1)
    await lane.synchronize()
  })
})

describe.each(present)('times of events on %s', name => {
  it('1 are of the device, in milliseconds, between events of one lane or two', async () => {
    await using device = await openOn(name)
    const [lane, other] = [device.lane(), device.lane()]
    using block = lane.malloc(4 * MiB)
    using first = lane.record({ timed: true })
    for (let i = 0; i < 20; i++) lane.fill32(block, i)
    using last = lane.record({ timed: true })
    other.wait(last)
    using after = other.record({ timed: true })
    await after.synchronize()
    expect(first.timed).toBe(true)
    const took = first.elapsed(last)
    expect(took).toBeGreaterThan(0)
    expect(last.elapsed(first)).toBeCloseTo(-took, 3)
    expect(first.elapsed(first)).toBe(0)
    expect(first.elapsed(after)).toBeGreaterThanOrEqual(took)
  })

  it('2 are of each record, though the lane had nothing to do between two', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using first = lane.record({ timed: true })
    await first.synchronize()
    await new Promise(resolve => setTimeout(resolve, 20))
    using second = lane.record({ timed: true })
    await second.synchronize()
    expect(first.elapsed(second)).toBeGreaterThan(10)
  })

  it('3 must have been asked for, and must be known', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using timed = lane.record({ timed: true })
    lane.fill32(lane.malloc(4), 1)
    using plain = lane.record()
    expect([timed.timed, plain.timed]).toEqual([true, false])
    expect(() => timed.elapsed(plain)).toThrow(/record it with \{ timed: true \}/i)
    expect(() => plain.elapsed(timed)).toThrow(/record it with \{ timed: true \}/i)
    const gate = hold(device, lane)
    using late = lane.record({ timed: true })
    expect(() => timed.elapsed(late)).toThrow(/await synchronize\(\) of both first/i)
    gate.open()
    await late.synchronize()
    expect(timed.elapsed(late)).toBeGreaterThanOrEqual(0)
    for (const given of [undefined, null, 5, {}, lane] as Anything[])
      expect(() => timed.elapsed(given)).toThrow(/an Event, from lane.record/)
    expect(() => lane.record({ timed: 1 as Anything })).toThrow(/true or false/)
    late[Symbol.dispose]()
    expect(() => timed.elapsed(late)).toThrow(DisposedError)
  })

  it('4 cost no driver event each: those of disposed events are recorded again', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const turn = (): void => {
      using _a = lane.record({ timed: true })
      using _b = lane.record({ timed: true })
      using _c = lane.record()
    }
    for (let i = 0; i < 5; i++) turn()
    const before = device.stats()['events.created']
    for (let i = 0; i < 100; i++) turn()
    expect(device.stats()['events.created']).toBe(before)
  })

  it('5 are ordinary events too: lanes wait for them, and blocks are kept until them', async () => {
    await using device = await openOn(name)
    const [lane, other] = [device.lane(), device.lane()]
    using block = lane.malloc(KiB)
    using seen = other.malloc(KiB)
    const gate = hold(device, lane)
    lane.fill32(block, 5)
    using written = lane.record({ timed: true })
    expect(other.wait(written)).toBe(true)
    other.copy(seen, block)
    gate.open()
    expect((await wordsOf(device, seen, other))[0]).toBe(5)
    expect(written.done).toBe(true)
  })
})

describe.each(present)('functions that a lane calls on %s', name => {
  it('1 are called once each, in its order, when it has come to them', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const seen: string[] = []
    const gate = hold(device, lane)
    for (const at of ['a', 'b', 'c']) lane.callback(() => void seen.push(at))
    await new Promise(resolve => setTimeout(resolve, 5))
    expect(seen).toEqual([])
    gate.open()
    await new Promise<void>(resolve => lane.callback(resolve))
    expect(seen).toEqual(['a', 'b', 'c'])
  })

  it('2 may give the lane more work', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(4)
    let turns = 0
    await new Promise<void>(resolve => {
      const turn = (): void => {
        lane.fill32(block, ++turns)
        if (turns < 20) lane.callback(turn)
        else resolve()
      }
      lane.callback(turn)
    })
    expect((await wordsOf(device, block, lane))[0]).toBe(20)
  })

  it('3 are called before the device has closed', async () => {
    const device = await openOn(name)
    const lane = device.lane()
    let called = 0
    for (let i = 0; i < 10; i++) lane.callback(() => void called++)
    await device.close()
    expect(called).toBe(10)
    expect(() => lane.callback(() => undefined)).toThrow(DisposedError)
  })

  it('4 must be functions', async () => {
    await using device = await openOn(name)
    for (const given of [undefined, null, 5, 'x', {}] as Anything[])
      expect(() => device.defaultLane.callback(given)).toThrow(/a function/)
  })
})

describe.each(present)('work on blocks of other lanes on %s', name => {
  it('1 is marked, whatever it is: their memory has no new owner before it has run', async () => {
    await using device = await openOn(name)
    const [home, reader] = [device.lane(), device.lane()]
    using axpn = await axpnOn(device)
    using seen = reader.malloc(KiB)
    const count = KiB / 4
    const work: Readonly<Record<string, (block: Block) => void>> = {
      copy: block => reader.copy(seen, block),
      launch: block =>
        reader.launch(axpn, {
          reads: { x: block },
          writes: { y: seen },
          grid: 1,
          block: count,
          scalars: { a: 1, n: 0, count },
        }),
    }
    for (const [of, on] of Object.entries(work)) {
      const block = home.malloc(KiB)
      home.fill32(block, 7)
      using written = home.record()
      reader.wait(written)
      {
        using _gate = hold(device, reader)
        on(block)
        block.free()
        for (let i = 0; i < 4; i++) {
          using next = home.malloc(KiB)
          home.fill32(next, 9)
        }
      }
      expect([...new Set(await wordsOf(device, seen, reader))], of).toEqual([7])
    }
    const block = home.malloc(KiB)
    const before = device.stats()['uses.recorded']!
    reader.fill32(block, 1)
    expect(device.stats()['uses.recorded']).toBe(before + 1)
    block.free()
  })

  // The law: where each lane waits for what it reads and overwrites, nothing else has to be said for every
  // value to be right, however early blocks are freed.
  it('2 yields the values of one lane, for any program that frees at once', async () => {
    await using device = await openOn(name)
    using axpn = await axpnOn(device)
    const lanes = Array.from({ length: 4 }, () => device.lane())
    const step = fc.record({
      on: fc.nat(3),
      from: fc.nat(99),
      work: fc.constantFrom('fill', 'copy', 'launch'),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 120 }), async steps => {
        const checks = steps.flatMap(runStep(device, lanes, axpn))
        for (const [lane, wrong] of checks) {
          await lane.synchronize()
          expect(wrong()).toEqual([])
        }
      }),
      { numRuns: runs(15) },
    )
  })
})

interface Value {
  readonly block: Block
  readonly lane: Lane
  readonly number: number
}
type Check = readonly [lane: Lane, wrong: () => readonly number[]]

/**
 * Does one step of a program. At most four values are alive: one more makes the oldest be copied out, on a
 * lane that may be another one, and freed at once. Yields how to check what was copied.
 */
const runStep = (
  device: Device,
  lanes: readonly Lane[],
  axpn: Awaited<ReturnType<typeof axpnOn>>,
): ((step: { on: number; from: number; work: string }, index: number) => readonly Check[]) => {
  const count = 64
  const values: Value[] = []
  return ({ on, from, work }, index) => {
    const lane = lanes[on]!
    const block = lane.malloc(4 * count)
    const source = values[from % Math.max(values.length, 1)]
    if (source !== undefined && work !== 'fill') {
      using written = source.lane.record()
      lane.wait(written)
    }
    if (source === undefined || work === 'fill') {
      lane.fill32(block, index)
      values.push({ block, lane, number: index })
    } else if (work === 'copy') {
      lane.copy(block, source.block)
      values.push({ block, lane, number: source.number })
    } else {
      const scalars = { a: 3, n: index, count }
      lane.launch(axpn, { reads: { x: source.block }, writes: { y: block }, grid: 1, block: count, scalars })
      values.push({ block, lane, number: (Math.imul(3, source.number) + index) | 0 })
    }
    if (values.length <= 4) return []
    const old = values.shift()!
    const reader = lanes[from % lanes.length]!
    using written = old.lane.record()
    reader.wait(written)
    const seen = device.pinned(4 * count, reader)
    const words = new Int32Array(seen.view())
    reader.copy(seen, old.block)
    old.block.free()
    return [
      [
        reader,
        () => {
          const wrong = [...words].filter(word => word !== old.number)
          seen.free()
          return wrong
        },
      ],
    ]
  }
}

describe('a call that waits for kernels of the host device', () => {
  it('1 computes them meanwhile, and then goes on', async () => {
    await using device = await openOn('host', { allocator: { limit: 32 * MiB, expandable: false } })
    using axpn = await axpnOn(device)
    const [home, reader] = [device.lane(), device.lane()]
    const x = home.malloc(24 * MiB)
    using y = reader.malloc(KiB)
    home.fill32(x, 4)
    reader.wait(home.record())
    const launch = { grid: 1, block: 256, scalars: { a: 2, n: 0, count: 256 } }
    reader.launch(axpn, { reads: { x: x.at(0, KiB) }, writes: { y }, ...launch })
    x.free()
    // The memory is x's, which the launch reads. The allocation waits for it, on the thread that computes it.
    using other = device.lane().malloc(24 * MiB)
    expect(other.bytes).toBe(24 * MiB)
    expect((await wordsOf(device, y, reader))[0]).toBe(8)
  })

  it('2 is not interrupted: a reference that calls the device meanwhile is refused', async () => {
    await using device = await openOn('host', { host: { queueDepth: 4 } })
    const lane = device.lane()
    using y = lane.malloc(KiB)
    const errors: unknown[] = []
    using definition = GraphDefinition.create(device)
    const calls = [
      () => device.defaultLane.malloc(KiB).free(),
      () => device.lane(),
      () => GraphDefinition.create(device),
      () => ExecutableGraph.instantiate(definition),
    ]
    using nosy = await device.kernel({
      name: 'nosy',
      cuda: 'extern "C" __global__ void nosy(float* y) {}',
      writes: { y: 'f32' },
      reference: () => {
        for (const call of calls)
          try {
            call()
          } catch (error) {
            errors.push(error)
          }
      },
    })
    // The queue is full after four.
    for (let i = 0; i < 12; i++) lane.launch(nosy, { writes: { y }, grid: 1, block: 1 })
    expect(errors.length).toBeGreaterThanOrEqual(calls.length)
    for (const error of errors) expect(error).toMatchObject({ _tag: 'Reentrant' })
    await lane.synchronize()
  })
})
