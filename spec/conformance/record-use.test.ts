// The contract of recordUse where one side is a session: spec/pytorch/contract.test.ts and lifetimes.test.ts
// have it for lanes alone, under the same numbers. A session's output is the block, free-standing lanes are
// its readers, and the next tick in its slot is the next owner.
import { describe, expect, it } from 'vitest'
import {
  add,
  compile,
  download,
  graph,
  lane,
  on,
  orThrow,
  type Plan,
  relu,
  tensor,
  upload,
  verify,
} from '../../dsl/index.js'
import { type Block, type Device, GraphBuilder, open, pulled, type Session } from '../../runtime/index.js'
import { busy, copyUnseen, deviceOf, hold, MiB, settles, thrownBy } from '../fixtures/allocator.js'
import { without } from '../fixtures/plans/schedules.js'
import { present } from './devices.js'

const copy = lane('copy')
const math = lane('math')
const side = lane('side')
const size = 2 ** 14
const bytes = 4 * size
const wideRow = tensor('f32', [2 ** 19])
const net = graph('leased', { x: tensor('f32', [size]) }, ({ x }) => {
  const a = x.pipe(upload(copy), on(math), relu())
  return { kept: a.pipe(add(1)), far: a.pipe(on(side), add(2)), sum: a.pipe(add(3), download(copy)) }
})
const plans = [1, 2].map(inFlight => orThrow(compile(net, { mode: 'eager', inFlight })))
const filled = (value: number): Float32Array => new Float32Array(size).fill(value)
const forever = function* () {
  for (let value = 0; ; value++) yield filled(value)
}
const soon = (promise: Promise<unknown>): Promise<boolean> => settles(promise, 30_000)
type Out = { readonly kept: Block; readonly far: Block; readonly sum: Float32Array } & Disposable

/** A session on a device, its ticks, and a reader whose copies land in memory that was allocated before. */
const scene = async (
  device: Device,
  inFlight: 1 | 2,
  options: Parameters<typeof open>[1] = { device },
  plan = plans[inFlight - 1]!,
) => {
  const opening = open(plan, { ...options, poison: true })()
  const session = orThrow(await opening) as unknown as Session
  const run = session.run({ x: pulled(forever()) })[Symbol.asyncIterator]()
  const tick = async (): Promise<Out> => (await run.next()).value as Out
  const reader = device.lane({ name: 'reader' })
  const seen = device.pinned(bytes, reader)
  return {
    session,
    reader,
    tick,
    /** A read that no work marks: the mark is the test's. */
    read: (block: Block) => copyUnseen(reader, seen, block),
    words: (): readonly number[] => [...new Set(new Float32Array(seen.view()))],
    [Symbol.asyncDispose]: async () => {
      await run.return?.()
      await session.close()
    },
  }
}

const usesOf = (device: Device, address: number) =>
  device
    .snapshot()
    .segments.flatMap(({ blocks }) => blocks)
    .find(block => block.address === address)!

describe.each(present)('recordUse on outputs of a session, on %s', name => {
  it('5k.1: the next tick takes the slot at once and waits on the device; once is enough', async () => {
    await using device = await deviceOf(name)
    await using it = await scene(device, 1)
    const first = await it.tick()
    const { address } = first.kept
    const gate = hold(device, it.reader)
    it.read(first.kept)
    first.kept.recordUse(it.reader)
    first[Symbol.dispose]()
    const second = it.tick()
    expect(await settles(second)).toBe(false)
    gate.open()
    const lease = await second
    expect(it.words()).toEqual([1])
    expect([lease.kept.address, lease.sum[0]]).toEqual([address, 4])
    // The tick came after the mark: no later one has to wait for this reader again, whatever it does.
    lease[Symbol.dispose]()
    using _ = hold(device, it.reader)
    for (let i = 0; i < 3; i++) {
      const next = it.tick()
      expect(await soon(next)).toBe(true)
      ;(await next)[Symbol.dispose]()
    }
  })

  it('5k.2: a mark counts in a pool; a capture keeps the slot; a foreign device and an ended lease are errors', async () => {
    await using device = await deviceOf(name)
    await using other = await deviceOf(name, { maxSplit: 1024 * MiB })
    const pool = device.pool()
    await using it = await scene(device, 1, { pool })
    const first = await it.tick()
    const { kept } = first
    expect(
      device.snapshot().segments.find(({ blocks }) => blocks.some(b => b.address === kept.address)),
    ).toMatchObject({ pool: pool.id })
    expect(thrownBy(() => kept.recordUse(other.defaultLane))).toMatchObject({ _tag: 'WrongDevice' })
    {
      const captured = device.lane()
      using builder = GraphBuilder.create(captured).begin()
      kept.recordUse(captured)
      builder.end().definition[Symbol.dispose]()
    }
    const gate = hold(device, it.reader)
    it.read(kept)
    kept.recordUse(it.reader)
    first[Symbol.dispose]()
    expect(thrownBy(() => kept.recordUse(it.reader)).message).toMatch(/the lease of tick 0 was given back/)
    const second = it.tick()
    expect(await settles(second)).toBe(false)
    gate.open()
    ;(await second)[Symbol.dispose]()
    expect(it.words()).toEqual([1])
    pool.close()
  })

  it('5k.4: a later mark of a lane replaces an earlier one, and each reader has one', async () => {
    await using device = await deviceOf(name)
    await using it = await scene(device, 1)
    const other = device.lane({ name: 'other' })
    const scratch = it.reader.malloc(4096)
    using out = await it.tick()
    const created = device.stats()['events.created']!
    for (let i = 0; i < 1000; i++) {
      it.reader.fill32(scratch, i)
      out.kept.recordUse(it.reader)
    }
    out.kept.recordUse(other)
    expect(device.stats()['events.created']! - created).toBeLessThanOrEqual(3)
    const lanes = device.snapshot().lanes.filter(each => ['reader', 'other'].includes(each.name))
    const uses = usesOf(device, out.kept.address).uses.map(use => use.lane)
    expect(uses.sort()).toEqual(lanes.map(({ id }) => id).sort())
    expect(usesOf(device, out.far.address).uses).toEqual([])
  })

  it('5k.6: a marked output is live in snapshots, named and with its uses; then pending', async () => {
    await using device = await deviceOf(name, { policy: 'order-then-wait' })
    device.history.start()
    await using it = await scene(device, 1)
    const { kept } = await it.tick()
    const { address } = kept
    const gate = hold(device, it.reader)
    it.read(kept)
    kept.recordUse(it.reader)
    const { sites, lanes } = device.snapshot()
    const reader = lanes.find(each => each.name === 'reader')!
    const live = usesOf(device, address)
    expect(live).toMatchObject({ state: 'live', requested: bytes, uses: [{ lane: reader.id }] })
    expect(sites[live.site]![0]!.name).toBe('session `leased`: output slot kept')
    expect(live.uses[0]!.point).toBeGreaterThan(reader.done)
    await it.session.close()
    expect(usesOf(device, address)).toMatchObject({ state: 'pending', uses: [{ lane: reader.id }] })
    const actions = device
      .snapshot()
      .history.filter(each => each.address === address)
      .map(each => each.action)
    expect(actions.indexOf('use_recorded')).toBeLessThan(actions.indexOf('free_requested'))
    gate.open()
    await it.reader.synchronize()
    expect(it.words()).toEqual([1])
  })

  it.each(['recordUse', 'recordStream'] as const)(
    '36: what a reader does after its mark delays the next tick only after recordStream: %s',
    async mark => {
      await using device = await deviceOf(name)
      await using it = await scene(device, 1)
      const first = await it.tick()
      it.read(first.kept)
      first.kept[mark](it.reader)
      const gate = hold(device, it.reader)
      first[Symbol.dispose]()
      const second = it.tick()
      expect(await settles(second, mark === 'recordUse' ? 30_000 : 20)).toBe(mark === 'recordUse')
      gate.open()
      ;(await second)[Symbol.dispose]()
      await it.reader.synchronize()
      expect(it.words()).toEqual([1])
    },
  )

  it('34, 48: a mark protects the whole output from whichever part, while the session downloads too', async () => {
    await using device = await deviceOf(name)
    await using it = await scene(device, 2)
    // Slots are taken in turns: two leases, and the third tick takes the first one's slot.
    const leases = [await it.tick(), await it.tick()]
    const part = leases[0]!.far.at(bytes / 2, bytes / 2)
    const gate = hold(device, it.reader)
    const seen = device.pinned(bytes / 2, it.reader)
    copyUnseen(it.reader, seen, part)
    part.block.recordUse(it.reader)
    leases[0]![Symbol.dispose]()
    const third = it.tick()
    expect(await settles(third)).toBe(false)
    gate.open()
    using late = await third
    expect([late.sum[0], new Set(new Float32Array(seen.view()))]).toEqual([5, new Set([2])])
    leases[1]![Symbol.dispose]()
  })

  it('35: memory does not grow with the ticks that a busy reader is behind', async () => {
    await using device = await deviceOf(name)
    await using it = await scene(device, 2)
    const scratch = it.reader.malloc(MiB)
    const rounds = 40
    const seen = device.pinned(rounds * 4, it.reader)
    ;(await it.tick())[Symbol.dispose]()
    const reserved = device.stats()['reserved_bytes.all.current']
    for (let i = 0; i < rounds; i++) {
      using out = await it.tick()
      if (i % 8 === 0) busy(it.reader, scratch, 4)
      copyUnseen(it.reader, seen.at(4 * i, 4), out.far.at(bytes - 4, 4))
      out.far.recordUse(it.reader)
    }
    await it.reader.synchronize()
    const words = [...new Float32Array(seen.view())]
    expect(words).toEqual(Array.from({ length: rounds }, (_, i) => i + 3))
    expect(device.stats()['reserved_bytes.all.peak']).toBe(reserved)
    expect(it.session.stats().eventsCreated).toBe(0)
  })

  it('5k.7: under pressure the host waits for the oldest reader of a closed session alone', async () => {
    const two = graph('two', { x: wideRow, z: wideRow }, ({ x, z }) => ({
      a: x.pipe(upload(copy)),
      b: z.pipe(upload(copy)),
    }))
    const ones = new Float32Array(2 ** 19).fill(1)
    await using device = await deviceOf(name, { policy: 'never-wait', limit: 6 * MiB })
    const [first, second] = [device.lane(), device.lane()]
    const [scratch, seen, late] = [2, 2, 2].map(size => device.pinned(size * MiB)) as [Block, Block, Block]
    const session = orThrow(
      await open(orThrow(compile(two, { mode: 'eager', inFlight: 1 })), { device, poison: true })(),
    )
    const feeds = { x: pulled([ones]), z: pulled([ones.map(() => 2)]) }
    const { a, b } = (await session.run(feeds)[Symbol.asyncIterator]().next()).value!
    // The older reader ends by itself, the other one only when the test opens its gate.
    for (let turn = 0; turn < 4; turn++) copyUnseen(first, scratch, a)
    copyUnseen(first, seen, a)
    a.recordUse(first)
    const gate = hold(device, second)
    copyUnseen(second, late, b)
    b.recordUse(second)
    await session.close()
    const waits = device.stats()['num_sync_all_streams']!
    const writer = device.lane({ name: 'writer' })
    // The range of the session's ticks, and what the older reader has read.
    for (const block of [0, 1].map(() => writer.malloc(2 * MiB))) writer.fill32(block, 7)
    await writer.synchronize()
    expect(second.idle).toBe(false)
    expect(device.stats()['num_sync_all_streams']! - waits).toBeLessThanOrEqual(2)
    expect(device.stats()['num_ooms']).toBe(0)
    gate.open()
    await second.synchronize()
    expect([...new Set([...new Float32Array(seen.view()), ...new Float32Array(late.view())])]).toEqual([1, 2])
  })

  it('5k.9: folded into one stream, a session still waits for the readers of its outputs', async () => {
    await using device = await deviceOf(name)
    await using it = await scene(
      device,
      1,
      { device },
      orThrow(compile(net, { mode: 'eager', inFlight: 1, lanes: 1 })),
    )
    const first = await it.tick()
    const gate = hold(device, it.reader)
    it.read(first.far)
    first.far.recordUse(it.reader)
    first[Symbol.dispose]()
    const second = it.tick()
    expect(await settles(second)).toBe(false)
    gate.open()
    ;(await second)[Symbol.dispose]()
    expect(it.words()).toEqual([2])
  })
})

it('5k.8: of a plan that leaves outputs on the device, each wait and use is needed', () => {
  for (const plan of plans)
    plan.commands.forEach(([kind], c) => {
      if (kind === 'use' || kind === 'wait') expect(verify(without(plan as Plan, c)), `${c}`).not.toEqual([])
    })
})

// What is freed by a lane and taken by a session, or the other way round. Under a limit there is no other
// memory.
const policies = ['order-then-wait', 'order-then-grow', 'poll', 'never-wait'] as const
const passed = present.flatMap(name => policies.map(policy => [name, policy] as const))
describe.each(passed)('memory that passes between sessions and lanes, on %s, %s', (name, policy) => {
  const limit = 4 * MiB

  it('33, 40: a session takes a freed block after its reader', async () => {
    await using device = await deviceOf(name, { policy, limit })
    const [home, reader] = [device.lane({ name: 'home' }), device.lane({ name: 'reader' })]
    const seen = device.pinned(limit, reader)
    const block = home.malloc(limit)
    home.fill32(block, 7)
    reader.wait(home.record())
    // Under a limit the host may itself wait for the reader, which goes on by itself.
    busy(reader, device.pinned(2 * MiB), 8)
    copyUnseen(reader, seen, block)
    block.recordUse(reader)
    block.free()
    await using session = orThrow(await open(plans[0]!, { device, poison: true })())
    for await (using lease of session.run({ x: pulled([filled(1), filled(2)]) }))
      expect(new Set(lease.sum).size).toBe(1)
    await reader.synchronize()
    expect(new Set(new Uint32Array(seen.view()))).toEqual(new Set([7]))
    expect(device.stats()['num_ooms']).toBe(0)
  })

  it('36: a session opens in a closed one’s memory while a lease of that is still read', async () => {
    const wide = graph('wide', { x: wideRow }, ({ x }) => ({ kept: x.pipe(upload(copy)) }))
    const plan = orThrow(compile(wide, { mode: 'eager', inFlight: 1 }))
    const ones = new Float32Array(2 ** 19).fill(1)
    await using device = await deviceOf(name, { policy })
    const reader = device.lane({ name: 'reader' })
    const seen = device.pinned(4 * ones.length, reader)
    const closing = orThrow(await open(plan, { device, poison: true })())
    const run = closing.run({ x: pulled([ones]) })[Symbol.asyncIterator]()
    const { kept } = (await run.next()).value!
    const [{ address }, reserved] = [kept, device.stats()['reserved_bytes.all.current']]
    const gate = hold(device, reader)
    copyUnseen(reader, seen, kept)
    kept.recordUse(reader)
    // Neither the closing nor the opening waits for the reader.
    expect(await soon(closing.close())).toBe(true)
    const opening = open(plan, { device, poison: true })()
    expect(await soon(opening)).toBe(true)
    await using session = orThrow(await opening)
    const tick = session
      .run({ x: pulled([ones.map(() => 2)]) })
      [Symbol.asyncIterator]()
      .next()
    // Under one policy the session has the same memory, and its tick waits on the device; else other memory.
    const same = policy === 'order-then-wait'
    expect(await settles(tick, same ? 20 : 30_000)).toBe(!same)
    expect(device.stats()['reserved_bytes.all.current'] === reserved).toBe(same)
    gate.open()
    using next = (await tick).value!
    expect(next.kept.address === address).toBe(same)
    await reader.synchronize()
    expect(new Set(new Float32Array(seen.view()))).toEqual(new Set([1]))
  })

  it('33, 38: what a closed session had is taken after the reads of its leases', async () => {
    await using device = await deviceOf(name, { policy, limit })
    await using it = await scene(device, 1)
    const [writer, last] = [device.lane({ name: 'writer' }), device.lane({ name: 'last' })]
    const lease = await it.tick()
    const also = device.pinned(bytes, last)
    const scratch = device.pinned(2 * MiB)
    // Under some policies the host itself waits for the readers, so they go on by themselves.
    for (const each of [it.reader, last]) busy(each, scratch, 8)
    it.read(lease.kept)
    lease.kept.recordUse(it.reader)
    copyUnseen(last, also, lease.far)
    lease.far.recordStream(last)
    await it.session.close()
    expect(device.stats()['allocated_bytes.all.current']).toBe(0)
    expect(() => lease.kept.recordUse(it.reader)).toThrow(/its session is closed/)
    using block = writer.malloc(limit)
    writer.fill32(block, 7)
    for (const each of [writer, it.reader, last]) await each.synchronize()
    expect([it.words(), [...new Set(new Float32Array(also.view()))]]).toEqual([[1], [2]])
    expect(device.stats()['num_ooms']).toBe(0)
  })

  it('5k.3: an emptied cache gives a closed session’s memory back after the reads of its leases', async () => {
    await using device = await deviceOf(name, { policy })
    await using it = await scene(device, 1)
    const lease = await it.tick()
    const gate = hold(device, it.reader)
    it.read(lease.kept)
    lease.kept.recordUse(it.reader)
    expect(await soon(it.session.close())).toBe(true) // waits for no reader
    const emptied = device.emptyCache()
    expect(await settles(emptied)).toBe(false)
    gate.open()
    await emptied
    expect(it.words()).toEqual([1])
    expect(device.stats()['reserved_bytes.all.current']).toBe(0)
  })

  it('5k.5: a lane that is after every reader takes a closed session’s memory without a wait', async () => {
    await using device = await deviceOf(name, { policy, limit })
    await using it = await scene(device, 1)
    const lease = await it.tick()
    it.reader.copy(device.pinned(bytes, it.reader), lease.kept)
    await it.session.close()
    const after = device.lane({ name: 'after' })
    after.wait(it.reader.record())
    const waits = device.stats()['waits.issued']
    using block = after.malloc(limit)
    expect([block.bytes, device.stats()['waits.issued']]).toEqual([limit, waits])
  })
})
