// Outputs of sessions, left on the device and leased, as operands of nodes: a graph keeps the slot of an
// output as it keeps any block.
import { describe, expect, it } from 'vitest'
import { compile } from '../../../dsl/compiler/compile.js'
import { add, download, graph, lane, on, orThrow, relu, tensor, upload } from '../../../dsl/index.js'
import {
  type Block,
  type Device,
  ExecutableGraph,
  GraphBuilder,
  GraphDefinition,
  open,
  pulled,
} from '../../../runtime/index.js'
import { hold, mirrorOf, openOn } from '../../fixtures/allocator.js'
import { soon } from '../../fixtures/graphs.js'
import { listenForWarnings } from '../../fixtures/warnings.js'
import { pause, present } from '../devices.js'

const size = 1024
const copy = lane('copy')
const math = lane('math')
const net = graph({ x: tensor('f32', [size]) }, ({ x }) => {
  const a = x.pipe(upload(copy), on(math), relu())
  return { kept: a.pipe(add(1)), sum: a.pipe(add(2), download(copy)) }
})
const filled = (value: number): Float32Array => new Float32Array(size).fill(value)
const sessionOn = async (device: Device, inFlight: number) =>
  orThrow(await open(orThrow(compile(net, { mode: 'eager', inFlight })), { device, poison: true })())
const floats = (words: Uint32Array): readonly number[] => [...new Set(new Float32Array(words.buffer))]

describe.each(present)('leased blocks in graphs on %s', name => {
  it('a graph reads an output as often as it likes, also after its lease was given back', async () => {
    await using device = await openOn(name)
    await using session = await sessionOn(device, 2)
    const reader = device.lane()
    const seen = mirrorOf(device, 4 * size, reader)
    const run = session.run({ x: pulled([1, 3, 5, 7, 9].map(filled)) })[Symbol.asyncIterator]()
    const first = (await run.next()).value!
    const definition = GraphDefinition.create(device)
    definition.copy(seen.block, first.kept)
    const executable = ExecutableGraph.instantiate(definition)
    definition[Symbol.dispose]()
    first[Symbol.dispose]()
    expect(() => first.kept.address).toThrow(/the lease of tick 0 was given back/)
    // The others tick on in the slot that is left.
    for (const wanted of [5, 7, 9, 11]) {
      using lease = (await run.next()).value!
      expect(lease.sum[0]).toBe(wanted)
      seen.words.fill(0)
      executable.launch(reader)
      await reader.synchronize()
      expect(floats(seen.words)).toEqual([2])
    }
    executable[Symbol.dispose]()
  })

  it('the next tick in its slot waits until the last graph and launch have let it go', async () => {
    await using device = await openOn(name)
    await using session = await sessionOn(device, 1)
    const reader = device.lane()
    const seen = mirrorOf(device, 4 * size, reader)
    const run = session.run({ x: pulled([filled(1), filled(5)]) })[Symbol.asyncIterator]()
    const first = (await run.next()).value!
    using builder = GraphBuilder.create(reader).begin()
    reader.copy(seen.block, first.kept)
    const { definition } = builder.end()
    const executable = ExecutableGraph.instantiate(definition)
    const gate = hold(device, reader)
    executable.launch(reader)
    let ended = false
    first[Symbol.dispose]()
    const second = run.next().then(({ value }) => {
      ended = true
      return value!
    })
    definition[Symbol.dispose]()
    executable[Symbol.dispose]()
    await pause(20)
    expect(ended).toBe(false)
    gate.open()
    await reader.synchronize()
    expect(floats(seen.words)).toEqual([2])
    using lease = await second
    expect(lease.sum[0]).toBe(7)
  })

  it('a run that waits for slots which graphs keep says so, and names what else is lent', async () => {
    await using device = await openOn(name)
    const plan = orThrow(compile(net, { mode: 'eager', inFlight: 2 }))
    await using session = orThrow(await open(plan, { device, leaseWarningMs: 40 })())
    using warned = await listenForWarnings()
    const run = session.run({ x: pulled([1, 2, 3].map(filled)) })[Symbol.asyncIterator]()
    const [first, second] = [(await run.next()).value!, (await run.next()).value!]
    using own = device.malloc(4 * size)
    const definition = GraphDefinition.create(device)
    definition.copy(own, first.kept)
    first[Symbol.dispose]()
    const third = run.next()
    await soon(() => warned.warnings.length > 0)
    const { code, message: both } = warned.warnings[0]!
    expect(code).toBe('BRAID_LEASES_OUT')
    expect(both).toMatch(/^a run of ".*" waits for the lease of tick 1: every slot is lent out;/)
    expect(both).toMatch(
      /and for graphs, which refer to the output of tick 0:.*Next: dispose each lease.*dispose of the/,
    )
    definition.copy(own, second.kept)
    second[Symbol.dispose]()
    definition[Symbol.dispose]()
    using lease = (await third).value!
    expect(lease.sum[0]).toBe(5)
  })

  it('where graphs keep every slot the warning is about graphs alone', async () => {
    await using device = await openOn(name)
    const plan = orThrow(compile(net, { mode: 'eager', inFlight: 1 }))
    await using session = orThrow(await open(plan, { device, leaseWarningMs: 40 })())
    using warned = await listenForWarnings()
    const run = session.run({ x: pulled([1, 2].map(filled)) })[Symbol.asyncIterator]()
    const first = (await run.next()).value!
    using own = device.malloc(4 * size)
    const definition = GraphDefinition.create(device)
    definition.copy(own, first.kept)
    first[Symbol.dispose]()
    const second = run.next()
    await soon(() => warned.warnings.length > 0)
    expect(warned.warnings[0]!.code).toBe('BRAID_SLOTS_IN_GRAPHS')
    expect(warned.messages[0]).toMatch(/ waits for graphs, which refer to the output of tick 0/)
    expect(warned.messages[0]).not.toContain('lease when you are done')
    definition[Symbol.dispose]()
    using lease = (await second).value!
    expect(lease.sum[0]).toBe(4)
  })

  it('an update and a destroyed node let it go too; what is given back again is refused', async () => {
    await using device = await openOn(name)
    await using session = await sessionOn(device, 1)
    using own = device.malloc(4 * size)
    const run = session.run({ x: pulled([filled(1), filled(2), filled(3)]) })[Symbol.asyncIterator]()
    using definition = GraphDefinition.create(device)
    const first = (await run.next()).value!
    const node = definition.fill(first.kept, 0)
    first[Symbol.dispose]()
    expect(() => definition.fill(first.kept, 0)).toThrow(/was given back/)
    node.update({ to: own })
    const second = (await run.next()).value!
    const other = definition.copy(own, second.kept.at(16, 32))
    second[Symbol.dispose]()
    other.destroy()
    using third = (await run.next()).value!
    expect(third.sum[0]).toBe(5)
  })

  it('after its session is closed the memory stays the graph’s until the end', async () => {
    await using device = await openOn(name)
    const active = (): number => device.stats()['active_bytes.all.current'] ?? 0
    const reader = device.lane()
    const seen = mirrorOf(device, 4 * size, reader)
    const session = await sessionOn(device, 1)
    const run = session.run({ x: pulled([filled(1)]) })[Symbol.asyncIterator]()
    const lease = (await run.next()).value!
    const definition = GraphDefinition.create(device)
    definition.copy(seen.block, lease.kept)
    const executable = ExecutableGraph.instantiate(definition)
    definition[Symbol.dispose]()
    await session.close()
    const others: Block[] = Array.from({ length: 8 }, () => reader.malloc(4 * size))
    for (const other of others) reader.fill32(other, 7)
    executable.launch(reader)
    await reader.synchronize()
    expect(floats(seen.words)).toEqual([2])
    // Neither the driver, to which free memory goes back, nor another session gets it.
    await device.emptyCache()
    await using next = await sessionOn(device, 1)
    for await (const lease of next.run({ x: pulled([filled(100), filled(200)]) })) lease[Symbol.dispose]()
    seen.words.fill(0)
    executable.launch(reader)
    await reader.synchronize()
    expect(floats(seen.words)).toEqual([2])
    await next.close()
    executable[Symbol.dispose]()
    for (const other of others) other.free()
    await soon(() => {
      reader.malloc(512).free()
      return active() === 0
    })
  })
})
