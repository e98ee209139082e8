// Memory nodes: what a graph allocates and frees in each launch, between which nodes it may be used, and what
// a graph with such nodes is refused.
import { describe, expect, it } from 'vitest'
import {
  type Block,
  type Device,
  ExecutableGraph,
  GraphBuilder,
  GraphDefinition,
  type GraphNode,
} from '../../../runtime/index.js'
import {
  anotherDeviceOf,
  busy,
  contentOf,
  deviceOf,
  KiB,
  openOn,
  thrownBy,
  wordsOf,
} from '../../fixtures/allocator.js'
import { axpnOn } from '../../fixtures/device-kernels.js'
import { edgePlaces, soon, soonCollected } from '../../fixtures/graphs.js'
import { present } from '../devices.js'

/** Fails unless the call is misuse, in these words, and none of the device. */
const misuse = (call: () => unknown, words: RegExp): void => {
  const { _tag, subject, wanted, found, next } = thrownBy(call)
  expect([_tag, `${subject}: ${wanted}; ${found}; ${next}`]).toEqual([
    'BadArgument',
    expect.stringMatching(words),
  ])
}

/** Memory that is allocated, filled with a word, copied to a block, and freed. */
const filling = (device: Device, to: Block, word: number) => {
  const definition = GraphDefinition.create(device)
  const made = definition.malloc(to.bytes)
  const { memory } = made
  const filled = definition.fill(memory, word, { bits: 32, after: [made] })
  const copied = definition.copy(to, memory, { after: [filled] })
  const freed = definition.free(memory, { after: [copied] })
  return { definition, made, memory, filled, copied, freed }
}

describe.each(present)('memory nodes on %s', name => {
  it('a launch allocates, fills, copies out and frees', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using result = device.pinned(KiB, lane)
    const { definition, made, memory, filled, copied, freed } = filling(device, result, 7)
    using _ = definition
    const nodes = [made, filled, copied, freed]
    expect(nodes.map(({ kind }) => kind)).toEqual(['malloc', 'fill', 'copy', 'free'])
    expect(edgePlaces(nodes, definition).flat()).toEqual([0, 1, 1, 2, 2, 3])
    expect(memory.at(16, 8).address).toBe(memory.address + 16)
    expect([memory.bytes, memory.pinned, made.memory === memory, filled.memory]).toEqual([
      KiB,
      false,
      true,
      undefined,
    ])
    using graph = ExecutableGraph.instantiate(definition)
    graph.upload(lane)
    graph.launch(lane)
    await lane.synchronize()
    expect([...new Set(new Uint32Array(result.view()))]).toEqual([7])
    // A node keeps nothing of it, and nobody frees it by hand.
    misuse(() => memory.free(), /definition\.free/)
    memory[Symbol.dispose]()
    expect(memory.disposed).toBe(false)
  })

  // cell becomes 3 · cell + 1 by way of two parts of the graph's memory: steps that do not commute with
  // others, so the number proves that each launch ran once, alone.
  const stepping = async (device: Device, cell: Block, a: number, n: number) => {
    const axpn = await axpnOn(device)
    const definition = GraphDefinition.create(device)
    const made = definition.malloc(KiB)
    const [x, y] = [made.memory.at(0, 4), made.memory.at(512, 4)]
    const taken = definition.copy(x, cell, { after: [made] })
    const launch = { reads: { x }, writes: { y }, grid: 1, block: 1, scalars: { a, n, count: 1 } }
    const stepped = definition.launch(axpn, launch, { after: [taken] })
    const given = definition.copy(cell, y, { after: [stepped] })
    definition.free(made.memory, { after: [given] })
    return { axpn, definition, made, stepped, launch }
  }

  it('launches of one executable on two lanes run in order, each with memory of its own time', async () => {
    await using device = await openOn(name)
    const [lane, other] = [device.lane(), device.lane()]
    using cell = lane.malloc(4)
    const { definition } = await stepping(device, cell, 3, 1)
    using _ = definition
    using graph = ExecutableGraph.instantiate(definition)
    lane.fill32(cell, 2)
    other.wait(lane.record())
    let expected = 2
    for (let turn = 0; turn < 40; turn++) {
      graph.launch(turn % 3 === 0 ? other : lane)
      expected = (Math.imul(expected, 3) + 1) >>> 0
    }
    await other.synchronize()
    expect([...(await wordsOf(device, cell, lane))]).toEqual([expected])
  })

  it('graphs that run at once, and two allocations of one graph, do not disturb each other', async () => {
    await using device = await openOn(name)
    const lanes = [device.lane(), device.lane()]
    const cells = lanes.map(lane => lane.malloc(4))
    const graphs: ExecutableGraph[] = []
    for (const [i, cell] of cells.entries()) {
      const { definition, made } = await stepping(device, cell, 5, i)
      // Beside the steps: filled all the time that the steps take.
      const beside = definition.malloc(64 * KiB, { after: [made] })
      const filled = definition.fill(beside.memory, 0xff, { after: [beside] })
      definition.free(beside.memory, { after: [filled] })
      graphs.push(ExecutableGraph.instantiate(definition))
      definition[Symbol.dispose]()
    }
    for (const [i, lane] of lanes.entries()) lane.fill32(cells[i]!, 1)
    let expected = [1, 1]
    for (let turn = 0; turn < 30; turn++) {
      for (const [i, graph] of graphs.entries()) graph.launch(lanes[i]!)
      expected = expected.map((value, i) => (Math.imul(value, 5) + i) >>> 0)
    }
    for (const [i, lane] of lanes.entries())
      expect([...(await wordsOf(device, cells[i]!, lane))]).toEqual([expected[i]])
    for (const one of [...graphs, ...cells]) one[Symbol.dispose]()
  })

  it('an executable runs on when its definition has gone; the memory is of no use any more', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using result = lane.malloc(KiB)
    const { definition, memory } = filling(device, result, 3)
    using graph = ExecutableGraph.instantiate(definition)
    definition[Symbol.dispose]()
    expect(memory.disposed).toBe(true)
    using other = GraphDefinition.create(device)
    expect(() => other.fill(memory, 1)).toThrow(/its graph was disposed of/)
    graph.launch(lane)
    expect(await contentOf(device, lane, result)).toEqual([3])
    // An executable keeps no definition.
    const lost = (): readonly [ExecutableGraph, WeakRef<GraphDefinition>] => {
      const filled = filling(device, result, 8)
      return [ExecutableGraph.instantiate(filled.definition), new WeakRef(filled.definition)]
    }
    const [kept, gone] = lost()
    await soonCollected(() => gone.deref() === undefined)
    kept.launch(lane)
    expect(await contentOf(device, lane, result)).toEqual([8])
    kept[Symbol.dispose]()
  })

  it('memory is of its own definition alone', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const axpn = await axpnOn(device)
    using block = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    const made = definition.malloc(KiB)
    const { memory } = made
    const part = memory.at(0, 64)
    using other = GraphDefinition.create(device)
    const inner = definition.embed(other).bodies[0]!
    const [body] = definition.ifThen(definition.condition(1)).bodies
    const launch = (x: typeof part) => ({
      reads: { x },
      writes: { y: block.at(0, 64) },
      grid: 1,
      block: 16,
      scalars: { a: 1, n: 0, count: 16 },
    })
    const outside = /memory that lives outside of launches/
    for (const call of [
      () => lane.fill32(memory, 1),
      () => lane.fill(part, 1),
      () => lane.copy(block, memory),
      () => lane.copy(part, block),
      () => lane.launch(axpn, launch(part)),
      () => memory.recordUse(lane),
      () => memory.recordStream(lane),
      () => memory.keepUntil(lane.record()),
      () => other.fill(memory, 1),
      () => other.copy(block, part),
      () => other.launch(axpn, launch(part)),
      () => other.setCondition(other.condition(), part),
      () => inner.fill(memory, 1),
      () => body!.copy(block, memory),
      () => definition.fill({ address: block.address, bytes: 4 }, 1, { toOwner: memory } as never),
      () => other.free(memory),
    ])
      misuse(call, outside)
    misuse(() => memory.view(), /a pinned block/)
    misuse(() => memory.lane.fill32(block, 1), /whose nodes alone use its memory/)
    misuse(() => definition.free(block), /a block of a lane/)
    misuse(() => definition.free(part as never), /free the whole/)
    misuse(() => definition.free(undefined as never), /the memory of a malloc node/)
    using builder = GraphBuilder.create(lane).begin()
    misuse(() => lane.fill32(memory, 1), outside)
    misuse(() => builder.setCondition(builder.condition(), part), outside)
    builder[Symbol.dispose]()
    await using apart = await anotherDeviceOf(name)
    expect(() => GraphDefinition.create(apart).fill(memory, 1)).toThrow(/another Device/)
    expect(() => apart.defaultLane.fill32(memory, 1)).toThrow(/another Device/)
    for (const graph of [inner, body!]) {
      misuse(() => graph.malloc(KiB), /inside no other/)
      misuse(() => graph.free(memory), /inside no other/)
    }
    expect(definition.nodes).toHaveLength(3)
    expect(other.nodes).toHaveLength(0)
  })

  it('a node uses memory after its allocation and before its free, or there is no executable', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    const refused = (build: (definition: GraphDefinition) => void, words: RegExp): void => {
      using definition = GraphDefinition.create(device)
      build(definition)
      misuse(() => ExecutableGraph.instantiate(definition), words)
    }
    const { raw } = String
    const named = (text: string): RegExp => new RegExp(text.replaceAll(/[[\]().]/g, raw`\$&`))
    refused(d => {
      d.malloc(KiB)
    }, named('definition.nodes[0] (malloc): memory that a node frees'))
    refused(d => {
      const made = d.malloc(KiB)
      const filled = d.fill(made.memory, 1)
      d.free(made.memory, { after: [made, filled] })
    }, named('definition.nodes[1] (fill): a node after definition.nodes[0] (malloc)'))
    refused(d => {
      const made = d.malloc(KiB)
      const copied = d.copy(block, made.memory.at(512, 512), { after: [made] })
      d.free(made.memory, { after: [made] })
      d.empty({ after: [copied] })
    }, named('definition.nodes[1] (copy): a node before definition.nodes[2] (free)'))
    // The driver may not take such a node.
    using late = GraphDefinition.create(device)
    misuse(() => {
      const made = late.malloc(KiB)
      late.fill(made.memory, 1, { after: [late.free(made.memory, { after: [made] })] })
      ExecutableGraph.instantiate(late)
    }, /a node before definition\.nodes\[1\] \(free\)|memory that no node before this one frees/)
    refused(d => {
      d.free(d.malloc(KiB).memory)
    }, named('definition.nodes[1] (free): a node after definition.nodes[0] (malloc)'))
    refused(d => {
      const made = d.malloc(4)
      d.setCondition(d.condition(1), made.memory)
      d.free(made.memory, { after: [made] })
    }, named('definition.nodes[1] (kernel): a node after definition.nodes[0] (malloc)'))

    // Edges may be added before, also by way of other nodes, and a node may be given other memory.
    using definition = GraphDefinition.create(device)
    const made = definition.malloc(KiB)
    const filled = definition.fill(made.memory, 6, { bits: 32 })
    const between = definition.empty()
    const copied = definition.copy(block, made.memory, { after: [filled] })
    const aside = definition.fill(made.memory, 1)
    const freed = definition.free(made.memory)
    misuse(() => definition.free(made.memory, { after: [copied] }), /free it once/)
    misuse(() => ExecutableGraph.instantiate(definition), /: a node/)
    filled.pred.add(between)
    between.pred.add(made)
    freed.pred.add(copied)
    misuse(() => ExecutableGraph.instantiate(definition), /nodes\[4\] \(fill\)/)
    using scratch = lane.malloc(KiB)
    aside.update({ to: scratch })
    using graph = ExecutableGraph.instantiate(definition)
    graph.launch(lane)
    expect(await contentOf(device, lane, block)).toEqual([6])
  })

  it('sizes from 1 to what the device has', async () => {
    await using device = await openOn(name)
    using definition = GraphDefinition.create(device)
    const total = device.summary.totalBytes
    for (const bytes of [0, -1, Number.NaN, 1.5, 2 ** 53, 2 ** 53 - 1, total + 1, '8', undefined, null, 8n])
      misuse(() => definition.malloc(bytes as never), /bytes: a whole number from 1 to \d+/)
    misuse(() => definition.malloc(8, null as never), /options/)
    expect(definition.nodes).toHaveLength(0)
    const made = definition.malloc(1)
    definition.free(made.memory, { after: [definition.fill(made.memory, 1, { after: [made] })] })
    using graph = ExecutableGraph.instantiate(definition)
    graph.launch(device.defaultLane)
    await device.defaultLane.synchronize()
  })

  it('a graph with memory nodes is not copied, loses nothing, and has one executable at a time', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using result = lane.malloc(KiB)
    const { definition, made, filled, copied, freed } = filling(device, result, 4)
    using _ = definition
    using other = GraphDefinition.create(device)
    const child = other.embed(GraphDefinition.create(device))
    using parent = ExecutableGraph.instantiate(other)
    const without = /a graph without memory nodes/
    using builder = GraphBuilder.create(device.lane()).begin()
    for (const call of [
      () => definition.clone(),
      () => other.embed(definition),
      () => builder.embed(definition),
      () => child.update({ graph: definition }),
      () => parent.updateNode(child, { graph: definition }),
      () => made.destroy(),
      () => copied.destroy(),
      () => freed.destroy(),
      () => filled.pred.delete(made),
      () => filled.succ.clear(),
      () => {
        copied.pred = []
      },
    ])
      misuse(call, without)
    builder[Symbol.dispose]()
    for (const node of [made, freed] as GraphNode[])
      misuse(() => node.update({} as never), /a node whose parameters can change/)
    expect(definition.nodes).toHaveLength(4)
    expect(definition.edges).toHaveLength(3)
    // What is inside it can be changed as ever.
    const inner = definition.embed(other).bodies[0]!
    inner.nodes[0]!.destroy()
    expect(inner.nodes).toHaveLength(0)

    const graph = ExecutableGraph.instantiate(definition)
    misuse(
      () => ExecutableGraph.instantiate(definition),
      /one with memory nodes has one executable at a time/,
    )
    for (const node of [made, freed] as GraphNode[])
      misuse(() => graph.updateNode(node as never, {} as never), /a node whose parameters can change/)
    graph[Symbol.dispose]()
    ExecutableGraph.instantiate(definition)[Symbol.dispose]()
    // A definition of other nodes goes as before.
    using copy = other.clone()
    expect(copy.nodes).toHaveLength(1)
  })

  it('a launch has its memory, though its executable has gone and another one runs on another lane', async () => {
    await using device = await openOn(name)
    const [lane, apart] = [device.lane(), device.lane()]
    const [first, second] = [lane.malloc(4096 * KiB), lane.malloc(4096 * KiB)] as const
    const { definition, filled, copied } = filling(device, first, 4)
    using _ = definition
    using scratch = lane.malloc(4096 * KiB)
    busy(lane, scratch, 40)
    const graph = ExecutableGraph.instantiate(definition)
    graph.launch(lane)
    graph[Symbol.dispose]()
    filled.update({ value: 5 })
    copied.update({ to: second })
    using next = ExecutableGraph.instantiate(definition)
    next.launch(apart)
    await apart.synchronize()
    expect(await contentOf(device, lane, first)).toEqual([4])
    expect(await contentOf(device, lane, second)).toEqual([5])
    for (const block of [first, second]) block.free()
  })

  it('updates: of nodes within the life of memory, of the whole by its own definition alone', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using cell = lane.malloc(4)
    const { axpn, definition, made, stepped, launch } = await stepping(device, cell, 3, 1)
    using _ = definition
    const before = definition.fill(cell, 0)
    before.succ.add(made)
    using graph = ExecutableGraph.instantiate(definition)
    graph.enable(before, false)
    const run = async (): Promise<number> => {
      lane.fill32(cell, 2)
      graph.launch(lane)
      return (await wordsOf(device, cell, lane))[0]!
    }
    expect(await run()).toBe(7)
    graph.updateNode(stepped, { kernel: axpn, launch: { ...launch, scalars: { a: 10, n: 1, count: 1 } } })
    expect(await run()).toBe(21)
    stepped.update({ launch: { ...launch, scalars: { a: 100, n: 1, count: 1 } } })
    expect(await run()).toBe(21)
    graph.update(definition)
    expect(await run()).toBe(201)
    misuse(
      () => graph.updateNode(before, { to: made.memory.at(0, 4), value: 1 }),
      /definition\.nodes\[5\] \(fill\): a node after/,
    )
    const later = definition.malloc(4, { after: [made] })
    misuse(
      () => graph.updateNode(stepped, { kernel: axpn, launch: { ...launch, reads: { x: later.memory } } }),
      /later/,
    )
    misuse(() => graph.update(definition), /memory that a node frees/)
    definition.free(later.memory, { after: [later] })
    misuse(() => graph.update(definition), /the same nodes and edges/)

    using result = lane.malloc(KiB)
    const another = filling(device, result, 1)
    using plain = GraphDefinition.create(device)
    plain.fill(result, 1)
    using simple = ExecutableGraph.instantiate(plain)
    for (const call of [
      () => graph.update(another.definition),
      () => graph.update(plain),
      () => simple.update(another.definition),
    ])
      misuse(call, /that of the graph itself/)
    another.definition[Symbol.dispose]()
    expect(await run()).toBe(201)
  })

  it('a condition is set from memory of the graph, and a body chosen by it', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(4)
    using word = lane.malloc(4)
    using definition = GraphDefinition.create(device)
    const made = definition.malloc(4)
    const condition = definition.condition()
    const taken = definition.copy(made.memory, word, { after: [made] })
    const set = definition.setCondition(condition, made.memory, { after: [taken] })
    const branch = definition.ifThen(condition, { after: [set] })
    branch.bodies[0]!.fill(block, 9, { bits: 32 })
    definition.free(made.memory, { after: [branch] })
    using graph = ExecutableGraph.instantiate(definition)
    for (const [value, wanted] of [
      [0, 1],
      [1, 9],
    ] as const) {
      lane.fill32(block, 1)
      lane.fill32(word, value)
      graph.launch(lane)
      expect(await contentOf(device, lane, block)).toEqual([wanted])
    }
  })

  it('device.graphMemory counts what graphs take from the driver, and a trim gives back what none uses', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    device.trimGraphMemory()
    const before = device.graphMemory
    const allocated = (): number => device.stats()['reserved_bytes.all.current'] ?? 0
    using result = lane.malloc(KiB)
    const blocks = allocated()
    const bytes = 4 * 1024 * KiB
    const definition = GraphDefinition.create(device)
    const made = definition.malloc(bytes)
    const filled = definition.fill(made.memory, 5, { bits: 32, after: [made] })
    const copied = definition.copy(result, made.memory, { after: [filled] })
    definition.free(made.memory, { after: [copied] })
    const graph = ExecutableGraph.instantiate(definition)
    graph.launch(lane)
    expect(await contentOf(device, lane, result)).toEqual([5])
    const during = device.graphMemory
    expect(during.used - before.used).toBeGreaterThanOrEqual(bytes)
    expect(during.reserved).toBeGreaterThanOrEqual(during.used)
    expect(allocated()).toBe(blocks)
    await soon(() => {
      device.trimGraphMemory()
      return device.graphMemory.reserved <= before.reserved
    })
    // The next launch takes it again. A launch that is queued keeps it.
    lane.fill32(result, 0)
    using scratch = lane.malloc(4096 * KiB)
    busy(lane, scratch, 40)
    graph.launch(lane)
    device.trimGraphMemory()
    expect(await contentOf(device, lane, result)).toEqual([5])
    graph[Symbol.dispose]()
    definition[Symbol.dispose]()
    await soon(() => {
      device.trimGraphMemory()
      return device.graphMemory.reserved <= before.reserved
    })
  })

  it('what the device has no memory for is an error of the launch, and the device goes on', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using result = lane.malloc(KiB)
    const bytes = Math.floor(device.memory.total * 0.6)
    using definition = GraphDefinition.create(device)
    const [first, second] = [definition.malloc(bytes), definition.malloc(bytes)] as const
    for (const { memory } of [first, second]) definition.free(memory, { after: [first, second] })
    const error = thrownBy(() => {
      using graph = ExecutableGraph.instantiate(definition)
      graph.launch(lane)
    })
    expect([error['_tag'], error.message]).toEqual(['OutOfMemory', expect.stringMatching(/trimGraphMemory/)])
    const fits = filling(device, result, 2)
    using graph = ExecutableGraph.instantiate(fits.definition)
    graph.launch(lane)
    expect(await contentOf(device, lane, result)).toEqual([2])
    fits.definition[Symbol.dispose]()
  })

  it('graphs that do not run at once have more memory together than the device has', async () => {
    await using device = await deviceOf(name)
    const lane = device.lane()
    using result = lane.malloc(KiB)
    const bytes = Math.floor(device.memory.total * 0.6)
    for (const word of [3, 4]) {
      using definition = GraphDefinition.create(device)
      const made = definition.malloc(bytes)
      const filled = definition.fill(made.memory.at(0, KiB), word, { bits: 32, after: [made] })
      const copied = definition.copy(result, made.memory.at(0, KiB), { after: [filled] })
      definition.free(made.memory, { after: [copied] })
      // It is not disposed of before the next one: idle, it keeps its bytes.
      const graph = ExecutableGraph.instantiate(definition)
      graph.launch(lane)
      expect(await contentOf(device, lane, result)).toEqual([word])
    }
  })
})
