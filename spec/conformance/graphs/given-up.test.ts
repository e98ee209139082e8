// Captures that are given up: disposed of, lost, or ended in vain. A graph that existed before is as it was, to
// the last node, edge and block; of one that the builder made, nothing is left that nobody has taken.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type Device,
  ExecutableGraph,
  GraphBuilder,
  GraphDefinition,
  type GraphNode,
  type Lane,
} from '../../../runtime/index.js'
import { contentOf, KiB, openOn } from '../../fixtures/allocator.js'
import { soon, soonCollected } from '../../fixtures/graphs.js'
import { runs } from '../../fixtures/runs.js'
import { present } from '../devices.js'

const active = (device: Device): number => device.stats()['active_bytes.all.current'] ?? 0

/** All nodes of a graph with their kinds, their order, and the same of the graphs inside. */
const shapeOf = (graph: GraphDefinition): unknown => {
  const { nodes, edges } = graph
  const at = (node: GraphNode): number => nodes.indexOf(node)
  return {
    nodes: nodes.map(node => [node.kind, node.bodies.map(shapeOf)]),
    edges: edges.map(([from, to]) => `${at(from)}>${at(to)}`).sort(),
  }
}

type Work = 'fill' | 'copy' | 'malloc' | 'kept' | 'embed' | 'record' | 'fork' | 'join' | 'body' | 'set'
const works: readonly Work[] = [
  'fill',
  'copy',
  'malloc',
  'kept',
  'embed',
  'record',
  'fork',
  'join',
  'body',
  'set',
]

/** A capture of several lanes, with captures into bodies of its own conditional nodes. */
class Given {
  readonly #forks: GraphBuilder[] = []
  readonly #bodies: GraphBuilder[] = []
  readonly #event

  constructor(
    readonly device: Device,
    readonly builder: GraphBuilder,
    readonly lanes: readonly Lane[],
    readonly inBody: boolean,
  ) {
    this.#event = device.event({ timed: true })
  }

  work(kind: Work, number: number): void {
    const { device, builder, inBody } = this
    const drivers = [builder, ...this.#forks]
    const { lane } = drivers[number % drivers.length]!
    const some = (call: (block: ReturnType<Device['malloc']>) => void): void => {
      using block = device.malloc(KiB)
      call(block)
    }
    if (kind === 'fill') some(block => lane.fill32(block, number))
    else if (kind === 'copy') some(to => some(from => lane.copy(to, from)))
    else if (kind === 'kept') some(block => block.recordUse(lane))
    else if (kind === 'malloc') {
      using block = lane.malloc(KiB)
      lane.fill32(block, number)
    } else if (kind === 'embed')
      some(block => {
        using child = GraphDefinition.create(device)
        child.fill(block, number)
        drivers[number % drivers.length]!.embed(child)
      })
    else if (kind === 'record') {
      if (!inBody) lane.record(this.#event)
    } else if (kind === 'fork') {
      const free = this.lanes.find(each => !drivers.some(driver => driver.lane === each))
      if (free !== undefined) this.#forks.push(...builder.split(free))
    } else if (kind === 'join') this.join()
    else if (kind === 'set') some(block => builder.setCondition(builder.condition(1), block))
    else this.body(number)
  }

  body(number: number): void {
    const { device, builder } = this
    const [body] = builder.ifThen(builder.condition(1)).bodies
    const lane = device.lane()
    const inside = GraphBuilder.create(lane, { into: body! }).begin()
    using block = device.malloc(KiB)
    lane.fill32(block, number)
    if (number % 2 === 0) inside.end()
    else this.#bodies.push(inside)
  }

  join(): void {
    for (const fork of this.#forks.splice(0)) GraphBuilder.join(this.builder, fork)
  }

  get joined(): boolean {
    return this.#forks.length === 0
  }

  /** Ends what may have to be ended before the capture. */
  endBodies(): void {
    for (const body of this.#bodies.splice(0)) body.end()
  }
}

const sequences = fc.array(fc.tuple(fc.constantFrom(...works), fc.nat(20)), { maxLength: 12, size: 'max' })
const places = fc.constantFrom('new', 'root', 'body' as const)
const ends = fc.constantFrom('dispose', 'end', 'throw' as const)

describe.each(present)('captures on %s that are given up', name => {
  it('leave no node, no edge, and no block', { timeout: 60_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(places, ends, sequences, async (place, end, sequence) => {
        await using device = await openOn(name)
        const [lane, ...lanes] = [device.lane(), device.lane(), device.lane()]
        using block = device.malloc(KiB)
        using definition = GraphDefinition.create(device)
        const first = definition.fill(block, 3, { bits: 32 })
        const [body] = definition.ifThen(definition.condition(1), { after: [first] }).bodies
        body!.fill(block, 4, { bits: 32 })
        const before = shapeOf(definition)
        const into = place === 'root' ? definition : place === 'body' ? body! : undefined
        const builder = GraphBuilder.create(lane!, into === undefined ? {} : { into })
        builder.begin()
        const given = new Given(device, builder, lanes, place === 'body')
        // A condition that no node reads stays with its graph (decision 93).
        const makesCondition = sequence.some(([kind]) => kind === 'body' || kind === 'set')
        for (const [kind, number] of sequence) given.work(kind, number)
        let isEnded = false
        if (end === 'throw' && !given.joined) {
          given.endBodies()
          lanes[0]!.fill32(block, 1)
          expect(() => builder.end()).toThrow(/all of whose lanes are joined/)
        } else if (end === 'end' && place === 'new') {
          given.join()
          given.endBodies()
          builder.end()
          isEnded = true
        }
        builder[Symbol.dispose]()
        builder[Symbol.dispose]()
        if (isEnded) expect(() => builder.definition).toThrow(/closed/)
        for (const each of [lane!, ...lanes]) {
          expect(each.capturing).toBe(false)
          each.fill32(block, 1)
          await each.synchronize()
        }
        expect(shapeOf(definition)).toEqual(before)
        await soon(() => active(device) === KiB)
        if (place === 'new' || !makesCondition) {
          using graph = ExecutableGraph.instantiate(definition)
          graph.launch(lane!)
          expect(await contentOf(device, lane!, block)).toEqual([4])
        }
      }),
      { numRuns: runs(60) },
    )
  })

  it('are dropped when their builder is lost too', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using definition = GraphDefinition.create(device)
    definition.empty()
    const lose = (): void => {
      using block = device.malloc(KiB)
      GraphBuilder.create(lane, { into: definition }).begin()
      lane.fill32(block, 1)
    }
    lose()
    await soonCollected(() => !lane.capturing)
    expect(definition.nodes.map(({ kind }) => kind)).toEqual(['empty'])
    await soon(() => active(device) === 0)
  })

  it('leave a graph as it was that is captured into again', async () => {
    await using device = await openOn(name)
    const [lane, fork] = [device.lane(), device.lane()]
    using block = device.malloc(KiB)
    using definition = GraphDefinition.create(device)
    const node = definition.fill(block, 3, { bits: 32 })
    for (let i = 0; i < 3; i++) {
      using builder = GraphBuilder.create(lane, { into: definition }).begin()
      builder.split(fork)
      fork.fill32(block, 5)
      if (i === 1) expect(() => builder.end()).toThrow(/joined/)
    }
    expect(definition.nodes).toEqual([node])
    using builder = GraphBuilder.create(lane, { into: definition }).begin()
    lane.fill32(block, 6)
    builder.end()
    node.destroy()
    using graph = ExecutableGraph.instantiate(definition)
    graph.launch(lane)
    expect(await contentOf(device, lane, block)).toEqual([6])
  })

  it('take the definition along where they were made invalid, and where the driver takes no node out', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using block = lane.malloc(KiB)
    const invalid = GraphDefinition.create(device)
    const node = invalid.fill(block, 3, { bits: 32 })
    using graph = ExecutableGraph.instantiate(invalid)
    using strict = GraphBuilder.create(lane, { into: invalid }).begin('global')
    expect(() => device.pinned(KiB)).toThrow(/capture/)
    expect(() => strict.end()).toThrow(/has made invalid/)
    const withMemory = GraphDefinition.create(device)
    const made = withMemory.malloc(64)
    withMemory.free(made.memory, { after: [made] })
    using dropped = GraphBuilder.create(lane, { into: withMemory }).begin()
    lane.fill32(block, 5)
    dropped[Symbol.dispose]()
    for (const definition of [invalid, withMemory]) {
      expect(definition.valid).toBe(false)
      expect(() => definition.nodes).toThrow(/build the graph anew/)
      definition[Symbol.dispose]()
    }
    expect(node.valid).toBe(false)
    graph.launch(lane)
    expect(await contentOf(device, lane, block)).toEqual([3])
  })

  it('into a body are relaxed, and one that is invalid takes the graphs around it along', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    using definition = GraphDefinition.create(device)
    const [body] = definition.ifThen(definition.condition(1)).bodies
    using builder = GraphBuilder.create(lane, { into: body! })
    expect(() => builder.begin('global')).toThrow(/wanted\s+'relaxed'/)
    builder.begin().end()
    expect(definition.valid).toBe(true)
  })

  it('give back what an ended builder holds, unless it was taken', async () => {
    await using device = await openOn(name)
    const lane = device.lane()
    const capture = (): GraphBuilder => {
      using block = device.malloc(KiB)
      const builder = GraphBuilder.create(lane).begin()
      lane.fill32(block, 1)
      return builder.end()
    }
    const builders = [capture(), capture(), capture()]
    const graph = builders[0]!.instantiate()
    const { definition } = builders[1]!
    for (const builder of builders) builder[Symbol.dispose]()
    await soon(() => active(device) === 2 * KiB)
    graph[Symbol.dispose]()
    await soon(() => active(device) === KiB)
    expect(definition.nodes).toHaveLength(1)
    definition[Symbol.dispose]()
    await soon(() => active(device) === 0)
  })

  it('split a lane off again that was joined, and no lane that another builder drives', async () => {
    await using device = await openOn(name)
    const [a, b, c] = [device.lane(), device.lane(), device.lane({ name: 'c' })]
    using x = a.malloc(KiB)
    using builder = GraphBuilder.create(a).begin()
    using other = GraphBuilder.create(c).begin()
    for (let i = 0; i < 3; i++) {
      a.fill32(x, 2 * i)
      const [split] = builder.split(b)
      expect(() => builder.split(b)).toThrow(/join its builder first/i)
      expect(() => builder.split(a)).toThrow(/found\s+one that a builder of this capture drives/)
      expect(() => builder.split(c)).toThrow(/found\s+one that is being captured into another graph/)
      expect(() => builder.split(device.lane(), c)).toThrow(/another graph/)
      b.fill32(x, 2 * i + 1)
      GraphBuilder.join(builder, split!)
    }
    expect(() => builder.split(b, b)).toThrow(/passed twice/)
    other.end()
    using graph = builder.end().instantiate()
    graph.launch(b)
    expect(await contentOf(device, b, x)).toEqual([5])
  })
})

describe('a device that is closed while its lanes are captured', () => {
  it('ends the captures, and its builders can be disposed of', async () => {
    const device = await openOn('host')
    const [lane, other] = [device.lane(), device.lane()]
    const definition = GraphDefinition.create(device)
    const builder = GraphBuilder.create(lane, { into: definition }).begin()
    const [body] = builder.ifThen(builder.condition(1)).bodies
    const inside = GraphBuilder.create(other, { into: body! }).begin()
    await device.close()
    for (const each of [inside, builder, inside]) each[Symbol.dispose]()
    expect(() => builder.definition).toThrow(/closed/)
    expect(definition.valid).toBe(false)
  })
})
