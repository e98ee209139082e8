// Time inside a graph: timed events that nodes record, added or captured.
import { describe, expect, it } from 'vitest'
import { ExecutableGraph, GraphBuilder, GraphDefinition } from '../../../runtime/index.js'
import { contentOf, hold, KiB, openOn } from '../../fixtures/allocator.js'
import { present } from '../devices.js'

describe.each(present)('timed events of graphs on %s', name => {
  it('timed events in a graph are read after each launch; others, and those that are not done, are refused', async () => {
    await using device = await openOn(name)
    const [lane, other] = [device.lane(), device.lane()]
    using block = lane.malloc(KiB)
    using start = device.event({ timed: true })
    using end = device.event({ timed: true })
    using plain = device.event()
    expect([start.timed, plain.timed]).toEqual([true, false])
    for (const [call, words] of [
      [() => device.event({ timed: 1 } as never), /true or false/],
      [() => device.event(null as never), /an object of options/],
      [() => start.elapsed(plain), /a timed event/],
      [() => plain.elapsed(end), /a timed event/],
      [() => start.elapsed(lane.record() as never), /a GraphEvent/],
      [() => start.elapsed(end), /one that was never recorded/],
    ] as const)
      expect(call).toThrow(words)
    using definition = GraphDefinition.create(device)
    const first = definition.record(start)
    const filled = definition.fill(block, 1, { bits: 32, after: [first] })
    definition.record(end, { after: [filled] })
    using graph = ExecutableGraph.instantiate(definition)
    using gate = hold(device, lane)
    graph.launch(lane)
    expect(() => start.elapsed(end)).toThrow(/one whose record the device has not reached/)
    gate.open()
    await lane.synchronize()
    expect(start.elapsed(end)).toBeGreaterThanOrEqual(0)
    expect(end.elapsed(start)).toBeLessThanOrEqual(0)
    // A captured record is a node, and still joins lanes; a record of a lane is read as well.
    using builder = GraphBuilder.create(lane).begin()
    lane.record(start)
    other.wait(start)
    other.fill32(block, 2)
    other.record(end)
    lane.wait(end)
    lane.record(plain)
    lane.fill32(block, 3)
    builder.end()
    expect(builder.definition.nodes.map(({ kind }) => kind)).toEqual(['record', 'fill', 'record', 'fill'])
    expect(builder.definition.edges.length).toBeGreaterThanOrEqual(3)
    using captured = builder.instantiate()
    captured.launch(lane)
    await lane.synchronize()
    expect(start.elapsed(end)).toBeGreaterThanOrEqual(0)
    expect(await contentOf(device, lane, block)).toEqual([3])
    lane.record(end)
    await lane.synchronize()
    expect(start.elapsed(end)).toBeGreaterThanOrEqual(0)
    const body = definition.ifThen(definition.condition(1)).bodies[0]!
    using inside = GraphBuilder.create(other, { into: body }).begin()
    expect(() => other.record(start)).toThrow(/takes no callbacks and no events/)
    inside.end()
    end[Symbol.dispose]()
    expect(() => start.elapsed(end)).toThrow(/disposed of/)
  })
})
