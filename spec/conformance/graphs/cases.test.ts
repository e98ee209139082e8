// Cases of graphs that a long history of mistakes has left: bodies and children that outlive their makers,
// edges that are changed, and updates of every kind. `coverage.ts` names them.
import { describe, expect, it } from 'vitest'
import {
  type Device,
  ExecutableGraph,
  GraphBuilder,
  GraphDefinition,
  type GraphNode,
} from '../../../runtime/index.js'
import { contentOf, KiB, openOn } from '../../fixtures/allocator.js'
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

  it('nodes inside a child or a body are updated and switched off in the executable, as others are', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using x = lane.malloc(KiB)
    using y = lane.malloc(KiB)
    using leaf = GraphDefinition.create(device)
    leaf.fill(x, 1, { bits: 32 })
    using middle = GraphDefinition.create(device)
    middle.embed(leaf)
    using definition = GraphDefinition.create(device)
    const child = definition.embed(middle)
    const branch = definition.ifThen(definition.condition(1), { after: [child] })
    branch.bodies[0]!.copy(y, x)
    const deep = child.bodies[0]!.nodes[0]!.bodies[0]!.nodes[0] as GraphNode<'fill'>
    const inBody = branch.bodies[0]!.nodes[0] as GraphNode<'copy'>
    using graph = ExecutableGraph.instantiate(definition)
    const result = async (): Promise<readonly unknown[]> => {
      graph.launch(lane)
      return [await contentOf(device, lane, x), await contentOf(device, lane, y)]
    }
    expect(await result()).toEqual([[1], [1]])
    const other = lane.malloc(KiB)
    lane.fill32(other, 7)
    graph.updateNode(deep, { to: x, value: 5, bits: 32 })
    graph.updateNode(inBody, { to: y, from: other })
    other.free()
    expect(await result()).toEqual([[5], [7]])
    graph.enable(deep, false)
    graph.enable(inBody, false)
    expect([graph.enabled(deep), graph.enabled(inBody)]).toEqual([false, false])
    lane.fill32(x, 8)
    lane.fill32(y, 9)
    expect(await result()).toEqual([[8], [9]])
    // A child that is replaced keeps what is switched off, and its nodes go by the same names.
    leaf.nodes[0]!.update({ to: x, value: 3, bits: 32 })
    using again = GraphDefinition.create(device)
    again.embed(leaf)
    graph.updateNode(child, { graph: again })
    expect(await result()).toEqual([[8], [9]])
    graph.enable(deep, true)
    expect((await result())[0]).toEqual([3])
    graph.updateNode(deep, { to: x, value: 4, bits: 32 })
    expect((await result())[0]).toEqual([4])
    const late = child.bodies[0]!.fill(y, 2, { bits: 32 })
    expect(() => graph.updateNode(late, { to: y, value: 2, bits: 32 })).toThrow(
      /wanted\s+a node that the graph had when it was instantiated/,
    )
    late.destroy()
    // The definition itself stays as it was.
    graph[Symbol.dispose]()
    using fresh = ExecutableGraph.instantiate(definition)
    fresh.launch(lane)
    expect(await contentOf(device, lane, y)).toEqual([1])
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
})
