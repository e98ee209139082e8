// Operators along an axis, against plain loops: concat, pad, cumsum, topK, takeAlong, rope.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as braid from '../../../dsl/index.js'
import { type DType, elements } from '../../../dsl/ir/tensor.js'
import { numbers, roundoff } from '../../../dsl/language/values.js'
import { type AnyOp, arrayOf, compute, f32, type Given, problemsOf, typed } from '../../fixtures/compute.js'
import { runs } from '../../fixtures/runs.js'

type Shape = readonly number[]

const indexOf = (shape: Shape, flat: number): number[] =>
  shape.map((size, d) => Math.floor(flat / elements(shape.slice(d + 1))) % size)
const flatOf = (shape: Shape, index: Shape): number =>
  shape.reduce((flat, size, d) => flat * size + index[d]!, 0)
const counting = (dtype: DType, shape: Shape, by = 7): Given =>
  typed(
    dtype,
    shape,
    ...Array.from({ length: elements(shape) }, (_, i) => ((i * by) % 11) - (dtype === 'u8' ? 0 : 5)),
  )
const at = (x: Given, index: Shape): number => x.values[flatOf(x.shape, index)]!
const moved = (index: Shape, axis: number, to: number): number[] =>
  index.map((own, d) => (d === axis ? to : own))
const sized = (shape: Shape, axis: number, size: number): number[] => moved(shape, axis, size)

const types = fc.constantFrom<DType>('f32', 'f16', 'bf16', 'i32', 'u8')
const size = fc.integer({ min: 1, max: 4 })
const withAxis = fc
  .array(size, { minLength: 1, maxLength: 4 })
  .chain(shape => fc.record({ shape: fc.constant(shape), axis: fc.nat(shape.length - 1) }))

describe('concat and pad', () => {
  it('concat puts values one after the other', async () => {
    const given = fc.tuple(withAxis, types, fc.array(size, { minLength: 2, maxLength: 4 }), fc.boolean())
    await fc.assert(
      fc.asyncProperty(given, async ([{ shape, axis }, dtype, lengths, fromEnd]) => {
        const all = lengths.map((length, i) => counting(dtype, sized(shape, axis, length), 3 + i))
        const got = await compute(all, (x, ...others) =>
          x.pipe(braid.concat(others, { axis: fromEnd ? axis - shape.length : axis })),
        )
        const total = lengths.reduce((a, b) => a + b, 0)
        expect([got.dtype, got.shape]).toEqual([dtype, sized(shape, axis, total)])
        got.values.forEach((value, flat) => {
          const index = indexOf(got.shape as Shape, flat)
          let place = index[axis]!
          let which = 0
          while (place >= lengths[which]!) place -= lengths[which++]!
          expect(value).toBe(at(all[which]!, moved(index, axis, place)))
        })
      }),
      { numRuns: runs(40) },
    )
  })

  it('concat joins more values than one kernel takes', async () => {
    const x = f32([2], 1, 2)
    const got = await compute([x], flow => flow.pipe(braid.concat(Array(200).fill(flow), { axis: 0 })))
    expect(got.values).toEqual(Array(201).fill([1, 2]).flat())
    const many = braid.graph({ x: braid.tensor('f32', [2]) }, flows => {
      const flow = flows.x.pipe(braid.upload())
      return { y: flow.pipe(braid.concat(Array(5000).fill(flow), { axis: 0 }), braid.download()) }
    })
    expect(braid.irOf(many).problems).toEqual([])
    const joins = braid.irOf(many).nodes.filter(({ op }) => op === 'concat')
    expect(Math.max(...joins.map(({ inputs }) => inputs.length))).toBeLessThanOrEqual(64)
  })

  it('concat refuses what does not fit', () => {
    const [x, y] = [f32([2, 3]), f32([4, 3])]
    const tags = (given: Given[], ...args: unknown[]) =>
      problemsOf(given, (a, b) => a.pipe((braid.concat as AnyOp)(b ? [b] : [], ...args)))
    expect(tags([x, y], { axis: 0 })).toEqual([])
    expect(tags([x, y], { axis: 1 })).toEqual(['ShapeMismatch'])
    expect(tags([x, f32([4])], { axis: 0 })).toEqual(['ShapeMismatch'])
    expect(tags([x, typed('f16', [4, 3])], { axis: 0 })).toEqual(['DTypeMismatch'])
    expect(tags([x, y], { axis: 2 })).toEqual(['BadAttribute'])
    expect(tags([x, y])).toEqual(['BadAttribute'])
    expect(tags([x], { axis: 0 })).toEqual(['BadAttribute'])
    expect(problemsOf([x], a => a.pipe((braid.concat as AnyOp)(3, { axis: 0 })))).toEqual(['BadAttribute'])
    expect(problemsOf([x], a => a.pipe(braid.concat([3 as never], { axis: 0 })))[0]).toBe('NotAFlow')
    const net = braid.graph({ x: braid.tensor('f32', ['n', 2]) }, flows => {
      const flow = flows.x.pipe(braid.upload())
      return {
        y: flow.pipe(braid.concat([flow], { axis: 1 }), braid.download()),
        z: flow.pipe(braid.concat([flow], { axis: 0 }), braid.download()),
      }
    })
    expect(braid.irOf(net).problems.map(({ _tag }) => _tag)).toEqual(['ShapeMismatch'])
  })

  it('pad puts numbers before and after', async () => {
    const given = fc.record({
      of: withAxis,
      dtype: types,
      before: fc.nat(2),
      after: fc.nat(2),
      value: fc.constantFrom(undefined, 3, Number.NEGATIVE_INFINITY),
    })
    await fc.assert(
      fc.asyncProperty(given, async ({ of: { shape, axis }, dtype, before, after, value }) => {
        const whole = dtype === 'i32' || dtype === 'u8'
        const fill = whole && value === Number.NEGATIVE_INFINITY ? 2 : value
        const x = counting(dtype, shape)
        const options = { axis, before, after: after + 1, ...(fill === undefined ? {} : { value: fill }) }
        const got = await compute([x], a => a.pipe(braid.pad(options)))
        const length = shape[axis]!
        expect([got.dtype, got.shape]).toEqual([dtype, sized(shape, axis, before + length + after + 1)])
        got.values.forEach((value, flat) => {
          const index = indexOf(got.shape as Shape, flat)
          const place = index[axis]! - before
          const inside = place >= 0 && place < length
          expect(value).toBe(inside ? at(x, moved(index, axis, place)) : (fill ?? 0))
        })
      }),
      { numRuns: runs(40) },
    )
  })

  it('pad by nothing is the value itself, along a symbol too', async () => {
    const x = f32([2, 3], 1, 2, 3, 4, 5, 6)
    for (const options of [{ axis: 1 }, { axis: 0, before: 0, after: 0 }])
      expect(await compute([x], a => a.pipe(braid.pad(options)))).toMatchObject({
        shape: [2, 3],
        values: [1, 2, 3, 4, 5, 6],
      })
    const made = braid.graph({ x: braid.tensor('f32', ['n']) }, ({ x }) => ({
      y: x.pipe(braid.upload(), braid.pad({ axis: 0 }), braid.download()),
    }))
    const { nodes } = braid.orThrow(braid.compile(made, { dims: { n: 4 } }))
    expect(nodes.map(({ op }) => op)).toEqual(['upload', 'download'])
  })

  it('pad refuses what does not fit', () => {
    const tags = (x: Given, options: unknown) => problemsOf([x], a => a.pipe(braid.pad(options as never)))
    const x = f32([2, 3])
    expect(tags(x, { axis: -1, before: 1 })).toEqual([])
    for (const options of [
      undefined,
      { axis: 2, before: 1 },
      { axis: 0, before: -1 },
      { axis: 0, before: 1.5 },
      { axis: 0, after: 1, value: '0' },
      { axis: 0, after: 1, value: 'Infinity' },
      { axis: 0, after: 1, value: [Number.POSITIVE_INFINITY] },
      { axis: 0, after: 1, value: 10n },
      { axis: 0, after: 1, value: 1e39 },
      { axis: 0, after: 1, value: Number.NaN },
    ])
      expect(tags(x, options)).toEqual(['BadAttribute'])
    for (const value of [-1, 256, 0.5, Number.NEGATIVE_INFINITY])
      expect(tags(typed('u8', [2]), { axis: 0, after: 1, value })).toEqual(['BadAttribute'])
  })
})

describe('cumsum', () => {
  it('is the sum up to each place; whole numbers wrap', async () => {
    await fc.assert(
      fc.asyncProperty(withAxis, types, async ({ shape, axis }, dtype) => {
        const x = counting(dtype, shape)
        const got = await compute([x], a => a.pipe(braid.cumsum({ axis })))
        expect([got.dtype, got.shape]).toEqual([dtype === 'u8' ? 'i32' : dtype, shape])
        got.values.forEach((value, flat) => {
          const index = indexOf(shape, flat)
          let sum = 0
          for (let l = 0; l <= index[axis]!; l++) sum += at(x, moved(index, axis, l))
          expect(value).toBe(sum)
        })
      }),
      { numRuns: runs(40) },
    )
    const most = typed('i32', [3], 2 ** 31 - 1, 1, 1)
    expect((await compute([most], a => a.pipe(braid.cumsum({ axis: 0 })))).values).toEqual([
      2 ** 31 - 1,
      -(2 ** 31),
      1 - 2 ** 31,
    ])
    for (const options of [undefined, {}, { axis: 1 }])
      expect(problemsOf([most], a => a.pipe(braid.cumsum(options as never)))).toEqual(['BadAttribute'])
  })
})

describe('topK and takeAlong', () => {
  it('topK yields the best, the first of equal ones first, and a NaN before all numbers', async () => {
    const given = withAxis.chain(one =>
      fc.record({
        of: fc.constant(one),
        k: fc.integer({ min: 0, max: one.shape[one.axis]! }),
        dtype: types,
        largest: fc.boolean(),
        odd: fc.boolean(),
        by: fc.integer({ min: 1, max: 10 }),
      }),
    )
    await fc.assert(
      fc.asyncProperty(given, async ({ of: { shape, axis }, k, dtype, largest, odd, by }) => {
        const plain = counting(dtype, shape, by)
        const values = plain.values.map((value, i) => (odd && i % 3 === 1 ? Number.NaN : value))
        const x = dtype === 'i32' || dtype === 'u8' ? plain : { ...plain, values }
        const pick = (which: 'values' | 'indices') =>
          compute([x], a => a.pipe(braid.topK({ k, axis, largest }))[which])
        const [best, places] = [await pick('values'), await pick('indices')]
        expect([best.dtype, places.dtype]).toEqual([dtype, 'i32'])
        expect([best.shape, places.shape]).toEqual(Array(2).fill(sized(shape, axis, k)))
        places.values.forEach((place, flat) => {
          const index = indexOf(places.shape as Shape, flat)
          const line = Array.from({ length: shape[axis]! }, (_, l) => at(x, moved(index, axis, l)))
          const rank = (value: number) => (Number.isNaN(value) ? -Infinity : largest ? -value : value)
          const sorted = line.map((_, l) => l).sort((p, q) => rank(line[p]!) - rank(line[q]!) || p - q)
          expect(place).toBe(sorted[index[axis]!])
          expect(best.values[flat]).toBe(line[place])
        })
      }),
      { numRuns: runs(40) },
    )
  })

  it('topK takes the last axis by default, and refuses what does not fit', async () => {
    const x = f32([2, 3], 1, 3, 2, 6, 5, 4)
    expect((await compute([x], a => a.pipe(braid.topK({ k: 2 })).values)).values).toEqual([3, 2, 6, 5])
    const bad = [undefined, { k: -1 }, { k: 4 }, { k: 1.5 }, { k: 3, axis: 0 }, { k: 1, axis: 2 }]
    for (const options of [...bad, { k: 1, largest: 1 }])
      for (const which of ['values', 'indices'] as const)
        expect(problemsOf([x], a => a.pipe(braid.topK(options as never))[which])).toEqual(['BadAttribute'])
    const net = braid.graph({ x: braid.tensor('f32', ['n', 3]) }, flows => {
      const { indices } = flows.x.pipe(braid.upload(), braid.topK({ k: 2, axis: 0 }))
      return { y: indices.pipe(braid.download()) }
    })
    expect(braid.compile(net, { dims: { n: 2 } })).toMatchObject({ _tag: 'Right' })
    expect(braid.compile(net, { dims: { n: 1 } })).toMatchObject({
      _tag: 'Left',
      left: [{ _tag: 'BadAttribute' }],
    })
  })

  it('takeAlong takes each element by its own index, and 0 for an index that is not there', async () => {
    await fc.assert(
      fc.asyncProperty(withAxis, types, size, fc.nat(20), async ({ shape, axis }, dtype, count, seed) => {
        const x = counting(dtype, shape)
        const own = sized(shape, axis, count)
        const places = Array.from({ length: elements(own) }, (_, i) => ((i * 5 + seed) % 7) - 1)
        const got = await compute([x, typed('i32', own, ...places)], (a, i) =>
          a.pipe(braid.takeAlong(i, { axis })),
        )
        expect([got.dtype, got.shape]).toEqual([dtype, own])
        got.values.forEach((value, flat) => {
          const place = places[flat]!
          const inside = place >= 0 && place < shape[axis]!
          expect(value).toBe(inside ? at(x, moved(indexOf(own, flat), axis, place)) : 0)
        })
      }),
      { numRuns: runs(40) },
    )
    const tags = (indices: Given, options: unknown = { axis: 1 }) =>
      problemsOf([f32([2, 3]), indices], (a, i) => a.pipe(braid.takeAlong(i, options as never)))
    expect(tags(typed('i32', [2, 5]))).toEqual([])
    expect(tags(typed('i32', [3, 3]))).toEqual(['ShapeMismatch'])
    expect(tags(typed('i32', [2]))).toEqual(['ShapeMismatch'])
    expect(tags(f32([2, 3]))).toEqual(['DTypeMismatch'])
    expect(tags(typed('i32', [2, 3]), {})).toEqual(['BadAttribute'])
  })
})

describe('rope', () => {
  const given = fc.record({
    lead: fc.array(size, { maxLength: 2 }),
    places: size,
    half: fc.integer({ min: 1, max: 9 }),
    dtype: fc.constantFrom<DType>('f32', 'f32', 'f16', 'bf16'),
    base: fc.constantFrom(undefined, 100),
    interleaved: fc.boolean(),
    given: fc.constantFrom('none', 'row', 'all', 'one', 'batch'),
  })
  it('turns each pair by its position times its frequency', async () => {
    await fc.assert(
      fc.asyncProperty(given, async ({ lead, places, half, dtype, base, interleaved, given }) => {
        const shape = [...lead, places, 2 * half]
        const x = typed(dtype, shape, ...Array.from({ length: elements(shape) }, (_, i) => Math.sin(i + 1)))
        const own = { none: [], row: [places], all: [...lead, places], one: [], batch: [...lead, 1] }[given]
        const positions = typed(
          'i32',
          own,
          ...Array.from({ length: elements(own) }, (_, i) => (i * 37) % 1000),
        )
        const options = { interleaved, ...(base === undefined ? {} : { base }) }
        const got = await compute(given === 'none' ? [x] : [x, positions], (a, p) =>
          a.pipe(braid.rope(given === 'none' ? options : { ...options, positions: p })),
        )
        expect([got.dtype, got.shape]).toEqual([dtype, shape])
        const exact = Array.from(numbers(arrayOf(x), dtype))
        got.values.forEach((value, flat) => {
          const index = indexOf(shape, flat)
          const j = index.at(-1)!
          const pair = interleaved ? j >> 1 : j % half
          const first = interleaved ? j % 2 === 0 : j < half
          const other = interleaved ? flat + (first ? 1 : -1) : flat + (first ? half : -half)
          const row = index.slice(0, -1).slice(shape.length - 1 - own.length)
          const known = flatOf(
            own,
            row.map((i, d) => (own[d] === 1 ? 0 : i)),
          )
          const position = given === 'none' ? index.at(-2)! : positions.values[known]!
          const angle = position * (base ?? 10_000) ** (-pair / half)
          const turned = exact[flat]! * Math.cos(angle) - (first ? 1 : -1) * exact[other]! * Math.sin(angle)
          // The frequency is rounded in f32, and so the angle is wrong by so much for each step of a
          // position.
          const error = position * 4e-7 + 1e-6 + (dtype === 'f32' ? 0 : 2 * roundoff[dtype])
          expect(Math.abs(value - turned)).toBeLessThanOrEqual(error)
        })
      }),
      { numRuns: runs(60) },
    )
  })

  it('refuses what does not fit', () => {
    const tags = (x: Given, options?: unknown) => problemsOf([x], a => a.pipe(braid.rope(options as never)))
    const x = f32([3, 4])
    expect(tags(x)).toEqual([])
    expect(tags(f32([3, 5]))).toEqual(['ShapeMismatch'])
    expect(tags(f32([4]))).toEqual(['ShapeMismatch'])
    expect(tags(f32(Array(8).fill(2)))).toEqual(['ShapeMismatch'])
    expect(tags(typed('i32', [3, 4]))).toEqual(['DTypeMismatch'])
    for (const options of [{ base: 0.5 }, { base: '1' }, { base: Infinity }, { interleaved: 1 }])
      expect(tags(x, options)).toEqual(['BadAttribute'])
    const by = (positions: Given) =>
      problemsOf([x, positions], (a, p) => a.pipe(braid.rope({ positions: p })))
    expect(by(typed('i32', [3]))).toEqual([])
    expect(by(f32([3]))).toEqual(['DTypeMismatch'])
    expect(by(typed('i32', [4]))).toEqual(['ShapeMismatch'])
    expect(by(typed('i32', [2, 3]))).toEqual(['ShapeMismatch'])
    expect(tags(x, { positions: 3 })[0]).toBe('NotAFlow')
  })
})
