// Plans in graph mode: every law holds, the edges are those that the order of the plan needs and no more, and
// whatever order a device chooses among the nodes gives the same values.
import fc from 'fast-check'
import { isLeft } from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import {
  type CompileOptions,
  compile,
  download,
  explain,
  type Graph,
  graph,
  kernel,
  orThrow,
  type Plan,
  parsePlan,
  relu,
  renderAll,
  tensor,
  toJSON,
  upload,
} from '../../../dsl/index.js'
import { parsePlanParts } from '../../../dsl/ir/load.js'
import type { PlanGraph } from '../../../dsl/ir/plan.js'
import { h200 } from '../../../dsl/machine/h200.js'
import { verify } from '../../../dsl/verify/verify.js'
import { network } from '../../../examples/weight-streaming/network.js'
import { largeGraph } from '../../fixtures/graphs/large.js'
import { patternGraph, patterns } from '../../fixtures/graphs/patterns.js'
import { sample } from '../../fixtures/graphs/random.js'
import { cutInPieces, outcomesOf } from '../../fixtures/plans/issued.js'
import { plans } from '../../fixtures/plans/random.js'
import { runs } from '../../fixtures/runs.js'
import { collectives } from '../../golden/collectives.js'
import { goldens } from '../../golden/graphs.js'
import { comparable, oracle } from '../../oracle/oracle.js'

const graphed = (graph: Graph, options: CompileOptions = {}): Plan => {
  const plan = compile(graph, { ...options, mode: 'graph' })
  if (isLeft(plan)) throw new Error(renderAll(plan.left))
  return plan.right
}

const devicesOf = ({ commands, lanes }: Plan, { from, to }: PlanGraph): ReadonlySet<number> =>
  new Set(commands.slice(from, to).map(([, , lane]) => lanes[lane as number]!.device))

const runsOf = ({ commands }: Plan): number[] => commands.flatMap(([op], c) => (op === 'run' ? [c] : []))

/** By state that a tick writes, the runs that access it. */
const stateAccessesOf = ({ commands, buffers }: Plan): readonly (readonly number[])[] => {
  const found = new Map<number, { runs: number[]; written: boolean }>()
  commands.forEach((command, c) => {
    if (command[0] !== 'run') return
    for (const [list, writes] of [
      [command[3], false],
      [command[4], true],
    ] as const)
      for (const b of list) {
        const root = buffers[b]!.alias ?? b
        if (buffers[root]!.life !== 'state') continue
        const state = found.get(root) ?? { runs: [], written: false }
        found.set(root, { runs: [...state.runs, c], written: state.written || writes })
      }
  })
  return [...found.values()].filter(({ written }) => written).map(({ runs }) => runs)
}

/** All but the places of nodes in the user's files. */
const keys = (plan: Plan): string[] => [
  ...new Set(verify(plan).map(({ law, command, buffer }) => `${law} ${command} ${buffer ?? -1}`)),
]

describe('graph mode', () => {
  test('obeys every law, has all runs in one graph, and is the same each time and after a file', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(1, 1, 2, 3).chain(devices => sample({ devices })),
        fc.constantFrom(1, 2, 3),
        fc.constantFrom(1, 2, 99),
        fc.constantFrom('fast' as const, 'small' as const),
        (made, inFlight, lanes, memory) => {
          const options = { dims: made.dims, inFlight, lanes, memory }
          const plan = graphed(made.graph, options)
          expect(verify(plan)).toEqual([])
          expect(plan.storage).toBe('planned')
          const graphOf = (c: number): number => plan.graphs!.findIndex(({ from, to }) => c >= from && c < to)
          expect(runsOf(plan).map(graphOf)).not.toContain(-1)
          // Ticks that overlap have the accesses of each state in one graph, and what is not between them in others.
          if (plan.arenas === undefined) expect(plan.graphs).toHaveLength(1)
          else
            for (const accesses of stateAccessesOf(plan)) expect(new Set(accesses.map(graphOf)).size).toBe(1)
          expect(JSON.stringify(graphed(made.graph, options))).toBe(JSON.stringify(plan))
          expect(orThrow(parsePlan(toJSON(plan)))).toEqual(plan)
          expect(orThrow(parsePlanParts([toJSON(plan)]))).toEqual(plan)
        },
      ),
      { numRuns: runs(100) },
    )
  })

  test('has the edges that reachability asks for, over 2 to 8 lanes that hardly meet', () => {
    fc.assert(
      fc.property(patterns(60), fc.constantFrom(1, 2, 3), (pattern, inFlight) => {
        const plan = graphed(patternGraph(pattern), { inFlight })
        expect(verify(plan)).toEqual([])
        // By the definition: paths in one tick over lanes, records and waits.
        const above = new Map<number, Set<number>>()
        const last = new Map<number, number>()
        const recorded = new Map<number, number>()
        const follow = (c: number, before: number | undefined): void => {
          if (before === undefined) return
          for (const i of [before, ...above.get(before)!]) above.get(c)!.add(i)
        }
        plan.commands.forEach((command, c) => {
          above.set(c, new Set())
          const lane = command[2] as number
          follow(c, last.get(lane))
          last.set(lane, c)
          if (command[0] === 'record') recorded.set(command[1], c)
          if (command[0] === 'wait' && command[3] !== -1) follow(c, recorded.get(command[1]))
        })
        const nodes = runsOf(plan)
        const wanted = nodes.flatMap(b => {
          const before = nodes.filter(a => above.get(b)!.has(a))
          return before.filter(a => !before.some(x => above.get(x)!.has(a))).map(a => [a, b])
        })
        expect(plan.graphs!.map(({ edges }) => edges)).toEqual([wanted])
      }),
      { numRuns: runs(100) },
    )
  })

  test('gives the same values in whatever order the device runs what is ready', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(1, 2, 3).chain(devices => sample({ devices, steps: 20 })),
        fc.constantFrom(1, 2, 3),
        fc.nat(),
        fc.nat(),
        (made, inFlight, seed, cut) => {
          const whole = graphed(made.graph, { dims: made.dims, inFlight })
          sameInAnyOrder(whole, seed)
          // Cut into several graphs, with eager work between them.
          sameInAnyOrder(cutInPieces(whole, cut), seed + 1)
        },
      ),
      { numRuns: runs(60) },
    )
  })

  test('gives other values in some order when an edge is left out', () => {
    const plan = graphed(goldens.diamond as unknown as Graph)
    const [graph] = plan.graphs!
    for (let e = 0; e < graph!.edges.length; e++) {
      const less = { ...plan, graphs: [{ ...graph!, edges: graph!.edges.toSpliced(e, 1) }] }
      expect(() => {
        for (let seed = 0; seed < 20; seed++) sameInAnyOrder(less, seed)
      }).toThrow()
    }
  })

  test('leaves collectives out, and goes over devices', () => {
    const plan = graphed(collectives as unknown as Graph)
    const inGraph = (c: number): boolean => plan.graphs!.some(({ from, to }) => c >= from && c < to)
    for (const c of runsOf(plan)) {
      const run = plan.commands[c]!
      expect(inGraph(c)).toBe(plan.nodes[run[1] as number]!.collective === undefined)
    }
    const two = graphed(goldens['two-devices'] as unknown as Graph, { inFlight: 1 })
    expect(two.graphs!.map(graph => [...devicesOf(two, graph)].sort())).toEqual([[0, 1]])
    expect(explain(two)).toMatch(/, on devices 0, 1\n/)
    expect(explain(two)).toMatch(/\n {2}devices {2}a graph over several devices is one launch; /)
    // Each wait of a device for another one is an edge, and the law asks for it.
    const deviceAt = (c: number): number => two.lanes[two.commands[c]![2] as number]!.device
    const [graph] = two.graphs!
    const crossing = graph!.edges.flatMap(([a, b], e) => (deviceAt(a) === deviceAt(b) ? [] : [e]))
    expect(crossing.length).toBeGreaterThan(1)
    for (const e of crossing) {
      const less = { ...two, graphs: [{ ...graph!, edges: graph!.edges.toSpliced(e, 1) }] }
      expect(verify(less).map(({ law, command }) => [law, command])).toEqual([['L11', graph!.edges[e]![1]]])
    }
  })

  test('launches a kernel that is to be in no graph by itself, and explains it', () => {
    const f32 = tensor('f32', [4])
    const alone = kernel({
      name: 'alone',
      cuda: 'extern "C" __global__ void alone(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }',
      reads: { x: f32 },
      writes: { y: f32 },
      launch: { grid: 1, block: 4 },
      reference: ({ x }, { y }) => y.set(x),
      graph: false,
    })
    const net = graph({ x: f32 }, ({ x }) => ({
      y: alone({ x: x.pipe(upload(), relu()) }).y.pipe(relu(), download()),
    }))
    const plan = graphed(net as unknown as Graph)
    const names = (from: number, to: number) =>
      plan.commands.slice(from, to).flatMap(([op, n]) => (op === 'run' ? [plan.nodes[n]!.name] : []))
    expect(plan.graphs!.map(({ from, to }) => names(from, to))).toEqual([
      ['x', 'relu[0]'],
      ['relu[1]', 'y'],
    ])
    expect(orThrow(parsePlan(toJSON(plan)))).toEqual(plan)
    const inOne = { ...plan, graphs: [{ from: 0, to: plan.commands.length, edges: [] }] }
    expect(verify(inOne).map(({ law, command }) => [law, plan.commands[command]![0]])).toEqual([
      ['L11', 'run'],
    ])
    expect(explain(plan)).toMatch(/ends before alone\[0\]: its kernel says that it is in no graph/)
    expect(explain(plan)).toMatch(/\n {2}eager {4}alone\[0\]: its kernel says that it is in no graph/)
  })

  test('wants planned storage', () => {
    const both = compile(goldens.diamond as unknown as Graph, { mode: 'graph', storage: 'pooled' })
    expect(isLeft(both) && both.left.map(({ at }) => at)).toEqual(['options.storage'])
    const other = compile(goldens.diamond as unknown as Graph, { mode: 'graphs' } as never)
    expect(isLeft(other) && other.left.map(({ at }) => at)).toEqual(['options.mode'])
    const pooled = orThrow(compile(goldens.diamond as unknown as Graph, { storage: 'pooled' }))
    const file = { ...pooled, graphs: [{ from: 0, to: 1, edges: [] }] }
    expect(isLeft(parsePlan(file))).toBe(true)
    expect(verify(file as Plan).map(({ law }) => law)).toContain('L11')
  })

  test('is judged as the oracle judges it, whatever its graphs are', () => {
    const edge = fc.tuple(fc.nat(), fc.nat())
    const arenas = fc.constantFrom(undefined, 2, 3)
    const range = fc.record({ from: fc.nat(), to: fc.nat(), keep: fc.boolean(), more: fc.array(edge) })
    fc.assert(
      fc.property(
        plans(6),
        fc.array(range, { minLength: 1, maxLength: 3 }),
        arenas,
        (plan, ranges, arenas) => {
          const count = plan.commands.length
          const graphs = ranges.map(({ from, to, keep, more }) => ({
            from: keep ? 0 : from % count,
            to: keep ? count : to % (count + 2),
            edges: more
              .map(([a, b]) => [a % count, b % count] as const)
              .sort(([a, b], [x, y]) => b - y || a - x),
          }))
          const given = { ...plan, graphs, ...(arenas === undefined ? {} : { arenas }) }
          expect(comparable(given, keys(given))).toEqual(comparable(given, [...oracle(given)]))
        },
      ),
      { numRuns: runs(200) },
    )
  })
})

const sameInAnyOrder = (plan: Plan, seed: number): void => {
  const { expected, found } = outcomesOf(plan, seed)
  for (const outcome of found) expect(outcome).toEqual(expected)
}

test('of a graph of thousands of operations, graph mode has the kernels that eager mode was fused into', () => {
  const graph = largeGraph('streamed', 1200, 8)
  const [eager, auto] = (['eager', 'auto'] as const).map(mode => orThrow(compile(graph, { mode })))
  expect(auto!.graphs?.length).toBe(1)
  expect(explain(auto!)).toContain('fused')
  const names = (plan: Plan): string[] => plan.nodes.map(({ name }) => name).sort()
  expect(names(auto!)).toEqual(names(eager!))
  expect(eager!.nodes.length).toBeLessThan(
    orThrow(compile(graph, { mode: 'eager', fuse: false })).nodes.length,
  )
})

test('`auto` takes no plan in graph mode that is larger than the machine, where the eager one fits', () => {
  const on = (memory: number, mode: 'auto' | 'graph' | 'eager' = 'auto'): Plan =>
    orThrow(compile(network, { inFlight: 2, mode, machine: { ...h200, device: { ...h200.device, memory } } }))
  const held = (plan: Plan): number => plan.bound.device[0]!
  const [eager, graph] = [held(on(4 << 20, 'eager')), held(on(4 << 20, 'graph'))]
  expect(graph).toBeGreaterThan(4 << 20)
  expect(held(on(h200.device.memory))).toBe(graph)
  for (const memory of [graph - 1, 4 << 20, eager]) {
    const plan = on(memory)
    expect(held(plan)).toBeLessThanOrEqual(memory)
    if (plan.graphs === undefined) expect(explain(plan)).toContain(`of ${memory} that a device`)
  }
})
