// On every family of graphs, on two lanes and on many: the waits are those of a transitive reduction found by
// brute force, and a plan from which any one wait or use is dropped breaks a law.
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { reduce } from '../../../dsl/compiler/passes/synchronize.js'
import {
  add,
  compile,
  delay,
  download,
  type Graph,
  graph,
  lane,
  on,
  orThrow,
  relu,
  tensor,
  upload,
} from '../../../dsl/index.js'
import type { Plan } from '../../../dsl/ir/plan.js'
import { poolPeakOf } from '../../../dsl/memory/pool-peak.js'
import { verify } from '../../../dsl/verify/verify.js'
import { graphOf } from '../../fixtures/graphs/of-tasks.js'
import {
  chains,
  cholesky,
  diamonds,
  fsdp,
  grcuda,
  greedyLanes,
  layered,
  type Pattern,
  type TaskGraph,
  taskBench,
  tree,
} from '../../fixtures/graphs/tasks.js'
import { runs } from '../../fixtures/runs.js'

const small = (least: number, most: number) => fc.integer({ min: least, max: most })
const seed = fc.integer({ min: 1, max: 2 ** 30 })
const patterns: readonly Pattern[] = ['trivial', 'stencil', 'fft', 'sweep', 'random']

const families: Readonly<Record<string, fc.Arbitrary<TaskGraph>>> = {
  chains: fc.tuple(small(1, 5), small(1, 6), small(1, 5)).map(args => chains(...args)),
  trees: small(1, 4).map(tree),
  diamonds: fc.tuple(small(1, 6), small(2, 4)).map(args => diamonds(...args)),
  'layered random': fc.tuple(small(2, 40), small(2, 8), small(1, 4), seed).map(args => layered(...args)),
  FSDP: fc.tuple(small(1, 4), small(1, 3)).map(args => fsdp(...args)),
  Cholesky: small(2, 5).map(cholesky),
  'Task Bench': fc
    .tuple(fc.constantFrom(...patterns), small(2, 6), small(2, 6), seed)
    .map(([pattern, width, steps, seed]) => taskBench(pattern, width, steps, seed)),
  GrCUDA: fc.constantFrom(
    grcuda.vec(),
    grcuda.blackScholes(),
    grcuda.ml(),
    grcuda.hits(2),
    grcuda.img(),
    grcuda.dl(),
    grcuda.cg(),
    grcuda.mul(),
  ),
}

/** Every path, then the edges across lanes that no other path stands for. */
const leastWaits = (deps: readonly (readonly number[])[], laneOf: Int32Array): string[] => {
  const edges = deps.map((before, task) => {
    const previous = task === 0 ? -1 : laneOf.lastIndexOf(laneOf[task]!, task - 1)
    return new Set(previous >= 0 ? [...before, previous] : before)
  })
  const reach = edges.map(() => new Set<number>())
  edges.forEach((before, task) => {
    for (const u of before) for (const w of [u, ...reach[u]!]) reach[task]!.add(w)
  })
  return edges.flatMap((before, task) =>
    [...before]
      .filter(
        u => laneOf[u] !== laneOf[task] && ![...before].some(other => other !== u && reach[other]!.has(u)),
      )
      .map(u => `${u} ${task}`),
  )
}

const foundWaits = (deps: readonly (readonly number[])[], laneOf: Int32Array, lanes: number): string[] => {
  const rows = deps.map(before => [...before].sort((a, b) => b - a))
  const start = new Int32Array(rows.length + 1)
  rows.forEach((row, task) => {
    start[task + 1] = start[task]! + row.length
  })
  const { waitStart, waitOn } = reduce(laneOf, lanes, { start, on: Int32Array.from(rows.flat()) })
  return rows.flatMap((_, task) =>
    Array.from(waitOn.subarray(waitStart[task], waitStart[task + 1]), on => `${on} ${task}`),
  )
}

const isMinimal = (plan: Plan): void => {
  expect(verify(plan)).toEqual([])
  plan.commands.forEach((command, dropped) => {
    if (command[0] !== 'wait' && command[0] !== 'use') return
    const commands = plan.commands.filter((_, c) => c !== dropped)
    // An event that no lane waits for breaks L6 by itself, which is not the question here.
    const rest = { ...plan, commands }
    const broken = verify(rest).filter(({ law }) => law !== 'L6')
    // Without some waits the plan counts as few bytes, and only the session's pool takes more.
    if (broken.length === 0)
      expect(poolPeakOf(rest).device[0], `without ${JSON.stringify(command)}`).toBeGreaterThan(
        plan.bound.device[0]!,
      )
  })
}

describe('waits are the transitive reduction, by brute force, of', () => {
  for (const [name, family] of Object.entries(families))
    test(name, () => {
      fc.assert(
        fc.property(family, fc.constantFrom(2, 3, 4, 8, 32), (tasks, most) => {
          const laneOf = greedyLanes(tasks, most)
          const lanes = Math.max(most, 3)
          expect(foundWaits(tasks.deps, laneOf, lanes).sort()).toEqual(leastWaits(tasks.deps, laneOf).sort())
        }),
        { numRuns: runs(40) },
      )
    })
})

describe('no wait and no use can be left out, of', () => {
  for (const [name, family] of Object.entries(families))
    test(name, () => {
      fc.assert(
        fc.property(
          family,
          fc.constantFrom(2, 3, 8, 32),
          fc.constantFrom(1, 2),
          fc.boolean(),
          (tasks, lanes, inFlight, fuse) => {
            const source = { ir: graphOf(name, tasks, Math.max(lanes, 3)) } as unknown as Graph
            isMinimal(orThrow(compile(source, { mode: 'eager', inFlight, fuse })))
          },
        ),
        { numRuns: runs(12) },
      )
    })

  test('pipelines with state', () => {
    fc.assert(
      fc.property(
        small(1, 4),
        fc.constantFrom(2, 3, 8),
        fc.constantFrom(1, 2, 3),
        fc.boolean(),
        (stages, lanes, inFlight, fuse) => {
          const on8 = Array.from({ length: lanes }, (_, i) => lane(`lane${i}`))
          const pipeline = graph('pipeline', { x: tensor('f32', [64]) }, ({ x }) => {
            let value = x.pipe(upload(on8[0]!))
            for (let stage = 0; stage < stages; stage++) {
              const here = on8[(stage + 1) % lanes]!
              const before = value.pipe(on(on8[stage % lanes]!), delay(stage))
              value = value.pipe(on(here), relu(), add(before))
            }
            return { y: value.pipe(download(on8[0]!)) }
          })
          isMinimal(orThrow(compile(pipeline, { mode: 'eager', inFlight, fuse })))
        },
      ),
      { numRuns: runs(25) },
    )
  })
})
