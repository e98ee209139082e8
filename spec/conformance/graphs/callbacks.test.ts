// Callbacks of graphs: without waiting, and ordered; what they throw; and that nothing waits for itself.
import { describe, expect, it } from 'vitest'
import { ExecutableGraph, GraphBuilder, GraphDefinition } from '../../../runtime/index.js'
import { contentOf, deviceOf, hold, KiB, MiB, openOn, thrownBy } from '../../fixtures/allocator.js'
import { soon } from '../../fixtures/graphs.js'
import { present } from '../devices.js'

/** What is thrown and caught by nobody while the function runs. */
const uncaughtIn = async (run: () => Promise<void>): Promise<readonly unknown[]> => {
  const before = process.listeners('uncaughtException')
  const thrown: unknown[] = []
  process.removeAllListeners('uncaughtException')
  process.on('uncaughtException', error => thrown.push(error))
  try {
    await run()
    return thrown
  } finally {
    process.removeAllListeners('uncaughtException')
    for (const listener of before) process.on('uncaughtException', listener)
  }
}

describe.each(present)('callbacks on %s', name => {
  it('are called once a launch, in definitions and in captures', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    let [called, captured] = [0, 0]
    using definition = GraphDefinition.create(device)
    definition.callback(() => called++)
    using builder = GraphBuilder.create(lane).begin()
    builder.callback(() => captured++)
    lane.callback(() => captured++)
    using second = builder.end().instantiate()
    using graph = ExecutableGraph.instantiate(definition)
    for (let i = 0; i < 3; i++) {
      graph.launch(lane)
      second.launch(lane)
    }
    await soon(() => called === 3 && captured === 6)
  })

  it('ordered ones end before what comes after them begins', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using x = lane.malloc(KiB)
    using y = lane.malloc(KiB)
    lane.fill32(x, 1)
    using source = device.pinned(KiB)
    const words = new Uint32Array(source.view())
    let round = 0
    using definition = GraphDefinition.create(device)
    const called = definition.callback(() => words.fill(++round), { ordered: true })
    definition.copy(y, source, { after: [called] })
    using graph = ExecutableGraph.instantiate(definition)
    for (const wanted of [1, 2]) {
      graph.launch(lane)
      expect(await contentOf(device, lane, y)).toEqual([wanted])
    }
  })

  it('an update that leaves out the function or `ordered` keeps it', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using x = lane.malloc(4)
    const source = device.pinned(4)
    const words = new Uint32Array(source.view())
    // The copy after the callback reads what the callback writes, if it waits for it.
    const write = (word: number) => (): void => {
      const end = Date.now() + 20
      while (Date.now() < end);
      words[0] = word
    }
    using definition = GraphDefinition.create(device)
    const called = definition.callback(write(1), { ordered: true })
    definition.copy(x, source, { after: [called] })
    const result = async (): Promise<number> => {
      using graph = ExecutableGraph.instantiate(definition)
      words[0] = 0
      graph.launch(lane)
      return (await contentOf(device, lane, x))[0]!
    }
    expect(await result()).toBe(1)
    called.update({ call: write(2) })
    expect(await result()).toBe(2)
    called.update({ ordered: false })
    called.update({ ordered: true })
    expect(await result()).toBe(2)
    // A native function is always waited for, and takes no `ordered` of the function before it.
    called.update({ call: { library: 'libc.so.6', symbol: 'free' } })
    called.update({ call: write(3) })
    called.update({ ordered: true })
    expect(await result()).toBe(3)
    using builder = GraphBuilder.create(lane).begin()
    builder.callback(write(4), { ordered: true })
    const [captured] = builder.end().definition.nodes
    expect(() => captured!.update({ ordered: true } as never)).toThrow(/not known here/)
  })

  it('what one throws is uncaught, and the graph goes on', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using x = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    const mine = new Error('on purpose')
    const called = definition.callback(
      () => {
        throw mine
      },
      { ordered: true },
    )
    definition.fill(x, 4, { bits: 32, after: [called] })
    using graph = ExecutableGraph.instantiate(definition)
    expect(
      await uncaughtIn(async () => {
        graph.launch(lane)
        expect(await contentOf(device, lane, x)).toEqual([4])
      }),
    ).toEqual([mine])
  })

  it('an ordered one that is async is refused; one that returns a promise is reported', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using x = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    using builder = GraphBuilder.create(device.lane()).begin()
    const early = async (): Promise<void> => {}
    const unordered = definition.callback(early)
    for (const call of [
      () => definition.callback(early, { ordered: true }),
      () => definition.callback(function* () {} as never, { ordered: true }),
      () => builder.callback(early, { ordered: true }),
      () => unordered.update({ ordered: true }),
    ])
      expect(call).toThrow(/has done its work when it returns.*found\s+an? (async|generator) function/s)
    builder.end()
    const called = definition.callback(() => Promise.resolve() as never, { ordered: true })
    definition.fill(x, 4, { bits: 32, after: [called] })
    using graph = ExecutableGraph.instantiate(definition)
    expect(
      await uncaughtIn(async () => {
        graph.launch(lane)
        expect(await contentOf(device, lane, x)).toEqual([4])
      }),
    ).toEqual([expect.objectContaining({ found: 'one that returned a promise' })])
  })

  it('an allocation that would have to wait for an ordered one is refused, and served afterwards', async () => {
    await using device = await deviceOf(name, { limit: 16 * MiB })
    const [lane, other] = [device.lane(), device.lane()]
    const block = lane.malloc(12 * MiB)
    let called = false
    using definition = GraphDefinition.create(device)
    const first = definition.callback(() => void (called = true), { ordered: true })
    definition.fill(block, 1, { after: [first] })
    const graph = ExecutableGraph.instantiate(definition)
    graph.launch(other)
    block.recordUse(other)
    graph[Symbol.dispose]()
    definition[Symbol.dispose]()
    block.free()
    const refused = thrownBy(() => lane.malloc(12 * MiB))
    expect(called).toBe(false)
    expect([refused['_tag'], refused.message]).toEqual([
      'WouldDeadlock',
      expect.stringMatching(/await lane.synchronize\(\)/),
    ])
    await other.synchronize()
    expect(called).toBe(true)
    // The memory comes back with the owners of the launch, which go soon after it.
    await soon(() => {
      try {
        lane.malloc(12 * MiB).free()
        return true
      } catch {
        return false
      }
    })
  })

  it('outlive their definition and executable until the launch has run', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    let called = 0
    using gate = hold(device, lane)
    {
      using definition = GraphDefinition.create(device)
      definition.callback(() => called++, { ordered: true })
      using graph = ExecutableGraph.instantiate(definition)
      graph.launch(lane)
    }
    gate.open()
    await lane.synchronize()
    expect(called).toBe(1)
  })

  it('a device that closes lets pending ones run', async () => {
    const device = await openOn(name)
    let called = 0
    using definition = GraphDefinition.create(device)
    definition.callback(() => called++, { ordered: true })
    using graph = ExecutableGraph.instantiate(definition)
    graph.launch(device.defaultLane)
    await device.close()
    expect(called).toBe(1)
  })

  it('of 64 graphs that are dropped all owners go', async () => {
    await using device = await openOn(name)
    const active = (): number => device.stats()['active_bytes.all.current'] ?? 0
    const graphs = Array.from({ length: 64 }, () => {
      const definition = GraphDefinition.create(device)
      const block = device.malloc(KiB)
      definition.fill(block, 1)
      definition.callback(() => {})
      block.free()
      return definition
    })
    expect(active()).toBe(64 * KiB)
    for (const graph of graphs) graph[Symbol.dispose]()
    await soon(() => active() === 0)
  })
})
