// Whole numbers in the kernels of floats that read them: every number is exact there, or the kernel stays
// apart.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  abs,
  add,
  argmax,
  cast,
  compile,
  download,
  equal,
  floorDiv,
  type Graph,
  graph,
  greater,
  iota,
  less,
  map,
  max,
  min,
  mod,
  mul,
  neg,
  oneHot,
  orThrow,
  type Plan,
  relu,
  sub,
  sum,
  tensor,
  upload,
  where,
} from '../../dsl/index.js'
import type { HostArray } from '../../dsl/language/values.js'
import { runs } from '../fixtures/runs.js'
import { present } from './devices.js'
import { expectMeaning } from './yields.js'

// biome-ignore lint/suspicious/noExplicitAny: element types vary, which no type follows
type Anything = any

const shape = [5, 12] as const
const count = 60
const ports = {
  whole: tensor('i32', shape),
  bytes: tensor('u8', shape),
  floats: tensor('f32', shape),
}

// Around the numbers up to which f32 is exact, and the ends.
const special = [
  0,
  1,
  -1,
  3,
  255,
  256,
  2 ** 24,
  -(2 ** 24),
  2 ** 24 + 1,
  -(2 ** 24) - 1,
  2 ** 24 - 1,
  2 ** 24 + 3,
]
const ends = [2 ** 31 - 1, -(2 ** 31), 2 ** 30 + 1, 12_345_678]
const constants = [0, 1, -2, 3, 255, 4096, 2 ** 24 - 1, 2 ** 24, -(2 ** 24) + 1, 2 ** 30]

const feedsOf = (seed: number) => {
  const all = [...special, ...ends]
  const at = (i: number) => (i * 7 + seed * 13) % all.length
  return {
    whole: [Int32Array.from({ length: count }, (_, i) => all[at(i)]!)],
    bytes: [Uint8Array.from({ length: count }, (_, i) => (i * 37 + seed) % 256)],
    floats: [Float32Array.from({ length: count }, (_, i) => ((i * 29 + seed) % 64) / 4 - 8)],
  } as unknown as Record<string, readonly HostArray[]>
}

const binary = { add, sub, mul, floorDiv, mod, min, max, less, greater, equal } as Record<string, Anything>
const unary = { neg, abs } as Record<string, Anything>

interface Step {
  readonly how: string
  readonly a: number
  readonly b: number
  readonly constant: number
}

const steps = fc.array(
  fc.record({
    how: fc.constantFrom(
      ...Object.keys(binary),
      ...Object.keys(unary),
      'where',
      'i32',
      'u8',
      'f32',
      'constant',
      'compared',
      'sum',
      'max',
      'argmax',
    ),
    a: fc.nat(31),
    b: fc.nat(31),
    constant: fc.constantFrom(...constants),
  }),
  { minLength: 2, maxLength: 9 },
)

/**
 * A graph in which each step reads what earlier ones yield. What reaches no float is an output of its own.
 */
const made = (list: readonly Step[]): Graph =>
  graph('numbers', ports, (given: Anything) => {
    const all: { flow: Anything; dtype: string }[] = ['i32', 'u8', 'f32'].map((dtype, i) => ({
      flow: given[['whole', 'bytes', 'floats'][i]!].pipe(upload()),
      dtype,
    }))
    all.push({ flow: all[0]!.flow.pipe(iota({ axis: 1 })), dtype: 'i32' })
    for (const { how, a, b, constant } of list) {
      const x = all[a % all.length]!
      const alike = all.filter(({ dtype }) => dtype === x.dtype)
      const y = alike[b % alike.length]!
      const value = x.dtype === 'u8' ? constant & 255 : constant
      const put = (flow: Anything, dtype = x.dtype) => all.push({ flow, dtype })
      if (how in binary)
        put(x.flow.pipe(binary[how](y.flow)), how in { less, greater, equal } ? 'u8' : x.dtype)
      else if (how in unary && x.dtype !== 'u8') put(x.flow.pipe(unary[how]()))
      else if (how === 'constant') put(x.flow.pipe((b % 2 === 0 ? add : mul)(value as never)))
      else if (how === 'compared') put(x.flow.pipe((b % 2 === 0 ? less : equal)(value as never)), 'u8')
      else if (how === 'where') {
        const masks = all.filter(({ dtype }) => dtype !== 'f32')
        put(masks[constant % masks.length]?.flow.pipe(where(x.flow, y.flow)) ?? x.flow)
      } else if (how === 'sum') {
        // A sum of floats depends on its order, which devices choose; one of zeros and ones does not.
        const exact = x.dtype === 'f32' ? x.flow.pipe(greater(0), cast('f32')) : x.flow
        const total = exact.pipe((sum as Anything)({ axis: 1, keepDims: true }))
        if (x.dtype === 'u8') put(x.flow.pipe(cast('i32'), add(total)), 'i32')
        else put(x.flow.pipe(add(total)))
      } else if (how === 'max')
        put(x.flow.pipe(add(x.flow.pipe((max as Anything)({ axis: 1, keepDims: true })))))
      else if (how === 'argmax')
        put(x.flow.pipe(argmax({ axis: 1, keepDims: true } as never), add(all[0]!.flow)), 'i32')
      else if (how === 'i32' || how === 'u8' || how === 'f32')
        put(x.dtype === how ? x.flow : x.flow.pipe(cast(how)), how)
    }
    // All meet in one float.
    const last = all
      .slice(3)
      .reduce(
        (sum, { flow, dtype }) => sum.pipe(max(dtype === 'f32' ? flow : flow.pipe(cast('f32')))),
        all[2]!.flow,
      )
    return {
      y: last.pipe(relu(), download()),
      z: all.at(-1)!.flow.pipe(download()),
    }
  }) as unknown as Graph

describe.each(present)('whole numbers on %s', device => {
  it('beside floats are what they mean, bit for bit', { timeout: 300_000 }, async () => {
    let joined = 0
    await fc.assert(
      fc.asyncProperty(steps, fc.nat(99), async (list, seed) => {
        const net = made(list)
        const plan = orThrow(compile(net, { fuse: true })) as Plan
        joined += plan.nodes.some(
          ({ kernel }) =>
            kernel?.kind === 'map' &&
            kernel.compute === 'f32' &&
            kernel.code.some(([op]) => op === 'i32' || op === 'u8' || op === 'eq' || op === 'lt'),
        )
          ? 1
          : 0
        await expectMeaning(net as never, device, feedsOf(seed), { compile: { fuse: true } })
      }),
      { numRuns: runs(80) },
    )
    expect(joined).toBeGreaterThan(runs(80) / 4)
  })

  // From 4 · 2^29 on the product wraps in i32.
  it('that outgrow f32 within one kernel are computed as whole numbers', async () => {
    const net = graph('wraps', { y: tensor('f32', [9]) }, ({ y }) => {
      const up = y.pipe(upload())
      const small = up.pipe(
        iota(),
        map(v =>
          v
            .mul(512)
            .mul(2 ** 20)
            .lt(7),
        ),
      )
      return { z: small.pipe(where(up, 0), download()) }
    })
    const feeds = { y: [Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9)] }
    const [got] = await expectMeaning(net as never, device, feeds, { compile: { fuse: true } })
    expect([...(got!['z'] as Float32Array)]).toEqual([1, 0, 0, 0, 5, 6, 7, 8, 9])
  })
  // The kernel computes in i32, since the product may wrap, and stores a comparison as another type too.
  it.each(['f32', 'bf16', 'u8'] as const)('share a kernel with a oneHot of %s', async dtype => {
    const net = graph('classes', { x: tensor('i32', [1, 1]) }, ({ x }) => {
      const up = x.pipe(upload())
      const classes = up.pipe(oneHot({ classes: 1, dtype }))
      const y = up.pipe(mul(2 ** 29), mod(7), add(1))
      return { y: y.pipe(download()), classes: classes.pipe(download()) }
    })
    const compiled = orThrow(compile(net, { fuse: true })) as Plan
    const computed = compiled.nodes.flatMap(({ kernel }) => (kernel?.kind === 'map' ? [kernel.compute] : []))
    expect(computed).toEqual(['i32'])
    const feeds = { x: [0, 1, 8, -3].map(value => Int32Array.of(value)) }
    await expectMeaning(net as never, device, feeds, { compile: { fuse: true } })
  })
})
