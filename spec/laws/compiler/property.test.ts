import fc from 'fast-check'
import { isLeft } from 'fp-ts/lib/Either.js'
import { describe, expect, test } from 'vitest'
import { reduce } from '../../../dsl/compiler/passes/synchronize.js'
import {
  add,
  compile,
  download,
  type Graph,
  graph,
  orThrow,
  renderAll,
  tensor,
  upload,
} from '../../../dsl/index.js'
import { verify } from '../../../dsl/verify/verify.js'
import { twiceInPlace } from '../../fixtures/graphs/kernels.js'
import { sample } from '../../fixtures/graphs/random.js'
import { runs } from '../../fixtures/runs.js'

describe('compile', () => {
  test('makes plans of generated graphs that break no law, the same each time', () => {
    fc.assert(
      fc.property(
        sample(),
        fc.constantFrom(1, 2, 3),
        fc.constantFrom(1, 2, 99),
        fc.constantFrom('fast' as const, 'small' as const),
        fc.boolean(),
        fc.constantFrom('eager' as const, 'graph' as const, 'auto' as const),
        (made, inFlight, lanes, memory, fuse, mode) => {
          const options = { dims: made.dims, inFlight, lanes, memory, fuse, mode }
          const plan = compile(made.graph as Graph, options)
          if (isLeft(plan)) throw new Error(renderAll(plan.left))
          expect(verify(plan.right)).toEqual([])
          expect(JSON.stringify(compile(made.graph as Graph, options))).toBe(JSON.stringify(plan))
        },
      ),
      { numRuns: runs(100) },
    )
  })

  test('waits for the transitive reduction of hazards and lane order, no more and no less', () => {
    const task = fc.tuple(fc.nat(2), fc.array(fc.nat(30), { maxLength: 4 }))
    fc.assert(
      fc.property(fc.array(task, { minLength: 1, maxLength: 24 }), tasks => {
        const laneOf = Int32Array.from(tasks, ([lane]) => lane)
        const deps = tasks.map(([, raw], v) =>
          v === 0 ? [] : [...new Set(raw.map(u => u % v))].sort((a, b) => b - a),
        )
        const start = Int32Array.from([0, ...deps.map((_, v) => deps.slice(0, v + 1).flat().length)])
        const found = reduce(laneOf, 3, { start, on: Int32Array.from(deps.flat()) })
        // Brute force: every path, then the edges across lanes that no other path stands for.
        const edges = deps.map((list, v) => {
          const previous = laneOf.lastIndexOf(laneOf[v]!, v - 1)
          return new Set(v > 0 && previous >= 0 ? [...list, previous] : list)
        })
        const reach = edges.map(() => new Set<number>())
        edges.forEach((list, v) => {
          for (const u of list) for (const w of [u, ...reach[u]!]) reach[v]!.add(w)
        })
        const least = edges.flatMap((list, v) =>
          [...list]
            .filter(
              u => laneOf[u] !== laneOf[v] && ![...list].some(other => other !== u && reach[other]!.has(u)),
            )
            .map(u => `${u} ${v}`),
        )
        const waits = tasks.flatMap((_, v) =>
          Array.from(found.waitOn.subarray(found.waitStart[v], found.waitStart[v + 1]), u => `${u} ${v}`),
        )
        expect(waits.sort()).toEqual(least.sort())
      }),
      { numRuns: runs(500) },
    )
  })

  test('keeps apart two values of one meaning whose memory two kernels take', () => {
    const duplicates = graph('duplicates', { x: tensor('f32', [8]) }, ({ x }) => {
      const value = x.pipe(upload())
      const own = () => twiceInPlace({ x: value.pipe(add(1)) }).y.pipe(download())
      return { y: own(), z: own(), sum: value.pipe(add(1), download()), same: value.pipe(add(1), download()) }
    })
    const plan = orThrow(compile(duplicates, { fuse: false }))
    expect(verify(plan)).toEqual([])
    expect(plan.nodes.filter(({ op }) => op === 'add')).toHaveLength(3)
  })

  test('answers with errors, and never throws, whatever it is given', () => {
    fc.assert(
      fc.property(fc.anything(), fc.anything(), (graph, options) => {
        expect(isLeft(compile(graph as Graph, options as never))).toBe(true)
      }),
      { numRuns: runs(500) },
    )
  })
})
