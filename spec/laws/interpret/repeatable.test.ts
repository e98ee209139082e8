// What `meaning` compares begins with the same values in each of its runs: else the difference of two draws
// would count as rounding, and any answer would be allowed.
import fc from 'fast-check'
import { defer, lastValueFrom, of, toArray } from 'rxjs'
import { expect, it } from 'vitest'
import {
  BraidError,
  download,
  exp,
  type Graph,
  graph,
  kernel,
  meaning,
  mul,
  param,
  softmax,
  state,
  tensor,
  upload,
} from '../../../dsl/index.js'
import { runs } from '../../fixtures/runs.js'

const n = 8
type Fill = (into: Uint8Array) => void

/** A function that fills n numbers; where it is impure, one element differs at each call. */
const drawing = (isImpure: boolean, element: number): Fill => {
  let call = 0
  return into => {
    const values = new Float32Array(into.buffer, into.byteOffset, n)
    for (let i = 0; i < n; i++) values[i] = (i + 1) / n + (i === element && isImpure ? call / 64 : 0)
    call++
  }
}

/** A graph with two states, two parameters and a kernel, each with a function of its own. */
const network = (fills: readonly Fill[], add: () => number): Graph => {
  const grow = kernel({
    name: 'grow',
    cuda: 'extern "C" __global__ void grow(const float* a, float* b) {}',
    reads: { a: tensor('f32', [n]) },
    writes: { b: tensor('f32', [n]) },
    launch: { grid: 1, block: n },
    reference: ({ a }, { b }) => {
      for (let i = 0; i < n; i++) b[i] = a[i]! + add()
    },
  })
  return graph('drawn', { x: tensor('f32', [n]) }, ({ x }) => {
    const s = state({ a: tensor('f32', [n]), b: tensor('f32', [n]) }, { a: fills[0]!, b: fills[1]! } as never)
    const [p, q] = [param('p', tensor('f32', [n])), param('q', tensor('f32', [n]))]
    const y = x.pipe(upload(), mul(s.a), mul(s.b), mul(p), mul(q), exp())
    s.next({ a: s.a.pipe(mul(2)), b: s.b } as never)
    return { y: y.pipe(softmax(), download()), z: grow({ a: y }).b.pipe(download()) }
  })
}

const meant = (net: Graph, params: Readonly<Record<string, unknown>>, x: unknown) =>
  lastValueFrom(meaning(net, { params: params as never })({ x } as never).pipe(toArray()))

it('a function whose second call differs is an error that names it; the values of all others are drawn once', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 0, max: 5 }),
      fc.integer({ min: 0, max: n - 1 }),
      fc.array(fc.float({ min: -1, max: 1, noNaN: true }), { minLength: n, maxLength: n }),
      async (impure, element, x) => {
        const fills = Array.from({ length: 4 }, (_, i) => drawing(i === impure, element))
        let drawn = 0
        const net = network(fills, () => (impure === 4 ? drawn++ : 1))
        const params = { p: fills[2], q: async (into: Uint8Array) => fills[3]!(into) }
        // Subscribed to a second time, the feed would give something else.
        let turns = 0
        const feed = defer(() => {
          const turn = turns++
          return of(Float32Array.from(x, value => value + turn))
        })
        const result = await meant(net, params, feed).catch((error: unknown) => error)
        if (impure < 5) {
          expect(result).toBeInstanceOf(BraidError)
          const { faults } = result as BraidError
          expect(faults.map(({ _tag, subject }) => [_tag, subject])).toEqual([
            ['Unrepeatable', ['a', 'b', 'p', 'q', expect.stringContaining('grow')][impure]],
          ])
          if (impure < 4) expect(faults[0]!.found).toContain(`element ${element} `)
          return
        }
        const arrays = fills.map(fill => {
          const value = new Float32Array(n)
          fill(new Uint8Array(value.buffer))
          return value
        })
        const same = network(arrays as never, () => 1)
        expect(turns).toBe(1)
        expect(result).toEqual(await meant(same, { p: arrays[2], q: arrays[3] }, [Float32Array.from(x)]))
      },
    ),
    { numRuns: runs(60) },
  )
})
