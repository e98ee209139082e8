// What graphs refuse, each in words: what plain JavaScript passes, what belongs to another graph or device, and
// what the driver does not take. `coverage.ts` names some of them.
import { describe, expect, it } from 'vitest'
import {
  AllocatorError,
  Arena,
  Block,
  Device,
  Event,
  ExecutableGraph,
  GraphBuilder,
  GraphDefinition,
  GraphEvent,
  GraphNode,
  Handle,
  Kernel,
  Lane,
  MemPool,
  PlanTree,
  SharedParams,
} from '../../../runtime/index.js'
import { anotherDeviceOf, contentOf, KiB, openOn, thrownBy } from '../../fixtures/allocator.js'
import { present } from '../devices.js'

describe.each(present)('misuse of graphs on %s', name => {
  it('what plain JavaScript passes is refused in words, also where reading it throws', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    const thrower = (field: string): never =>
      Object.defineProperty({ address: block.address, bytes: KiB, host: false }, field, {
        enumerable: true,
        get: () => {
          throw new RangeError('the getter')
        },
      }) as never
    const proxy = new Proxy(
      {},
      {
        has: () => {
          throw new RangeError('the proxy')
        },
      },
    ) as never
    const node = definition.fill(block, 1, { bits: 32 })
    using graph = ExecutableGraph.instantiate(definition)
    using event = device.event()
    using builder = GraphBuilder.create(lane)
    for (const mode of [Object.create(null), ['relaxed'], Symbol('relaxed')])
      expect(() => builder.begin(mode as never)).toThrow(/wanted\s+'global', 'thread-local' or 'relaxed'/)
    builder.begin()
    for (const call of [
      () => definition.fill(thrower('address'), 1),
      () => definition.fill(thrower('bytes'), 1),
      () => definition.copy(block, thrower('host')),
      () => definition.copy(block, proxy),
      () => definition.copy(block, block, thrower('bytes')),
      () => definition.copy(block, block, thrower('after')),
      () => definition.callback(() => {}, thrower('ordered')),
      () => definition.callback(thrower('library')),
      () => definition.record(event, thrower('after')),
      () => definition.setCondition(definition.condition(), thrower('address')),
      () => node.update(thrower('value')),
      () => graph.updateNode(node, thrower('to')),
      () => ExecutableGraph.instantiate(definition, thrower('nodePriorities')),
      () => GraphBuilder.create(device.defaultLane, thrower('into')),
      () => builder.callback(() => {}, thrower('ordered')),
    ]) {
      const error = thrownBy(call)
      expect(error).toBeInstanceOf(AllocatorError)
      expect(error).toMatchObject({
        found: expect.stringMatching(/what throws when it is read: the (getter|proxy)/),
      })
      expect((error as Error).cause).toBeInstanceOf(RangeError)
    }
    builder.end()
    expect(definition.nodes).toEqual([node])
    for (const [Made, call] of [
      [GraphDefinition, 'GraphDefinition.create(device)'],
      [ExecutableGraph, 'ExecutableGraph.instantiate(definition)'],
      [GraphBuilder, 'GraphBuilder.create(lane)'],
      [GraphNode, 'a GraphDefinition'],
      [GraphEvent, 'device.event()'],
      [Device, 'Device.open(name)'],
      [Lane, 'device.lane()'],
      [Event, 'lane.record()'],
      [Block, 'lane.malloc(bytes)'],
      [Arena, 'device.arena(bytes)'],
      [MemPool, 'device.pool()'],
      [Kernel, 'device.kernel(definition)'],
      [SharedParams, 'params(device, source)'],
      [PlanTree, 'planTree(tree, options)'],
      [Handle, 'tree.launch(plan, feeds)'],
    ] as const)
      for (const given of [[], [{}], [{}, {}, {}]]) {
        const error = thrownBy(() => new (Made as unknown as new (...args: unknown[]) => unknown)(...given))
        expect(error).toBeInstanceOf(AllocatorError)
        expect(error).toMatchObject({ wanted: `a ${Made.name} that ${call} makes` })
      }
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

  it('a graph with a condition is never copied, whatever of it is left, nor is one inside it', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    using parent = GraphDefinition.create(device)
    using plain = GraphDefinition.create(device)
    plain.fill(block, 3, { bits: 32 })
    const condition = definition.condition(1)
    const inner = definition.embed(plain).bodies[0]!
    const [body] = definition.ifThen(condition).bodies
    using builder = GraphBuilder.create(lane, { into: inner }).begin()
    builder.setCondition(condition, block)
    builder.end()
    const captured = inner.nodes.find(({ kind }) => kind === 'kernel')!
    for (const setter of [inner.setCondition(condition, block), captured]) {
      expect(() => inner.clone()).toThrow(/a graph whose nodes set no condition/)
      expect(() => parent.embed(inner)).toThrow(/a graph whose nodes set no condition/)
      expect(() => ExecutableGraph.instantiate(inner)).toThrow(/of its own/)
      setter.destroy()
    }
    const never = /a graph that no condition was ever made for/
    expect(() => inner.clone()).toThrow(never)
    expect(() => parent.embed(inner)).toThrow(never)
    expect(() => ExecutableGraph.instantiate(inner)).toThrow(/a graph that is inside no other one/)
    // A body runs with the graph around it, which has one executable at a time.
    expect(() => body!.clone()).toThrow(/a graph that is no body of a conditional node/)
    expect(() => parent.embed(body!)).toThrow(/a graph that is no body of a conditional node/)
    expect(() => ExecutableGraph.instantiate(body!)).toThrow(/a graph that is no body of a conditional node/)
    const whole = ExecutableGraph.instantiate(definition)
    expect(() => ExecutableGraph.instantiate(definition)).toThrow(/one executable at a time/)
    whole[Symbol.dispose]()
    ExecutableGraph.instantiate(definition)[Symbol.dispose]()
    // CUDA copies no graph that a condition was made for, whether or not a node reads it.
    using other = GraphDefinition.create(device)
    const branch = other.ifThen(other.condition(1))
    expect(() => other.clone()).toThrow(/a graph without conditional nodes/)
    branch.destroy()
    expect(() => other.clone()).toThrow(never)
    expect(() => parent.embed(other)).toThrow(never)
    using capture = GraphBuilder.create(lane).begin()
    expect(() => capture.embed(other)).toThrow(never)
    capture.end()
    await lane.synchronize()
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
    misuse(() => graph.updateNode(late, { to: block, value: 1 }), /a node that the graph had when/)
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
