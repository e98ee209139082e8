// Captures: what lanes are given becomes a graph, in the order that it was given, and keeps its operands.
import { describe, expect, it } from 'vitest'
import { ExecutableGraph, GraphBuilder, GraphDefinition } from '../../../runtime/index.js'
import { contentOf, KiB, openOn, wordsOf } from '../../fixtures/allocator.js'
import { axpnOn } from '../../fixtures/device-kernels.js'
import { collect, soon, soonCollected } from '../../fixtures/graphs.js'
import { present } from '../devices.js'

describe.each(present)('captures on %s', name => {
  it('copies, fills and launches become nodes; nothing runs before the launch', async () => {
    await using device = await openOn(name)
    const axpn = await axpnOn(device)
    const lane = device.lane()
    using x = lane.malloc(KiB)
    using y = lane.malloc(KiB)
    lane.fill32(x, 1)
    lane.fill32(y, 2)
    const scalars = { a: 3, n: 4, count: KiB / 4 }
    using builder = GraphBuilder.create(lane)
    expect(builder.building).toBe(false)
    builder.begin()
    expect(builder.building).toBe(true)
    lane.fill32(x, 5)
    lane.launch(axpn, { reads: { x }, writes: { y }, grid: 4, block: 64, scalars })
    lane.copy(x, y)
    builder.end()
    expect(builder.building).toBe(false)
    expect(builder.definition.nodes.map(({ kind }) => kind)).toEqual(['fill', 'kernel', 'copy'])
    expect([await contentOf(device, lane, x), await contentOf(device, lane, y)]).toEqual([[1], [2]])
    using graph = builder.instantiate()
    using again = builder.instantiate()
    for (const each of [graph, again]) {
      lane.fill32(x, 1)
      each.launch(lane)
      expect([await contentOf(device, lane, x), await contentOf(device, lane, y)]).toEqual([[19], [19]])
    }
  })

  it('what was captured keeps its blocks', async () => {
    await using device = await openOn(name)
    const active = (): number => device.stats()['active_bytes.all.current'] ?? 0
    const lane = device.lane()
    using result = lane.malloc(KiB)
    const from = lane.malloc(KiB)
    const builder = GraphBuilder.create(lane).begin()
    lane.fill32(from, 7)
    lane.copy(result, from)
    const { definition } = builder.end()
    from.free()
    expect(active()).toBe(2 * KiB)
    using other = lane.malloc(KiB)
    lane.fill32(other, 1)
    const graph = ExecutableGraph.instantiate(definition)
    builder[Symbol.dispose]()
    definition[Symbol.dispose]()
    graph.launch(lane)
    expect(await contentOf(device, lane, result)).toEqual([7])
    graph[Symbol.dispose]()
    await soon(() => active() === 2 * KiB)
  })

  it('split and join make a diamond', async () => {
    await using device = await openOn(name)
    const [a, b] = [device.lane(), device.lane()]
    using blocks = device.arena(4 * KiB)
    const part = (i: number) => blocks.at(i * KiB, KiB)
    using builder = GraphBuilder.create(a).begin()
    expect(() => builder.split()).toThrow(/at least one other lane/i)
    a.fill32(part(0), 3)
    const [split] = builder.split(b)
    expect([builder.joinRequired, split!.joinRequired]).toEqual([false, true])
    a.copy(part(1), part(0))
    b.copy(part(2), part(0))
    expect(() => GraphBuilder.join(builder)).toThrow(/at least two/)
    expect(() => split!.end()).toThrow(/join it, and end that one/i)
    expect(GraphBuilder.join(split!, builder)).toBe(builder)
    a.copy(part(3), part(2))
    const { definition } = builder.end()
    expect(definition.nodes).toHaveLength(4)
    expect(definition.edges).toHaveLength(4)
    using graph = builder.instantiate()
    graph.launch(b)
    const words = await wordsOf(device, blocks.at(0, 4 * KiB), b)
    expect([...new Set(words)]).toEqual([3])
    // Both lanes are ordinary ones again.
    a.fill32(part(0), 1)
    b.fill32(part(1), 1)
    await a.synchronize()
    await b.synchronize()
  })

  it('lanes join by events too', async () => {
    await using device = await openOn(name)
    const [a, b] = [device.lane(), device.lane()]
    using x = a.malloc(KiB)
    using y = a.malloc(KiB)
    using out = device.event()
    using back = device.event()
    using builder = GraphBuilder.create(a).begin()
    a.fill32(x, 2)
    a.record(out)
    b.wait(out)
    b.copy(y, x)
    b.record(back)
    a.wait(back)
    a.fill32(x, 3)
    builder.end()
    expect(builder.definition.nodes.map(({ kind }) => kind)).toEqual(['fill', 'copy', 'fill'])
    expect(builder.definition.edges.length).toBeGreaterThanOrEqual(2)
    expect(() => b.wait(out)).toThrow(/last recorded in a capture, which has ended/)
    using graph = builder.instantiate()
    graph.launch(a)
    a.record(out)
    expect(b.wait(out)).toBe(true)
    expect([await contentOf(device, a, x), await contentOf(device, a, y)]).toEqual([[3], [2]])
    using late = GraphBuilder.create(a).begin()
    device.defaultLane.record(out)
    expect(() => a.wait(out)).toThrow(/recorded in the same capture/)
    late.end()
  })

  it('a capture that is not joined has no graph, and its lanes are ordinary ones again', async () => {
    await using device = await openOn(name)
    const [a, b] = [device.lane(), device.lane()]
    using x = a.malloc(KiB)
    using builder = GraphBuilder.create(a).begin()
    builder.split(b)
    b.fill32(x, 1)
    expect(() => builder.end()).toThrow(/wanted\s+a capture all of whose lanes are joined/)
    expect(() => builder.definition).toThrow(/closed/)
    a.fill32(x, 4)
    expect(await contentOf(device, a, x)).toEqual([4])
    b.fill32(x, 5)
    await b.synchronize()
  })

  it('a graph is captured once; what is not finished cannot be embedded, launched or taken', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using builder = GraphBuilder.create(lane)
    expect(() => builder.definition).toThrow(/has not begun/)
    expect(() => builder.instantiate()).toThrow(/has not begun/)
    expect(() => builder.begin('sideways' as never)).toThrow(/'global', 'thread-local' or 'relaxed'/)
    builder.begin()
    expect(() => builder.begin()).toThrow(/that is capturing/)
    expect(() => builder.definition).toThrow(/call builder.end\(\) first/i)
    expect(() => builder.embed({} as never)).toThrow(/GraphDefinition/)
    builder.end()
    expect(() => builder.begin()).toThrow(/cannot be resumed/)
    expect(() => builder.end()).toThrow(/cannot be resumed/)
    const { definition } = builder
    builder[Symbol.dispose]()
    builder[Symbol.dispose]()
    expect(() => builder.definition).toThrow(/closed/)
    expect(definition.valid).toBe(true)
  })

  it('what needs the real order of a captured lane is refused', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = device.malloc(KiB)
    using event = device.defaultLane.record()
    using builder = GraphBuilder.create(lane).begin()
    const refused = /a lane that runs what it is given/
    expect(() => lane.record()).toThrow(refused)
    expect(() => lane.wait(event)).toThrow(refused)
    expect(() => lane.idle).toThrow(refused)
    await expect(lane.synchronize()).rejects.toThrow(refused)
    expect(builder.building).toBe(true)
    lane.fill32(block, 3)
    using graph = builder.end().instantiate()
    graph.launch(lane)
    expect(await contentOf(device, lane, block)).toEqual([3])
  })

  it('a block of a captured lane can be freed meanwhile', async () => {
    await using device = await openOn(name)
    const active = (): number => device.stats()['active_bytes.all.current'] ?? 0
    const lane = device.lane()
    const block = lane.malloc(KiB)
    using builder = GraphBuilder.create(lane).begin()
    block.free()
    using other = device.defaultLane.malloc(KiB)
    device.defaultLane.fill32(other, 1)
    expect(active()).toBe(KiB)
    builder.end()
    expect(builder.definition.nodes).toHaveLength(0)
  })

  it('a builder that is dropped in the middle leaves its lane usable', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    ;(() => {
      const builder = GraphBuilder.create(lane).begin()
      lane.fill32(block, 1)
      builder[Symbol.dispose]()
    })()
    lane.fill32(block, 2)
    expect(await contentOf(device, lane, block)).toEqual([2])
    await collect()
  })

  it('a builder that is lost in the middle, by an error for instance, gives its lanes back', async () => {
    await using device = await openOn(name)
    const active = (): number => device.stats()['active_bytes.all.current'] ?? 0
    const [lane, fork] = [device.defaultLane, device.lane()]
    using block = device.malloc(KiB)
    const lose = (): void => {
      const kept = device.malloc(KiB)
      const builder = GraphBuilder.create(lane).begin()
      lane.fill32(kept, 1)
      builder.split(fork)
      fork.fill32(kept, 2)
      kept.free()
      throw new Error('in the middle')
    }
    expect(lose).toThrow('in the middle')
    expect([lane.capturing, fork.capturing, active()]).toEqual([true, true, 2 * KiB])
    await soonCollected(() => !lane.capturing)
    await lane.synchronize()
    lane.fill32(block, 2)
    expect(await contentOf(device, lane, block)).toEqual([2])
    fork.fill32(block, 3)
    expect(await contentOf(device, fork, block)).toEqual([3])
    await soon(() => active() === KiB)
  })

  it('a capture goes on while any of its builders is there, and into a body too', async () => {
    await using device = await openOn(name)
    const [lane, fork] = [device.lane(), device.lane()]
    using block = device.malloc(KiB)
    const [split] = (() => GraphBuilder.create(lane).begin().split(fork))()
    await collect()
    expect([lane.capturing, split!.building]).toEqual([true, true])
    using definition = GraphDefinition.create(device)
    const [body] = definition.ifThen(definition.condition(1)).bodies
    const other = device.lane()
    ;(() => GraphBuilder.create(other, { into: body! }).begin())()
    await soonCollected(() => !other.capturing)
    body!.fill(block, 4, { bits: 32 })
    using graph = ExecutableGraph.instantiate(definition)
    graph.launch(other)
    expect(await contentOf(device, other, block)).toEqual([4])
    fork.fill32(block, 5)
    expect(split!.building).toBe(true)
  })

  it('a finished graph is embedded as one node', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using x = lane.malloc(KiB)
    using y = lane.malloc(KiB)
    using child = GraphBuilder.create(lane).begin()
    lane.fill32(x, 8)
    child.end()
    using parent = GraphBuilder.create(lane).begin()
    lane.fill32(x, 1)
    parent.embed(child)
    lane.copy(y, x)
    const { definition } = parent.end()
    expect(definition.nodes.map(({ kind }) => kind)).toEqual(['fill', 'child', 'copy'])
    using graph = parent.instantiate()
    child.definition[Symbol.dispose]()
    graph.launch(lane)
    expect(await contentOf(device, lane, y)).toEqual([8])
  })

  it('conditional bodies are filled directly, or captured', async () => {
    await using device = await openOn(name)
    const [lane, other] = [device.lane(), device.lane()]
    using flag = lane.malloc(4)
    using x = lane.malloc(KiB)
    using builder = GraphBuilder.create(lane).begin()
    lane.fill32(x, 1)
    const condition = builder.condition()
    builder.setCondition(condition, flag)
    const node = builder.ifElse(condition)
    const [yes, no] = node.bodies
    using body = GraphBuilder.create(other, { into: yes! })
    expect(body.definition).toBe(yes)
    body.begin()
    expect(() => body.definition).toThrow(/call builder.end\(\) first/i)
    expect(() => yes!.empty()).toThrow(/a graph whose capture has not ended/)
    other.fill32(x, 2)
    body.end()
    no!.fill(x, 3, { bits: 32 })
    lane.fill32(flag, 9)
    using graph = builder.end().instantiate()
    for (const [value, wanted] of [
      [0, 3],
      [1, 2],
    ] as const) {
      lane.fill32(flag, value)
      graph.launch(lane)
      expect(await contentOf(device, lane, x)).toEqual([wanted])
    }
  })

  it('while a body is captured nothing copies, runs, ends or destroys a graph around it', async () => {
    await using device = await openOn(name)
    const [lane, other] = [device.lane(), device.lane()]
    using x = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    using parent = GraphDefinition.create(device)
    const node = definition.ifThen(definition.condition(1))
    using body = GraphBuilder.create(other, { into: node.bodies[0]! }).begin()
    other.fill32(x, 12)
    using outside = ExecutableGraph.instantiate(parent)
    const child = parent.embed(GraphDefinition.create(device))
    using capture = GraphBuilder.create(lane).begin()
    for (const call of [
      () => ExecutableGraph.instantiate(definition),
      () => outside.update(definition),
      () => definition.clone(),
      () => definition.dot(),
      () => parent.embed(definition),
      () => capture.embed(definition),
      () => child.update({ graph: definition }),
      () => node.destroy(),
      () => definition[Symbol.dispose](),
    ])
      expect(call).toThrow(/found\s+one with a graph inside whose capture has not ended/)
    expect(() => node.bodies[0]![Symbol.dispose]()).not.toThrow()
    // Graphs beside the captured one can be changed.
    definition.fill(x, 1, { bits: 32 }).destroy()
    capture.end()
    body.end()
    using graph = ExecutableGraph.instantiate(definition)
    graph.launch(lane)
    expect(await contentOf(device, lane, x)).toEqual([12])
    node.destroy()
    // A graph that is captured into itself is not disposed of.
    using whole = GraphBuilder.create(lane, { into: parent }).begin()
    expect(() => parent[Symbol.dispose]()).toThrow(/a graph whose capture has not ended/)
    whole.end()
  })

  it('a capture ends after those into its bodies, and where it is dropped it drops them', async () => {
    await using device = await openOn(name)
    const [lane, other] = [device.lane(), device.lane()]
    using x = lane.malloc(KiB)
    for (const dropped of [false, true]) {
      using builder = GraphBuilder.create(lane).begin()
      const node = builder.ifThen(builder.condition(1))
      const body = GraphBuilder.create(other, { into: node.bodies[0]! }).begin()
      other.fill32(x, 7)
      expect(() => builder.end()).toThrow(/whose capture has not ended/)
      expect(builder.building).toBe(true)
      if (dropped) {
        builder[Symbol.dispose]()
        expect([body.building, node.valid]).toEqual([false, false])
        expect(() => body.end()).toThrow(/ended with that of another builder/)
      } else {
        body.end()
        lane.fill32(x, 1)
        using graph = builder.end().instantiate()
        graph.launch(lane)
        expect(await contentOf(device, lane, x)).toEqual([1])
      }
      other.fill32(x, 3)
      expect(await contentOf(device, other, x)).toEqual([3])
    }
  })

  it('a captured graph can be changed as any other', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using x = lane.malloc(KiB)
    using y = lane.malloc(KiB)
    using builder = GraphBuilder.create(lane).begin()
    lane.fill32(x, 6)
    const { definition } = builder.end()
    definition.copy(y, x, { after: definition.nodes })
    using graph = builder.instantiate()
    graph.launch(lane)
    expect(await contentOf(device, lane, y)).toEqual([6])
  })
})
