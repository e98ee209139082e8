// Work without a lane of the user's is spread over the lanes that shorten the predicted tick, and no more;
// lanes of the user's are never mixed with chosen ones.

import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import { describe, expect, it } from 'vitest'
import { costsOf } from '../../../dsl/compiler/analysis/costs.js'
import { dependenciesOf, topological } from '../../../dsl/compiler/analysis/dependencies.js'
import type { Lifetimes, Lowered, Ordered } from '../../../dsl/compiler/analysis/ir.js'
import type { Settings } from '../../../dsl/compiler/analysis/options.js'
import { predict } from '../../../dsl/compiler/analysis/predict.js'
import { outlineOf } from '../../../dsl/compiler/passes/emit.js'
import { lifetimes } from '../../../dsl/compiler/passes/lifetimes.js'
import { order } from '../../../dsl/compiler/passes/order.js'
import { fewestChains, greedyChains } from '../../../dsl/compiler/passes/place/chains.js'
import { fold, type LaneKind } from '../../../dsl/compiler/passes/place/fold.js'
import { place } from '../../../dsl/compiler/passes/place.js'
import { synchronize } from '../../../dsl/compiler/passes/synchronize.js'
import { mostPredicted } from '../../../dsl/compiler/search/candidates.js'
import {
  add,
  compile,
  download,
  type Graph,
  gelu,
  graph,
  lane,
  matmul,
  on,
  orThrow,
  relu,
  simulate,
  tensor,
  upload,
  verify,
} from '../../../dsl/index.js'
import { pipelineOf } from '../../bench/pipeline-shapes.js'
import { figured, figures } from '../../fixtures/graphs/figures.js'
import { greedyLanes, layered, type TaskGraph } from '../../fixtures/graphs/tasks.js'
import { fitted } from '../../fixtures/plans/fitted.js'
import { settings, tasks } from '../../fixtures/plans/of-tasks.js'
import { isFullRun, runs } from '../../fixtures/runs.js'

/**
 * Tasks of so many measured nanoseconds, none on a lane yet, each of which leaves most of the device to
 * others.
 */
const tasksOf = ({ deps }: TaskGraph, nanoseconds: number, more: Partial<Settings> = {}): Lowered => ({
  settings: {
    ...settings,
    storage: 'pooled',
    profile: new Map(nanoseconds > 0 ? deps.map((_, id) => [`t${id}`, nanoseconds]) : []),
    ...more,
  },
  ...tasks(deps, () => 4, 49_152),
})

interface Outcome {
  readonly lanes: number
  readonly waits: number
  readonly uses: number
  readonly tick: number
  /** The tick by `simulate`, of a plan that is small enough. Milliseconds. */
  readonly simulated: number
}

const outcomeOf = (ordered: Ordered): Outcome =>
  pipe(
    synchronize(ordered),
    E.chain(lifetimes),
    E.match(
      () => {
        throw new Error('a pass found an error')
      },
      ir => ({
        lanes: ir.lanes.length,
        waits: ir.waitOn.length,
        uses: ir.useBuffer.length,
        tick: predict(ir, costsOf(ir.operations, ir.settings)).tick,
        simulated: ir.operations.length > mostSimulated ? 0 : simulatedOf(ir),
      }),
    ),
  )

const mostSimulated = 4_000

const simulatedOf = (ir: Lifetimes): number => {
  const measured = ir.settings.profile
  const plan = outlineOf(ir)
  return simulate(plan, ir.settings.machine, measured.size > 0 ? { measured } : {}).tickMs
}

const right = <A>(found: E.Either<unknown, A>): A => {
  if (E.isLeft(found)) throw new Error(JSON.stringify(found.left))
  return found.right
}

/** The lanes of `greedyLanes`, in the order in which the tasks stand. */
const given = (graph: TaskGraph, ir: Lowered, lanes: number): Outcome =>
  outcomeOf({
    ...ir,
    lanes: Array.from({ length: lanes }, (_, id) => ({ id, name: `l${id}`, device: 0, priority: 0 })),
    laneOf: greedyLanes(graph, lanes),
    windows: [],
    keep: false,
  })

/** Lanes of the compiler's choice, in the better of its orders, as `fit` takes it. */
const chosen = (ir: Lowered): Outcome => {
  const placed = right(place()(ir))
  const ordered = (by: 'critical path' | 'time') =>
    outcomeOf(right(order({ by, ahead: Number.POSITIVE_INFINITY, keep: false })(placed)))
  const plain = ordered('critical path')
  // Beyond this nothing is predicted, so orders are not compared.
  if (ir.operations.length > mostPredicted) return plain
  const timed = ordered('time')
  return timed.tick < plain.tick * 0.99 ? timed : plain
}

describe('lanes and order of the compiler’s choice', () => {
  const tried = isFullRun ? figures : figures.filter(({ lanes }) => lanes === 8)
  for (const { graph, lanes, waits, uses } of tried)
    for (const nanoseconds of [500, 50_000]) {
      const kernels = nanoseconds > 500 ? 'kernels of 50 µs' : 'kernels of 0.5 µs'
      it(`are no worse than greedy ones for ${graph} on ${lanes} lanes, ${kernels}`, () => {
        const tasks = figured[graph]!()
        const ir = tasksOf(tasks, nanoseconds, { lanes })
        const found = chosen(ir)
        expect(found.lanes).toBeLessThanOrEqual(lanes)
        expect(found.waits).toBeLessThanOrEqual(waits)
        expect(found.uses).toBeLessThanOrEqual(uses)
        const plain = given(tasks, ir, lanes)
        expect(found.tick).toBeLessThanOrEqual(plain.tick)
        expect(found.simulated).toBeLessThanOrEqual(plain.simulated)
        // What the issuing thread bounds gains nothing by lanes.
        if (nanoseconds === 500) expect(found.lanes).toBe(1)
      })
    }

  it('keep a chain on one lane, however long its kernels are', () => {
    const chain: TaskGraph = { deps: Array.from({ length: 50 }, (_, i) => (i === 0 ? [] : [i - 1])) }
    expect(chosen(tasksOf(chain, 1_000_000))).toMatchObject({ lanes: 1, waits: 0, uses: 0 })
  })

  it('do not overlap kernels that fill the device', () => {
    const wide = tasksOf({ deps: Array.from({ length: 16 }, () => []) }, 50_000)
    const long = tasksOf({ deps: Array.from({ length: 16 }, () => []) }, 1_000_000)
    const full = { ...long, operations: long.operations.map(task => ({ ...task, movedBytes: 2 ** 28 })) }
    expect(chosen(wide).lanes).toBeGreaterThan(1)
    expect(chosen(full).lanes).toBe(1)
  })

  it('of a graph are as many as shorten one tick, where ticks that overlap take as long on one lane', () => {
    const { graph } = pipelineOf('branches')
    expect(orThrow(compile(graph, { mode: 'graph', inFlight: 3, fuse: false })).lanes.length).toBeGreaterThan(
      5,
    )
  })

  it('are the same for the same options, and follow what was measured', () => {
    const tasks = layered(400, 8, 3, 5)
    expect(right(place()(tasksOf(tasks, 40_000)))).toEqual(right(place()(tasksOf(tasks, 40_000))))
    expect(chosen(tasksOf(tasks, 40_000)).lanes).toBeGreaterThan(chosen(tasksOf(tasks, 500)).lanes)
  })
})

const random = fc.array(fc.array(fc.nat(40), { maxLength: 4 }), { minLength: 1, maxLength: 40 }).map(
  (raw): TaskGraph => ({
    deps: raw.map((after, v) => (v === 0 ? [] : [...new Set(after.map(u => u % v))])),
  }),
)

describe('chains', () => {
  it('are paths that hold every operation once; a cover has the fewest there can be', () => {
    fc.assert(
      fc.property(random, tasks => {
        const ir = tasksOf(tasks, 0)
        const dependencies = dependenciesOf(ir.operations)
        const sorted = topological(dependencies)
        const greedy = greedyChains(ir.operations, sorted, () => true)
        const cover = fewestChains(ir.operations, sorted, dependencies, () => true)
        for (const { chainOf, chains } of [greedy, cover]) {
          const last = new Int32Array(chains).fill(-1)
          chainOf.forEach((chain, i) => {
            if (last[chain] !== -1) expect(tasks.deps[i]).toContain(last[chain])
            last[chain] = i
          })
          expect(last.every(i => i >= 0)).toBe(true)
        }
        // Brute force: the largest matching of operations with those that go on with them (Kuhn).
        const next = new Map<number, number>()
        const match = (i: number, seen: Set<number>): boolean =>
          tasks.deps[i]!.some(before => {
            if (seen.has(before)) return false
            seen.add(before)
            const other = next.get(before)
            if (other !== undefined && !match(other, seen)) return false
            next.set(before, i)
            return true
          })
        for (const i of tasks.deps.keys()) match(i, new Set())
        expect(cover.chains).toBe(tasks.deps.length - next.size)
        expect(greedy.chains).toBeGreaterThanOrEqual(cover.chains)
      }),
      { numRuns: runs(300) },
    )
  })
})

describe('fold', () => {
  it('keeps kinds apart while there are streams for them, and uses no more than there are', () => {
    const logical = fc.record({
      name: fc.constant('lane'),
      kind: fc.constantFrom<LaneKind>('in', 'out', 'work'),
      priority: fc.constant(0),
      work: fc.integer({ min: 0, max: 1000 }),
    })
    fc.assert(
      fc.property(
        fc.array(logical, { minLength: 1, maxLength: 12 }),
        fc.integer({ min: 1, max: 8 }),
        (lanes, most) => {
          const folded = fold(lanes, most)
          expect(new Set(folded).size).toBe(Math.min(lanes.length, most))
          for (const onto of folded) expect(folded[onto]).toBe(onto)
          const kinds = new Set(lanes.map(({ kind }) => kind)).size
          const mixed = (a: number, b: number): boolean => lanes[a]!.kind !== lanes[b]!.kind
          if (most >= kinds) folded.forEach((onto, lane) => void expect(mixed(onto, lane)).toBe(false))
          if (most >= 2)
            folded.forEach((onto, lane) => {
              const works = [onto, lane].filter(at => lanes[at]!.kind === 'work').length
              expect(works).not.toBe(1)
            })
        },
      ),
      { numRuns: runs(300) },
    )
  })
})

const square = tensor('f32', [64, 64])
const math = lane('math', { priority: 'high' })

describe('lanes in a plan', () => {
  const net = graph('branches', { x: square }, ({ x }) => {
    const own = x.pipe(upload(), on(math), relu())
    const left = own.pipe(matmul(own), relu())
    const free = x.pipe(upload(), gelu(), matmul(x.pipe(upload())), relu())
    return { y: free.pipe(add(left.pipe(on(math), relu())), download()) }
  })

  it('are the user’s where given, with their priority, and chosen ones have names of their own', () => {
    const plan = orThrow(compile(net, { mode: 'eager', fuse: false }))
    expect(verify(plan)).toEqual([])
    expect(plan.lanes.find(({ name }) => name === 'math')?.priority).toBe(1)
    expect(plan.lanes.map(({ name }) => name).sort()).toEqual(['d2h', 'h2d', 'main', 'math'])
    const taken = graph('taken', { x: square }, ({ x }) => ({
      y: x.pipe(upload(), relu(), on(lane('main')), gelu(), download()),
    }))
    expect(orThrow(compile(taken, { mode: 'eager', fuse: false })).lanes.map(({ name }) => name)).toContain(
      'main.2',
    )
  })

  it('fold onto as many streams as there may be, copies apart from work as long as they can be', () => {
    for (const lanes of [1, 2, 3]) {
      const plan = orThrow(compile(net, { mode: 'eager', fuse: false, lanes }))
      expect(plan.lanes.length).toBe(lanes)
      expect(verify(plan)).toEqual([])
    }
    expect(
      orThrow(compile(net, { mode: 'eager', fuse: false, lanes: 2 }))
        .lanes.map(({ name }) => name)
        .sort(),
    ).toEqual(['h2d+d2h', 'math+main'])
  })

  it('spread over more where kernels were measured to be long, and the plan verifies', () => {
    const wide = graph('wide', { x: square }, ({ x }) => {
      const on = x.pipe(upload())
      const branches = [1, 2, 3, 4].map(n => on.pipe(add(n), gelu(), add(n), gelu()))
      return { y: branches.reduce((a, b) => a.pipe(add(b))).pipe(download()) }
    })
    const measured = (nanoseconds: number) =>
      Object.fromEntries(
        [...Array(12)].flatMap((_, i) => [
          [`gelu[${i}]`, nanoseconds],
          [`add[${i}]`, 500],
        ]),
      )
    const profile = measured(400_000)
    const plain = orThrow(compile(wide, { mode: 'eager', fuse: false, profile: measured(500) }))
    const plan = orThrow(compile(wide, { mode: 'eager', fuse: false, profile }))
    expect(plain.lanes.length).toBe(3)
    expect(plan.lanes.length).toBe(6)
    expect(verify(plan)).toEqual([])
    expect(orThrow(compile(wide, { mode: 'eager', fuse: false, profile, lanes: 3 })).lanes.length).toBe(3)
    expect(
      verify(orThrow(compile(wide, { mode: 'eager', fuse: false, profile, placement: 'cover' }))),
    ).toEqual([])
    const small = orThrow(compile(wide, { mode: 'eager', fuse: false, profile, memory: 'small' }))
    const folded = orThrow(compile(wide, { mode: 'eager', fuse: false, profile, memory: 'small', lanes: 3 }))
    expect(small.bound.device[0]).toBeLessThanOrEqual(folded.bound.device[0]!)
  })
})

describe('the order of issue', () => {
  it('interleaves lanes, so that the full queue of one does not keep the others from their work', () => {
    const net = graph('two', { x: square }, ({ x }) => {
      const chain = (own: ReturnType<typeof lane>, n: number) => {
        let y = x.pipe(upload(own), on(own))
        for (let i = 0; i < 60; i++) y = y.pipe(add(n + i))
        return y.pipe(download(own))
      }
      return { a: chain(lane('a'), 1), b: chain(lane('b'), 100) }
    })
    const profile = Object.fromEntries([...Array(120)].map((_, i) => [`add[${i}]`, 20_000]))
    const machine = { extends: 'h200', name: 'shallow', device: { queueDepth: 16 } }
    const { choice } = fitted(net as Graph, { profile, machine, inFlight: 1 })
    expect(choice?.chosen.by).toBe('time')
    // Each lane's own 60 operations, not both lanes' one after the other.
    expect(choice!.chosen.tick).toBeLessThan(1.3 * 60 * 20_000)
    expect(choice!.chosen.blocked).toBeGreaterThan(0)
    expect(fitted(net as Graph, { profile, inFlight: 1 }).choice!.chosen.blocked).toBe(0)
  })
})
