// Cases of graphs that a long history of mistakes has left: bodies and children that outlive their makers,
// edges that are changed, updates of every kind, and what is refused. `coverage.ts` names them.
import { describe, expect, it } from 'vitest'
import { type Device, ExecutableGraph, GraphBuilder, GraphDefinition } from '../../../runtime/index.js'
import { anotherDeviceOf, contentOf, KiB, openOn, thrownBy } from '../../fixtures/allocator.js'
import { axpnOn } from '../../fixtures/device-kernels.js'
import { collect, soon } from '../../fixtures/graphs.js'
import { present } from '../devices.js'

const active = (device: Device): number => device.stats()['active_bytes.all.current'] ?? 0

describe.each(present)('cases of graphs on %s', name => {
  it('a body of a conditional node outlives the view of its parent, and can be added to', async () => {
    await using device = await openOn(name)
    const body = ((): GraphDefinition => {
      const definition = GraphDefinition.create(device)
      return definition.ifThen(definition.condition(0)).bodies[0]!
    })()
    await collect()
    expect([body.valid, body.nodes.length]).toEqual([true, 0])
    body.fill(device.malloc(KiB), 1)
    expect(body.nodes.map(({ kind }) => kind)).toEqual(['fill'])
  })

  it('a conditional node that is destroyed releases what its bodies keep, and ends their views', async () => {
    await using device = await openOn(name)
    using definition = GraphDefinition.create(device)
    const condition = definition.condition(0)
    const node = definition.switchOn(condition, 3)
    const { bodies } = node
    for (const body of bodies) {
      using block = device.malloc(KiB)
      body.fill(block, 1)
    }
    expect(active(device)).toBe(3 * KiB)
    node.destroy()
    expect(bodies.map(({ valid }) => valid)).toEqual([false, false, false])
    expect(() => bodies[0]!.empty()).toThrow(/the node that held it was destroyed/)
    await soon(() => active(device) === 0)
  })

  it('a grandchild’s view keeps the whole; its nodes release their owners one by one', async () => {
    await using device = await openOn(name)
    const made = (): GraphDefinition => {
      const [outer, middle, inner] = [0, 1, 2].map(() => GraphDefinition.create(device)) as [
        GraphDefinition,
        GraphDefinition,
        GraphDefinition,
      ]
      using block = device.malloc(KiB)
      inner.fill(block, 1)
      middle.embed(inner)
      inner[Symbol.dispose]()
      const node = outer.embed(middle)
      middle[Symbol.dispose]()
      return node.bodies[0]!.nodes[0]!.bodies[0]!
    }
    const view = made()
    await collect()
    expect([view.valid, view.nodes.length, active(device)]).toEqual([true, 1, KiB])
    view.nodes[0]!.destroy()
    await soon(() => active(device) === 0)
  })

  it('an executable runs what it was made of: nodes destroyed, replaced and updated later change nothing', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using seen = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    let called = 0
    const callback = definition.callback(() => called++)
    const fill = definition.fill(seen, 1, { bits: 32 })
    using old = ExecutableGraph.instantiate(definition)
    callback.destroy()
    fill.destroy()
    definition.fill(seen, 2, { bits: 32 })
    using young = ExecutableGraph.instantiate(definition)
    const runs = async (graph: ExecutableGraph): Promise<readonly number[]> => {
      graph.launch(lane)
      return contentOf(device, lane, seen)
    }
    expect([await runs(old), await runs(young), await runs(old)]).toEqual([[1], [2], [1]])
    await soon(() => called === 2)
  })

  it('kernels, their arguments and events live as long as a graph that uses them', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using seen = device.pinned(4, lane)
    const graph = await (async (): Promise<ExecutableGraph> => {
      const axpn = await axpnOn(device)
      using x = lane.malloc(4)
      using y = lane.malloc(4)
      using event = device.event()
      using definition = GraphDefinition.create(device)
      const filled = definition.fill(x, 4, { bits: 32 })
      const scalars = { a: 3, n: 1, count: 1 }
      const launch = { reads: { x }, writes: { y }, grid: 1, block: 1, scalars }
      const launched = definition.launch(axpn, launch, { after: [filled] })
      const recorded = definition.record(event, { after: [launched] })
      definition.copy(seen, y, { after: [recorded] })
      return ExecutableGraph.instantiate(definition)
    })()
    await collect()
    expect(active(device)).toBe(2 * 512)
    graph.launch(lane)
    await lane.synchronize()
    expect([...new Uint32Array(seen.view())]).toEqual([13])
    graph[Symbol.dispose]()
    await soon(() => active(device) === 0)
  })

  it('a clone runs on its own, and keeps what its original kept', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using seen = lane.malloc(KiB)
    const from = lane.malloc(KiB)
    lane.fill32(from, 9)
    const definition = GraphDefinition.create(device)
    const copied = definition.copy(seen, from)
    from.free()
    using clone = definition.clone()
    copied.destroy()
    definition[Symbol.dispose]()
    await collect()
    using graph = ExecutableGraph.instantiate(clone)
    graph.launch(lane)
    expect(await contentOf(device, lane, seen)).toEqual([9])
    expect(active(device)).toBe(2 * KiB)
    clone.nodes[0]!.destroy()
    graph[Symbol.dispose]()
    await soon(() => active(device) === KiB)
  })

  it('a captured or copied node takes whole parameters, and says so of a part', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    using builder = GraphBuilder.create(lane).begin()
    lane.fill32(block, 1)
    builder.end()
    using outer = GraphDefinition.create(device)
    const child = outer.embed(builder.definition).bodies[0]!
    using clone = builder.definition.clone()
    for (const graph of [builder.definition, child, clone]) {
      const [fill] = graph.nodes
      expect(() => fill!.update({ value: 2 } as never)).toThrow(/not known here.*pass all parameters/is)
      fill!.update({ to: block, value: 2, bits: 32 } as never)
    }
    using graph = ExecutableGraph.instantiate(outer)
    graph.launch(lane)
    expect(await contentOf(device, lane, block)).toEqual([2])
  })

  it('an executable takes whole parameters of a node, and none of a node that it does not have', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    using other = GraphDefinition.create(device)
    const fill = definition.fill(block, 1, { bits: 32 })
    using graph = ExecutableGraph.instantiate(definition)
    expect(() => graph.updateNode(fill, { value: 2 } as never)).toThrow(/pass a block|pass all parameters/i)
    expect(() => graph.updateNode(fill, null as never)).toThrow(/an object of parameters/)
    const foreign = other.fill(block, 3, { bits: 32 })
    expect(() => graph.updateNode(foreign, { to: block, value: 4, bits: 32 })).toThrow()
    const empty = definition.empty()
    expect(() => graph.updateNode(empty as never, {} as never)).toThrow(/whose parameters can change/)
    graph.launch(lane)
    expect(await contentOf(device, lane, block)).toEqual([1])
  })

  it('updates of each kind reach later executables; one of the wrong kind changes nothing', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const axpn = await axpnOn(device)
    using x = lane.malloc(4)
    using y = lane.malloc(4)
    using z = lane.malloc(4)
    const scalars = (a: number) => ({ a, n: 1, count: 1 })
    using definition = GraphDefinition.create(device)
    const filled = definition.fill(x, 1, { bits: 32 })
    const launched = definition.launch(
      axpn,
      { reads: { x }, writes: { y }, grid: 1, block: 1, scalars: scalars(2) },
      { after: [filled] },
    )
    const copied = definition.copy(z, y, { after: [launched] })
    const result = async (): Promise<number> => {
      using graph = ExecutableGraph.instantiate(definition)
      graph.launch(lane)
      return (await contentOf(device, lane, z))[0]!
    }
    expect(await result()).toBe(3)
    filled.update({ value: 5 })
    expect(await result()).toBe(11)
    launched.update({ launch: { reads: { x }, writes: { y }, grid: 1, block: 1, scalars: scalars(3) } })
    expect(await result()).toBe(16)
    copied.update({ from: x })
    expect(await result()).toBe(5)
    expect(() => launched.update({})).toThrow(/pass launch too/i)
    expect(() => copied.update({ bytes: 8 })).toThrow(/at most 4/)
    expect(() => filled.update({ value: 2 ** 32 })).toThrow(/value/)
    expect(() => filled.update({ to: {} as never })).toThrow(/a Block, a part of one/)
    expect(await result()).toBe(5)
  })

  it('what is no graph, no condition of this one, or of no use, is refused and adds nothing', async () => {
    await using device = await openOn(name)
    using block = device.malloc(KiB)
    using definition = GraphDefinition.create(device)
    using other = GraphDefinition.create(device)
    const foreign = other.condition()
    for (const call of [
      () => definition.embed({} as never),
      () => definition.embed(undefined as never),
      () => definition.ifThen(7 as never),
      () => definition.ifElse({} as never),
      () => definition.whileLoop(null as never),
      () => definition.switchOn('a' as never, 2),
      () => definition.ifThen(foreign),
      () => definition.fill(block, 1, { bits: 24 as never }),
      () => definition.record({} as never),
      () => definition.wait(undefined as never),
      () => definition.copy(block, undefined as never),
      () => definition.empty({ after: {} as never }),
      () => ExecutableGraph.instantiate({} as never),
      () => GraphDefinition.create({} as never),
    ])
      expect(call).toThrow(/wanted/)
    expect(definition.nodes).toHaveLength(0)
    other.condition()
    expect(() => ExecutableGraph.instantiate(other)).toThrow(/condition|a driver call/i)
  })

  it('a condition is set in its own graph and in graphs inside it, and in no other one', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using word = lane.malloc(4)
    using seen = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    using other = GraphDefinition.create(device)
    const foreign = other.condition(0)
    other.ifThen(foreign)
    const loop = definition.condition(1)
    const body = definition.whileLoop(loop).bodies[0]!
    const inner = body.condition(0)
    const branch = body.ifThen(inner)
    const gone = GraphDefinition.create(device)
    const dead = gone.condition()
    gone[Symbol.dispose]()
    using builder = GraphBuilder.create(device.lane()).begin()
    for (const graph of [definition, body, builder]) {
      expect(() => graph.setCondition(foreign, word)).toThrow(/wanted\s+a condition of this graph/)
      expect(() => graph.setCondition({ ...foreign }, word)).toThrow(/a GraphCondition/)
      expect(() => graph.setCondition({ handle: 999_999n } as never, word)).toThrow(/a GraphCondition/)
      expect(() => graph.setCondition(dead, word)).toThrow(/its graph was disposed of/)
      expect(() => graph.ifThen(foreign)).toThrow(/wanted\s+a condition of the graph that/)
      expect(() => graph.ifThen(dead)).toThrow(/its graph was disposed of/)
    }
    expect(() => definition.setCondition(inner, word)).toThrow(/wanted\s+a condition of this graph/)
    expect(builder.end().definition.nodes).toHaveLength(0)
    expect([definition.nodes.length, body.nodes.length]).toEqual([1, 1])
    // The body ends the loop from inside a branch.
    const set = branch.bodies[0]!
    set.setCondition(loop, word)
    using flag = lane.malloc(4)
    const before = body.setCondition(inner, flag)
    branch.pred.add(before)
    branch.pred.add(body.fill(seen, 6, { bits: 32 }))
    for (const copy of [() => set.clone(), () => other.embed(set), () => ExecutableGraph.instantiate(set)])
      expect(copy).toThrow(/sets (one|a condition)/)
    using graph = ExecutableGraph.instantiate(definition)
    lane.fill32(word, 0)
    lane.fill32(flag, 1)
    lane.fill32(seen, 0)
    graph.launch(lane)
    expect(await contentOf(device, lane, seen)).toEqual([6])
  })

  it('what the driver refuses for what it was given is misuse, in words, and leaves the device as it was', async () => {
    await using device = await openOn(name)
    const [lane, other] = [device.lane(), device.lane()]
    using block = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    using apart = GraphDefinition.create(device)
    const body = definition.ifThen(definition.condition(1)).bodies[0]!
    const deep = body.ifThen(body.condition(1)).bodies[0]!
    using event = device.event()
    const calling = GraphDefinition.create(device)
    calling.callback(() => {})
    const nested = GraphDefinition.create(device)
    const child = nested.embed(calling)
    using plain = GraphDefinition.create(device)
    const inside = plain.fill(block, 1, { bits: 32 })
    const embedded = plain.embed(apart)
    using graph = ExecutableGraph.instantiate(plain)
    const late = plain.fill(block, 1)
    const misuse = (call: () => unknown, words: RegExp): void => {
      const error = thrownBy(call)
      expect([error['_tag'], error.message]).toEqual(['BadArgument', expect.stringMatching(words)])
      expect(error.message).not.toMatch(/open it again/)
    }
    for (const inner of [body, deep]) {
      misuse(() => inner.callback(() => {}), /takes no callbacks and no events/)
      misuse(() => inner.record(event), /takes no callbacks and no events/)
      misuse(() => inner.wait(event), /takes no callbacks and no events/)
      misuse(() => inner.embed(nested), /a graph without callbacks and events/)
      using builder = GraphBuilder.create(lane, { into: inner }).begin()
      misuse(() => builder.callback(() => {}), /takes no callbacks and no events/)
      misuse(() => lane.callback(() => {}), /takes no callbacks and no events/)
      expect(builder.building).toBe(true)
      lane.fill32(block, 8)
      builder.end()
    }
    misuse(() => definition.clone(), /a graph without conditional nodes/)
    misuse(() => apart.embed(definition), /a graph without conditional nodes/)
    misuse(() => child.update({ graph: definition }), /a graph without conditional nodes/)
    misuse(() => graph.updateNode(embedded, { graph: definition }), /a graph without conditional nodes/)
    misuse(() => definition.embed(definition), /a graph of another hierarchy/)
    misuse(() => definition.embed(body), /a graph of another hierarchy/)
    misuse(() => definition.switchOn(definition.condition(), 1e9), /from 1 to 65536/)
    const foreign = apart.fill(block, 2, { bits: 32 })
    misuse(() => graph.updateNode(foreign, { to: block, value: 1 }), /one of another definition/)
    misuse(() => graph.enable(foreign, false), /one of another definition/)
    misuse(() => graph.enabled(foreign), /one of another definition/)
    misuse(() => graph.updateNode(late, { to: block, value: 1 }), /a call that the driver takes/)
    for (const [library, symbol] of [
      ['libnothing.so', 'f'],
      ['libm.so.6', 'nothing_f'],
    ] as const)
      misuse(() => apart.callback({ library, symbol }), /a library that can be loaded/)
    using builder = GraphBuilder.create(lane).begin()
    builder.split(other)
    other.fill32(block, 1)
    misuse(() => builder.end(), /a capture all of whose lanes are joined/)
    inside.update({ value: 5 })
    graph.launch(lane)
    expect(await contentOf(device, lane, block)).toEqual([1])
  })

  it('options that are no object, and edges that are no list, are refused in words', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    const node = definition.empty()
    using builder = GraphBuilder.create(device.lane()).begin()
    const condition = definition.condition()
    for (const wrong of [null, 5, 'a'] as never[]) {
      for (const call of [
        () => definition.copy(block, block, wrong),
        () => definition.fill(block, 1, wrong),
        () => definition.callback(() => {}, wrong),
        () => definition.empty(wrong),
        () => definition.record(device.event(), wrong),
        () => definition.wait(device.event(), wrong),
        () => definition.ifThen(condition, wrong),
        () => definition.setCondition(condition, block, wrong),
        () => definition.embed(GraphDefinition.create(device), wrong),
        () => builder.callback(() => {}, wrong),
        () => GraphBuilder.create(lane, wrong),
        () => ExecutableGraph.instantiate(definition, wrong),
      ])
        expect(thrownBy(call)).toMatchObject({ _tag: 'BadArgument', subject: 'options' })
      expect(() => definition.empty({ after: wrong })).toThrow(/an array of nodes/)
    }
    for (const wrong of [null, undefined, 5, {}] as never[]) {
      expect(thrownBy(() => (node.pred = wrong))).toMatchObject({ _tag: 'BadArgument', at: 'node.pred' })
      expect(thrownBy(() => (node.succ = wrong))).toMatchObject({ _tag: 'BadArgument', at: 'node.succ' })
    }
    expect([definition.nodes.length, builder.end().definition.nodes.length]).toEqual([1, 0])
  })

  it('elements of three bytes are refused by nodes, updates and captures, which stay as they were', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    const three = { bits: 24 as never }
    const wrong = /wanted\s+8, 16 or 32\s+found\s+number 24/
    using definition = GraphDefinition.create(device)
    const fill = definition.fill(block, 5, { bits: 32 })
    using graph = ExecutableGraph.instantiate(definition)
    expect(() => definition.fill(block, 1, three)).toThrow(wrong)
    expect(() => fill.update({ value: 6, ...three })).toThrow(wrong)
    expect(() => graph.updateNode(fill, { to: block, value: 6, ...three })).toThrow(wrong)
    using builder = GraphBuilder.create(lane).begin()
    expect(() => lane.fill(block, 1, three)).toThrow(wrong)
    expect(builder.end().definition.nodes).toHaveLength(0)
    expect(definition.nodes).toHaveLength(1)
    using later = ExecutableGraph.instantiate(definition)
    for (const each of [graph, later]) {
      lane.fill32(block, 0)
      each.launch(lane)
      expect(await contentOf(device, lane, block)).toEqual([5])
    }
  })

  it('a closed definition or builder is no source: of an update, a child, an executable', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    definition.fill(block, 1, { bits: 32 })
    const child = definition.embed(definition.clone())
    using graph = ExecutableGraph.instantiate(definition)
    const closed = GraphDefinition.create(device)
    closed.fill(block, 2, { bits: 32 })
    closed[Symbol.dispose]()
    for (const call of [
      () => graph.update(closed),
      () => definition.embed(closed),
      () => child.update({ graph: closed }),
      () => closed.clone(),
      () => ExecutableGraph.instantiate(closed),
    ])
      expect(call).toThrow(/it was disposed of/)
    const builder = GraphBuilder.create(lane).begin()
    lane.fill32(block, 3)
    const { definition: captured } = builder.end()
    builder[Symbol.dispose]()
    expect(() => graph.update(builder.definition)).toThrow(/one that is closed/)
    captured[Symbol.dispose]()
    expect(() => graph.update(captured)).toThrow(/it was disposed of/)
    graph.launch(lane)
    expect(await contentOf(device, lane, block)).toEqual([1])
    expect(definition.nodes.map(({ kind }) => kind).sort()).toEqual(['child', 'fill'])
  })

  it('graphs of two devices stay apart: no child, update, operand or launch of the other', async () => {
    await using device = await openOn(name)
    await using other = await anotherDeviceOf(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    using far = other.malloc(KiB)
    using definition = GraphDefinition.create(device)
    const fill = definition.fill(block, 1, { bits: 32 })
    using graph = ExecutableGraph.instantiate(definition)
    using foreign = GraphDefinition.create(other)
    const farFill = foreign.fill(far, 2, { bits: 32 })
    using capture = GraphBuilder.create(device.lane()).begin()
    for (const call of [
      () => definition.embed(foreign),
      () => definition.fill(far, 1),
      () => definition.copy(block, far),
      () => definition.empty({ after: [farFill] }),
      () => fill.update({ to: far }),
      () => graph.update(foreign),
      () => graph.updateNode(farFill, { to: block, value: 3, bits: 32 }),
      () => graph.enable(farFill, false),
      () => capture.embed(foreign),
      () => graph.launch(other.defaultLane),
    ])
      expect(call).toThrow()
    expect([definition.nodes.length, foreign.nodes.length]).toEqual([1, 1])
    graph.launch(lane)
    expect(await contentOf(device, lane, block)).toEqual([1])
    using farGraph = ExecutableGraph.instantiate(foreign)
    farGraph.launch(other.defaultLane)
    expect(await contentOf(other, other.defaultLane, far)).toEqual([2])
  })
})
