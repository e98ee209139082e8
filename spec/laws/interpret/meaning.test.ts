// What rounding allows an output, over generated graphs: enough for every plan
// (spec/conformance/meaning.test.ts runs them), and so little that operands in the wrong order cannot hide
// behind it.
import fc from 'fast-check'
import { lastValueFrom, toArray } from 'rxjs'
import { expect, it } from 'vitest'
import {
  download,
  exp,
  graph,
  interpret,
  irOf,
  matmul,
  param,
  tensor,
  upload,
  variance,
} from '../../../dsl/index.js'
import { distance, meaning } from '../../../dsl/interpret/meaning.js'
import type { GraphIR } from '../../../dsl/ir/graph.js'
import type { DType } from '../../../dsl/ir/tensor.js'
import { type HostArray, numbers } from '../../../dsl/language/values.js'
import { type Sample, sample } from '../../fixtures/graphs/random.js'
import { isFullRun, often, runs } from '../../fixtures/runs.js'

type Values = Readonly<Record<string, HostArray>>

const optionsOf = ({ params, dims, ticks }: Sample) => ({ params: params as never, dims, ticks })
const meant = (made: Sample) =>
  lastValueFrom(meaning(made.graph, optionsOf(made))(made.feeds as never).pipe(toArray()))

/** The graphs in which one difference or quotient has its operands in the wrong order. */
const swapped = (ir: GraphIR): readonly GraphIR[] =>
  ir.nodes
    .filter(({ op, inputs: [a, b] }) => (op === 'sub' || op === 'div') && b !== undefined && a !== b)
    .map(({ id }) => ({
      ...ir,
      nodes: ir.nodes.map(node => (node.id === id ? { ...node, inputs: node.inputs.toReversed() } : node)),
    }))

it('catches operands in the wrong order wherever they change an output', async () => {
  const seen = { changed: 0, caught: 0 }
  await fc.assert(
    fc.asyncProperty(sample(), async made => {
      const wrongs = swapped(irOf(made.graph))
      if (wrongs.length === 0) return
      const wanted = await meant(made)
      for (const wrong of wrongs) {
        const running = interpret(wrong, optionsOf(made))(made.feeds as never)
        const got = (await lastValueFrom(running.pipe(toArray()))) as unknown as readonly Values[]
        const distances = got.flatMap((values, tick) =>
          Object.entries(made.outputs).map(([name, dtype]) => {
            const { values: row, allowed } = wanted[tick]!
            return distance(numbers(values[name]!, dtype), numbers(row[name]!, dtype), allowed[name]!)
          }),
        )
        if (distances.some(({ difference }) => difference > 0)) seen.changed++
        if (distances.some(one => one.wrong !== undefined)) seen.caught++
      }
    }),
    { numRuns: runs(2000) },
  )
  expect(seen.changed).toBeGreaterThan(often(20))
  // A change below rounding is none that a device could be blamed for.
  expect(seen.caught).toBeGreaterThanOrEqual(0.9 * seen.changed - 1)
})

it('allows an output of one element what products in f32 make of it', async () => {
  const net = graph({ x: tensor('f32', [1, 1]) }, ({ x }) => {
    const scaled = x.pipe(upload(), matmul(param('a', tensor('f32', [1, 2]))))
    return { y: scaled.pipe(matmul(param('b', tensor('f32', [2, 1]))), download()) }
  })
  const number = fc.integer({ min: -(2 ** 24), max: 2 ** 24 }).map(n => n / 2 ** 24)
  let differ = 0
  await fc.assert(
    fc.asyncProperty(fc.tuple(number, number, number, number, number), async ([x, a0, a1, b0, b1]) => {
      const params = { a: Float32Array.of(a0, a1), b: Float32Array.of(b0, b1) }
      const feeds = { x: [Float32Array.of(x)] }
      const [only] = await lastValueFrom(meaning(net, { params, ticks: 1 })(feeds).pipe(toArray()))
      const { values, allowed } = only!
      const [first, second] = [Math.fround(Math.fround(x * a0) * b0), Math.fround(Math.fround(x * a1) * b1)]
      const got = Float32Array.of(first + second)
      if (got[0] !== (values['y'] as Float32Array)[0]) differ++
      expect(distance(got, values['y'] as Float32Array, allowed['y']!).wrong).toBeUndefined()
    }),
    {
      numRuns: runs(2000),
      examples: [
        [
          [
            -0.8679400086402893, 0.391520231962204, -0.8624008297920227, -0.26723337173461914,
            -0.21669287979602814,
          ],
        ],
      ],
    },
  )
  expect(differ).toBeGreaterThan(often(20))
})

it('allows a variance of inexact values what spreads these', async () => {
  const length = 256
  const net = graph({ x: tensor('f32', [length]) }, ({ x }) => ({
    y: x.pipe(upload(), exp(), variance(), download()),
  }))
  const varianceOf = (values: Float32Array): number => {
    const mean = values.reduce((sum, value) => sum + value, 0) / length
    return values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / length
  }
  const given = fc.tuple(fc.integer({ min: 1, max: 1e6 }), fc.double({ min: 1e-5, max: 1e-1, noNaN: true }))
  await fc.assert(
    fc.asyncProperty(given, async ([seed, reach]) => {
      const x = Float32Array.from({ length }, (_, i) => reach * Math.sin(seed + i))
      const [only] = await lastValueFrom(meaning(net, { ticks: 1 })({ x: [x] }).pipe(toArray()))
      const { values, allowed } = only!
      // A device whose exponentials above 1 are one unit too large, and those below it as much too small.
      const spread = x.map(value => Math.exp(value) * (1 + Math.sign(value) * 2 ** -23))
      const got = Float32Array.of(varianceOf(spread))
      expect(distance(got, values['y'] as Float32Array, allowed['y']!).wrong).toBeUndefined()
    }),
    { numRuns: runs(300) },
  )
})

it('allows whole types nothing, and most floats some units in the last place', async () => {
  const shares: Record<DType, number[]> = { u8: [], i32: [], f16: [], bf16: [], f32: [] }
  await fc.assert(
    fc.asyncProperty(sample(), async made => {
      for (const { values, allowed } of await meant(made))
        for (const [name, dtype] of Object.entries(made.outputs)) {
          const value = numbers(values[name]!, dtype)
          const { scale } = distance(value, value, 0)
          if (scale > 0) shares[dtype].push(allowed[name]! / scale)
        }
    }),
    { numRuns: runs(300) },
  )
  const at = (dtype: DType, share: number): number =>
    shares[dtype].sort((a, b) => a - b)[Math.floor(shares[dtype].length * share)] ?? 0
  expect([at('u8', 0.999), at('i32', 0.999)]).toEqual([0, 0])
  // Of fewer graphs a single deep one would decide.
  if (!isFullRun) return
  // About half of the values are exact, in some runs of random graphs fewer.
  expect([at('f32', 0.3), at('f16', 0.3), at('bf16', 0.3)]).toEqual([0, 0, 0])
  expect(at('f32', 0.9)).toBeLessThan(2e-3)
  expect(at('f16', 0.9)).toBeLessThan(5e-2)
  expect(at('bf16', 0.9)).toBeLessThan(2e-1)
})

it('distance compares f16 and bf16 as the numbers they are, and asks which of the two', () => {
  const [one, next] = [Uint16Array.of(0x3f80), Uint16Array.of(0x3f81)]
  expect(distance(one, next, 2 ** -7, 'bf16')).toEqual({
    difference: 2 ** -7,
    scale: 1 + 2 ** -7,
    wrong: undefined,
  })
  expect(distance(one, next, 2 ** -8, 'bf16').wrong).toBe(0)
  expect(() => distance(one, next, 1)).toThrow(/element type of a Uint16Array.*Next: distance/)
})
