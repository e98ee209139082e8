// Reductions and running sums of few long lines, which a plan makes of parts: of every element type, alone
// and with elementwise work before and after them, within the rounding that is allowed of the whole.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as braid from '../../dsl/index.js'
import { type DType, isFloat } from '../../dsl/ir/tensor.js'
import { hostArray, writer } from '../../dsl/language/values.js'
import { h200 } from '../../dsl/machine/h200.js'
import { runs } from '../fixtures/runs.js'
import { present } from './devices.js'
import { expectMeant } from './meant.js'
import { ran } from './yields.js'

// biome-ignore lint/suspicious/noExplicitAny: element types and shapes vary, which no type follows
type Any = any

const how = {
  sum: (axis: Any) => braid.sum(axis),
  mean: (axis: Any) => braid.mean(axis),
  max: (axis: Any) => braid.max(axis),
  min: (axis: Any) => braid.min(axis),
  cumsum: ({ axis }: Any) => braid.cumsum({ axis }),
} as const

/** A device on which a kernel more costs little, so that lines are split that a test can afford. */
const machine = { ...h200, device: { ...h200.device, kernelLatency: 10 } }

interface Case {
  readonly name: keyof typeof how
  readonly dtype: DType
  readonly shape: readonly [number, number, number]
  readonly keepDims: boolean
  readonly around: boolean
  readonly seed: number
  readonly odd: number | undefined
}

const cases = fc
  .record({
    name: fc.constantFrom(...(Object.keys(how) as (keyof typeof how)[])),
    dtype: fc.constantFrom<DType>('f32', 'f16', 'bf16', 'i32', 'u8'),
    outer: fc.integer({ min: 1, max: 3 }),
    isRow: fc.boolean(),
    parts: fc.integer({ min: 2, max: 12 }),
    longer: fc.integer({ min: 0, max: 40 }),
    inner: fc.integer({ min: 2, max: 40 }),
    keepDims: fc.boolean(),
    around: fc.boolean(),
    seed: fc.nat(),
    odd: fc.constantFrom(undefined, Number.NaN, Number.POSITIVE_INFINITY),
  })
  .filter(({ name, dtype }) => name !== 'mean' || (dtype !== 'i32' && dtype !== 'u8'))
  .map(({ outer, isRow, parts, longer, inner, ...one }): Case => {
    const part = isRow ? 16 * (1024 + longer) : 128 + longer
    return { ...one, shape: [outer, parts * part, isRow ? 1 : inner] }
  })

const graphOf = ({ name, dtype, shape, keepDims, around }: Case): Any =>
  braid.graph({ x: braid.tensor(dtype, shape as never) }, ({ x }: Any) => {
    let y = x.pipe(braid.upload())
    if (around) y = y.pipe(braid.max(1), braid.add(1))
    y = y.pipe(how[name]({ axis: 1, keepDims }))
    if (around) y = y.pipe(braid.sub(1), braid.max(0))
    return { y: y.pipe(braid.download()) }
  })

const valuesOf = ({ dtype, shape, seed, odd }: Case) => {
  const values = hostArray(dtype, shape[0] * shape[1] * shape[2])
  const write = writer(dtype)
  let state = seed | 1
  for (let i = 0; i < values.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) | 0
    const byte = (state >>> 16) & 255
    values[i] = write(isFloat(dtype) ? (byte - 100) / 64 : dtype === 'u8' ? byte : byte * 8388607)
  }
  if (isFloat(dtype) && odd !== undefined) values[seed % values.length] = write(odd)
  return values
}

describe.each(present)('a line in parts on %s', device => {
  it('is what the whole line is', { timeout: 120_000 }, async () => {
    let split = 0
    await fc.assert(
      fc.asyncProperty(cases, fc.boolean(), fc.boolean(), async (one, fuse, inGraph) => {
        const graph = graphOf(one)
        const feeds = { x: [valuesOf(one)] }
        const compile = { machine, fuse, mode: inGraph ? 'graph' : 'eager' } as const
        const plan = braid.orThrow(braid.compile(graph, compile)) as braid.Plan
        if (plan.nodes.some(({ name }) => name.endsWith('.parts'))) split++
        const got = await ran(graph, device, feeds, { compile })
        const outputs = { y: braid.irOf(graph).nodes.at(-1)!.spec.dtype }
        await expectMeant({ graph, params: {}, dims: {}, feeds, ticks: 1, outputs } as never, got)
      }),
      { numRuns: runs(40) },
    )
    expect(split).toBeGreaterThan(0)
  })

  // What reads a long line several times computes its elements again for each of its parts.
  const several: Readonly<Record<string, (x: Any) => Any>> = {
    softmax: x => x.pipe(braid.softmax()),
    logSoftmax: x => x.pipe(braid.logSoftmax()),
    layerNorm: x => x.pipe(braid.layerNorm()),
    variance: x => x.pipe(braid.variance()),
    logSumExp: x => x.pipe(braid.logSumExp({ axis: 1 })),
    'the mean of squares, beside them': x => {
      const squares = x.pipe(braid.mul(x))
      return squares.pipe(braid.sub(squares.pipe(braid.mean())))
    },
    'sums in turn': x => {
      const once = x.pipe(braid.sub(x.pipe(braid.mean())))
      return once.pipe(braid.div(once.pipe(braid.abs(), braid.max(), braid.add(1))))
    },
  }
  const shapes = fc.constantFrom([1, 65536], [2, 49152], [1, 98304 + 48])
  it.each(Object.entries(several))('is what the whole line is: %s', { timeout: 120_000 }, async (_, made) => {
    let split = 0
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom('f32', 'bf16', 'f16'),
        shapes,
        fc.nat(),
        fc.boolean(),
        fc.boolean(),
        async (dtype, shape, seed, fuse, isRead) => {
          const graph = braid.graph({ x: braid.tensor(dtype as 'f32', shape as never) }, ({ x }: Any) => {
            const at = x.pipe(braid.upload(), braid.mul(0.5))
            const y = made(at).pipe(braid.download())
            return (isRead ? { y, z: at.pipe(braid.download()) } : { y }) as { readonly y: Any }
          })
          const [size] = [shape[0]! * shape[1]!]
          const values = valuesOf({ dtype, shape: [1, size, 1], seed } as never)
          const feeds = { x: [values, values] }
          const compile = { machine, fuse, inFlight: 2 }
          const plan = braid.orThrow(braid.compile(graph, compile)) as braid.Plan
          if (plan.nodes.some(({ name }) => name.endsWith('.parts'))) split++
          const got = await ran(graph as Any, device, feeds, { compile })
          const outputs = isRead ? { y: dtype, z: dtype } : { y: dtype }
          await expectMeant({ graph, params: {}, dims: {}, feeds, ticks: 2, outputs } as never, got)
        },
      ),
      { numRuns: runs(3) },
    )
    expect(split).toBeGreaterThan(0)
  })
})
