// Ticks in flight with an arena each: every law holds, they gain by it where it is chosen, nothing that the
// device chooses among their commands changes a value, and what two ticks may not share is refused.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import { provenanceOf } from '../../../dsl/compiler/analysis/provenance.js'
import {
  add,
  type CompileOptions,
  compile,
  download,
  explain,
  type Graph,
  graph,
  kernel,
  lane,
  matmul,
  orThrow,
  type Plan,
  param,
  parsePlan,
  relu,
  scan,
  simulate,
  tensor,
  toJSON,
  upload,
} from '../../../dsl/index.js'
import { runsOf } from '../../../dsl/machine/simulate/simulate.js'
import { verify } from '../../../dsl/verify/verify.js'
import { patternGraph, patterns } from '../../fixtures/graphs/patterns.js'
import { sample } from '../../fixtures/graphs/random.js'
import { roomy } from '../../fixtures/machines/roomy.js'
import { statefulWithArenas, withArenas } from '../../fixtures/plans/arenas.js'
import { cutInPieces, outcomesOf } from '../../fixtures/plans/issued.js'
import { often, runs } from '../../fixtures/runs.js'
import { comparable, oracle } from '../../oracle/oracle.js'

const graphed = (graph: unknown, options: CompileOptions = {}): Plan =>
  orThrow(compile(graph as Graph, { ...options, mode: 'graph' })) as Plan

const writesState = ({ commands, buffers }: Plan): boolean =>
  commands.some(
    command =>
      command[0] === 'run' && command[4].some(b => buffers[buffers[b]!.alias ?? b]!.life === 'state'),
  )
const lawsOf = (plan: Plan): string[] => [...new Set(verify(plan).map(({ law }) => law))]
const sameInAnyOrder = (plan: Plan, seed: number): void => {
  const { expected, found } = outcomesOf(plan, seed)
  for (const outcome of found) expect(outcome).toEqual(expected)
}

/** The commands, and the graphs, without a command that is no run. */
const without = ({ commands }: Plan, c: number): Plan['commands'] => commands.toSpliced(c, 1)
const shifted = ({ graphs = [] }: Plan, c: number): NonNullable<Plan['graphs']> => {
  const moved = (at: number): number => (at > c ? at - 1 : at)
  return graphs.map(({ from, to, edges }) => ({
    from: moved(from),
    to: moved(to),
    edges: edges.map(([a, b]) => [moved(a), moved(b)] as const),
  }))
}

const small = tensor('f32', [256])
const [left, right] = [lane('left'), lane('right')]
const streams = graph('streams', { x: small }, ({ x }) => {
  const w = param('w', small)
  const a = x.pipe(upload(left), add(w))
  const b = x.pipe(upload(right), add(1))
  return { y: a.pipe(add(b), add(1), download(left)) }
})
const counting = graph('counting', { x: small }, ({ x }) => ({
  y: x.pipe(
    upload(),
    scan((sum, value) => sum.pipe(add(value)), 0),
    download(),
  ),
}))

/** All of its products lie on the way from a state to its next value. */
const recurrent = graph('recurrent', {}, () => {
  const w = param('w', tensor('f32', [256, 256]))
  return { y: w.pipe(scan((h, x) => h.pipe(matmul(x), relu(), matmul(x), relu(), matmul(x), relu()), 0)) }
})

const ungraphed = kernel({
  name: 'ungraphed',
  cuda: 'extern "C" __global__ void ungraphed(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }',
  reads: { x: small },
  writes: { y: small },
  launch: { grid: 1, block: 256 },
  reference: ({ x }, { y }) => y.set(x),
  graph: false,
})
const around = graph('around', { x: small }, ({ x }) => ({
  y: ungraphed({ x: x.pipe(upload(left), add(1)) }).y.pipe(add(1), download(left)),
}))

describe('ticks in flight with an arena each', () => {
  test('obey every law, whatever the graph, and give the same values in whatever order', () => {
    fc.assert(
      fc.property(
        sample({ steps: 20 }),
        fc.constantFrom(2, 3, 4),
        fc.constantFrom(1, 2, 99),
        fc.nat(),
        (made, count, lanes, seed) => {
          const one = graphed(made.graph, { dims: made.dims, inFlight: 1, lanes })
          const plan = writesState(one) ? statefulWithArenas(one, count) : withArenas(one, count)
          if (plan === undefined) return
          expect(verify(plan)).toEqual([])
          expect(orThrow(parsePlan(toJSON(plan)))).toEqual(plan)
          sameInAnyOrder(plan, seed)
          sameInAnyOrder(cutInPieces(plan, seed), seed + 1)
        },
      ),
      { numRuns: runs(60) },
    )
  })

  test('are what the compiler makes of a plan where they gain', () => {
    let several = 0
    let stateful = 0
    fc.assert(
      fc.property(sample({ steps: 20 }), fc.constantFrom(1, 2, 3, 4), fc.nat(), (made, inFlight, seed) => {
        const options = { dims: made.dims, inFlight, machine: roomy, memory: 'fast' as const }
        const plan = graphed(made.graph, options)
        expect(verify(plan)).toEqual([])
        expect([undefined, inFlight]).toContain(plan.arenas)
        if (plan.arenas === undefined) return
        several++
        if (writesState(plan)) stateful++
        sameInAnyOrder(plan, seed)
        // Whichever wait for the tick before is dropped, a state is read or written too early.
        plan.commands.forEach(([op, , , tick], c) => {
          if (op !== 'wait' || tick !== -1) return
          const found = lawsOf({ ...plan, commands: without(plan, c), graphs: shifted(plan, c) })
          expect(found.some(law => law === 'L1' || law === 'L2')).toBe(true)
        })
        expect(JSON.stringify(graphed(made.graph, options))).toBe(JSON.stringify(plan))
        expect(graphed(made.graph, { ...options, memory: 'small' }).arenas).toBeUndefined()
        // Nothing waits for the tick before but for its states.
        const waits = plan.commands.filter(([op, , , tick]) => op === 'wait' && tick === -1)
        if (!writesState(plan)) expect(waits).toEqual([])
      }),
      { numRuns: runs(40) },
    )
    expect(several).toBeGreaterThan(often(0))
    expect(stateful).toBeGreaterThan(often(0))
  })

  test('hold as many times what a tick has for itself, and parameters once', () => {
    const one = graphed(streams, { inFlight: 1, machine: roomy })
    for (const inFlight of [2, 3, 4]) {
      const plan = graphed(streams, { inFlight, machine: roomy })
      const own = one.arena![0]! - 1024
      expect(plan.arenas).toBe(inFlight)
      expect(plan.arena).toEqual(one.arena)
      expect(plan.bound.device).toEqual([1024 + inFlight * own])
      expect(explain(plan)).toContain(`${inFlight} ticks in flight have an arena each`)
      expect(explain(plan)).toMatch(/what ticks have for themselves, for \d more in flight/)
      // Memory for one arena only, and for all of them.
      const bytes = plan.bound.device[0]!
      expect(graphed(streams, { inFlight, machine: roomy, memory: bytes }).arenas).toBe(inFlight)
      const less = graphed(streams, { inFlight, machine: roomy, memory: bytes - 1 })
      expect(less.arenas).toBeUndefined()
      expect(explain(less)).toContain(`; ${inFlight} do not fit in ${bytes - 1} bytes`)
    }
  })

  const large = tensor('f32', [2048, 2048])
  const products = graph('products', {}, () => {
    const [a, b] = [param('a', large), param('b', large)]
    return { y: a.pipe(matmul(b), matmul(b), matmul(b), add(1)) }
  })

  /** Most of its bytes are weights, and its products fill the device two at a time. */
  const branches = graph('branches', {}, () => {
    const x = param('x', tensor('bf16', [512, 512]))
    const ends = Array.from({ length: 8 }, (_, i) => {
      const w = (layer: number) => param(`w${i}.${layer}`, tensor('bf16', [512, 512]))
      return x.pipe(matmul(w(0)), relu(), matmul(w(1)), relu(), matmul(w(2)), relu(), matmul(w(3)))
    })
    return { y: ends.reduce((sum, end) => sum.pipe(add(end))) }
  })

  test('have scratch of their own for products', () => {
    const plan = graphed(products, { machine: roomy })
    expect(plan.arenas).toBe(2)
    expect(plan.buffers.filter(({ name }) => name.startsWith('workspace')).map(({ life }) => life)).toEqual([
      'tick',
    ])
    expect(verify(plan)).toEqual([])
  })

  test('are not chosen where they gain nothing, and explain why', () => {
    const why = (graph: unknown, options: CompileOptions): string => {
      const plan = graphed(graph, options)
      expect(plan.arenas).toBeUndefined()
      return /\n {2}ticks +(.*)/.exec(explain(plan))![1]!
    }
    expect(why(streams, { inFlight: 1, machine: roomy })).toContain('one tick in flight')
    expect(why(recurrent, { machine: roomy })).toMatch(
      /\d+ % of its work lies .* writing the state delay\[0\]/,
    )
    // A kernel that is in no graph cuts a tick with one arena too: that is no reason.
    const divided = graphed(around, { machine: roomy, fuse: false })
    expect(divided.graphs).toHaveLength(2)
    expect(divided.arenas).toBe(2)
    const cut = why(counting, { machine: roomy, fuse: false })
    expect(cut).toMatch(
      /around its states a tick would be \d graphs, and by itself \d+ % longer; memory: 'fast'/,
    )
    expect(why(streams, { memory: 'small', machine: roomy })).toContain("memory: 'small'")
    expect(why(products, {})).toContain('ticks would gain nothing by overlapping')
  })

  test('are chosen where the prediction sees no gain and they cost few bytes', () => {
    const plan = graphed(branches, { inFlight: 3 })
    const { because, ticks } = provenanceOf(plan)!.decisions.arenas!
    expect(because).toBe('ticks overlap')
    expect(ticks!.several).toBeGreaterThan(0.99 * ticks!.one)
    expect(plan.arenas).toBe(3)
  })

  test('overlap in a simulation, and come after each other with one arena', () => {
    fc.assert(
      fc.property(patterns(30), fc.constantFrom(2, 3), (pattern, inFlight) => {
        const plan = withArenas(graphed(patternGraph(pattern), { inFlight: 1 }), inFlight)
        const { arenas: _, ...one } = plan
        const times = (given: Plan) => {
          const { timeline } = simulate(given, roomy, { ticks: 6 })
          const all = runsOf(timeline)
          const of = (tick: number) => all.filter(run => run.tick === tick)
          return Array.from({ length: 5 }, (_, tick) => ({
            end: Math.max(...of(tick).map(({ end }) => end)),
            next: Math.min(...of(tick + 1).map(({ start }) => start)),
          }))
        }
        expect(times(plan).some(({ end, next }) => next < end)).toBe(true)
        for (const { end, next } of times(one)) expect(next).toBeGreaterThanOrEqual(end - 1e-3)
      }),
      { numRuns: runs(20) },
    )
  })
})

describe('two ticks', () => {
  const plan = withArenas(graphed(streams, { inFlight: 1 }), 3)
  const refused = (mutant: Plan): string[] => {
    const keys = verify(mutant).map(({ law, command, buffer }) => `${law} ${command} ${buffer ?? -1}`)
    expect(comparable(mutant, keys)).toEqual(comparable(mutant, [...oracle(mutant)]))
    return lawsOf(mutant)
  }

  test('have no arena in common without the order between them', () => {
    const { arenas: _, ...shared } = plan
    expect(refused(shared)).toContain('L4')
  })

  test('have no arena in common that the host does not wait for', () => {
    expect(refused({ ...plan, arenas: 2 })).toContain('L4')
    expect(refused({ ...plan, inFlight: 4 })).toContain('L4')
    expect(refused({ ...plan, arenas: 4 })).toContain('L4')
  })

  test('do not carry a state by the order of a lane', () => {
    const one = graphed(counting, { inFlight: 1, lanes: 1 })
    expect(refused(withArenas(one, 2))).toEqual(['L1', 'L2'])
    const waiting = statefulWithArenas(one, 2)!
    expect(refused(waiting)).toEqual([])
    const at = waiting.commands.findIndex(([op]) => op === 'wait')
    const early = waiting.commands.map((command, c) => (c === at ? (['wait', 9, 0, -1] as const) : command))
    expect(refused({ ...waiting, commands: early })).toEqual(expect.arrayContaining(['L1', 'L2', 'L7']))
  })

  test('share parameters only where each has its own bytes above them', () => {
    const at = plan.buffers.findIndex(({ life }) => life === 'param')
    const above = plan.buffers.map((buffer, b) =>
      b === at ? { ...buffer, offset: plan.arena![0]! } : buffer,
    )
    const arena = [plan.arena![0]! + 1024]
    expect(refused({ ...plan, buffers: above, arena })).toContain('L3')
  })

  test('have a bound for all arenas, and graphs', () => {
    const device = [plan.bound.device[0]! - 1]
    expect(refused({ ...plan, bound: { ...plan.bound, device } })).toEqual(['L9'])
    const { graphs: _, ...eager } = plan
    expect(refused(eager)).toContain('L11')
    expect(E.isLeft(parsePlan(JSON.stringify(eager)))).toBe(true)
    expect(E.isLeft(parsePlan(JSON.stringify({ ...plan, arenas: 0.5 })))).toBe(true)
  })
})
