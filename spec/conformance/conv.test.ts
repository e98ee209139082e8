// Convolutions on a device against their definition, of sizes that are multiples of nothing and of those that
// kernels like. The error that is allowed is of rounding alone.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { avgPool, conv, download, graph, maxPool, mul, relu, tensor, upload } from '../../dsl/index.js'
import { numbers, roundoff } from '../../dsl/language/values.js'
import { arrayOf } from '../fixtures/compute.js'
import {
  type ConvCase,
  convCase,
  convCases,
  givenOf,
  optionsOf,
  poolCases,
  poolOptionsOf,
  shapesOf,
} from '../fixtures/convolutions.js'
import { runs } from '../fixtures/runs.js'
import { convolved } from '../oracle/conv.js'
import { hasCudnn, yieldedBy } from './by-cudnn.js'
import { present } from './devices.js'
import { expectMeaning, ran } from './yields.js'

// biome-ignore lint/suspicious/noExplicitAny: shapes and options vary, which no type follows
type Anything = any

const made = (one: ConvCase) => {
  const { x, w } = shapesOf(one)
  return graph({ x: tensor(one.dtype, x), w: tensor(one.dtype, w) }, (flows: Anything) => ({
    y: flows.x.pipe(upload(), conv(flows.w.pipe(upload()), optionsOf(one)), download()),
  }))
}

/** The result of a convolution, and what is allowed of each element. */
const expectedOf = (one: ConvCase) => {
  const [x, w] = givenOf(one).map(given => numbers(arrayOf(given), one.dtype))
  const { sums, magnitudes } = convolved(one, x!, w!)
  const terms = one.channels * one.kernel.reduce((n, size) => n * size, 1)
  // Terms are added in f32, in any order; the sum is rounded once more.
  const allowed = sums.map(
    (sum, i) =>
      magnitudes[i]! * (terms + 2) * roundoff.f32 + Math.abs(sum) * 2 * roundoff[one.dtype] + 2 ** -24,
  )
  return { sums, allowed }
}

/** The largest error of an element, as a part of what is allowed; infinite where it is no number. */
const errorOf = ({ sums, allowed }: ReturnType<typeof expectedOf>, got: ArrayLike<number>): number =>
  got.length !== sums.length
    ? Number.POSITIVE_INFINITY
    : sums.reduce((most, sum, i) => {
        const error = Math.abs(got[i]! - sum) / allowed[i]!
        return Math.max(most, Number.isNaN(error) ? Number.POSITIVE_INFINITY : error)
      }, 0)

const result = async (device: Anything, one: ConvCase): Promise<ArrayLike<number>> => {
  const [x, w] = givenOf(one)
  const [got] = await ran(made(one) as Anything, device, { x: [arrayOf(x)], w: [arrayOf(w)] })
  return numbers(got!['y']!, one.dtype)
}

interface Square {
  readonly size: number
  readonly kernel?: number
  readonly stride?: number
  readonly dilation?: number
  readonly pad?: number
  readonly same?: boolean
  readonly last?: boolean
}

const square =
  ({ size, kernel = 3, stride = 1, dilation = 1, pad = 0, ...rest }: Square, rank = 2) =>
  (dtype: ConvCase['dtype'], batch: number, groups: number, channels: number, filters: number): ConvCase =>
    convCase(
      { dtype, batch, groups, channels, filters },
      new Array(rank).fill({ size, kernel, stride, dilation, pad }),
      rest,
    )

/** Layers of vision and speech models, small. */
const channelsFirst: readonly (readonly [string, ConvCase])[] = [
  ['the first of a ResNet', square({ size: 33, kernel: 7, stride: 2, pad: 3 })('bf16', 2, 1, 3, 64)],
  ['a block of a ResNet', square({ size: 14, pad: 1 })('f16', 2, 1, 32, 40)],
  ['a block of f32', square({ size: 13, pad: 1 })('f32', 2, 1, 24, 70)],
  ['a block with a stride', square({ size: 14, stride: 2, pad: 1 })('bf16', 1, 1, 32, 64)],
  ['pointwise', square({ size: 10, kernel: 1 })('bf16', 3, 1, 64, 48)],
  ['pointwise with a stride', square({ size: 10, kernel: 1, stride: 2 })('f16', 2, 1, 64, 130)],
  ['by channel', square({ size: 15, pad: 1 })('f16', 2, 40, 1, 1)],
  ['by channel, of two filters each', square({ size: 9, stride: 2 })('bf16', 1, 9, 1, 2)],
  ['grouped', square({ size: 9, pad: 1 })('bf16', 2, 4, 16, 16)],
  ['grouped, odd', square({ size: 9, pad: 1 })('f32', 2, 3, 5, 7)],
  ['dilated', square({ size: 17, dilation: 3, same: true })('f16', 1, 1, 16, 16)],
  ['of audio', square({ size: 300, kernel: 10, stride: 5 }, 1)('f16', 2, 1, 8, 96)],
  ['of video', square({ size: 6, pad: 1 }, 3)('bf16', 1, 1, 16, 16)],
  ['a patch embedding', square({ size: 32, kernel: 8, stride: 8 })('bf16', 2, 1, 3, 72)],
  ['one place', square({ size: 5, kernel: 5 })('f32', 2, 1, 33, 65)],
  ['all padding', square({ size: 1, kernel: 3, pad: 3 })('f16', 1, 1, 20, 20)],
]

/** The same with their channels last. */
const layers: readonly (readonly [string, ConvCase])[] = [
  ...channelsFirst,
  ...channelsFirst.map(([name, one]) => [`${name}, channels last`, { ...one, last: true }] as const),
]

describe.each(present)('a convolution on %s', device => {
  it('is what it means', { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(convCases({ most: 9, wide: 20 }), async one => {
        expect(errorOf(expectedOf(one), await result(device, one))).toBeLessThanOrEqual(1)
      }),
      { numRuns: runs(100) },
    )
  })

  it.each(layers)('is what it means: %s', { timeout: 60_000 }, async (_, one) => {
    expect(errorOf(expectedOf(one), await result(device, one))).toBeLessThanOrEqual(1)
  })

  it('pools to the bit, alone and fused with what is before and after it', { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(poolCases, async one => {
        const [x] = givenOf(one)
        const net = graph({ x: tensor(one.dtype, x.shape) }, (flows: Anything) => {
          const at = flows.x.pipe(upload())
          return {
            y: at.pipe(maxPool(poolOptionsOf(one)), download()),
            z: at.pipe(mul(0.5), avgPool(poolOptionsOf(one)), relu(), download()),
          } as Anything
        })
        for (const fuse of [true, false])
          await expectMeaning(net as Anything, device, { x: [arrayOf(x)] }, { compile: { fuse } })
      }),
      { numRuns: runs(40) },
    )
  })

  it('yields the same bits each time', async () => {
    const [, one] = layers[1]!
    expect(await result(device, one)).toEqual(await result(device, one))
  })
})

describe.runIf(hasCudnn)('a convolution by cuDNN', () => {
  const agrees = async (one: ConvCase): Promise<number> => {
    const [x, w] = givenOf(one)
    const given = { net: made(one), feeds: { x: [arrayOf(x)], w: [arrayOf(w)] } }
    const expected = expectedOf(one)
    let calls = 0
    for (const mode of ['eager', 'graph'] as const) {
      const got = await yieldedBy('always', given, mode)
      expect(errorOf(expected, numbers(got.y, one.dtype)), mode).toBeLessThanOrEqual(1)
      calls += got.calls
    }
    return calls
  }

  it('is what it means', { timeout: 300_000 }, async () => {
    let calls = 0
    await fc.assert(
      fc.asyncProperty(convCases({ most: 9, wide: 20 }), async one => {
        calls += await agrees(one)
      }),
      { numRuns: runs(50) },
    )
    expect(calls).toBeGreaterThan(0)
  })

  it.each(layers)('is what it means: %s', { timeout: 60_000 }, async (_, one) => {
    await agrees(one)
  })

  const types = ['f32', 'f16', 'bf16'] as const
  it.each(types.flatMap(dtype => [false, true].map(last => [dtype, last] as const)))(
    'has a workspace for much work of %s, channels last: %s',
    async (dtype, last) => {
      expect(await agrees(square({ size: 28, pad: 1, last })(dtype, 1, 1, 128, 160))).toBe(2)
    },
  )
})

it('differs by more than rounding where it is shifted, dilated or grouped in another way', () => {
  const of = (more: Partial<ConvCase> = {}) => ({
    ...square({ size: 9, pad: 1 })('bf16', 1, 2, 3, 4),
    ...more,
  })
  const sumsOf = (one: ConvCase): readonly number[] => {
    const [x, w] = givenOf(of()).map(given => numbers(arrayOf(given), one.dtype))
    return convolved(one, x!, w!).sums
  }
  const expected = expectedOf(of())
  expect(errorOf(expected, sumsOf(of()))).toBeLessThanOrEqual(1)
  const others: readonly Partial<ConvCase>[] = [
    {
      pad: [
        [0, 2],
        [1, 1],
      ],
    },
    {
      pad: [
        [1, 1],
        [2, 0],
      ],
    },
    {
      dilation: [2, 1],
      pad: [
        [2, 2],
        [1, 1],
      ],
    },
    {
      groups: 1,
      channels: 6,
      filters: 8,
      batch: 1,
      kernel: [3, 1],
      pad: [
        [1, 1],
        [0, 0],
      ],
    },
  ]
  for (const other of others) expect(errorOf(expected, sumsOf(of(other)))).toBeGreaterThan(4)
})
