// Definitions and executables: what is launched runs in the order of its edges, and what nodes refer to lives
// as long as they do.
import { describe, expect, it } from 'vitest'
import {
  AllocatorError,
  type Device,
  DisposedError,
  ExecutableGraph,
  GraphBuilder,
  GraphDefinition,
  type GraphNode,
} from '../../../runtime/index.js'
import { contentOf, hold, KiB, mirrorOf, openOn, wordsOf } from '../../fixtures/allocator.js'
import { axpnOn } from '../../fixtures/device-kernels.js'
import { edgePlaces, places, soon } from '../../fixtures/graphs.js'
import { present } from '../devices.js'

describe.each(present)('graphs on %s', name => {
  it('two copies with an edge run one after the other, again and again', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using a = lane.malloc(KiB)
    using b = lane.malloc(KiB)
    using c = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    const first = definition.copy(b, a)
    const second = definition.copy(c, b, { after: [first] })
    expect(places([first, second], definition.nodes)).toEqual([0, 1])
    expect(edgePlaces([first, second], definition)).toEqual([[0, 1]])
    using graph = ExecutableGraph.instantiate(definition)
    for (const word of [3, 4]) {
      lane.fill32(a, word)
      graph.launch(lane)
      expect(await contentOf(device, lane, c)).toEqual([word])
    }
  })

  it('a block that a node refers to gets no new owner before the last holder goes', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const active = (): number => device.stats()['active_bytes.all.current'] ?? 0
    const from = lane.malloc(KiB)
    const to = lane.malloc(KiB)
    using result = device.pinned(KiB, lane)
    const definition = GraphDefinition.create(device)
    const copied = definition.copy(to, from)
    definition.copy(result, to, { after: [copied] })
    lane.fill32(from, 7)
    const graph = ExecutableGraph.instantiate(definition)
    const kept = [from.address, to.address]
    from.free()
    to.free()
    definition[Symbol.dispose]()
    const others = Array.from({ length: 64 }, () => lane.malloc(KiB))
    for (const other of others) {
      expect(kept).not.toContain(other.address)
      lane.fill32(other, 1)
    }
    graph.launch(lane)
    await lane.synchronize()
    expect([...new Set(new Uint32Array(result.view()))]).toEqual([7])
    expect(active()).toBe(66 * KiB)
    graph[Symbol.dispose]()
    await soon(() => active() === 64 * KiB)
    for (const other of others) other.free()
    expect((await wordsOf(device, result, lane))[0]).toBe(7)
  })

  // x becomes ((x · 2 + 1) · 3 + 5) and so on: steps that do not commute, so the number proves the order.
  const affine = async (device: Device) => {
    const axpn = await axpnOn(device)
    const lane = device.lane()
    const cell = lane.malloc(4)
    const step = (definition: GraphDefinition, a: number, n: number, after: readonly GraphNode[] = []) => {
      const launch = {
        reads: { x: cell },
        writes: { y: cell },
        grid: 1,
        block: 1,
        scalars: { a, n, count: 1 },
      }
      return definition.launch(axpn, launch, { after })
    }
    const run = async (definition: GraphDefinition, start = 1): Promise<number> => {
      using graph = ExecutableGraph.instantiate(definition)
      lane.fill32(cell, start)
      graph.launch(lane)
      return (await wordsOf(device, cell, lane))[0]!
    }
    return { axpn, lane, cell, step, run }
  }

  it('kernels run in the order of the edges, which can be changed', async () => {
    await using device = await openOn(name)
    const { step, run } = await affine(device)
    using definition = GraphDefinition.create(device)
    const a = step(definition, 2, 1)
    const b = step(definition, 3, 5, [a])
    const c = step(definition, 5, 7, [b])
    const all = [a, b, c]
    expect(edgePlaces(all, definition)).toEqual([
      [0, 1],
      [1, 2],
    ])
    expect(await run(definition)).toBe(((1 * 2 + 1) * 3 + 5) * 5 + 7)
    b.pred = [c]
    c.pred = [a]
    expect(edgePlaces(all, definition)).toEqual([
      [0, 2],
      [2, 1],
    ])
    expect(await run(definition)).toBe(((1 * 2 + 1) * 5 + 7) * 3 + 5)
    c.destroy()
    expect([c.valid, c.pred.size, [...c.succ]]).toEqual([false, 0, []])
    c.destroy()
    expect(() => b.pred.add(c)).toThrow(/it was destroyed/)
    b.pred.add(a)
    expect(await run(definition)).toBe((1 * 2 + 1) * 3 + 5)
  })

  it('edges are sets: what is there is not added again, what is not is not removed', async () => {
    await using device = await openOn(name)
    using definition = GraphDefinition.create(device)
    const [a, b, c] = [definition.empty(), definition.empty(), definition.empty()] as const
    a.succ.add(b).add(b).add(c)
    expect([a.succ.size, b.pred.has(a), c.pred.has(b)]).toEqual([2, true, false])
    expect([a.succ.delete(b), a.succ.delete(b)]).toEqual([true, false])
    expect(places([a, b, c], a.succ)).toEqual([2])
    a.succ.clear()
    expect(definition.edges).toHaveLength(0)
    expect(() => a.succ.add(a)).toThrow(/no node comes before itself/i)
    using other = GraphDefinition.create(device)
    const foreign = other.empty()
    expect(() => a.succ.add(foreign)).toThrow(/edges stay inside a graph/i)
    expect(() => definition.empty({ after: [foreign] })).toThrow(/edges stay inside one graph/i)
    expect(() => a.succ.add({} as never)).toThrow(/node/)
  })

  it('a cycle is refused when the graph is instantiated, in words', async () => {
    await using device = await openOn(name)
    using definition = GraphDefinition.create(device)
    const a = definition.empty()
    const b = definition.empty({ after: [a] })
    b.succ.add(a)
    expect(() => ExecutableGraph.instantiate(definition)).toThrow(AllocatorError)
  })

  it('fills of 8, 16 and 32 bits, and of rows', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(64)
    using definition = GraphDefinition.create(device)
    const all = definition.fill(block, 0xff)
    const half = definition.fill(block.at(0, 8), 0x1234, { bits: 16, after: [all] })
    definition.fill(block.at(16, 40), 0xabcd, { bits: 32, rows: 3, width: 1, pitch: 16, after: [half] })
    using graph = ExecutableGraph.instantiate(definition)
    graph.launch(lane)
    const words = [...(await wordsOf(device, block, lane))]
    const f = 0xffffffff
    expect(words).toEqual([0x12341234, 0x12341234, f, f, 0xabcd, f, f, f, 0xabcd, f, f, f, 0xabcd, f, f, f])
    expect(() => definition.fill(block.at(0, 6), 1, { bits: 32 })).toThrow(/whole words of 4 bytes/)
    expect(() => definition.fill(block, 256)).toThrow(/value/)
  })

  it('updates of a node reach later executables; updates of an executable reach it alone', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using a = lane.malloc(KiB)
    using b = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    const fill = definition.fill(a, 1, { bits: 32 })
    using old = ExecutableGraph.instantiate(definition)
    fill.update({ value: 2 })
    using young = ExecutableGraph.instantiate(definition)
    const wordAfter = async (graph: ExecutableGraph): Promise<number> => {
      graph.launch(lane)
      return (await wordsOf(device, a, lane))[0]!
    }
    expect([await wordAfter(old), await wordAfter(young), await wordAfter(old)]).toEqual([1, 2, 1])
    old.updateNode(fill, { to: a, value: 9, bits: 32 })
    expect([await wordAfter(old), await wordAfter(young)]).toEqual([9, 2])
    young.enable(fill, false)
    expect([young.enabled(fill), old.enabled(fill)]).toEqual([false, true])
    expect([await wordAfter(old), await wordAfter(young)]).toEqual([9, 9])
    young.update(definition)
    young.enable(fill, true)
    expect(await wordAfter(young)).toBe(2)
    using other = GraphDefinition.create(device)
    other.copy(b, a)
    expect(() => young.update(other)).toThrow(/definition with the same nodes and edges/)
    expect(await wordAfter(young)).toBe(2)
    const empty = definition.empty()
    expect(() => young.enable(empty as never, false)).toThrow(/only these can be switched off/i)
    fill.destroy()
    expect(() => young.enable(fill, true)).toThrow(/destroyed/)
    expect(() => fill.update({ value: 3 })).toThrow(/destroyed/)
  })

  it('an update keeps the new block before it lets the old one go', async () => {
    await using device = await openOn(name)
    const active = (): number => device.stats()['active_bytes.all.current'] ?? 0
    const [a, b] = [device.malloc(KiB), device.malloc(KiB)]
    using definition = GraphDefinition.create(device)
    const fill = definition.fill(a, 1)
    a.free()
    fill.update({ to: b })
    await soon(() => active() === KiB)
    b.free()
    fill.update({ value: 4 })
    expect(active()).toBe(KiB)
    fill.destroy()
    await soon(() => active() === 0)
  })

  it('a child is a copy: it keeps its operands, and goes with its node', async () => {
    await using device = await openOn(name)
    const active = (): number => device.stats()['active_bytes.all.current'] ?? 0
    const lane = device.lane()
    const block = lane.malloc(KiB)
    const inner = GraphDefinition.create(device)
    inner.fill(block, 3, { bits: 32 })
    using outer = GraphDefinition.create(device)
    const node = outer.embed(inner)
    inner[Symbol.dispose]()
    const [body] = node.bodies
    expect([node.kind, body!.nodes.map(({ kind }) => kind)]).toEqual(['child', ['fill']])
    expect(node.bodies[0]).toBe(body)
    expect(() => node.update({ graph: outer })).toThrow(/another hierarchy/)
    const graph = ExecutableGraph.instantiate(outer)
    graph.launch(lane)
    expect(await contentOf(device, lane, block)).toEqual([3])
    block.free()
    graph[Symbol.dispose]()
    node.destroy()
    expect([node.valid, body!.valid]).toEqual([false, false])
    expect(() => body!.empty()).toThrow(/the node that held it was destroyed/)
    await soon(() => active() === 0)
  })

  it('the graph of a child node is copied into another definition, and has no executable of its own', async () => {
    await using device = await openOn(name)
    const active = (): number => device.stats()['active_bytes.all.current'] ?? 0
    const lane = device.lane()
    const block = lane.malloc(KiB)
    const inner = GraphDefinition.create(device)
    inner.fill(block, 5, { bits: 32 })
    const outer = GraphDefinition.create(device)
    const [body] = outer.embed(inner).bodies
    using parent = GraphDefinition.create(device)
    using empty = GraphDefinition.create(device)
    const node = parent.embed(empty)
    expect(() => ExecutableGraph.instantiate(body!)).toThrow(/a graph that is inside no other one/)
    using plain = ExecutableGraph.instantiate(inner)
    expect(() => plain.update(body!)).toThrow(/a graph that is inside no other one/)
    node.update({ graph: body! })
    parent.embed(body!)
    using builder = GraphBuilder.create(lane).begin()
    builder.embed(body!)
    builder.end()
    const { definition } = builder
    parent.embed(definition)
    plain[Symbol.dispose]()
    for (const each of [inner, outer, definition]) each[Symbol.dispose]()
    block.free()
    const graph = ExecutableGraph.instantiate(parent)
    expect(parent.nodes.map(({ kind }) => kind)).toEqual(['child', 'child', 'child'])
    graph.launch(lane)
    await lane.synchronize()
    expect(active()).toBe(KiB)
    graph[Symbol.dispose]()
    for (const each of parent.nodes) each.destroy()
    await soon(() => active() === 0)
  })

  it('a new child replaces the old one, and what that kept', async () => {
    await using device = await openOn(name)
    const active = (): number => device.stats()['active_bytes.all.current'] ?? 0
    const [a, b] = [device.malloc(KiB), device.malloc(2 * KiB)]
    using outer = GraphDefinition.create(device)
    const first = GraphDefinition.create(device)
    first.fill(a, 1)
    const second = GraphDefinition.create(device)
    second.fill(b, 1)
    const node = outer.embed(first)
    const [old] = node.bodies
    node.update({ graph: second })
    expect([old!.valid, node.valid, node.bodies[0]!.nodes.length]).toEqual([false, true, 1])
    for (const each of [first, second]) each[Symbol.dispose]()
    a.free()
    b.free()
    await soon(() => active() === 2 * KiB)
    node.destroy()
    await soon(() => active() === 0)
  })

  it('conditional nodes: if, if-else, while, switch', async () => {
    await using device = await openOn(name)
    const { lane, cell, step, run } = await affine(device)
    using flag = lane.malloc(4)
    const outcomes: Record<string, number> = {}
    for (const value of [0, 1, 2]) {
      for (const kind of ['if', 'if-else', 'switch'] as const) {
        using definition = GraphDefinition.create(device)
        const condition = definition.condition()
        const set = definition.setCondition(condition, flag)
        const after = { after: [set] }
        const node =
          kind === 'if'
            ? definition.ifThen(condition, after)
            : kind === 'if-else'
              ? definition.ifElse(condition, after)
              : definition.switchOn(condition, 2, after)
        node.bodies.forEach((body, i) => void step(body, 10, i))
        lane.fill32(flag, value)
        outcomes[`${kind} ${value}`] = await run(definition, 1)
      }
    }
    expect(outcomes).toEqual({
      'if 0': 1,
      'if-else 0': 11,
      'switch 0': 10,
      'if 1': 10,
      'if-else 1': 10,
      'switch 1': 11,
      'if 2': 10,
      'if-else 2': 10,
      'switch 2': 1,
    })
    using loop = GraphDefinition.create(device)
    const condition = loop.condition(1)
    const [body] = loop.whileLoop(condition).bodies
    // The body counts up from -3, and goes on until the cell is 0.
    const counted = step(body!, 1, 1)
    body!.setCondition(condition, cell, { after: [counted] })
    expect(await run(loop, 2 ** 32 - 3)).toBe(0)
    expect(() => loop.ifThen({} as never)).toThrow(/GraphCondition/)
    expect(() => loop.switchOn(condition, 0)).toThrow(/count/)
  })

  it('events: a lane waits for a node inside a launch, and a node for a lane', async () => {
    await using device = await openOn(name)
    const [a, b] = [device.lane(), device.lane()]
    using block = a.malloc(4 * KiB)
    const copy = mirrorOf(device, 4 * KiB)
    using event = device.event()
    using definition = GraphDefinition.create(device)
    const filled = definition.fill(block, 5, { bits: 32 })
    definition.record(event, { after: [filled] })
    using graph = ExecutableGraph.instantiate(definition)
    using gate = hold(device, a)
    graph.launch(a)
    b.wait(event)
    b.copy(copy.block, block)
    expect(b.idle).toBe(false)
    gate.open()
    await b.synchronize()
    expect(copy.all()).toEqual([5])
    await a.synchronize()
    // A wait node with an event of another lane.
    using second = hold(device, b)
    b.fill32(block, 6)
    b.record(event)
    using waits = GraphDefinition.create(device)
    const waited = waits.wait(event)
    waits.copy(copy.block, block, { after: [waited] })
    using waiting = ExecutableGraph.instantiate(waits)
    waiting.launch(a)
    expect(a.idle).toBe(false)
    second.open()
    await a.synchronize()
    expect(copy.all()).toEqual([6])
    copy.block.free()
  })

  it('a wait is for what was recorded before the launch, whatever the launch records and wherever', async () => {
    await using device = await openOn(name)
    const [a, b] = [device.lane(), device.lane()]
    for (const first of ['record', 'wait'] as const) {
      using event = device.event()
      using definition = GraphDefinition.create(device)
      const second = first === 'record' ? 'wait' : 'record'
      const nodes = { [first]: definition[first](event), [second]: definition[second](event) }
      using free = ExecutableGraph.instantiate(definition)
      nodes['record']!.pred.add(nodes['wait']!)
      using ordered = ExecutableGraph.instantiate(definition)
      for (const graph of [free, ordered, free, ordered]) for (const lane of [a, b, a]) graph.launch(lane)
      b.wait(event)
      await Promise.all([a.synchronize(), b.synchronize()])
    }
  })

  it('a launch that is queued keeps what it uses, though everything else is gone', async () => {
    await using device = await openOn(name)
    const active = (): number => device.stats()['active_bytes.all.current'] ?? 0
    const lane = device.lane()
    const [from, other] = [lane.malloc(KiB), device.lane()]
    const copy = mirrorOf(device, KiB)
    lane.fill32(from, 9)
    const definition = GraphDefinition.create(device)
    definition.copy(copy.block, from)
    const graph = ExecutableGraph.instantiate(definition)
    using gate = hold(device, lane)
    graph.launch(lane)
    graph[Symbol.dispose]()
    definition[Symbol.dispose]()
    from.free()
    using taken = other.malloc(KiB)
    other.fill32(taken, 1)
    await other.synchronize()
    expect(active()).toBe(2 * KiB)
    gate.open()
    await lane.synchronize()
    expect(copy.all()).toEqual([9])
    await soon(() => active() === KiB)
    copy.block.free()
  })

  it('after its end everything says so; a device that closes ends its graphs', async () => {
    const device = await openOn(name)
    const definition = GraphDefinition.create(device)
    const node = definition.fill(device.malloc(KiB), 1)
    const graph = ExecutableGraph.instantiate(definition)
    using gone = GraphDefinition.create(device)
    gone[Symbol.dispose]()
    expect(() => gone.empty()).toThrow(/it was disposed of/)
    await device.close()
    expect([definition.valid, node.valid, graph.disposed]).toEqual([false, false, true])
    expect(() => definition.nodes).toThrow(/is closed/)
    expect(() => graph.launch(device.defaultLane)).toThrow(/is closed/)
    graph[Symbol.dispose]()
    definition[Symbol.dispose]()
  })

  it('dot draws the graph', async () => {
    await using device = await openOn(name)
    using definition = GraphDefinition.create(device)
    definition.empty({ after: [definition.empty()] })
    expect(definition.dot()).toMatch(/digraph/)
    using graph = ExecutableGraph.instantiate(definition)
    expect(graph.dot()).toMatch(/digraph/)
    definition[Symbol.dispose]()
    expect(() => graph.dot()).toThrow(DisposedError)
  })
})
