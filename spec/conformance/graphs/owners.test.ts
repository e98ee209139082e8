// The law of owners: a block that a program has freed is alive exactly as long as something that may still
// run refers to it. Random sequences of calls, beside a model that counts who refers to what; on the host
// device also with driver calls that fail, which must change nothing, release nothing early, and leak
// nothing.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  type Block,
  type Device,
  ExecutableGraph,
  GraphBuilder,
  GraphDefinition,
  type GraphNode,
  type Lane,
} from '../../../runtime/index.js'
import { hold, KiB, openOn } from '../../fixtures/allocator.js'
import { soon } from '../../fixtures/graphs.js'
import { runs } from '../../fixtures/runs.js'
import { present } from '../devices.js'

/** A block that was freed as soon as a node referred to it. Two may have one address, one after the other. */
interface Owner {
  readonly address: number
}

interface NodeModel {
  readonly node: GraphNode | undefined
  owners: readonly Owner[]
  child?: GraphModel
}

/** A definition, a child's graph, or what an executable was made of. */
interface GraphModel {
  readonly graph: GraphDefinition | undefined
  readonly nodes: NodeModel[]
}

/** What an executable keeps beside its copy of a graph: the owners of updated nodes, until it is replaced. */
interface Payload {
  readonly more: Owner[]
}

interface ExecutableModel {
  readonly graph: ExecutableGraph
  /** The definition that it was instantiated from: the nodes that can be updated. */
  readonly source: GraphModel
  copy: GraphModel
  payload: Payload
}

/** A launch that has not run: it keeps the payload, to which more may be added. */
interface LaunchModel {
  readonly copy: GraphModel
  readonly payload: Payload
  readonly had: readonly Owner[]
}

const ownersOf = ({ nodes }: GraphModel): readonly Owner[] =>
  nodes.flatMap(({ owners, child }) => [...owners, ...(child === undefined ? [] : ownersOf(child))])

const copyOf = ({ nodes }: GraphModel): GraphModel => ({
  graph: undefined,
  nodes: nodes.map(({ owners, child }) => ({
    node: undefined,
    owners,
    ...(child === undefined ? {} : { child: copyOf(child) }),
  })),
})

/** A call that the device was told to refuse. It is told so five times at most, so a sixth try succeeds. */
const isFault = (error: unknown): boolean => (error as { _tag?: unknown })._tag === 'DriverFailed'
const surely = <T>(call: () => T, more = 5): T => {
  try {
    return call()
  } catch (error) {
    if (more === 0 || !isFault(error)) throw error
    return surely(call, more - 1)
  }
}

class Program {
  readonly definitions: GraphModel[] = []
  readonly executables: ExecutableModel[] = []
  readonly #lane: Lane
  readonly #captured: Lane
  #launches: LaunchModel[] = []
  #gate: Disposable | undefined

  constructor(readonly device: Device) {
    this.#lane = device.lane()
    this.#captured = device.lane()
  }

  /** Owners that something refers to now. `most`: also those that something may refer to. */
  referred(most = false): ReadonlySet<Owner> {
    return new Set([
      ...this.definitions.flatMap(ownersOf),
      ...this.executables.flatMap(({ copy, payload }) => [...ownersOf(copy), ...payload.more]),
      ...this.#launches.flatMap(({ copy, payload, had }) => [
        ...ownersOf(copy),
        ...(most ? payload.more : had),
      ]),
    ])
  }

  /** The addresses of blocks that are alive. */
  alive(): ReadonlySet<number> {
    const blocks = this.device.snapshot().segments.flatMap(each => each.blocks)
    return new Set(blocks.filter(({ state }) => state === 'live').map(({ address }) => address))
  }

  expectKept(): void {
    const owners = [...this.referred()]
    const alive = this.alive()
    expect(owners.filter(({ address }) => !alive.has(address))).toEqual([])
    // An address that was given out again would be that of two owners.
    expect(new Set(owners.map(({ address }) => address)).size).toBe(owners.length)
  }

  /** Nothing else is alive, some time soon. */
  async expectNoMore(): Promise<void> {
    const may = new Set([...this.referred(true)].map(({ address }) => address))
    await soon(() => [...this.alive()].every(address => may.has(address)))
  }

  /** Gives a call a new block, and frees the block. */
  with<T>(call: (block: Block) => T): { made: T; owner: Owner } {
    using block = this.device.malloc(KiB)
    return { made: call(block), owner: { address: block.address } }
  }

  viewOf(graph: GraphDefinition, model: GraphModel): GraphModel {
    const nodes = surely(() => graph.nodes)
    expect(nodes).toHaveLength(model.nodes.length)
    return {
      graph,
      nodes: model.nodes.map(({ owners, child }, i) => ({
        node: nodes[i]!,
        owners,
        ...(child === undefined ? {} : { child: this.viewOf(this.bodyOf(nodes[i]!), child) }),
      })),
    }
  }

  bodyOf(node: GraphNode): GraphDefinition {
    return (surely(() => node.bodies)[0] ?? surely(() => node.bodies)[0])!
  }

  capture(): GraphModel {
    using builder = GraphBuilder.create(this.#captured).begin()
    const { owner } = this.with(block => this.#captured.fill32(block, 1))
    builder.end()
    const graph = builder.definition
    return { graph, nodes: [{ node: surely(() => graph.nodes)[0]!, owners: [owner] }] }
  }

  launch({ graph, copy, payload }: ExecutableModel): void {
    this.#gate ??= hold(this.device, this.#lane)
    graph.launch(this.#lane)
    this.#launches.push({ copy, payload, had: [...payload.more] })
  }

  async complete(): Promise<void> {
    this.#gate?.[Symbol.dispose]()
    this.#gate = undefined
    await this.#lane.synchronize()
    this.#launches = []
  }
}

/** Picks of a list, by any number. */
const pick = <T>(list: readonly T[], number: number): T | undefined => list[number % list.length]
const take = <T>(list: T[], number: number): T | undefined => list.splice(number % list.length, 1)[0]

type Step = readonly [kind: Kind, a: number, b: number, c: number]
type Doing = (program: Program, a: number, b: number, c: number) => void | Promise<void>

const graphsIn = (model: GraphModel): readonly GraphModel[] => [
  model,
  ...model.nodes.flatMap(({ child }) => (child === undefined ? [] : graphsIn(child))),
]

/** Any graph, also inside another one. */
const anyGraph = ({ definitions }: Program, a: number): GraphModel | undefined =>
  pick(definitions.flatMap(graphsIn), a)

const steps = {
  create: program => void program.definitions.push(created(program)),
  fill: (program, a) => {
    const model = anyGraph(program, a)
    if (model === undefined) return
    const { made, owner } = program.with(block => model.graph!.fill(block, 3))
    model.nodes.push({ node: made as GraphNode, owners: [owner] })
  },
  copy: (program, a) => {
    const model = anyGraph(program, a)
    if (model === undefined) return
    const outer = program.with(to => program.with(from => model.graph!.copy(to, from)))
    const { made, owner } = outer.made
    model.nodes.push({ node: made as GraphNode, owners: [outer.owner, owner] })
  },
  // All parameters: of a captured or copied node none is known.
  update: (program, a, b) => {
    const model = anyGraph(program, a)
    const found = pick(model?.nodes.filter(({ node }) => node!.kind === 'fill') ?? [], b)
    if (found === undefined) return
    const { owner } = program.with(to => (found.node as GraphNode<'fill'>).update({ to, value: 4 }))
    found.owners = [owner]
  },
  destroy: (program, a, b) => {
    const model = anyGraph(program, a)
    const found = pick(model?.nodes ?? [], b)
    if (model === undefined || found === undefined) return
    found.node!.destroy()
    expect(found.node!.valid).toBe(false)
    model.nodes.splice(model.nodes.indexOf(found), 1)
  },
  embed: (program, a, b) => {
    const [into, from] = [pick(program.definitions, a), pick(program.definitions, b)]
    if (into === undefined || from === undefined || into === from || graphsIn(from).length > 3) return
    const node = into.graph!.embed(from.graph!)
    const child = program.viewOf(program.bodyOf(node as GraphNode), copyOf(from))
    into.nodes.push({ node: node as GraphNode, owners: [], child })
  },
  updateChild: (program, a, b, c) => {
    const model = pick(program.definitions, a)
    const found = pick(model?.nodes.filter(({ child }) => child !== undefined) ?? [], b)
    const from = pick(program.definitions, c)
    if (found === undefined || from === undefined || from === model || graphsIn(from).length > 3) return
    const old = found.child!.graph!
    ;(found.node as GraphNode<'child'>).update({ graph: from.graph! })
    expect(old.valid).toBe(false)
    found.child = program.viewOf(program.bodyOf(found.node!), copyOf(from))
  },
  clone: (program, a) => {
    const model = pick(program.definitions, a)
    if (model === undefined) return
    const graph = model.graph!.clone()
    program.definitions.push(program.viewOf(graph, copyOf(model)))
  },
  capture: program => void program.definitions.push(program.capture()),
  instantiate: (program, a) => {
    const source = pick(program.definitions, a)
    if (source === undefined) return
    const graph = ExecutableGraph.instantiate(source.graph!)
    program.executables.push({ graph, source, copy: copyOf(source), payload: { more: [] } })
  },
  // Whether a definition fits is the device's to say: where it refuses, nothing changes.
  replace: (program, a, b) => {
    const [executable, model] = [pick(program.executables, a), pick(program.definitions, b)]
    if (executable === undefined || model === undefined) return
    try {
      executable.graph.update(model.graph!)
    } catch (error) {
      expect((error as Error).message).toMatch(
        /same nodes and edges|a driver call|call that the driver takes/,
      )
      return
    }
    executable.copy = copyOf(model)
    executable.payload = { more: [] }
  },
  updateNode: (program, a, b) => {
    const executable = pick(program.executables, a)
    if (executable === undefined || !program.definitions.includes(executable.source)) return
    // Nodes that were added after it was made are none of its nodes: the device says so.
    const found = pick(
      executable.source.nodes.filter(({ node }) => node!.kind === 'fill'),
      b,
    )
    if (found === undefined) return
    try {
      const { owner } = program.with(to =>
        executable.graph.updateNode(found.node as GraphNode<'fill'>, { to, value: 5 }),
      )
      executable.payload.more.push(owner)
    } catch (error) {
      if (!isFault(error)) expect((error as Error).message).toMatch(/a node that the graph had when/)
    }
  },
  launch: (program, a) => {
    const executable = pick(program.executables, a)
    if (executable !== undefined) program.launch(executable)
  },
  complete: program => program.complete(),
  dispose: (program, a) => take(program.definitions, a)?.graph?.[Symbol.dispose](),
  end: (program, a) => take(program.executables, a)?.graph[Symbol.dispose](),
} satisfies Record<string, Doing>

const created = (program: Program): GraphModel => ({
  graph: GraphDefinition.create(program.device),
  nodes: [],
})

type Kind = keyof typeof steps

const kinds = Object.keys(steps) as readonly Kind[]
const number = fc.nat(1000)
const sequences: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.tuple(
    fc.constantFrom(...kinds, 'fill', 'copy', 'create', 'launch', 'instantiate'),
    number,
    number,
    number,
  ),
  { minLength: 5, maxLength: 50, size: 'max' },
)

/** Takes the steps; a step that the device refuses has changed nothing. */
const check = async (device: Device, sequence: readonly Step[], faults: boolean): Promise<void> => {
  const program = new Program(device)
  for (const [kind, a, b, c] of sequence) {
    try {
      await (steps[kind] as Doing)(program, a, b, c)
    } catch (error) {
      if (!faults || !isFault(error)) throw error
    }
    program.expectKept()
    // Where a fault has hidden a copy's nodes from us their owners go with the copy, not one by one.
    if (!faults && (a + b) % 4 === 0) await program.expectNoMore()
  }
  for (const { graph } of program.definitions.splice(0)) graph![Symbol.dispose]()
  program.expectKept()
  for (const { graph } of program.executables.splice(0)) graph[Symbol.dispose]()
  program.expectKept()
  await program.complete()
  await program.expectNoMore()
  expect(program.alive().size).toBe(0)
}

describe.each(present)('owners on %s', name => {
  it('are alive exactly while something that may run refers to them', { timeout: 60_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(sequences, async sequence => {
        await using device = await openOn(name)
        await check(device, sequence, false)
      }),
      { numRuns: runs(100) },
    )
  })
})

/** The calls that prepare a change, and those that make it. */
const calls = [
  'userObjectCreate',
  'graphRetain',
  'graphCreate',
  'graphClone',
  'graphNodes',
  'graphFindInClone',
  'nodeAdd',
  'nodeUpdate',
  'nodeDestroy',
  'nodeChild',
  'graphInstantiate',
  'execUpdate',
  'execNodeUpdate',
  'execLaunch',
  'captureBeginOnto',
] as const

it('a driver call that fails changes nothing, releases nothing early and leaks nothing', {
  timeout: 60_000,
}, async () => {
  await fc.assert(
    fc.asyncProperty(
      sequences,
      fc.array(fc.record({ call: fc.constantFrom(...calls), nth: fc.integer({ min: 1, max: 8 }) }), {
        minLength: 1,
        maxLength: 5,
      }),
      async (sequence, faults) => {
        await using device = await openOn('host', { host: { faults } })
        await check(device, sequence, true)
      },
    ),
    {
      numRuns: runs(200),
      // A child is not shown, and its node cannot be taken out either.
      examples: [
        [
          [
            ['create', 0, 0, 0],
            ['fill', 0, 0, 0],
            ['create', 0, 0, 0],
            ['embed', 1, 0, 0],
            ['embed', 1, 0, 0],
          ],
          [
            { call: 'nodeDestroy', nth: 1 },
            { call: 'nodeChild', nth: 1 },
          ],
        ],
      ],
    },
  )
})
