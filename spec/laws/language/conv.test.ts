// Convolutions against their definition, element by element.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import * as braid from '../../../dsl/index.js'
import { numbers, roundoff } from '../../../dsl/language/values.js'
import { type AnyOp, arrayOf, compute, f32, type Given, problemsOf, typed } from '../../fixtures/compute.js'
import { convCases, givenOf, optionsOf, shapesOf } from '../../fixtures/convolutions.js'
import { runs } from '../../fixtures/runs.js'
import { convolved, placesOf } from '../../oracle/conv.js'

const conv = braid.conv as unknown as (w: unknown, options?: unknown) => AnyOp

describe('a convolution', () => {
  it('is the sum of what each filter meets at each place', async () => {
    const seen = { grouped: 0, strided: 0, dilated: 0, padded: 0, same: 0, ranks: new Set<number>() }
    await fc.assert(
      fc.asyncProperty(convCases({ most: 5 }), async one => {
        const { dtype, groups, channels, kernel } = one
        const [x, w] = givenOf(one)
        const got = await compute([x, w], (a, b) => a.pipe(conv(b, optionsOf(one))))
        expect([got.dtype, got.shape]).toEqual([dtype, shapesOf(one).y])
        const exact = [x, w].map(given => numbers(arrayOf(given), dtype))
        const { sums, magnitudes } = convolved(one, exact[0]!, exact[1]!)
        got.values.forEach((value, i) => {
          // Sums of f64, rounded to f32 and to the type.
          const error = magnitudes[i]! * 2 ** -40 + Math.abs(sums[i]!) * 2 * (roundoff.f32 + roundoff[dtype])
          expect(Math.abs(value - sums[i]!)).toBeLessThanOrEqual(error + 2 ** -24)
        })
        seen.grouped += groups > 1 && channels > 1 ? 1 : 0
        seen.strided += one.stride.some(n => n > 1) ? 1 : 0
        seen.dilated += one.dilation.some((n, d) => n > 1 && kernel[d]! > 1) ? 1 : 0
        seen.padded += one.pad.some(([before]) => before > 0) ? 1 : 0
        seen.same += one.padding === 'same' ? 1 : 0
        seen.ranks.add(kernel.length)
      }),
      { numRuns: runs(200) },
    )
    expect(seen.ranks).toEqual(new Set([1, 2, 3]))
    for (const count of [seen.grouped, seen.strided, seen.dilated, seen.padded, seen.same])
      expect(count).toBeGreaterThan(5)
  })

  it('adds a bias to each channel', async () => {
    const x = f32([2, 1, 3], 1, 2, 3, 4, 5, 6)
    const w = f32([2, 1, 2], 1, 1, 1, -1)
    const got = await compute([x, w, f32([2], 10, 20)], (a, b, c) => a.pipe(conv(b, { bias: c })))
    expect(got.values).toEqual([13, 15, 19, 19, 19, 21, 19, 19])
    const last = await compute(
      [f32([2, 3, 1], ...x.values), f32([2, 2, 1], ...w.values), f32([2], 10, 20)],
      (a, b, c) => a.pipe(conv(b, { bias: c, channels: 'last' })),
    )
    expect([last.shape, last.values]).toEqual([
      [2, 2, 2],
      [13, 19, 15, 19, 19, 19, 21, 19],
    ])
  })

  it('is a product where channels are last and a kernel has one element', () => {
    const net = (options: object, kernel = 1) =>
      braid.graph(
        { x: braid.tensor('bf16', [2, 4, 6, 8]), w: braid.tensor('bf16', [16, kernel, kernel, 8]) },
        flows => {
          const bias = braid.param('bias', braid.tensor('bf16', [16]))
          const layer = conv(flows.w.pipe(braid.upload()), { bias, channels: 'last', ...options })
          const x = flows.x.pipe(braid.upload()) as unknown as { pipe(...all: unknown[]): never }
          return { y: x.pipe(layer, braid.relu(), braid.download()) as typeof flows.x }
        },
      )
    const ops = (options: object, kernel?: number) =>
      braid.irOf(net(options, kernel)).nodes.map(({ op }) => op)
    expect(ops({})).toContain('matmul')
    expect(ops({})).not.toContain('conv')
    for (const other of [{ stride: 2 }, { padding: 1 }]) expect(ops(other)).toContain('conv')
    expect(ops({}, 3)).toContain('conv')
    // With its bias and what comes after it, one kernel.
    const plan = E.getOrElseW(() => undefined)(braid.compile(net({})))
    expect(plan?.nodes.filter(({ kernel }) => kernel?.kind === 'matmul').length).toBe(1)
    expect(plan?.nodes.some(({ kernel }) => kernel?.kind === 'map')).toBe(false)
  })

  it('multiplies the zeros around the input too: an infinite weight makes them NaN', async () => {
    const [x, w] = [f32([1, 1, 2], 1, 1), f32([1, 1, 2], Number.POSITIVE_INFINITY, 1)]
    const got = await compute([x, w], (a, b) => a.pipe(conv(b, { padding: 1 })))
    expect(got.values).toEqual([Number.NaN, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY])
  })

  it('keeps the sizes with padding "same", of kernels of even and odd sizes', async () => {
    // One zero more comes after where their number is odd.
    const got = await compute([f32([1, 1, 3], 1, 2, 3), f32([1, 1, 2], 10, 1)], (a, b) =>
      a.pipe(conv(b, { padding: 'same' })),
    )
    expect(got.values).toEqual([12, 23, 30])
  })

  it('has the places that the oracle counts, and no others', () => {
    fc.assert(
      fc.property(convCases({ most: 9 }), one => {
        const { x, w, y } = shapesOf(one)
        const spec = inferred(x, w, optionsOf(one))
        expect(spec).toEqual(y)
        expect(one.last ? y.slice(1, -1) : y.slice(2)).toEqual(placesOf(one))
      }),
      { numRuns: runs(300) },
    )
  })
})

/** The shape of a result, or the errors. */
const inferred = (x: readonly braid.Dim[], w: readonly braid.Dim[], options: unknown): unknown => {
  const net = braid.graph({ x: braid.tensor('f32', x), w: braid.tensor('f32', w) }, flows => {
    const [a, b] = [flows.x.pipe(braid.upload()), flows.w.pipe(braid.upload())]
    return { y: (a.pipe(conv(b, options) as never) as typeof a).pipe(braid.download()) }
  })
  const { problems, nodes } = braid.irOf(net)
  return problems.length > 0 ? problems.map(({ _tag }) => _tag) : nodes.at(-1)!.spec.shape
}

describe('sizes that are symbols', () => {
  it('stay where they stay as they are, and are bound by compile', () => {
    expect(inferred(['batch', 3, 8, 8], [4, 3, 3, 3], { padding: 1 })).toEqual(['batch', 4, 8, 8])
    expect(inferred(['batch', 3, 'h', 'w'], [4, 3, 3, 3], { padding: 'same' })).toEqual([
      'batch',
      4,
      'h',
      'w',
    ])
    expect(inferred(['batch', 3, 'h'], [4, 3, 1], {})).toEqual(['batch', 4, 'h'])
    expect(inferred([1, 'c', 5], ['f', 'c', 2], {})).toEqual([1, 'f', 4])
    expect(inferred([1, 3, 'h'], [4, 3, 3], {})).toEqual(['ShapeMismatch'])
    expect(inferred([1, 3, 'h'], [4, 3, 3], { padding: 1, stride: 2 })).toEqual(['ShapeMismatch'])
    expect(inferred([1, 'c', 5], [4, 3, 3], {})).toEqual(['ShapeMismatch'])
    expect(inferred([1, 3, 5], [4, 3, 'k'], {})).toEqual(['ShapeMismatch'])
  })

  it('of groups are compared when they are bound', () => {
    const net = braid.graph(
      { x: braid.tensor('f32', ['n', 'c', 5]), w: braid.tensor('f32', ['f', 2, 3]) },
      flows => ({
        y: flows.x.pipe(
          braid.upload(),
          braid.conv(flows.w.pipe(braid.upload()), { groups: 3 }),
          braid.download(),
        ),
      }),
    )
    expect(braid.irOf(net).problems).toEqual([])
    const compiled = (c: number, f: number) => braid.compile(net, { dims: { n: 2, c, f } })
    expect(E.isRight(compiled(6, 3))).toBe(true)
    expect(E.isLeft(compiled(7, 3))).toBe(true)
    expect(E.isLeft(compiled(6, 4))).toBe(true)
  })
})

it('refuses values, weights and options that do not fit', () => {
  const [x, w] = [f32([2, 4, 8, 8]), f32([6, 4, 3, 3])]
  const tags = (all: readonly Given[], options?: unknown) =>
    problemsOf(all, (a, b, bias) => a.pipe(conv(b, bias ? { bias } : options)))
  expect(tags([x, w])).toEqual([])
  expect(tags([x, f32([6, 2, 3, 3])], { groups: 2 })).toEqual([])
  expect(tags([x, f32([6, 3, 3, 3])])).toEqual(['ShapeMismatch'])
  expect(tags([x, w], { groups: 2 })).toEqual(['ShapeMismatch'])
  expect(tags([x, f32([5, 2, 3, 3])], { groups: 2 })).toEqual(['ShapeMismatch'])
  expect(tags([f32([2, 5, 8, 8]), f32([4, 2, 3, 3])], { groups: 2 })).toEqual(['ShapeMismatch'])
  expect(tags([x, f32([6, 4, 9, 3])])).toEqual(['ShapeMismatch'])
  expect(tags([x, w], { dilation: 4 })).toEqual(['ShapeMismatch'])
  expect(tags([x, f32([6, 4, 3])])).toEqual(['ShapeMismatch'])
  for (const shape of [[4, 8], [4], []]) expect(tags([f32(shape), w])).toEqual(['ShapeMismatch'])
  expect(tags([f32([1, 4, 8, 8, 8, 8]), f32([6, 4, 3, 3, 3, 3])])).toEqual(['ShapeMismatch'])
  expect(tags([x, typed('f16', [6, 4, 3, 3])])).toEqual(['DTypeMismatch'])
  expect(tags([typed('i32', [2, 4, 8, 8]), typed('i32', [6, 4, 3, 3])])).toEqual(['DTypeMismatch'])
  expect(tags([f32([1, 4, 8, 8, 8]), f32([6, 4, 3, 3, 3])], { padding: 2 ** 30, stride: 2 ** 30 })).toEqual([
    'ShapeMismatch',
  ])
  expect(tags([x, w, f32([5])])).toEqual(['ShapeMismatch'])
  expect(tags([x, w], { channels: 'last' })).toEqual(['ShapeMismatch'])
  expect(tags([x, f32([6, 3, 3, 8])], { channels: 'last' })).toEqual([])
  expect(tags([x, w, f32([6, 1, 1])])).toEqual(['ShapeMismatch'])
  expect(tags([x, w, typed('f16', [6])])).toEqual(['DTypeMismatch'])
  for (const options of [
    { stride: 0 },
    { stride: 1.5 },
    { stride: [1] },
    { stride: [1, 1, 1] },
    { stride: 2 ** 31 },
    { stride: '2' },
    { dilation: 0 },
    { dilation: [2] },
    { padding: -1 },
    { padding: [1, 0.5] },
    { padding: 'full' },
    { padding: 'same', stride: 2 },
    { groups: 0 },
    { groups: 1.5 },
    { groups: [1] },
    { channels: 'second' },
    { channels: 1 },
  ])
    expect([options, tags([x, w], options)]).toEqual([options, ['BadAttribute']])
})
