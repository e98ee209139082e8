// Memory that is allocated while lanes are captured: whose it is, when it is used again, and when it goes.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  compile,
  download,
  graph,
  lane as laneOf,
  mul,
  orThrow,
  owned,
  param,
  tensor,
  tree,
  upload,
} from '../../../dsl/index.js'
import {
  type Block,
  type Device,
  GraphBuilder,
  type GraphDefinition,
  type GraphEvent,
  type GraphNode,
  type Lane,
  open,
  planTree,
} from '../../../runtime/index.js'
import { contentOf, deviceOf, KiB, MiB, openOn, poolOf } from '../../fixtures/allocator.js'
import { soon } from '../../fixtures/graphs.js'
import { often, runs } from '../../fixtures/runs.js'
import { present } from '../devices.js'

const reserved = (device: Device): number => device.stats()['reserved_bytes.all.current'] ?? 0
const active = (device: Device): number => device.stats()['active_bytes.all.current'] ?? 0

interface Bytes {
  readonly from: number
  readonly to: number
}
const bytesOf = (block: Block): Bytes => ({ from: block.address, to: block.address + block.size })
const share = (a: Bytes, b: Bytes): boolean => a.from < b.to && b.from < a.to

describe.each(present)('memory of captures on %s', name => {
  it('comes from a pool of the capture, and a freed block serves its later work', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using out = lane.malloc(KiB)
    const builder = GraphBuilder.create(lane).begin()
    const x = lane.malloc(KiB)
    expect(poolOf(device, x)).not.toBe(poolOf(device, out))
    lane.fill32(x, 3)
    lane.copy(out, x)
    const { address } = x
    x.free()
    const y = device.malloc(KiB, lane)
    expect(y.address).toBe(address)
    device.pinned(KiB, lane).free()
    lane.fill32(y, 4)
    y.free()
    using graph = builder.end().instantiate()
    expect(builder.building).toBe(false)
    for (let i = 0; i < 3; i++) {
      lane.fill32(out, 0)
      graph.launch(lane)
      expect(await contentOf(device, lane, out)).toEqual([3])
    }
    builder[Symbol.dispose]()
  })

  it('another branch gets a freed block only after a join', async () => {
    await using device = await deviceOf(name)
    const [a, b] = [device.lane(), device.lane()]
    using builder = GraphBuilder.create(a).begin()
    const x = a.malloc(KiB)
    a.fill32(x, 1)
    const [split] = builder.split(b)
    // Used on the branch: work of a lane marks the blocks of other lanes.
    b.fill32(x, 2)
    const { address } = x
    x.free()
    const apart = a.malloc(KiB)
    expect(apart.address).not.toBe(address)
    GraphBuilder.join(builder, split!)
    const joined = a.malloc(KiB)
    expect(joined.address).toBe(address)
    for (const block of [apart, joined]) block.free()
    builder.end()
  })

  it('recordUse on a branch is a point of it; recordStream all of it until the free', async () => {
    await using device = await deviceOf(name)
    const [a, b] = [device.lane(), device.lane()]
    using done = device.event()
    using builder = GraphBuilder.create(a).begin()
    using scratch = a.malloc(KiB)
    const [split] = builder.split(b)
    const [x, y] = [a.malloc(KiB), a.malloc(KiB)]
    const addresses = [x.address, y.address]
    y.recordStream(b)
    b.fill32(scratch, 1)
    x.recordUse(b)
    b.record(done)
    b.fill32(scratch, 2)
    for (const block of [x, y]) block.free()
    using none = a.malloc(KiB)
    expect(addresses).not.toContain(none.address)
    // After the first fill, and beside the second.
    a.wait(done)
    using first = a.malloc(KiB)
    expect(first.address).toBe(addresses[0])
    using still = a.malloc(KiB)
    expect(addresses).not.toContain(still.address)
    GraphBuilder.join(builder, split!)
    using second = a.malloc(KiB)
    expect(second.address).toBe(addresses[1])
    builder.end()
  })

  it('an eager block that a captured lane uses is kept by the graph', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    for (const use of ['recordUse', 'recordStream'] as const) {
      const before = active(device)
      const x = device.malloc(KiB)
      const builder = GraphBuilder.create(lane).begin()
      x[use](lane)
      x[use](lane)
      x.free()
      expect(active(device)).toBe(before + KiB)
      builder.end()
      const graph = builder.instantiate()
      builder.definition[Symbol.dispose]()
      builder[Symbol.dispose]()
      expect(active(device)).toBe(before + KiB)
      graph[Symbol.dispose]()
      await soon(() => active(device) === before)
    }
  })

  it('goes back to the device with the last definition and executable', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    await device.emptyCache()
    const before = reserved(device)
    const builder = GraphBuilder.create(lane).begin()
    const x = lane.malloc(8 * MiB)
    lane.fill32(x, 1)
    x.free()
    const { definition } = builder.end()
    const graphs = [builder.instantiate(), builder.instantiate()]
    builder[Symbol.dispose]()
    const held = reserved(device)
    expect(held).toBeGreaterThanOrEqual(before + 8 * MiB)
    await device.emptyCache()
    expect(reserved(device)).toBe(held)
    definition[Symbol.dispose]()
    graphs[0]![Symbol.dispose]()
    await device.emptyCache()
    expect(reserved(device)).toBe(held)
    graphs[1]!.launch(lane)
    graphs[1]![Symbol.dispose]()
    await soon(() => reserved(device) === before)
  })

  it('a block that outlives its graph stays valid, and its memory goes with its free', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    const before = reserved(device)
    const builder = GraphBuilder.create(lane).begin()
    const x = lane.malloc(KiB)
    lane.fill32(x, 8)
    const graph = builder.end().instantiate()
    graph.launch(lane)
    graph[Symbol.dispose]()
    builder.definition[Symbol.dispose]()
    builder[Symbol.dispose]()
    expect(await contentOf(device, lane, x)).toEqual([8])
    lane.fill32(x, 9)
    using filled = lane.record()
    device.defaultLane.wait(filled)
    expect(await contentOf(device, device.defaultLane, x)).toEqual([9])
    x.free()
    await device.emptyCache()
    await soon(() => reserved(device) === before)
  })

  it('a capture that is dropped gives its memory back', async () => {
    await using device = await deviceOf(name)
    const [a, b] = [device.lane(), device.lane()]
    await device.emptyCache()
    const before = reserved(device)
    for (const finish of [
      (builder: GraphBuilder) => builder[Symbol.dispose](),
      (builder: GraphBuilder) => expect(() => builder.end()).toThrow(/all of whose lanes are joined/),
    ]) {
      const builder = GraphBuilder.create(a).begin()
      const [split] = builder.split(b)
      expect(split!.joinRequired).toBe(true)
      using x = b.malloc(KiB)
      b.fill32(x, 1)
      finish(builder)
    }
    await device.emptyCache()
    await soon(() => reserved(device) === before)
    using x = b.malloc(KiB)
    b.fill32(x, 7)
    expect(await contentOf(device, b, x)).toEqual([7])
  })

  it('captures may share a pool that is named, which serves them alone until their graphs have gone', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using pool = device.pool()
    const capture = (): { builder: GraphBuilder; address: number } => {
      const builder = GraphBuilder.create(lane).begin()
      const x = pool.use(() => lane.malloc(KiB))
      const { address } = x
      lane.fill32(x, 1)
      x.free()
      return { builder: builder.end(), address }
    }
    const [one, two] = [capture(), capture()]
    expect(two.address).toBe(one.address)
    expect(() => lane.malloc(KiB, { pool })).toThrow(/a pool whose memory no graph uses/)
    const graph = two.builder.instantiate()
    for (const { builder } of [one, two]) {
      builder.definition[Symbol.dispose]()
      builder[Symbol.dispose]()
    }
    expect(() => lane.malloc(KiB, { pool })).toThrow(/dispose of these graphs first/i)
    graph[Symbol.dispose]()
    await soon(() => {
      try {
        lane.malloc(KiB, { pool }).free()
        return true
      } catch {
        return false
      }
    })
  })

  it('a session and a tree refuse a pool that a graph holds, and say why', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using pool = device.pool()
    const builder = GraphBuilder.create(lane).begin()
    lane.malloc(KiB, { pool }).free()
    builder.end()
    const row = tensor('f32', [64])
    const body = graph('net', { x: row }, ({ x }) => ({
      y: x.pipe(upload(laneOf('copy')), mul(param('w', row)), download(laneOf('copy'))),
    }))
    const [planned, pooled] = [
      orThrow(compile(body, { mode: 'eager', storage: 'planned' })),
      orThrow(compile(body, { mode: 'eager', storage: 'pooled' })),
    ]
    const own = { w: new Float32Array(64).fill(2) }
    const one = tree({
      plans: { net: planned },
      start: ['net'],
      then: {},
      keep: { net: { y: owned } },
    })
    for (const opening of [
      () => open(planned, { device, pool, params: own })(),
      () => open(pooled, { device, pool, params: own })(),
      () => planTree(one, { device, pool, params: own })(),
    ]) {
      const opened = await opening()
      expect(opened).toMatchObject({
        _tag: 'Left',
        left: {
          _tag: 'BadOption',
          at: device.name,
          subject: 'options.pool',
          wanted: 'a pool whose memory no graph uses',
          found: expect.stringContaining('captures have taken memory from'),
          next: expect.stringContaining('dispose of these graphs'),
        },
      })
    }
    builder.definition[Symbol.dispose]()
    builder[Symbol.dispose]()
    await soon(() => {
      try {
        lane.malloc(KiB, { pool }).free()
        return true
      } catch {
        return false
      }
    })
    await using session = orThrow(await open(planned, { device, pool, params: own })())
    expect(session.closed).toBe(false)
  })

  it('a named pool that is closed keeps the memory of its graphs', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using out = lane.malloc(KiB)
    const pool = device.pool()
    const builder = GraphBuilder.create(lane).begin()
    const x = lane.malloc(KiB, { pool })
    lane.fill32(x, 5)
    lane.copy(out, x)
    x.free()
    using graph = builder.end().instantiate()
    pool.close()
    await device.emptyCache()
    using other = lane.malloc(4 * MiB)
    lane.fill32(other, 1)
    graph.launch(lane)
    expect(await contentOf(device, lane, out)).toEqual([5])
    builder[Symbol.dispose]()
  })

  it('no byte of it is used by eager work while the graph lives, however short memory is', async () => {
    const step = fc.record({
      capture: fc.boolean(),
      lane: fc.nat(2),
      bytes: fc.integer({ min: 1, max: 6 }).map(quarters => quarters * 256 * KiB),
      free: fc.boolean(),
      pick: fc.nat(),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 24 }), async steps => {
        await using device = await deviceOf(name, { limit: 12 * MiB })
        const lanes = [device.lane(), device.lane(), device.lane()]
        const [captured] = lanes
        const builder = GraphBuilder.create(captured!).begin()
        const ours: Bytes[] = []
        const eager: Block[] = []
        const graphs: Block[] = []
        const take = (lane: Lane, bytes: number): Block | undefined => {
          try {
            return lane.malloc(bytes)
          } catch (error) {
            expect((error as Error).name).toBe('OutOfMemoryError')
            return undefined
          }
        }
        const check = (): void => {
          for (const block of eager) expect(ours.filter(bytes => share(bytes, bytesOf(block)))).toEqual([])
        }
        const freeOne = (from: Block[], pick: number): void => {
          const [block] = from.splice(pick % from.length, 1)
          block!.free()
        }
        for (const { capture, lane, bytes, free, pick } of steps) {
          const list = capture ? graphs : eager
          if (free && list.length > 0) freeOne(list, pick)
          const block = take(capture ? captured! : lanes[1 + (lane % 2)]!, bytes)
          if (block === undefined) continue
          list.push(block)
          if (capture) {
            captured!.fill32(block, 1)
            ours.push(bytesOf(block))
          }
          check()
        }
        const graph = builder.end().instantiate()
        builder[Symbol.dispose]()
        for (const block of graphs.splice(0)) block.free()
        await device.emptyCache()
        for (const { bytes, lane, pick } of steps) {
          const block = take(lanes[lane]!, bytes)
          if (block !== undefined) eager.push(block)
          check()
          graph.launch(lanes[pick % 3]!)
          if (eager.length > 4) freeOne(eager, pick)
        }
        for (const lane of lanes) await lane.synchronize()
        for (const block of eager) block.free()
        graph[Symbol.dispose]()
      }),
      { numRuns: runs(20) },
    )
  })

  it('a freed block is used again only where edges order it, in captures of three lanes', async () => {
    const step = fc.record({
      kind: fc.constantFrom('malloc', 'work', 'work', 'free', 'free', 'record', 'wait', 'use'),
      lane: fc.nat(2),
      pick: fc.nat(),
      other: fc.nat(),
    })
    let reused = 0
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 60 }), async steps => {
        await using device = await deviceOf(name)
        const lanes = [device.lane(), device.lane(), device.lane()]
        using builder = GraphBuilder.create(lanes[0]!).begin()
        const splits = builder.split(lanes[1]!, lanes[2]!)
        const events: GraphEvent[] = []
        const live: { block: Block; of: Lane; made: GraphEvent; nodes: number[] }[] = []
        const lives: { bytes: Bytes; nodes: readonly number[] }[] = []
        let nodes = 0
        for (const { kind, lane: at, pick, other } of steps) {
          const lane = lanes[at]!
          const chosen = live[pick % Math.max(live.length, 1)]
          if (kind === 'malloc' || (chosen === undefined && kind !== 'record' && kind !== 'wait')) {
            const life = {
              block: lane.malloc((1 + (other % 3)) * KiB),
              of: lane,
              made: device.event(),
              nodes: [],
            }
            lane.record(life.made)
            live.push(life)
            lives.push({ bytes: bytesOf(life.block), nodes: life.nodes })
          } else if (kind === 'work') {
            const second = live[other % live.length]!
            const both = new Set([chosen!, second])
            // Whoever works on another lane's block waits until it is there; that lane says nothing by
            // itself.
            for (const { of, made } of both) if (of !== lane) lane.wait(made)
            lane.copy(chosen!.block, second.block.at(0, KiB), KiB)
            for (const life of both) life.nodes.push(nodes)
            nodes++
          } else if (kind === 'free') {
            live.splice(live.indexOf(chosen!), 1)
            chosen!.block.free()
          } else if (kind === 'use') {
            chosen!.block.recordUse(lane)
          } else if (kind === 'record') {
            const event = device.event()
            lane.record(event)
            events.push(event)
          } else if (events.length > 0) {
            lane.wait(events[other % events.length]!)
          }
        }
        for (const { block } of live) block.free()
        GraphBuilder.join(builder, ...splits)
        const { definition } = builder.end()
        expect(definition.nodes).toHaveLength(nodes)
        const before = orderOf(definition)
        lives.forEach((later, j) => {
          for (const earlier of lives.slice(0, j)) {
            if (!share(earlier.bytes, later.bytes)) continue
            reused++
            for (const a of earlier.nodes)
              for (const b of later.nodes) expect(before(a, b), `${a} before ${b}`).toBe(true)
          }
        })
      }),
      { numRuns: runs(60) },
    )
    expect(often(reused)).not.toBe(0)
  })
})

/** Whether one node, by its place, is before another on a path of edges. */
const orderOf = (definition: GraphDefinition): ((a: number, b: number) => boolean) => {
  const { nodes } = definition
  const place = new Map(nodes.map((node, i) => [node, i] as const))
  // A captured node comes after those that it depends on.
  const before = nodes.map(() => new Set<number>())
  nodes.forEach((node: GraphNode, i) => {
    for (const pred of node.pred) {
      const p = place.get(pred)!
      before[i]!.add(p)
      for (const earlier of before[p]!) before[i]!.add(earlier)
    }
  })
  return (a, b) => before[b]!.has(a)
}
