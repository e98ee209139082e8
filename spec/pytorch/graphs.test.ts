// Cases 46 and 95 to 121: what captured lanes allocate, free and use. In Braid a capture is a `GraphBuilder`,
// its private pool is made by its first `malloc`, and a shared one is a `MemPool` that several captures name.
import { describe, expect, test } from 'vitest'
import { compile, download, graph, orThrow, tensor, uniform, upload } from '../../dsl/index.js'
import {
  Block,
  type Device,
  type ExecutableGraph,
  GraphBuilder,
  type Lane,
  type MemPool,
  OutOfMemoryError,
  open,
  pulled,
} from '../../runtime/index.js'
import { present } from '../conformance/devices.js'
import { contentOf, deviceOf, hold, KiB, MiB, poolOf, thrownBy, wordsOf } from '../fixtures/allocator.js'
import { axpnOn } from '../fixtures/device-kernels.js'
import { soon } from '../fixtures/graphs.js'

const statOf =
  (device: Device) =>
  (name: string): number =>
    device.stats()[`${name}.all.current` as keyof ReturnType<Device['stats']>] ?? 0

/** A graph of what `body` gives the lane. The builder and its definition are gone. */
const captured = (lane: Lane, body: () => void): ExecutableGraph => {
  using builder = GraphBuilder.create(lane).begin()
  body()
  using definition = builder.end().definition
  expect(definition.valid).toBe(true)
  return builder.instantiate()
}

/** A graph that adds 1 to the word of `from`, three times over, in memory of its own; and its output. */
const chained = async (device: Device, lane: Lane, from: Block, pool?: MemPool) => {
  const axpn = await axpnOn(device)
  const options = pool === undefined ? {} : { pool }
  const count = from.bytes / 4
  let output = from
  const graph = captured(lane, () => {
    for (let i = 0; i < 3; i++) {
      const next = lane.malloc(from.bytes, options)
      const shape = { grid: Math.ceil(count / 64), block: 64 }
      const scalars = { a: 1, n: 1, count }
      lane.launch(axpn, { reads: { x: output }, writes: { y: next }, ...shape, scalars })
      if (output !== from) output.free()
      output = next
    }
  })
  return { graph, output }
}

describe.each(present)('graphs on %s', name => {
  test('46: eager allocations, frees and polls leave a capture of any mode valid', async () => {
    await using device = await deviceOf(name)
    const [lane, eager] = [device.lane(), device.lane()]
    // The memory is there before, and so is work that has not completed.
    const blocks = Array.from({ length: 4 }, () => eager.malloc(KiB))
    const gate = hold(device, eager)
    for (const block of blocks) eager.fill32(block, 1)
    const mine = lane.malloc(KiB)
    lane.fill32(mine, 1)
    using builder = GraphBuilder.create(lane).begin('relaxed')
    mine.recordUse(eager)
    mine.free()
    for (const block of blocks) {
      block.recordUse(device.defaultLane)
      block.free()
    }
    for (let i = 0; i < 8; i++) device.malloc(KiB).free()
    expect(eager.idle).toBe(false)
    gate.open()
    await eager.synchronize()
    await device.emptyCache()
    expect(builder.building).toBe(true)
    builder.end()
    for (const mode of ['global', 'thread-local'] as const) {
      using strict = GraphBuilder.create(lane).begin(mode)
      const x = lane.malloc(3 * MiB)
      lane.fill32(x, 1)
      x.free()
      lane.malloc(5 * MiB).free()
      expect(strict.building).toBe(true)
      strict.end()
    }
  })

  test('95: a lane says whether it is being captured', async () => {
    await using device = await deviceOf(name)
    const [lane, fork, other] = [device.lane(), device.lane(), device.lane()]
    const capturing = () => [lane, fork, other].map(each => each.capturing)
    using builder = GraphBuilder.create(lane)
    expect(capturing()).toEqual([false, false, false])
    const [split] = builder.begin().split(fork)
    expect(capturing()).toEqual([true, true, false])
    GraphBuilder.join(builder, split!).end()
    expect(capturing()).toEqual([false, false, false])
  })

  test('96: nothing runs at capture, a replay gives the result', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using a = lane.malloc(KiB)
    lane.fill32(a, 0)
    const { graph, output } = await chained(device, lane, a)
    using replayed = graph
    lane.fill32(output, 40)
    expect(await contentOf(device, lane, output)).toEqual([40])
    for (const from of [0, 5]) {
      lane.fill32(a, from)
      replayed.launch(lane)
      expect(await contentOf(device, lane, output)).toEqual([from + 3])
    }
    output.free()
  })

  test('97: a lane is captured again after its graph has gone', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using a = lane.malloc(KiB)
    for (let i = 1; i <= 3; i++) {
      lane.fill32(a, i)
      const { graph, output } = await chained(device, lane, a)
      graph.launch(lane)
      expect(await contentOf(device, lane, output)).toEqual([i + 3])
      output.free()
      graph[Symbol.dispose]()
    }
  })

  test('98: the default lane is a stream like any other, so it can be captured', async () => {
    await using device = await deviceOf(name)
    using a = device.malloc(KiB)
    using graph = captured(device.defaultLane, () => device.defaultLane.fill32(a, 98))
    graph.launch(device.defaultLane)
    expect(await contentOf(device, device.defaultLane, a)).toEqual([98])
  })

  test('99: a graph without nodes has an empty list of them, and its launch does nothing', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using builder = GraphBuilder.create(lane).begin()
    lane.malloc(KiB).free()
    expect(builder.end().definition.nodes).toEqual([])
    using graph = builder.instantiate()
    graph.launch(lane)
    await lane.synchronize()
  })

  test('100: memory that ends while capturing is an error that leaves the capture as it was', async () => {
    await using device = await deviceOf(name, { limit: 16 * MiB })
    const lane = device.lane()
    using builder = GraphBuilder.create(lane).begin()
    using x = lane.malloc(KiB)
    expect(thrownBy(() => lane.malloc(64 * MiB))).toBeInstanceOf(OutOfMemoryError)
    lane.fill32(x, 100)
    using graph = builder.end().instantiate()
    graph.launch(lane)
    expect(await contentOf(device, lane, x)).toEqual([100])
  })

  test('101: after a failed capture the lane can be captured again', async () => {
    await using device = await deviceOf(name)
    const [lane, fork] = [device.lane(), device.lane()]
    using a = lane.malloc(KiB)
    using builder = GraphBuilder.create(lane).begin()
    builder.split(fork)
    using x = fork.malloc(KiB)
    fork.fill32(x, 1)
    expect(() => builder.end()).toThrow(/all of whose lanes are joined/)
    using graph = captured(lane, () => lane.fill32(a, 101))
    graph.launch(lane)
    expect(await contentOf(device, lane, a)).toEqual([101])
  })

  test('102: two graphs that share a pool take one segment less, with eager work in between', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using a = lane.malloc(KiB)
    using seen = lane.malloc(KiB)
    const reserved = () => statOf(device)('reserved_bytes')
    const costs: number[] = []
    for (const shared of [false, true]) {
      await device.emptyCache()
      const before = reserved()
      const pool = device.pool()
      const graphs: ExecutableGraph[] = []
      for (const word of [1, 2]) {
        graphs.push(
          captured(lane, () => {
            using x = lane.malloc(KiB, shared ? { pool } : {})
            lane.fill32(x, word)
            lane.copy(seen, x)
          }),
        )
      }
      costs.push(reserved() - before)
      lane.fill32(a, 9)
      for (const [i, graph] of graphs.entries()) {
        graph.launch(lane)
        lane.fill32(a, 10 + i)
        expect(await contentOf(device, lane, seen)).toEqual([i + 1])
      }
      for (const graph of graphs) graph[Symbol.dispose]()
      await soon(() => reserved() === before || shared)
      pool.close()
      await soon(() => reserved() === before)
    }
    expect(costs).toEqual([4 * MiB, 2 * MiB])
  })

  test('103: graphs with pools of their own may run at once; those that share one use the same bytes', async () => {
    await using device = await deviceOf(name)
    const [lane, other] = [device.lane(), device.lane()]
    const outs = [lane.malloc(MiB), lane.malloc(MiB)]
    using pool = device.pool()
    const graphOf = (out: Block, word: number, options = {}) => {
      let address = 0
      const graph = captured(lane, () => {
        using x = lane.malloc(MiB, options)
        address = x.address
        lane.fill32(x, word)
        lane.copy(out, x)
      })
      return { graph, address }
    }
    const apart = outs.map((out, i) => graphOf(out, i + 1))
    expect(apart[0]!.address).not.toBe(apart[1]!.address)
    for (let turn = 0; turn < 10; turn++) {
      apart[0]!.graph.launch(lane)
      apart[1]!.graph.launch(other)
    }
    await other.synchronize()
    for (const [i, out] of outs.entries()) expect(await contentOf(device, lane, out)).toEqual([i + 1])
    const shared = outs.map((out, i) => graphOf(out, i + 3, { pool }))
    expect(shared[0]!.address).toBe(shared[1]!.address)
    // One after the other they are right.
    for (const { graph } of shared) graph.launch(lane)
    for (const [i, out] of outs.entries()) expect(await contentOf(device, lane, out)).toEqual([i + 3])
    for (const { graph } of [...apart, ...shared]) graph[Symbol.dispose]()
    for (const out of outs) out.free()
  })

  test('104: three graphs replay in any order from pools of their own, and in theirs from one', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using a = lane.malloc(KiB)
    lane.fill32(a, 1)
    using pool = device.pool()
    for (const options of [undefined, pool]) {
      const first = await chained(device, lane, a, options)
      const second = await chained(device, lane, first.output, options)
      const third = await chained(device, lane, first.output, options)
      const replay = async (order: readonly (typeof first)[]): Promise<void> => {
        for (const { graph } of order) graph.launch(lane)
        expect(await contentOf(device, lane, second.output)).toEqual([7])
        expect(await contentOf(device, lane, third.output)).toEqual([7])
      }
      await replay([first, second, third])
      // What is live at the end of a capture is never given to a later one, in one pool neither.
      if (options === undefined) await replay([first, third, second])
      for (const { graph, output } of [first, second, third]) {
        output.free()
        graph[Symbol.dispose]()
      }
    }
  })

  test.each([512, MiB - 512, MiB + 512, 10 * MiB - 512, 20 * MiB + 512])(
    '105: statistics of a graph with a block of %i bytes, and a result that outlives it',
    async bytes => {
      await using device = await deviceOf(name)
      const lane = device.lane()
      const stat = statOf(device)
      const base = ['reserved_bytes', 'active_bytes', 'allocated_bytes'].map(stat)
      const pages = Math.ceil(bytes / (2 * MiB)) * 2 * MiB
      let output: Block | undefined
      const graph = captured(lane, () => {
        lane.malloc(bytes).free()
        output = lane.malloc(bytes)
        lane.fill32(output.at(0, 512), 105)
      })
      expect(stat('reserved_bytes')).toBe(base[0]! + pages)
      expect(stat('allocated_bytes')).toBe(base[2]! + bytes)
      graph.launch(lane)
      graph[Symbol.dispose]()
      expect(await contentOf(device, lane, output!.at(0, 512))).toEqual([105])
      expect(stat('active_bytes')).toBe(base[1]! + bytes)
      output!.free()
      await device.emptyCache()
      await soon(() => stat('reserved_bytes') === base[0])
      expect(stat('active_bytes')).toBe(base[1])
    },
  )

  test('106: recordStream inside a capture asks for no event, and its free is handled by the join', async () => {
    await using device = await deviceOf(name)
    const [lane, fork] = [device.lane(), device.lane()]
    using pool = device.pool()
    using builder = GraphBuilder.create(lane).begin('global')
    const [split] = builder.split(fork)
    const x = lane.malloc(KiB, { pool })
    fork.fill32(x, 1)
    x.recordStream(fork)
    const { address } = x
    const queries = device.stats().queries
    x.free()
    using y = lane.malloc(KiB, { pool })
    expect(y.address).not.toBe(address)
    expect(device.stats().queries).toBe(queries)
    expect(builder.building).toBe(true)
    GraphBuilder.join(builder, split!)
    using z = lane.malloc(KiB, { pool })
    expect(z.address).toBe(address)
    builder.end()
  })

  test('107: inside a capture memory is reclaimed after a join, not before', async () => {
    await using device = await deviceOf(name)
    const [lane, fork] = [device.lane(), device.lane()]
    using builder = GraphBuilder.create(lane).begin()
    const x = lane.malloc(KiB)
    lane.fill32(x, 1)
    const [split] = builder.split(fork)
    fork.fill32(x, 2)
    const { address } = x
    x.free()
    using before = lane.malloc(KiB)
    expect(before.address).not.toBe(address)
    GraphBuilder.join(builder, split!)
    using after = lane.malloc(KiB)
    expect(after.address).toBe(address)
    builder.end()
  })

  test('108: with four lanes a partial join is not enough', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    const forks = [device.lane(), device.lane(), device.lane()]
    const builder = GraphBuilder.create(lane).begin()
    const x = lane.malloc(KiB)
    lane.fill32(x, 1)
    const splits = builder.split(...forks)
    for (const fork of forks) fork.fill32(x, 2)
    const { address } = x
    x.free()
    const made: Block[] = []
    for (const [i, split] of splits.entries()) {
      made.push(lane.malloc(KiB))
      expect(made[i]!.address).not.toBe(address)
      GraphBuilder.join(builder, split)
    }
    made.push(lane.malloc(KiB))
    expect(made.at(-1)!.address).toBe(address)
    for (const block of made) block.free()
    builder.end()
    builder[Symbol.dispose]()
  })

  test('109: a block that one capture could not use again serves the next one of its pool', async () => {
    await using device = await deviceOf(name)
    const [lane, fork] = [device.lane(), device.lane()]
    using pool = device.pool()
    using one = GraphBuilder.create(lane).begin()
    const [split] = one.split(fork)
    const x = lane.malloc(KiB, { pool })
    fork.fill32(x, 1)
    const { address } = x
    x.free()
    GraphBuilder.join(one, split!)
    one.end()
    using two = GraphBuilder.create(lane).begin()
    using y = lane.malloc(KiB, { pool })
    expect(y.address).toBe(address)
    two.end()
  })

  test('110: a use from before the capture holds a block back until it has run', async () => {
    await using device = await deviceOf(name)
    const [lane, reader] = [device.lane(), device.lane()]
    const pool = device.pool()
    const x = lane.malloc(4 * MiB, { pool })
    const { address } = x
    lane.fill32(x, 1)
    await lane.synchronize()
    using gate = hold(device, reader)
    x.recordUse(reader)
    x.free()
    using one = GraphBuilder.create(lane).begin()
    using y = lane.malloc(4 * MiB, { pool })
    expect(y.address).not.toBe(address)
    one.end()
    gate.open()
    await reader.synchronize()
    using two = GraphBuilder.create(lane).begin()
    using z = lane.malloc(4 * MiB, { pool })
    expect(z.address).toBe(address)
    two.end()
    pool.close()
  })

  test('111: blocks of forked lanes are of the capture’s pool', async () => {
    await using device = await deviceOf(name)
    const [lane, fork] = [device.lane(), device.lane()]
    using builder = GraphBuilder.create(lane).begin()
    const [split] = builder.split(fork)
    using x = lane.malloc(KiB)
    using y = fork.malloc(KiB)
    expect(poolOf(device, x)).toBe(poolOf(device, y))
    expect(y.lane).toBe(fork)
    using z = device.malloc(KiB)
    expect(poolOf(device, z)).not.toBe(poolOf(device, x))
    GraphBuilder.join(builder, split!).end()
  })

  test('112: the mode says whether an eager allocation of the thread may take memory from the driver', async () => {
    // Memory that is expandable is made of pages, which the driver maps in every mode.
    await using device = await deviceOf(name, { expandable: false })
    const lane = device.lane()
    const cached = 4 * MiB
    const calls: readonly (() => unknown)[] = [
      () => device.malloc(64 * MiB),
      () => device.pinned(64 * MiB),
      () => device.emptyCache(),
    ]
    for (const mode of ['relaxed', 'thread-local', 'global'] as const) {
      device.malloc(cached).free()
      {
        // The capture's own memory, and what the device holds already, is there in every mode.
        using builder = GraphBuilder.create(lane).begin(mode)
        using x = lane.malloc(MiB)
        lane.fill32(x, 112)
        device.malloc(cached).free()
        expect(builder.building).toBe(true)
        using graph = builder.end().instantiate()
        graph.launch(lane)
        expect(await contentOf(device, lane, x)).toEqual([112])
      }
      for (const call of calls) {
        device.malloc(cached).free()
        using builder = GraphBuilder.create(lane).begin(mode)
        if (mode === 'relaxed') {
          const made = await call()
          expect(builder.building).toBe(true)
          if (made instanceof Block) made.free()
          builder.end()
          continue
        }
        await expect((async () => call())()).rejects.toMatchObject({
          _tag: 'BadArgument',
          next: expect.stringMatching(/allocate before builder.begin\(\), or begin\('relaxed'\)/),
        })
        expect(() => builder.building).toThrow(/made invalid/)
        expect(() => builder.end()).toThrow(/one that is valid/)
        using x = device.malloc(MiB)
        lane.fill32(x, 211)
        expect(await contentOf(device, lane, x)).toEqual([211])
      }
    }
  })

  test('113: a definition is kept, and instantiated again', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using out = lane.malloc(KiB)
    using builder = GraphBuilder.create(lane).begin()
    const x = lane.malloc(KiB)
    lane.fill32(x, 113)
    lane.copy(out, x)
    x.free()
    const { definition } = builder.end()
    for (let i = 0; i < 3; i++) {
      using graph = builder.instantiate()
      lane.fill32(out, 0)
      graph.launch(lane)
      expect(await contentOf(device, lane, out)).toEqual([113])
    }
    definition[Symbol.dispose]()
  })

  test('114: waiting on the host for a captured lane is an error, and the capture goes on', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using builder = GraphBuilder.create(lane).begin()
    using x = lane.malloc(KiB)
    await expect(lane.synchronize()).rejects.toThrow(/being captured/)
    expect(() => lane.idle).toThrow(/being captured/)
    expect(() => lane.record()).toThrow(/being captured/)
    lane.fill32(x, 114)
    expect(builder.building).toBe(true)
    builder.end()
  })

  test('115: events of the lane measure a replay, and events in the graph a part of it', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using x = lane.malloc(4 * MiB)
    using start = device.event({ timed: true })
    using end = device.event({ timed: true })
    using graph = captured(lane, () => {
      lane.fill32(x, 99)
      lane.record(start)
      for (let i = 0; i < 20; i++) lane.fill32(x, i)
      lane.record(end)
      lane.fill32(x, 115)
    })
    expect(() => start.elapsed(end)).toThrow(/one that was last recorded in a capture/)
    graph.upload(lane)
    for (let i = 0; i < 2; i++) {
      const from = lane.record({ timed: true })
      graph.launch(lane)
      const to = lane.record({ timed: true })
      await lane.synchronize()
      expect(start.elapsed(end)).toBeGreaterThan(0)
      expect(start.elapsed(end)).toBeLessThanOrEqual(from.elapsed(to) + 0.1)
    }
    expect(await contentOf(device, lane, x)).toEqual([115])
  })

  test('116: a graph of several lanes is drawn as DOT', async () => {
    await using device = await deviceOf(name)
    const [lane, fork] = [device.lane(), device.lane()]
    using builder = GraphBuilder.create(lane).begin()
    using x = lane.malloc(KiB)
    using y = lane.malloc(KiB)
    lane.fill32(x, 1)
    const [split] = builder.split(fork)
    lane.fill32(x, 2)
    fork.fill32(y, 3)
    GraphBuilder.join(builder, split!)
    lane.copy(x, y)
    const dot = builder.end().definition.dot()
    expect(dot).toMatch(/digraph/)
    expect(dot.match(/->/g)).toHaveLength(4)
  })

  test('117: a hundred captures leave no workspaces behind', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using out = lane.malloc(KiB)
    const stat = statOf(device)
    const held = () => [stat('reserved_bytes'), stat('active_bytes'), stat('segment')]
    const once = (): void => {
      using graph = captured(lane, () => {
        using workspace = lane.malloc(512 * KiB)
        lane.fill32(workspace, 1)
        lane.copy(out, workspace)
      })
      graph.launch(lane)
    }
    await device.emptyCache()
    const before = held()
    for (let i = 0; i < 100; i++) {
      once()
      // The memory goes when JavaScript has been told that the graph has gone.
      if (i % 10 === 9) await soon(() => String(held()) === String(before))
    }
  })

  test('118: statistics return to their base after many graphs', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    const names = ['allocation', 'active', 'segment', 'allocated_bytes', 'reserved_bytes', 'requested_bytes']
    const figures = () => names.map(statOf(device))
    await device.emptyCache()
    const base = figures()
    const graphs = Array.from({ length: 12 }, (_, i) =>
      captured(lane, () => {
        const blocks = Array.from({ length: 1 + (i % 3) }, () => lane.malloc((i + 1) * 200 * KiB))
        for (const block of blocks) {
          lane.fill32(block, i)
          block.free()
        }
      }),
    )
    expect(figures()).not.toEqual(base)
    for (const graph of graphs) graph.launch(lane)
    for (const graph of graphs) graph[Symbol.dispose]()
    await soon(() => String(figures()) === String(base))
  })

  test('120: a captured function equals the eager one bit by bit, in a pool of its own and in a shared one', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    const axpn = await axpnOn(device)
    const count = 1000
    using input = lane.malloc(count * 4)
    const run = (options = {}): Block => {
      let x = input
      for (const [a, n] of [
        [3, 1],
        [-7, 5],
        [11, -2],
      ] as const) {
        const y = lane.malloc(count * 4, options)
        const scalars = { a, n, count }
        lane.launch(axpn, { reads: { x }, writes: { y }, grid: 16, block: 64, scalars })
        if (x !== input) x.free()
        x = y
      }
      return x
    }
    const pool = device.pool()
    for (const options of [{}, { pool }, { pool }]) {
      let output: Block | undefined
      using graph = captured(lane, () => {
        output = run(options)
      })
      for (const word of [1, 99]) {
        lane.fill32(input, word)
        graph.launch(lane)
        using eager = run()
        expect(await wordsOf(device, output!, lane)).toEqual(await wordsOf(device, eager, lane))
      }
      output!.free()
    }
    pool.close()
  })

  test('121: pinned memory of a captured copy is never given out; unused memory is; other memory is refused', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using x = lane.malloc(64 * KiB)
    const used = device.pinned(64 * KiB, lane)
    const unused = device.pinned(64 * KiB, lane)
    const addresses = [used.address, unused.address]
    new Uint32Array(used.view()).fill(121)
    const copying = captured(lane, () => {
      lane.copy(x, used)
      expect(() => lane.copy(x, new Uint32Array(16) as never)).toThrow(/a Block/)
    })
    used.free()
    unused.free()
    await lane.synchronize()
    const next = Array.from({ length: 4 }, () => device.pinned(64 * KiB, lane))
    expect(next.map(({ address }) => address)).toContain(addresses[1])
    expect(next.map(({ address }) => address)).not.toContain(addresses[0])
    for (const block of next) new Uint32Array(block.view()).fill(1)
    copying.launch(lane)
    expect(await contentOf(device, lane, x)).toEqual([121])
    copying[Symbol.dispose]()
    const given = (): boolean => {
      const block = device.pinned(64 * KiB, lane)
      next.push(block)
      return block.address === addresses[0]
    }
    await soon(given)
    for (const block of next) block.free()
  })

  test('119: launches of a graph advance the random numbers, and two sessions at once have their own', async () => {
    const noise = graph('noise', { x: tensor('f32', [64]) }, ({ x }) => ({
      y: x.pipe(upload(), uniform({ seed: 119 }), download()),
    }))
    const plan = orThrow(compile(noise, { mode: 'graph', inFlight: 2 }))
    await using device = await deviceOf(name)
    await using one = orThrow(await open(plan, { device })())
    await using other = orThrow(await open(plan, { device })())
    const feed = () => ({ x: pulled(Array.from({ length: 6 }, () => new Float32Array(64))) })
    const drawn = async (session: typeof one): Promise<readonly string[]> => {
      const seen: string[] = []
      for await (using out of session.run(feed())) seen.push(out.y.join())
      return seen
    }
    const [first, second] = await Promise.all([drawn(one), drawn(other)])
    expect(new Set(first).size).toBe(6)
    expect(second).toEqual(first)
    const further = await drawn(one)
    expect(new Set([...first, ...further]).size).toBe(12)
  })
})
