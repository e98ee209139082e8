// The statements about owners that concern operands as the language sees them, by their numbers in
// docs/internals/decisions/graphs.md. The others are tested in native/test/graphs/statements_test.cc.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import {
  type Device,
  ExecutableGraph,
  GraphBuilder,
  GraphDefinition,
  type GraphNode,
} from '../../../runtime/index.js'
import { contentOf, KiB, openOn, thrownBy } from '../../fixtures/allocator.js'
import { axpnOn } from '../../fixtures/device-kernels.js'
import { collect, soon } from '../../fixtures/graphs.js'
import { present } from '../devices.js'

const folder = mkdtempSync(join(tmpdir(), 'braid-graphs-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

// Writes the number that it is given, or 77 for a null pointer, to where `aim` was told.
const library = join(folder, 'mark.so')
const built = (): boolean => {
  const source = join(folder, 'mark.c')
  writeFileSync(
    source,
    `static int *where;
     void aim(void *data) { where = *(int **)data; }
     void mark(void *data) { *where = data ? *(int *)data : 77; }`,
  )
  return spawnSync('cc', ['-shared', '-fPIC', '-o', library, source]).status === 0
}

const active = (device: Device): number => device.stats()['active_bytes.all.current'] ?? 0
const addressOf = (address: number): Uint8Array =>
  new Uint8Array(new BigUint64Array([BigInt(address)]).buffer)

describe.each(present)('statements on %s', name => {
  it('2 a kernel node keeps its kernel, and the blocks of its arguments as one; 6 event nodes their event', async () => {
    await using device = await openOn(name)
    const lane = device.defaultLane
    using seen = device.pinned(4)
    using definition = GraphDefinition.create(device)
    const make = async (a: number): Promise<readonly GraphNode[]> => {
      const axpn = await axpnOn(device)
      using x = lane.malloc(4)
      using y = lane.malloc(4)
      using event = device.event()
      const filled = definition.fill(x, 4, { bits: 32 })
      const scalars = { a, n: 1, count: 1 }
      const launch = { reads: { x }, writes: { y }, grid: 1, block: 1, scalars }
      const launched = definition.launch(axpn, launch, { after: [filled] })
      const recorded = definition.record(event, { after: [launched] })
      const waited = definition.wait(event, { after: [recorded] })
      return [filled, launched, recorded, waited, definition.copy(seen, y, { after: [waited] })]
    }
    const nodes = await make(3)
    const runs = async (graph: ExecutableGraph): Promise<number> => {
      graph.launch(lane)
      await lane.synchronize()
      return new Uint32Array(seen.view())[0]!
    }
    await collect()
    expect(active(device)).toBe(2 * 512)
    const graph = ExecutableGraph.instantiate(definition)
    expect(await runs(graph)).toBe(13)
    for (const node of nodes) node.destroy()
    await make(5)
    await collect()
    expect(active(device)).toBe(4 * 512)
    expect(await runs(graph)).toBe(13)
    graph[Symbol.dispose]()
    await soon(() => active(device) === 2 * 512)
    using other = ExecutableGraph.instantiate(definition)
    expect(await runs(other)).toBe(21)
  })

  it('3, 11 a native function gets a copy of its data; without data a null pointer', async context => {
    if (!built()) return context.skip()
    await using device = await openOn(name)
    const lane = device.defaultLane
    using cell = device.pinned(4)
    const words = new Int32Array(cell.view())
    const data = new Uint8Array(new Int32Array([5]).buffer)
    using definition = GraphDefinition.create(device)
    const aimed = definition.callback({ library, symbol: 'aim', data: addressOf(cell.address) })
    definition.callback({ library, symbol: 'mark', data }, { after: [aimed] })
    using graph = ExecutableGraph.instantiate(definition)
    data.fill(0)
    graph.launch(lane)
    await lane.synchronize()
    expect(words[0]).toBe(5)
    for (const empty of [{}, { data: new Uint8Array(0) }]) {
      using other = GraphDefinition.create(device)
      other.callback({ library, symbol: 'mark', ...empty })
      using executable = ExecutableGraph.instantiate(other)
      words[0] = 0
      executable.launch(lane)
      await lane.synchronize()
      expect(words[0]).toBe(77)
    }
  })

  it('12 a block that is freed keeps its memory while a graph refers to it', async () => {
    await using device = await openOn(name)
    const lane = device.defaultLane
    using into = lane.malloc(KiB)
    const from = lane.malloc(KiB)
    lane.fill32(from, 6)
    const definition = GraphDefinition.create(device)
    definition.copy(into, from)
    from.free()
    expect(active(device)).toBe(2 * KiB)
    using other = lane.malloc(KiB)
    lane.fill32(other, 1)
    const graph = ExecutableGraph.instantiate(definition)
    graph.launch(lane)
    expect(await contentOf(device, lane, into)).toEqual([6])
    graph[Symbol.dispose]()
    definition[Symbol.dispose]()
    await soon(() => active(device) === 2 * KiB)
  })

  it('13 an address keeps nothing; 14 an owner that is named keeps it', async () => {
    await using device = await openOn(name)
    const lane = device.defaultLane
    using into = lane.malloc(KiB)
    using definition = GraphDefinition.create(device)
    const raw = lane.malloc(KiB)
    definition.copy(into, { address: raw.address, bytes: KiB })
    raw.free()
    expect(active(device)).toBe(KiB)
    const owned = lane.malloc(KiB)
    definition.fill({ address: owned.address, bytes: KiB }, 1, { toOwner: owned })
    owned.free()
    expect(active(device)).toBe(2 * KiB)
  })

  it('15 a block has no owner beside it; the error names the side, and there is no node', async () => {
    await using device = await openOn(name)
    using block = device.malloc(KiB)
    using other = device.malloc(KiB)
    using definition = GraphDefinition.create(device)
    expect(() => definition.copy(block, other, { toOwner: {} })).toThrow(/toOwner.*to, which is a block/s)
    expect(() => definition.copy(block, other, { fromOwner: {} })).toThrow(
      /fromOwner.*from, which is a block/s,
    )
    expect(() => definition.fill(block, 1, { toOwner: other })).toThrow(/toOwner/)
    expect(definition.nodes).toHaveLength(0)
  })

  it('16 the rule is for each side by itself', async () => {
    await using device = await openOn(name)
    using block = device.malloc(KiB)
    const other = device.malloc(KiB)
    using definition = GraphDefinition.create(device)
    definition.copy(block, { address: other.address, bytes: KiB }, { fromOwner: other })
    expect(definition.nodes).toHaveLength(1)
    other.free()
    expect(active(device)).toBe(2 * KiB)
  })

  it('29 an update may give an address that stays another owner', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const [first, second, source] = [lane.malloc(KiB), lane.malloc(KiB), lane.malloc(KiB)]
    using other = lane.malloc(KiB)
    const raw = { address: other.address, bytes: KiB }
    using definition = GraphDefinition.create(device)
    const fill = definition.fill(raw, 1, { toOwner: first })
    const copy = definition.copy(raw, { address: source.address, bytes: KiB }, { fromOwner: source })
    const ofBlock = definition.fill(other, 1)
    fill.update({ toOwner: second })
    copy.update({ toOwner: second })
    for (const block of [first, second, source]) block.free()
    await soon(() => active(device) === 3 * KiB)
    // What is refused changes nothing: the second block and the source are kept.
    expect(() => fill.update({ toOwner: 5 as never })).toThrow(/a Block, or an object to keep/)
    for (const owner of [5, {}, other])
      expect(() => ofBlock.update({ toOwner: owner })).toThrow(/no owner for to, which is a block/)
    copy.update({ bytes: 64 })
    expect(active(device)).toBe(3 * KiB)
    fill.destroy()
    expect(active(device)).toBe(3 * KiB)
    // A new address without an owner keeps nothing.
    copy.update({ to: raw })
    await soon(() => active(device) === 2 * KiB)
    copy.update({ from: raw, fromOwner: {} })
    await soon(() => active(device) === KiB)
  })

  it('17 an owner that is no block is kept itself, until the last graph has gone', async () => {
    await using device = await openOn(name)
    using block = device.malloc(KiB)
    const definition = GraphDefinition.create(device)
    const weak = ((): WeakRef<object> => {
      const owner = { what: 'keeps the memory' }
      definition.fill({ address: block.address, bytes: KiB }, 1, { toOwner: owner })
      return new WeakRef(owner)
    })()
    const graph = ExecutableGraph.instantiate(definition)
    definition[Symbol.dispose]()
    await collect()
    expect(weak.deref()).toBeDefined()
    graph[Symbol.dispose]()
    for (let i = 0; i < 50 && weak.deref() !== undefined; i++) await collect()
    expect(weak.deref()).toBeUndefined()
  })

  it('18 a freed block is refused, as an operand and as an owner, and there is no node', async () => {
    await using device = await openOn(name)
    using block = device.malloc(KiB)
    const freed = device.malloc(KiB)
    const { address } = freed
    freed.free()
    using definition = GraphDefinition.create(device)
    expect(() => definition.fill(freed, 1)).toThrow(/was freed/)
    expect(() => definition.copy(block, freed)).toThrow(/was freed/)
    expect(() => definition.fill({ address, bytes: KiB }, 1, { toOwner: freed })).toThrow(/was freed/)
    expect(() => definition.copy(block, { address, bytes: KiB }, { fromOwner: freed })).toThrow(/was freed/)
    expect(definition.nodes).toHaveLength(0)
  })

  it('19 the order of positional arguments: to, from; to, value', async () => {
    await using device = await openOn(name)
    const lane = device.defaultLane
    using a = lane.malloc(KiB)
    using b = lane.malloc(KiB)
    lane.fill32(a, 8)
    using definition = GraphDefinition.create(device)
    const copied = definition.copy(b, a)
    definition.fill(a, 1, { after: [copied] })
    using graph = ExecutableGraph.instantiate(definition)
    graph.launch(lane)
    expect(await contentOf(device, lane, b)).toEqual([8])
    expect(await contentOf(device, lane, a)).toEqual([0x01010101])
  })

  it('31 a definition belongs to its thread: a copy of it is no definition', async () => {
    await using device = await openOn(name)
    using definition = GraphDefinition.create(device)
    expect(GraphDefinition.is(definition)).toBe(true)
    expect(GraphDefinition.is(structuredClone(definition))).toBe(false)
  })

  it('57 callbacks are checked alike in definitions and in captures, before the driver is called', async () => {
    await using device = await openOn(name)
    const wrong: readonly (readonly [unknown, object])[] = [
      [3, {}],
      [undefined, {}],
      [{ library: 'a' }, {}],
      [{ library: 'a', symbol: 'b', data: 'text' }, {}],
      [{ library: 'a', symbol: 'b' }, { ordered: true }],
      [() => {}, { ordered: 'yes' }],
    ]
    using definition = GraphDefinition.create(device)
    using builder = GraphBuilder.create(device.lane()).begin()
    for (const [call, options] of wrong) {
      const explicit = thrownBy(() => definition.callback(call as never, options))
      const captured = thrownBy(() => builder.callback(call as never, options))
      expect([captured['_tag'], captured['subject'], captured['wanted'], captured['found']]).toEqual([
        explicit['_tag'],
        explicit['subject'],
        explicit['wanted'],
        explicit['found'],
      ])
    }
    expect(definition.nodes).toHaveLength(0)
    expect(builder.end().definition.nodes).toHaveLength(0)
  })

  it('58 a callback outside of a capture is refused', async () => {
    await using device = await openOn(name)
    using builder = GraphBuilder.create(device.lane())
    expect(() => builder.callback(() => {})).toThrow(/one that has not begun/)
    builder.begin().end()
    expect(() => builder.callback(() => {})).toThrow(/has ended: a capture cannot be resumed/)
  })

  it('61 the graph of a split is that of the builder that began, and its error says so', async () => {
    await using device = await openOn(name)
    using builder = GraphBuilder.create(device.lane()).begin()
    const [split] = builder.split(device.lane())
    expect(() => split!.definition).toThrow(/access the graph through the builder that began/i)
    GraphBuilder.join(builder, split!)
    expect(() => split!.definition).toThrow(/access the graph through the builder that began/i)
    builder.end()
  })

  it('67 a function that knows its graph by a WeakRef does not keep it; one that knows it itself does', async () => {
    await using device = await openOn(name)
    const made = (known: (graph: GraphDefinition) => () => unknown): WeakRef<GraphDefinition> => {
      const graph = GraphDefinition.create(device)
      const call = known(graph)
      graph.callback(() => void call())
      return new WeakRef(graph)
    }
    const weak = made(graph => {
      const ref = new WeakRef(graph)
      return () => ref.deref()
    })
    const strong = made(graph => () => graph)
    for (let i = 0; i < 50 && weak.deref() !== undefined; i++) await collect()
    expect(weak.deref()).toBeUndefined()
    expect(strong.deref()).toBeDefined()
    strong.deref()![Symbol.dispose]()
    for (let i = 0; i < 50 && strong.deref() !== undefined; i++) await collect()
    expect(strong.deref()).toBeUndefined()
  })
})
