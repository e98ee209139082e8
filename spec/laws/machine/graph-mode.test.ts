// The simulator on plans in graph mode: a node starts after its predecessors, a tick's graph after that of
// the tick before, eager work around a graph where the rules of a launch have it; and what `auto` chooses.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import {
  compile,
  type DeviceFlow,
  device,
  download,
  explain,
  type Graph,
  graph,
  kernel,
  type Lane,
  lane,
  matmul,
  on,
  orThrow,
  type Plan,
  param,
  relu,
  simulate,
  type Tensor,
  tensor,
  upload,
} from '../../../dsl/index.js'
import { h200 } from '../../../dsl/machine/h200.js'
import { runsOf } from '../../../dsl/machine/simulate/simulate.js'
import { gpt } from '../../bench/model-bodies.js'
import { pipelineOf } from '../../bench/pipeline-shapes.js'
import { patternGraph, patterns } from '../../fixtures/graphs/patterns.js'
import { sample } from '../../fixtures/graphs/random.js'
import { someMachines } from '../../fixtures/machines/random.js'
import { cutInPieces, piecesOf } from '../../fixtures/plans/issued.js'
import { runs } from '../../fixtures/runs.js'
import { collectives } from '../../golden/collectives.js'
import { goldens } from '../../golden/graphs.js'

const vector = tensor('f32', [4])
const ungraphed = kernel({
  name: 'ungraphed',
  cuda: 'extern "C" __global__ void ungraphed(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }',
  reads: { x: vector },
  writes: { y: vector },
  launch: { grid: 1, block: 4 },
  reference: ({ x }, { y }) => y.set(x),
  graph: false,
})
const small = { batch: 8, tokens: 1024, vocabulary: 256, width: 768, heads: 12, layers: 3 }

const graphed = (graph: Graph, options: object = {}): Plan =>
  orThrow(compile(graph, { ...options, mode: 'graph' })) as Plan

describe('simulate, of a plan in graph mode', () => {
  test('starts each run after all that the edges and the rules of a launch put before it', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(1, 2, 3).chain(devices => sample({ devices, steps: 20 })),
        someMachines,
        fc.constantFrom(1, 2, 3),
        fc.option(fc.nat(), { nil: undefined }),
        (made, machine, inFlight, cut) => {
          const whole = graphed(made.graph, { dims: made.dims, inFlight })
          const plan = cut === undefined ? whole : cutInPieces(whole, cut)
          const { timeline } = simulate(plan, machine, { ticks: 4 })
          const all = runsOf(timeline)
          const perTick = all.length / timeline.ticks
          const numberOf = new Map(
            plan.commands.flatMap(([op], c) => (op === 'run' ? [c] : [])).map((c, i) => [c, i] as const),
          )
          const at = (tick: number, c: number) => all[tick * perTick + numberOf.get(c)!]!
          const pieces = piecesOf(plan, timeline.ticks)
          for (const { tick, nodes, edges, after } of pieces) {
            for (const [a, b] of edges)
              expect(at(tick, b).start).toBeGreaterThanOrEqual(at(tick, a).end - 1e-3)
            for (const p of after)
              for (const before of pieces[p]!.nodes)
                for (const c of nodes)
                  expect(at(tick, c).start).toBeGreaterThanOrEqual(at(pieces[p]!.tick, before).end - 1e-3)
          }
        },
      ),
      { numRuns: runs(60) },
    )
  })

  test('takes the issuing thread one launch and a little for each node, whatever the plan waits for', () => {
    fc.assert(
      fc.property(patterns(40), pattern => {
        const plan = graphed(patternGraph(pattern))
        const nodes = plan.commands.filter(([op]) => op === 'run').length
        const { issueMs } = simulate(plan, 'h200')
        // At its end a tick records one event, on the lane of the graph.
        const { graph, node, record } = h200.host
        expect(issueMs).toBeCloseTo((graph + nodes * node + record) * 1e-6, 9)
      }),
      { numRuns: runs(40) },
    )
  })
})

test('devices in one graph work side by side, and wait where an edge leads from one to the other', () => {
  const square = tensor('f32', [2048, 2048])
  type Square = DeviceFlow<Tensor<'f32', readonly [2048, 2048]>>
  const products = (flow: Square, name: string): Square => {
    let made = flow
    for (let i = 0; i < 6; i++) made = made.pipe(matmul(param(`${name}${i}`, square)))
    return made
  }
  const [zero, far] = [device(0), lane('far', { device: 1 })]
  const towers = (other: Lane) =>
    graph('towers', { x: square }, ({ x }) => ({
      y: products(x.pipe(upload(zero)), 'v').pipe(download()),
      z: products(x.pipe(upload(other)), 'w').pipe(download()),
    }))
  const chain = graph('chain', { x: square }, ({ x }) => ({
    z: products(products(x.pipe(upload(zero)), 'v').pipe(on(far)), 'w').pipe(download()),
  }))
  const tickOf = (net: unknown): number => {
    const plan = graphed(net as Graph, { inFlight: 1, fuse: false })
    expect(plan.graphs).toHaveLength(1)
    return simulate(plan, 'h200x2').tickMs
  }
  const apart = tickOf(towers(far))
  expect(apart).toBeLessThan(0.8 * tickOf(towers(lane('near', { device: 0 }))))
  expect(apart).toBeLessThan(0.8 * tickOf(chain))
})

const large = tensor('f32', [2048, 2048])
/** Uploads that take as long as the products, and overlap those of the tick before. */
const streaming = graph('streaming', {}, () => {
  const w = [0, 1, 2].map(i => param(`w${i}`, large, { on: 'host' }).pipe(upload()))
  return { y: w[0]!.pipe(matmul(w[1]!), matmul(w[2]!), download()) }
})

describe("mode: 'auto'", () => {
  test('takes the plan of the shorter predicted tick, and the one that fits', () => {
    const modes = [...Object.values(goldens), streaming, pipelineOf('offload').graph].map(golden => {
      const net = golden as unknown as Graph
      const [auto, eager, asGraph] = (['auto', 'eager', 'graph'] as const).map(
        mode => orThrow(compile(net, { mode, memory: 'fast' })) as Plan,
      )
      const ticks = [eager!, asGraph!].map(plan => simulate(plan, 'h200').tickMs)
      expect(simulate(auto!, 'h200').tickMs).toBeLessThanOrEqual(1.02 * Math.min(...ticks))
      expect(JSON.stringify(auto)).toBe(JSON.stringify(auto!.graphs === undefined ? eager : asGraph))
      expect(explain(auto!)).toMatch(/\nmode (eager|graph): a tick of .* by the machine's figures, /)
      return auto!.graphs === undefined
    })
    // Both occur: small operations gain by a graph, ticks that compete for the link lose by one.
    expect(new Set(modes).size).toBe(2)
  })

  test('is the default, and takes what was measured to be faster, one to three ticks in flight', () => {
    for (const name of ['ensemble', 'offload', 'diamonds', 'decode'] as const)
      for (const inFlight of [1, 2, 3]) {
        const { graphs } = orThrow(compile(pipelineOf(name).graph, { inFlight, fuse: false }))
        expect([name, inFlight, graphs !== undefined]).toEqual([
          name,
          inFlight,
          name !== 'offload' || inFlight === 1,
        ])
      }
    expect(orThrow(compile(goldens.diamond)).graphs).toHaveLength(1)
    expect(orThrow(compile(goldens.diamond, { storage: 'pooled' })).graphs).toBeUndefined()
    expect(orThrow(compile(goldens.diamond, { mode: 'eager' })).graphs).toBeUndefined()
  })

  test('holds little more than eager mode, unless memory is said', () => {
    let roomy = 0
    const bodies = [pipelineOf('offload'), gpt(small)]
    for (const { graph } of bodies)
      for (const inFlight of [1, 3]) {
        const [auto, eager, fast] = [{}, { mode: 'eager' }, { memory: 'fast' }].map(options =>
          orThrow(compile(graph, { inFlight, ...(options as object) })),
        )
        const most = Math.max(1.25 * eager!.bound.device[0]!, eager!.bound.device[0]! + 2 ** 25)
        expect(auto!.bound.device[0]).toBeLessThanOrEqual(most)
        if (fast!.bound.device[0]! > most) roomy++
      }
    expect(roomy).toBeGreaterThan(0)
  })

  test('says why eager mode is taken', () => {
    const said = (graph: unknown, options: object = {}): string =>
      /\nmode eager: .*: (.*)/.exec(explain(orThrow(compile(graph as Graph, options))))?.[1] ?? ''
    expect(said(collectives)).toContain('collectives')
    expect(said(pipelineOf('offload').graph)).toMatch(
      /it holds \d+ bytes, of at most \d+ where memory is not given/,
    )
    expect(said(pipelineOf('offload').graph, { memory: 'fast' })).toMatch(/as long, and it holds \d+ bytes/)
    const alone = graph('alone', {}, () => {
      let { y } = ungraphed({ x: param('x', vector, { on: 'host' }).pipe(upload()) })
      for (let i = 0; i < 4; i++) y = ungraphed({ x: y.pipe(relu()) }).y
      return { y }
    })
    expect(said(alone, { fuse: false })).toContain(
      'no launch of a graph would take the place of several calls',
    )
  })
})
