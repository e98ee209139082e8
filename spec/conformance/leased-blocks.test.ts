// An output that is not downloaded is leased as a block of the session's device. Free-standing lanes read it,
// and whatever takes its memory next comes after the uses that they marked.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { compile } from '../../dsl/compiler/compile.js'
import {
  add,
  device as deviceOf,
  download,
  graph,
  lane,
  mul,
  on,
  orThrow,
  param,
  relu,
  tensor,
  upload,
  window,
} from '../../dsl/index.js'
import { type HostArray, hostArray } from '../../dsl/language/values.js'
import { copyUnseen, hold } from '../../runtime/device/testing.js'
import { Block, Device, type Lane, open, pulled, type Session } from '../../runtime/index.js'
import { type Sample, sample } from '../fixtures/graphs/random.js'
import { xorshift } from '../fixtures/graphs/tasks.js'
import { collect, collectYoung } from '../fixtures/graphs.js'
import { runs } from '../fixtures/runs.js'
import { fleets, pause, present } from './devices.js'
import { expectMeant, type Values } from './meant.js'

const copy = lane('copy')
const math = lane('math')
const size = 2 ** 14
const net = graph({ x: tensor('f32', [size]) }, ({ x }) => {
  const a = x.pipe(upload(copy), on(math), relu())
  return { kept: a.pipe(add(1)), sum: a.pipe(add(2), download(copy)) }
})
const filled = (value: number): Float32Array => new Float32Array(size).fill(value)
const storages = ['pooled', 'planned'] as const
const compiled = (inFlight: number, storage: (typeof storages)[number] = 'pooled') =>
  orThrow(compile(net, { mode: 'eager', inFlight, storage }))
const all = (block: Block): Set<number> => new Set(new Float32Array(block.view()))

/** Reads what is leased on lanes of its own, at times that a seed decides, and gives the leases back. */
class Readers {
  readonly #random: () => number
  readonly #lanes: readonly Lane[]
  readonly #copies: (() => Values)[] = []
  readonly #held: Promise<void>[] = []

  constructor(
    private readonly device: Device,
    private readonly made: Sample,
    seed: number,
  ) {
    this.#random = xorshift(seed)
    this.#lanes = [1, 2, 3].map(i => device.lane({ name: `reader ${i}` }))
  }

  take(lease: Readonly<Record<string, HostArray | Block>> & Disposable): void {
    const values = Object.entries(lease).map(([name, value]) =>
      Block.is(value)
        ? this.#read(name, value)
        : (
            (copy: HostArray) => () =>
              [name, copy] as const
          )(value.slice()),
    )
    this.#copies.push(() => Object.fromEntries(values.map(value => value())))
    // Now or some time later: its slot stays taken until then.
    if (this.#random() < 0.7) lease[Symbol.dispose]()
    else this.#held.push(pause(3 * this.#random()).then(() => lease[Symbol.dispose]()))
  }

  #read(name: string, block: Block): () => readonly [string, HostArray] {
    const reader = this.#lanes[Math.floor(this.#random() * this.#lanes.length)]!
    if (this.#random() < 0.5) {
      const gate = hold(this.device, reader)
      this.#held.push(pause(4 * this.#random()).then(() => gate.open()))
    }
    const seen = this.device.pinned(block.bytes, reader)
    copyUnseen(reader, seen, block)
    const how = Math.floor(3 * this.#random())
    if (how === 0) block.recordUse(reader)
    else if (how === 1) block.recordStream(reader)
    else {
      using event = reader.record()
      block.keepUntil(event)
    }
    return () => {
      const dtype = this.made.outputs[name]!
      const copied = hostArray(dtype, block.bytes / hostArray(dtype, 1).byteLength)
      new Uint8Array(copied.buffer).set(new Uint8Array(seen.view()))
      seen.free()
      return [name, copied]
    }
  }

  async values(): Promise<readonly Values[]> {
    await Promise.all(this.#held)
    for (const reader of this.#lanes) await reader.synchronize()
    return this.#copies.map(copied => copied())
  }
}

describe.each(present)('outputs left on the device, on %s', name => {
  it.each(storages)(
    'a lane reads one, and the next tick in its slot comes after the read: %s',
    async storage => {
      await using device = orThrow(await Device.open(name)())
      await using session = orThrow(await open(compiled(1, storage), { device, poison: true })())
      const reader = device.lane({ name: 'reader' })
      const seen = device.pinned(size * 4)
      const run = session.run({ x: pulled([filled(1), filled(5)]) })[Symbol.asyncIterator]()
      const first = (await run.next()).value!
      expect(first.kept.bytes).toBe(size * 4)
      expect(first.sum[size - 1]).toBe(3)
      const gate = hold(device, reader)
      copyUnseen(reader, seen, first.kept) // waits at the gate
      first.kept.recordUse(reader)
      first[Symbol.dispose]()
      let ended = false
      const second = run.next().then(({ value }) => {
        ended = true
        return value!
      })
      await pause(30)
      expect(ended).toBe(false)
      gate.open()
      using lease = await second
      await reader.synchronize()
      expect(all(seen)).toEqual(new Set([2]))
      reader.copy(seen, lease.kept)
      await reader.synchronize()
      expect(all(seen)).toEqual(new Set([6]))
    },
  )

  it('a read that is not marked holds back nothing, and sees the next tick', async () => {
    await using device = orThrow(await Device.open(name)())
    await using session = orThrow(await open(compiled(1), { device })())
    const reader = device.lane({ name: 'reader' })
    const seen = device.pinned(size * 4)
    const run = session.run({ x: pulled([filled(1), filled(5)]) })[Symbol.asyncIterator]()
    const gate = hold(device, reader)
    const first = (await run.next()).value!
    copyUnseen(reader, seen, first.kept)
    first[Symbol.dispose]()
    using _second = (await run.next()).value!
    gate.open()
    await reader.synchronize()
    expect(all(seen)).toEqual(new Set([6]))
  })

  // The cases of PyTorch's record_use, with a session as the owner and the next owner.
  it('its address is taken again at once; of several readers, marked in several ways, none sees it', async () => {
    await using device = orThrow(await Device.open(name)())
    await using session = orThrow(await open(compiled(1), { device, poison: true })())
    const readers = ['use', 'stream', 'event', 'twice'].map(reader => device.lane({ name: reader }))
    const seen = readers.map(reader => device.pinned(size * 4, reader))
    const rounds = 5
    const run = session.run({ x: pulled(Array.from({ length: rounds }, (_, i) => filled(i))) })
    const addresses = new Set<number>()
    let round = 0
    for await (const out of run) {
      addresses.add(out.kept.address)
      // Another reader is the last one to go on in each round.
      const gates = readers.map(reader => hold(device, reader))
      for (const [i, reader] of readers.entries()) {
        if (i === 3) out.kept.recordUse(reader) // replaced by the later mark
        copyUnseen(reader, seen[i]!, out.kept)
        if (i === 0 || i === 3) out.kept.recordUse(reader)
        if (i === 1) out.kept.recordStream(reader)
        if (i !== 2) continue
        using event = reader.record()
        out.kept.keepUntil(event)
      }
      out[Symbol.dispose]()
      for (let i = 0; i < gates.length; i++) {
        await pause(2)
        gates[(round + i) % gates.length]!.open()
      }
      await Promise.all(readers.map(reader => reader.synchronize()))
      expect(seen.map(all)).toEqual(readers.map(() => new Set([round + 1])))
      round++
    }
    expect(round).toBe(rounds)
    expect(addresses.size).toBe(1)
  })

  it('a kept lease and a held read each stall one slot; the session goes on with the others', async () => {
    await using device = orThrow(await Device.open(name)())
    await using session = orThrow(await open(compiled(3), { device, poison: true })())
    const reader = device.lane({ name: 'reader' })
    const seen = device.pinned(size * 4)
    const values = Array.from({ length: 12 }, (_, i) => filled(i))
    const sums: number[] = []
    let kept: { readonly kept: Block } | undefined
    for await (const lease of session.run({ x: pulled(values) })) {
      sums.push(lease.sum[0]!)
      if (sums.length === 1) kept = lease
      else lease[Symbol.dispose]()
    }
    expect(sums).toEqual(values.map((_, i) => i + 2))
    reader.copy(seen, kept!.kept)
    await reader.synchronize()
    expect(all(seen)).toEqual(new Set([1]))
  })

  it('is the session’s: it is not freed, and after its lease or its session every use of it throws', async () => {
    await using device = orThrow(await Device.open(name)())
    const session = orThrow(await open(compiled(2), { device })())
    const reader = device.lane()
    const seen = device.pinned(size * 4)
    const leases: { readonly kept: Block }[] = []
    for await (const lease of session.run({ x: pulled([filled(1), filled(2)]) }, { ticks: 2 }))
      leases.push(lease)
    const [first, second] = leases as [(typeof leases)[0] & Disposable, (typeof leases)[0] & Disposable]
    const { kept } = first
    expect(() => kept.free()).toThrow(/which its lease gives back/)
    kept[Symbol.dispose]()
    expect(kept.disposed).toBe(false)
    expect(() => kept.lane.fill32(kept, 0)).toThrow(/takes the session's alone/)
    expect(() => kept.recordUse(kept.lane)).toThrow(/takes the session's alone/)
    expect(() => kept.view()).toThrow(/a pinned block/)
    const part = kept.at(16, 32)
    reader.copy(seen, part)
    kept.recordUse(reader)
    first[Symbol.dispose]()
    expect(kept.disposed).toBe(true)
    for (const use of [
      () => kept.address,
      () => part.address,
      () => reader.copy(seen, kept),
      () => kept.recordUse(reader),
      () => kept.recordStream(reader),
      () => kept.free(),
    ])
      expect(use).toThrow(/output kept of session `graph`.*the lease of tick 0 was given back/s)
    await session.close()
    expect(() => second.kept.address).toThrow(/its session is closed/)
    second[Symbol.dispose]()
  })

  it('after the session its memory comes back, behind the reads that were marked', async () => {
    await using device = orThrow(await Device.open(name, { allocator: { policy: 'order-then-wait' } })())
    const before = device.stats()['allocated_bytes.all.current']!
    const reader = device.lane({ name: 'reader' })
    const seen = device.pinned(size * 4)
    const session = orThrow(await open(compiled(1), { device })())
    const run = session.run({ x: pulled([filled(1)]) })[Symbol.asyncIterator]()
    const lease = (await run.next()).value!
    const gate = hold(device, reader)
    copyUnseen(reader, seen, lease.kept)
    lease.kept.recordStream(reader)
    await session.close() // waits for no reader
    expect(device.stats()['allocated_bytes.all.current']).toBe(before)
    const writer = device.lane({ name: 'writer' })
    const taken = Array.from({ length: 8 }, () => writer.malloc(size * 4))
    for (const block of taken) writer.fill32(block, 0x41414141)
    await pause(10)
    gate.open()
    await reader.synchronize()
    expect(all(seen)).toEqual(new Set([2]))
    for (const block of taken) block.free()
  })

  it('may be a parameter, a view, the same value twice, or of a session opened by name', async () => {
    const odd = graph({ x: tensor('f32', [size]) }, ({ x }) => {
      const w = param('w', tensor('f32', [size]))
      const a = x.pipe(upload(copy), mul(w))
      return { w, a, again: a, b: a.pipe(download()) }
    })
    const plan = orThrow(compile(odd, { mode: 'eager', inFlight: 2 }))
    await using session = orThrow(
      await open(plan, { device: name, params: { w: filled(3) }, poison: true })(),
    )
    await using device = orThrow(await Device.open(name)())
    const reader = device.lane()
    const seen = [0, 1, 2].map(() => device.pinned(size * 4))
    let value = 0
    for await (using out of session.run({ x: pulled([filled(1), filled(2), filled(4)]) })) {
      value = out.b[0]!
      for (const [i, block] of [out.w, out.a, out.again].entries()) {
        reader.copy(seen[i]!, block)
        block.recordUse(reader)
      }
      await reader.synchronize()
      expect(seen.map(all)).toEqual([3, value, value].map(one => new Set([one])))
    }
    expect(value).toBe(12)
  })

  it('poison spares an output whose parts are written first and read as a whole', async () => {
    const parts = graph('parts', { x: tensor('f32', [4]) }, ({ x }) => {
      const both = x.pipe(upload(copy), window(2))
      return { both, doubled: both.pipe(on(math), mul(2)) }
    })
    await using device = orThrow(await Device.open(name)())
    const plan = orThrow(compile(parts, { mode: 'eager' }))
    await using session = orThrow(await open(plan, { device, poison: true })())
    const seen = [0, 1].map(() => device.pinned(8 * 4))
    const rows = [1, 2].map(value => new Float32Array(4).fill(value))
    for await (using out of session.run({ x: pulled(rows) })) {
      for (const [i, block] of [out.both, out.doubled].entries()) {
        device.defaultLane.copy(seen[i]!, block)
        block.recordUse(device.defaultLane)
      }
      await device.defaultLane.synchronize()
    }
    expect(seen.map(block => [...new Float32Array(block.view())])).toEqual([
      [1, 1, 1, 1, 2, 2, 2, 2],
      [2, 2, 2, 2, 4, 4, 4, 4],
    ])
  })

  it('yields what interpret yields, for generated graphs and readers at any time', {
    timeout: 120_000,
  }, async () => {
    const samples = sample({ stays: true, rates: true })
    const seeds = fc.integer({ min: 1, max: 1e6 })
    await fc.assert(
      fc.asyncProperty(samples, seeds, fc.constantFrom(...storages), async (made, seed, storage) => {
        const host = name === 'host' ? { host: { jitter: seed, jitterMicroseconds: 60, poison: true } } : {}
        await using device = orThrow(await Device.open(name, host)())
        const { graph, params, dims, inFlight, feeds } = made
        const plan = orThrow(compile(graph, { mode: 'eager', dims, inFlight, storage }))
        const opening = open(plan, { device, params, poison: true })()
        await using session = orThrow(await opening) as unknown as Session
        const readers = new Readers(device, made, seed)
        const pulls = Object.fromEntries(
          Object.entries(feeds).map(([input, values]) => [input, pulled(values)]),
        )
        await session.run(pulls as never).forEach(lease => {
          readers.take(lease as never)
        })
        await expectMeant(made, await readers.values())
      }),
      { numRuns: runs(100) },
    )
  })
})

describe.each(['eager', 'graph'] as const)('in mode %s', mode => {
  it.each(fleets)('outputs stay on the device that they are on, of %s and %s', async (...fleet) => {
    const apart = graph({ x: tensor('f32', [size]) }, ({ x }) => {
      const near = x.pipe(upload(), on(deviceOf(0)), add(1))
      const far = near.pipe(on(deviceOf(1)), mul(2))
      return { near, far, y: far.pipe(download()) }
    })
    const plan = orThrow(compile(apart, { inFlight: 2, mode }))
    const [one, other] = await Promise.all(
      fleet.slice(0, 2).map(async name => orThrow(await Device.open(name)())),
    )
    await using first = one!
    await using second = other!
    await using session = orThrow(await open(plan, { device: [first, second], poison: true })())
    const lanes = [first.lane({ name: 'reader' }), second.lane({ name: 'reader' })] as const
    const seen = [first.pinned(size * 4), second.pinned(size * 4)] as const
    for await (using out of session.run({ x: pulled(Array.from({ length: 20 }, (_, i) => filled(i))) })) {
      lanes[0].copy(seen[0], out.near)
      out.near.recordUse(lanes[0])
      lanes[1].copy(seen[1], out.far)
      out.far.recordUse(lanes[1])
      const value = out.y[0]!
      out[Symbol.dispose]()
      await Promise.all(lanes.map(reader => reader.synchronize()))
      expect(seen.map(all)).toEqual([new Set([value / 2]), new Set([value])])
    }
  })
})

describe.each(present)('leases that were given back, on %s', device => {
  // A map from values to leases that is weak in its keys kept 1,600 bytes of each.
  it('are not kept until all memory is searched', async () => {
    const small = graph('small', {}, () => {
      const y = param('x', tensor('f32', [16])).pipe(mul(2))
      return { y, z: y.pipe(add(1), download()) }
    })
    const plan = orThrow(compile(small, { inFlight: 4 }))
    await using session = orThrow(await open(plan, { device, params: { x: new Float32Array(16) } })())
    const run = (ticks: number) =>
      session.run({}, { ticks }).forEach(lease => {
        lease[Symbol.dispose]()
      })
    await run(1000)
    await collect()
    const before = process.memoryUsage().heapUsed
    const ticks = 4000
    await run(ticks)
    await collectYoung()
    expect((process.memoryUsage().heapUsed - before) / ticks).toBeLessThan(1000)
  })
})
