// Pooling against its definition, element by element.
import fc from 'fast-check'
import { expect, it } from 'vitest'
import * as braid from '../../../dsl/index.js'
import { numbers, roundoff } from '../../../dsl/language/values.js'
import { type AnyOp, arrayOf, compute, f32, type Given, problemsOf, typed } from '../../fixtures/compute.js'
import { givenOf, type PoolCase, poolCases, poolOptionsOf } from '../../fixtures/convolutions.js'
import { runs } from '../../fixtures/runs.js'
import { windows } from '../../oracle/pool.js'

const [maxPool, avgPool] = [braid.maxPool, braid.avgPool] as unknown as readonly ((
  options: unknown,
) => AnyOp)[]

const of = async (one: PoolCase, pool: (options: unknown) => AnyOp) => {
  const x = givenOf(one)[0]
  const { values } = await compute([x], a => a.pipe(pool(poolOptionsOf(one))))
  return { values, wanted: windows(one, numbers(arrayOf(x), one.dtype)) }
}

it('takes the largest element, or the mean with zeros around, of each kernel', async () => {
  await fc.assert(
    fc.asyncProperty(poolCases, async one => {
      const largest = await of(one, maxPool!)
      expect(largest.values).toEqual(largest.wanted.map(met => Math.max(...met)))
      const { values, wanted } = await of(one, avgPool!)
      expect(values.length).toBe(wanted.length)
      const count = one.kernel.reduce((n, size) => n * size, 1)
      values.forEach((value, i) => {
        const mean = wanted[i]!.reduce((x, y) => x + y, 0) / count
        expect(Math.abs(value - mean)).toBeLessThanOrEqual(
          count * 4 * roundoff.f32 + 2 * roundoff[one.dtype] * Math.abs(mean) + 2 ** -24,
        )
      })
    }),
    { numRuns: runs(200) },
  )
})

it('is of a NaN wherever it meets one, and of nothing that it padded', async () => {
  const x = f32([1, 1, 4], -3, -2, Number.NaN, -1)
  const got = await compute([x], a => a.pipe(maxPool!({ kernel: 2, stride: 1, padding: 1 })))
  expect(got.values).toEqual([-3, -2, Number.NaN, Number.NaN, -1])
})

it('steps by its own sizes where no stride is given', async () => {
  const x = f32([1, 1, 2, 6], 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
  const got = await compute([x], a => a.pipe(avgPool!({ kernel: [2, 3] })))
  expect([got.shape, got.values]).toEqual([
    [1, 1, 1, 2],
    [5, 8],
  ])
})

it('keeps the symbols of batch and channels, and refuses what does not fit', () => {
  const net = braid.graph({ x: braid.tensor('f16', ['n', 'c', 8, 6]) }, ({ x }) => ({
    y: x.pipe(braid.upload(), braid.maxPool({ kernel: 3, stride: 2, padding: 1 }), braid.download()),
  }))
  expect(braid.irOf(net).problems).toEqual([])
  expect(braid.irOf(net).nodes.at(-1)!.spec.shape).toEqual(['n', 'c', 4, 3])
  expect(braid.compile(net, { dims: { n: 2, c: 3 } })).toMatchObject({ _tag: 'Right' })

  const tags = (x: Given, options?: unknown) => problemsOf([x], a => a.pipe(maxPool!(options)))
  const x = f32([1, 2, 5, 5])
  expect(tags(x, { kernel: 2 })).toEqual([])
  expect(tags(x, { kernel: 6 })).toEqual(['ShapeMismatch'])
  for (const shape of [[5, 5], [5], [], [1, 1, 2, 2, 2, 2]])
    expect(tags(f32(shape), { kernel: 1 })).toEqual(['ShapeMismatch'])
  expect(tags(typed('i32', [1, 2, 5, 5]), { kernel: 2 })).toEqual(['DTypeMismatch'])
  for (const options of [
    undefined,
    {},
    { kernel: 0 },
    { kernel: 1.5 },
    { kernel: [2] },
    { kernel: 9 },
    { kernel: 2, stride: 0 },
    { kernel: 2, stride: [1, 1, 1] },
    { kernel: 2, padding: -1 },
    { kernel: 3, padding: 2 },
  ])
    expect([options, tags(x, options)]).toEqual([options, ['BadAttribute']])
})
