// The contract of recordUse, line by line (5k of the list): what a mark guarantees, and what it costs.
import { describe, expect, test } from 'vitest'
import {
  add,
  compile,
  download,
  type Graph,
  graph,
  lane,
  mul,
  neg,
  on,
  orThrow,
  type Plan,
  type Ports,
  relu,
  tensor,
  upload,
  verify,
} from '../../dsl/index.js'
import { AllocatorError, type Device, type Lane, toTorch } from '../../runtime/index.js'
import { present } from '../conformance/devices.js'
import { copyUnseen, deviceOf, hold, KiB, MiB, mirrorOf, settles, thrownBy } from '../fixtures/allocator.js'
import { without } from '../fixtures/plans/schedules.js'
import { goldens } from '../golden/graphs.js'

const bytes = 4 * MiB
const sample = 64 * KiB
const stat = (device: Device, key: string): number => device.stats()[key]!

/** A block of `home` whose reader on another lane is blocked; the block is freed after the mark. */
const freedBehind = async (device: Device, home: Lane, reader: Lane, size = bytes) => {
  const mirror = mirrorOf(device, sample, reader)
  const block = home.malloc(size)
  home.fill32(block, 7)
  reader.wait(home.record())
  await home.synchronize()
  const gate = hold(device, reader)
  copyUnseen(reader, mirror.block, block.at(0, sample))
  block.recordUse(reader)
  const { address } = block
  block.free()
  return { address, gate, seen: mirror.all }
}

describe.each(present)('what recordUse promises on %s', name => {
  test('5k.1: a freed block is reused by its lane at once, with one wait', async () => {
    await using device = await deviceOf(name, { policy: 'order-then-wait' })
    const [home, reader] = [device.lane(), device.lane()]
    const before = stat(device, 'waits.issued')
    const { address, gate, seen } = await freedBehind(device, home, reader)
    // reader waited for home; no lane has waited for reader yet, so home goes on with its own work.
    expect(stat(device, 'waits.issued')).toBe(before + 1)
    await home.synchronize()
    const first = home.malloc(bytes)
    expect([first.address, stat(device, 'waits.issued')]).toEqual([address, before + 2])
    home.fill32(first, 9)
    expect(home.idle).toBe(false)
    // The lane is after the reader now: reusing the block again needs no wait.
    first.free()
    for (let turn = 0; turn < 5; turn++) {
      const again = home.malloc(bytes)
      expect(again.address).toBe(address)
      again.free()
    }
    expect(stat(device, 'waits.issued')).toBe(before + 2)
    gate.open()
    await home.synchronize()
    expect(seen()).toEqual([7])
  })

  test('5k.1: a part split off a block whose uses were waited for needs no further wait', async () => {
    await using device = await deviceOf(name, { policy: 'order-then-wait' })
    const [home, reader] = [device.lane(), device.lane()]
    const { address, gate } = await freedBehind(device, home, reader, 16 * MiB)
    const before = stat(device, 'waits.issued')
    const parts = Array.from({ length: 4 }, () => home.malloc(4 * MiB))
    expect(Math.min(...parts.map(part => part.address))).toBe(address)
    expect(stat(device, 'reserved_bytes.all.current')).toBe(16 * MiB)
    expect(stat(device, 'waits.issued')).toBe(before + 1)
    gate.open()
    await home.synchronize()
  })

  test('5k.2: a mark counts in pools too; a mark by another device’s lane is an error', async () => {
    await using device = await deviceOf(name, { policy: 'order-then-wait' })
    await using other = await deviceOf(name)
    const [home, reader] = [device.lane(), device.lane()]
    const pool = device.pool()
    const { address, gate, seen } = await pool.use(() => freedBehind(device, home, reader))
    const next = home.malloc(bytes, { pool })
    expect(next.address).toBe(address)
    home.fill32(next, 9)
    expect(home.idle).toBe(false)
    gate.open()
    await home.synchronize()
    expect(seen()).toEqual([7])
    const error = thrownBy(() => next.recordUse(other.defaultLane))
    expect(error).toBeInstanceOf(AllocatorError)
    expect((error as unknown as AllocatorError)._tag).toBe('WrongDevice')
    expect(next.address).toBe(address)
  })

  test('5k.3: emptied caches and users’ allocators get memory back after every reader', async () => {
    await using device = await deviceOf(name)
    const [home, reader] = [device.lane(), device.lane()]
    using arena = device.arena(8 * MiB)
    const released: number[] = []
    const base = arena.address
    const pool = device.pool({
      allocator: {
        allocate: size => (size <= 8 * MiB ? base : null),
        release: address => void released.push(address),
      },
    })
    await device.defaultLane.synchronize()
    const own = await pool.use(() => freedBehind(device, home, reader))
    const plain = home.malloc(bytes)
    plain.recordUse(reader)
    plain.free()
    const reserved = stat(device, 'reserved_bytes.all.current')
    const emptied = device.emptyCache()
    expect(await settles(emptied)).toBe(false)
    expect(released).toEqual([])
    own.gate.open()
    await emptied
    expect(own.seen()).toEqual([7])
    expect(released).toEqual([base])
    expect(stat(device, 'reserved_bytes.all.current')).toBeLessThan(reserved)
    pool.close()
  })

  test('5k.4: neighbouring blocks keep their own readers: reuse of one waits for its own only', async () => {
    await using device = await deviceOf(name, { policy: 'order-then-wait' })
    const [home, slow, quick] = [device.lane(), device.lane(), device.lane()]
    // Neighbours in one segment, freed together.
    const whole = home.malloc(2 * bytes)
    whole.free()
    const [a, b] = [home.malloc(bytes), home.malloc(bytes)]
    expect(Math.abs(a.address - b.address)).toBe(bytes)
    const gate = hold(device, slow)
    a.recordUse(slow)
    b.recordUse(quick)
    const [stuck, passed] = [a.address, b.address]
    a.free()
    await quick.synchronize()
    b.free()
    const next = home.malloc(bytes)
    expect(next.address).toBe(passed)
    home.fill32(next, 4)
    await home.synchronize()
    const last = home.malloc(bytes)
    expect(last.address).toBe(stuck)
    home.fill32(last, 5)
    expect(home.idle).toBe(false)
    gate.open()
    await home.synchronize()
  })

  test('5k.4: a later mark of a lane replaces an earlier one: a thousand marks cost one wait', async () => {
    await using device = await deviceOf(name, { policy: 'order-then-wait' })
    const [home, reader] = [device.lane(), device.lane()]
    const scratch = reader.malloc(4 * KiB)
    const block = home.malloc(bytes)
    const created = stat(device, 'events.created')
    for (let i = 0; i < 1000; i++) {
      reader.fill32(scratch, i)
      block.recordUse(reader)
    }
    const snapshot = device.snapshot()
    const uses = snapshot.segments
      .flatMap(({ blocks }) => blocks)
      .find(({ address }) => address === block.address)?.uses
    expect(uses).toHaveLength(1)
    expect(stat(device, 'events.created') - created).toBeLessThanOrEqual(2)
    const before = stat(device, 'waits.issued')
    block.free()
    home.malloc(bytes)
    expect(stat(device, 'waits.issued') - before).toBeLessThanOrEqual(1)
    // Without work in between, one event serves every mark.
    const [recorded, shared] = [stat(device, 'uses.recorded'), stat(device, 'uses.shared')]
    const blocks = Array.from({ length: 50 }, () => home.malloc(KiB))
    for (const each of blocks) each.recordUse(reader)
    expect(stat(device, 'uses.recorded') - recorded).toBeLessThanOrEqual(1)
    expect(stat(device, 'uses.shared') - shared).toBeGreaterThanOrEqual(49)
  })

  test('5k.5: any lane after the free reuses the block before any work has run', async () => {
    await using device = await deviceOf(name, { policy: 'order-then-wait' })
    const [home, other] = [device.lane(), device.lane()]
    const gate = hold(device, home)
    const block = home.malloc(bytes)
    home.fill32(block, 7)
    const { address } = block
    block.free()
    other.wait(home.record())
    const taken = other.malloc(bytes)
    expect(taken.address).toBe(address)
    expect(stat(device, 'reserved_bytes.all.current')).toBe(bytes)
    expect(other.idle).toBe(false)
    gate.open()
    await other.synchronize()
  })

  test('5k.5: a lane after every use reuses the block, even if the home lane is not after them', async () => {
    await using device = await deviceOf(name, { policy: 'order-then-wait' })
    const [home, reader, other] = [device.lane(), device.lane(), device.lane()]
    using _ = hold(device, home)
    const block = home.malloc(bytes)
    home.fill32(block, 7)
    reader.wait(home.record())
    block.recordUse(reader)
    const { address } = block
    block.free()
    other.wait(home.record())
    other.wait(reader.record())
    const taken = other.malloc(bytes)
    expect(taken.address).toBe(address)
    expect(stat(device, 'reserved_bytes.all.current')).toBe(bytes)
  })

  test('5k.6: a freed block with pending uses is pending in snapshots, history and figures', async () => {
    await using device = await deviceOf(name, { policy: 'order-then-wait' })
    device.history.start()
    const [home, reader] = [device.lane({ name: 'home' }), device.lane({ name: 'reader' })]
    const { address, gate } = await freedBehind(device, home, reader)
    const during = device.snapshot()
    const block = during.segments.flatMap(({ blocks }) => blocks).find(each => each.address === address)!
    const id = during.lanes.find(({ name }) => name === 'reader')!.id
    expect(block).toMatchObject({ state: 'pending', requested: bytes, uses: [{ lane: id }] })
    expect(block.uses[0]!.point).toBeGreaterThan(during.lanes.find(({ name }) => name === 'reader')!.done)
    const torch = toTorch(during)
      .segments.flatMap(({ blocks }) => blocks)
      .find(each => each.address === address)!
    expect(torch.state).toBe('active_pending_free')
    expect(torch.pending_uses).toMatchObject([{ lane: 'reader', done: false }])
    expect(stat(device, 'active_bytes.all.current')).toBe(bytes)
    expect(stat(device, 'allocated_bytes.all.current')).toBe(0)
    const waits = [stat(device, 'waits.issued'), stat(device, 'waits.elided')]
    home.malloc(bytes).free()
    expect(stat(device, 'waits.issued')).toBe(waits[0]! + 1)
    using known = reader.record()
    home.wait(known)
    home.wait(known)
    expect(stat(device, 'waits.elided')).toBeGreaterThan(waits[1]!)
    const actions = device.snapshot().history.map(({ action }) => action)
    expect(actions.indexOf('use_recorded')).toBeLessThan(actions.indexOf('free_requested'))
    expect(actions.indexOf('free_requested')).toBeLessThan(actions.indexOf('wait_issued'))
    gate.open()
    await home.synchronize()
  })

  test('5k.7: under pressure an allocation waits for the fewest readers, the oldest first', async () => {
    await using device = await deviceOf(name, { policy: 'never-wait', limit: 3 * 16 * MiB })
    const home = device.lane()
    const [first, second] = [device.lane(), device.lane()]
    const scratch = device.pinned(16 * MiB)
    const target = device.pinned(16 * MiB)
    const blocks = Array.from({ length: 3 }, () => home.malloc(16 * MiB))
    await home.synchronize()
    // The older reader ends by itself; the other one only when the test opens its gate. The oldest is enough.
    for (let turn = 0; turn < 4; turn++) copyUnseen(first, target, blocks[0]!)
    const gate = hold(device, second)
    copyUnseen(second, scratch, blocks[1]!)
    blocks[0]!.recordUse(first)
    blocks[1]!.recordUse(second)
    blocks[0]!.free()
    blocks[1]!.free()
    const synchronized = stat(device, 'num_sync_all_streams')
    const next = home.malloc(16 * MiB)
    expect(stat(device, 'num_sync_all_streams') - synchronized).toBeLessThanOrEqual(1)
    expect(second.idle).toBe(false)
    expect(stat(device, 'num_ooms')).toBe(0)
    next.free()
    gate.open()
    await second.synchronize()
  })
})

describe('what the compiler does with it', () => {
  const [copy, math, side, other, rows] = ['copy', 'math', 'side', 'other', 'rows'].map(name => lane(name))
  const row = tensor('f32', [256])
  const fan = graph('fan', { x: row }, ({ x }) => {
    const value = x.pipe(upload(copy!), on(math!), relu())
    // Three reads on side, two on other, one at home: two waits, and two uses.
    const a = value.pipe(on(side!), neg(), add(value), mul(value))
    const b = value.pipe(on(other!), mul(2), add(value))
    return { a: a.pipe(download(rows!)), b: b.pipe(download(rows!)), c: value.pipe(neg(), download(rows!)) }
  }) as unknown as Graph<Ports, Ports>
  const plans = [fan, ...(Object.values(goldens) as unknown as Graph<Ports, Ports>[])].map(
    net => orThrow(compile(net, { mode: 'eager', fuse: false })) as Plan,
  )

  test('5k.8: no lane waits twice for one producer or marks a buffer’s use twice', () => {
    for (const plan of plans) {
      const waits = plan.commands.flatMap(command =>
        command[0] === 'wait' ? [command.slice(1).join(' ')] : [],
      )
      expect(new Set(waits).size, plan.name).toBe(waits.length)
      const uses = plan.commands.flatMap(command =>
        command[0] === 'use' ? [`${command[1]} ${command[2]}`] : [],
      )
      expect(new Set(uses).size, plan.name).toBe(uses.length)
      expect(verify(plan), plan.name).toEqual([])
    }
    const [plan] = plans
    const producer = plan!.commands.findIndex(
      command => command[0] === 'run' && plan!.nodes[command[1]]!.op === 'relu',
    )
    const [, , home, , writes] = plan!.commands[producer] as Plan['commands'][number] & { 0: 'run' }
    const uses = plan!.commands.filter(command => command[0] === 'use' && command[1] === writes[0])
    expect(new Set(uses.map(command => command[2])).size).toBe(2)
    expect(uses.map(command => command[2])).not.toContain(home)
  })

  test('5k.8: each wait and use is needed: without any one the verifier finds an error', () => {
    for (const plan of plans)
      plan.commands.forEach(([kind], c) => {
        if (kind === 'use' || kind === 'wait')
          expect(verify(without(plan, c)), `${plan.name} ${c}`).not.toEqual([])
      })
  })

  test('5k.9: a plan has the written lanes, or folds them into the given number of streams', () => {
    const wide = graph('wide', { x: row }, ({ x }) => {
      const value = x.pipe(upload(lane('in')))
      return Object.fromEntries(
        Array.from({ length: 12 }, (_, i) => [
          `y${i}`,
          value.pipe(on(lane(`branch${i}`)), mul(i + 1), download(lane('out'))),
        ]),
      )
    }) as unknown as Graph<Ports, Ports>
    const lanesOf = (lanes?: number): Plan =>
      orThrow(
        compile(wide, { mode: 'eager', fuse: false, ...(lanes === undefined ? {} : { lanes }) }),
      ) as Plan
    expect(lanesOf().lanes.length).toBeGreaterThan(8)
    for (const most of [1, 2, 4]) {
      const plan = lanesOf(most)
      expect(plan.lanes.length).toBeLessThanOrEqual(most)
      expect(verify(plan)).toEqual([])
      expect(plan.commands.filter(([kind]) => kind === 'run').length).toBe(
        lanesOf().commands.filter(([kind]) => kind === 'run').length,
      )
    }
    expect(lanesOf(1).commands.some(([kind]) => kind === 'wait' || kind === 'use' || kind === 'record')).toBe(
      false,
    )
  })
})
