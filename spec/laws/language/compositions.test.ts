// Operators that choose, move, and are composed of others, against plain loops over numbers that share no
// code with them.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as braid from '../../../dsl/index.js'
import { type DType, elements } from '../../../dsl/ir/tensor.js'
import { numbers, roundoff } from '../../../dsl/language/values.js'
import { type AnyOp, arrayOf, compute, f32, type Given, problemsOf, typed } from '../../fixtures/compute.js'
import { runs } from '../../fixtures/runs.js'

type Shape = readonly number[]

/** The index of an element along each axis, taken apart by hand. */
const indexOf = (shape: Shape, flat: number): number[] =>
  shape.map((size, d) => Math.floor(flat / elements(shape.slice(d + 1))) % size)
const flatOf = (shape: Shape, index: Shape): number =>
  shape.reduce((flat, size, d) => flat * size + index[d]!, 0)

/** The element of `own` that broadcasts to an index of a larger shape. */
const broadcastTo = (own: Given, index: Shape): number => {
  const lead = index.length - own.shape.length
  return own.values[
    flatOf(
      own.shape,
      own.shape.map((size, d) => (size === 1 ? 0 : index[lead + d]!)),
    )
  ]!
}

/** By element, the list of all elements that differ from it along the axes only. */
const groups = ({ shape, values }: Given, axes: Shape): number[][] => {
  const found = new Map<string, number[]>()
  const keyOf = (flat: number) =>
    indexOf(shape, flat)
      .filter((_, d) => !axes.includes(d))
      .join()
  values.forEach((value, flat) => {
    const key = keyOf(flat)
    const group = found.get(key) ?? []
    found.set(key, group)
    group.push(value)
  })
  return values.map((_, flat) => found.get(keyOf(flat))!)
}

/** The first element of each group, in the order of the result of a reduction. */
const firsts = ({ shape, values }: Given, axes: Shape): number[] =>
  values.flatMap((_, flat) =>
    indexOf(shape, flat).every((at, d) => at === 0 || !axes.includes(d)) ? [flat] : [],
  )

const shapes = fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1, maxLength: 4 })
const floatOf = (range: number) => fc.double({ min: -range, max: range, noNaN: true }).map(Math.fround)

/** A tensor and axes of it, the last of which may count from the end. */
const withAxes = (range = 4) =>
  shapes.chain(shape =>
    fc.record({
      x: fc
        .array(floatOf(range), { minLength: elements(shape), maxLength: elements(shape) })
        .map(values => f32(shape, ...values)),
      axes: fc.subarray(
        shape.map((_, d) => d),
        { minLength: 1 },
      ),
      fromEnd: fc.boolean(),
    }),
  )

const given = ({ x, axes, fromEnd }: { x: Given; axes: Shape; fromEnd: boolean }) => {
  const axis = axes.map((each, i) => (fromEnd && i === axes.length - 1 ? each - x.shape.length : each))
  return axis.length === 1 && !fromEnd ? axis[0]! : axis
}

const near = (got: readonly number[], wanted: readonly number[], error = 2e-6) => {
  expect(got.length).toBe(wanted.length)
  got.forEach((value, i) => {
    const want = wanted[i]!
    if (!Number.isFinite(want)) expect(value).toBe(want)
    else expect(Math.abs(value - want)).toBeLessThanOrEqual(error * Math.max(1, Math.abs(want)))
  })
}

const total = (all: readonly number[]) => all.reduce((a, b) => a + b, 0)
const mean = (all: readonly number[]) => total(all) / all.length
const spread = (all: readonly number[]) => mean(all.map(x => (x - mean(all)) ** 2))

describe('reductions over several axes', () => {
  const cases: readonly (readonly [string, AnyOp, (all: readonly number[]) => number])[] = [
    ['sum', braid.sum, total],
    ['mean', braid.mean, mean],
    ['max', braid.max, all => Math.max(...all)],
    ['min', braid.min, all => Math.min(...all)],
    ['variance', braid.variance, spread],
    ['logSumExp', braid.logSumExp, all => Math.log(total(all.map(Math.exp)))],
  ]
  it.each(cases)('%s', async (_, op, join) => {
    await fc.assert(
      fc.asyncProperty(withAxes(), fc.boolean(), async (one, keepDims) => {
        const { x, axes } = one
        const { shape, values } = await compute([x], a => a.pipe(op({ axis: given(one), keepDims })))
        const left = x.shape.map((size, d) => (axes.includes(d) ? 1 : size))
        expect(shape).toEqual(keepDims ? left : x.shape.filter((_, d) => !axes.includes(d)))
        const all = groups(x, axes)
        near(
          values,
          firsts(x, axes).map(flat => join(all[flat]!)),
          1e-5,
        )
      }),
      { numRuns: runs(40) },
    )
  })

  it('one kernel reduces adjacent axes, and f16 is rounded once', async () => {
    const x = typed('f16', [4, 3, 700], ...Array.from({ length: 8400 }, (_, i) => ((i * 7) % 5) / 3))
    const exact = Array.from(numbers(arrayOf(x), 'f16'))
    for (const axis of [
      [0, 1],
      [0, 2],
    ]) {
      const { values } = await compute([x], a => a.pipe(braid.sum({ axis }) as never))
      const all = groups({ ...x, values: exact }, axis)
      near(
        values,
        firsts(x, axis).map(flat => total(all[flat]!)),
        1.01 * roundoff.f16,
      )
    }
    const ops = (axis: readonly number[]) => {
      const net = braid.graph({ x: braid.tensor('f32', [2, 3, 4]) }, flows => ({
        y: flows.x.pipe(braid.upload(), braid.sum({ axis }), braid.download()),
      }))
      return braid.irOf(net).nodes.flatMap(({ op, name }) => (op === 'sum' ? [name] : []))
    }
    expect(ops([0, 1])).toEqual(['sum[0]'])
    expect(ops([0, 2])).toEqual(['sum[0].sum', 'sum[0].sum[1]'])
  })

  it('refuse axes that are not there, or there twice', () => {
    for (const axis of [[], [0, 0], [1, -1], [2], ['0'], {}, 0.5])
      for (const op of [braid.sum, braid.max, braid.variance, braid.logSumExp] as AnyOp[])
        expect(problemsOf([f32([2, 3])], x => x.pipe(op({ axis })))).toEqual(['BadAttribute'])
    expect(problemsOf([f32([2, 3])], x => x.pipe(braid.sum([0, 1])))).toEqual([])
    expect(problemsOf([typed('i32', [2])], x => x.pipe(braid.variance({ axis: 0 } as never)))).toEqual([
      'DTypeMismatch',
    ])
  })
})

describe('softmax and norms', () => {
  const softmax = (x: number, all: readonly number[]) => Math.exp(x) / total(all.map(Math.exp))
  const cases: readonly (readonly [string, AnyOp, (x: number, all: readonly number[]) => number])[] = [
    ['softmax', braid.softmax, softmax],
    ['logSoftmax', braid.logSoftmax, (x, all) => Math.log(softmax(x, all))],
    [
      'layerNorm',
      options => braid.layerNorm({ ...options, epsilon: 0.25 }),
      (x, all) => (x - mean(all)) / Math.sqrt(spread(all) + 0.25),
    ],
    [
      'rmsNorm',
      options => braid.rmsNorm({ ...options, epsilon: 0.25 }),
      (x, all) => x / Math.sqrt(mean(all.map(a => a * a)) + 0.25),
    ],
  ]
  it.each(cases)('%s', async (_, op, wanted) => {
    await fc.assert(
      fc.asyncProperty(withAxes(), fc.boolean(), async (one, last) => {
        const { x } = one
        const axes = last ? [x.shape.length - 1] : one.axes
        const { shape, values } = await compute([x], a => a.pipe(op(last ? {} : { axis: given(one) })))
        expect(shape).toEqual(x.shape)
        const all = groups(x, axes)
        near(
          values,
          x.values.map((value, flat) => wanted(value, all[flat]!)),
          1e-5,
        )
      }),
      { numRuns: runs(40) },
    )
  })

  it('no element is too large or too small for softmax, logSoftmax and logSumExp', async () => {
    const x = f32([2, 3], 1e4, 1e4, 1e4 - 1, -1e4, Number.NEGATIVE_INFINITY, -1e4)
    const e = Math.exp(-1)
    near((await compute([x], a => a.pipe(braid.softmax()))).values, [
      ...[1, 1, e].map(p => p / (2 + e)),
      ...[0.5, 0, 0.5],
    ])
    near((await compute([x], a => a.pipe(braid.logSoftmax()))).values, [
      ...[0, 0, -1].map(p => p - Math.log(2 + e)),
      ...[Math.log(0.5), Number.NEGATIVE_INFINITY, Math.log(0.5)],
    ])
    const sums = f32([3, 2], 1e4, 1e4, Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY, 1, Infinity)
    near((await compute([sums], a => a.pipe(braid.logSumExp({ axis: 1 })))).values, [
      1e4 + Math.log(2),
      Number.NEGATIVE_INFINITY,
      Number.POSITIVE_INFINITY,
    ])
  })

  it('f16 and bf16 are computed in f32 and rounded once', async () => {
    const values = Array.from({ length: 96 }, (_, i) => Math.sin(i * 3) * 2)
    for (const dtype of ['f16', 'bf16'] as const) {
      const x = typed(dtype, [96], ...values)
      const exact = Array.from(numbers(arrayOf(x), dtype))
      for (const [, op, wanted] of cases) {
        const got = await compute([x], a => a.pipe(op({})))
        expect(got.dtype).toBe(dtype)
        got.values.forEach((value, i) => {
          const want = wanted(exact[i]!, exact)
          expect(Math.abs(value - want)).toBeLessThanOrEqual(1.01 * roundoff[dtype] * Math.abs(want) + 1e-7)
        })
      }
    }
  })

  it('scale and shift broadcast to the value, and do not widen it', async () => {
    const x = f32([2, 2, 3], ...Array.from({ length: 12 }, (_, i) => Math.cos(i * 5)))
    const scale = f32([3], 2, -1, 0.5)
    const shift = f32([2, 1], 10, 20)
    const plain = await compute([x], a => a.pipe(braid.layerNorm()))
    const moved = await compute([x, scale, shift], (a, s, t) =>
      a.pipe(braid.layerNorm({ scale: s, shift: t })),
    )
    const at = (own: Given) => x.values.map((_, flat) => broadcastTo(own, indexOf(x.shape, flat)))
    const [by, to] = [at(scale), at(shift)]
    near(
      moved.values,
      plain.values.map((value, i) => value * by[i]! + to[i]!),
    )
    const rms = await compute([x], a => a.pipe(braid.rmsNorm({ epsilon: 0.5 })))
    const scaled = await compute([x, scale], (a, s) => a.pipe(braid.rmsNorm({ epsilon: 0.5, scale: s })))
    near(
      scaled.values,
      rms.values.map((value, i) => value * by[i]!),
    )
    for (const wrong of [f32([2]), f32([4, 1, 1, 3]), f32([3, 2, 3])])
      expect(problemsOf([x, wrong], (a, s) => a.pipe(braid.layerNorm({ scale: s })))).toEqual([
        'ShapeMismatch',
      ])
    expect(problemsOf([x, typed('f16', [3])], (a, s) => a.pipe(braid.rmsNorm({ scale: s })))).toEqual([
      'DTypeMismatch',
    ])
    expect(problemsOf([x], a => a.pipe(braid.layerNorm({ shift: 3 as never })))).toEqual(['NotAFlow'])
  })

  it('refuse whole numbers, and an epsilon that is none', () => {
    for (const [, op] of cases)
      expect(problemsOf([typed('i32', [3])], x => x.pipe(op({})))).toEqual(['DTypeMismatch'])
    for (const epsilon of [0, -1, Number.NaN, 1e39, '1'])
      expect(problemsOf([f32([3])], x => x.pipe(braid.rmsNorm({ epsilon: epsilon as number })))).toEqual([
        'BadAttribute',
      ])
  })
})

describe('crossEntropy', () => {
  const scores = f32([3, 4], 1, 2, 3, 4, 1e4, -1e4, 1e4, 0, 5, 5, 5, 5)
  const labels = (...values: number[]) => typed('i32', [values.length], ...values)
  const lost = (x: Given, of: Given) => compute([x, of], (a, l) => a.pipe(braid.crossEntropy(l as never)))

  it('is the logarithm of what the right class has, along the last axis', async () => {
    const { shape, values } = await lost(scores, labels(0, 2, 3))
    expect(shape).toEqual([3])
    near(values, [Math.log(1 + Math.E + Math.E ** 2 + Math.E ** 3), Math.log(2), Math.log(4)], 1e-6)
    const cube = f32([2, 1, 3], 0, 0, 0, 0, Math.log(2), 0)
    near((await lost(cube, typed('u8', [2, 1], 1, 1))).values, [Math.log(3), Math.log(2)], 1e-6)
    expect((await lost(typed('bf16', [1, 2], 3, 3), labels(1))).dtype).toBe('bf16')
  })

  it('is 0 where the label is no class', async () => {
    near((await lost(scores, labels(-1, 4, 3))).values, [0, 0, Math.log(4)], 1e-6)
  })

  it('refuses labels of another shape or type, and whole numbers', () => {
    const problems = (x: Given, of: Given) =>
      problemsOf([x, of], (a, l) => a.pipe(braid.crossEntropy(l as never)))
    expect(problems(scores, labels(1, 2))).toEqual(['ShapeMismatch'])
    expect(problems(scores, typed('i32', [3, 1], 1, 2, 3))).toEqual(['ShapeMismatch'])
    expect(problems(scores, f32([3], 1, 2, 3))).toEqual(['DTypeMismatch'])
    expect(problems(typed('i32', [3, 4]), labels(1, 2, 3))).toEqual(['DTypeMismatch'])
    expect(problems(f32([]), labels())).toEqual(['ShapeMismatch'])
  })
})

describe('parts of an operator', () => {
  it('have names that begin with its own, and its place', () => {
    const net = braid.graph({ x: braid.tensor('bf16', [2, 3]) }, ({ x }) => {
      const up = x.pipe(braid.upload())
      return { y: up.pipe(braid.softmax({ axis: 1 }), braid.softmax({ axis: 0 }), braid.download()) }
    })
    const parts = braid.irOf(net).nodes.filter(({ name }) => name.startsWith('softmax'))
    const names = ['cast', 'max', 'map', 'sum', 'map[1]', 'cast[1]']
    expect(parts.map(({ name }) => name)).toEqual(
      [0, 1].flatMap(n => names.map(name => `softmax[${n}].${name}`)),
    )
    const places = new Set(parts.map(({ at }) => at.toString()))
    expect(places.size).toBe(2)
    for (const place of places) expect(place).toContain('compositions.test.ts')
  })

  it('an error names the operator that was called, once, and nothing that follows from it is one', () => {
    const net = braid.graph(
      { x: braid.tensor('f32', [2, 3]), w: braid.tensor('f32', [4, 5]) },
      ({ x, w }) => ({
        y: x.pipe(
          braid.upload(),
          braid.linear(w.pipe(braid.upload()) as never, w.pipe(braid.upload()) as never),
          braid.softmax({ axis: 7 }),
          braid.download(),
        ),
      }),
    )
    // The axes of what linear would be are not known.
    expect(braid.irOf(net).problems.map(({ _tag, subject }) => `${_tag} ${subject}`)).toEqual([
      'ShapeMismatch linear',
    ])
    const host = braid.graph({ x: braid.tensor('f32', [2]) }, ({ x }) => ({
      y: (x as never as braid.Flow<'device', braid.Tensor<'f32', [2]>>).pipe(
        braid.softmax(),
        braid.download(),
      ),
    }))
    expect(braid.irOf(host).problems.map(({ _tag }) => _tag)).toEqual(['PlaceMismatch'])
  })
})

describe('comparisons and where', () => {
  const cases: readonly (readonly [string, AnyOp, (a: number, b: number) => boolean])[] = [
    ['less', braid.less, (a, b) => a < b],
    ['lessOrEqual', braid.lessOrEqual, (a, b) => a <= b],
    ['greater', braid.greater, (a, b) => a > b],
    ['greaterOrEqual', braid.greaterOrEqual, (a, b) => a >= b],
    ['equal', braid.equal, (a, b) => a === b],
    ['notEqual', braid.notEqual, (a, b) => a !== b],
  ]
  it.each(cases)('%s yields u8, in every element type', async (_, op, holds) => {
    const types = fc.constantFrom<DType>('f32', 'f16', 'bf16', 'i32', 'u8')
    const numbersOf = fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 6, maxLength: 6 })
    await fc.assert(
      fc.asyncProperty(types, numbersOf, numbersOf, async (dtype, left, right) => {
        const [x, y] = [typed(dtype, [2, 3], ...left), typed(dtype, [3], ...right.slice(0, 3))]
        const got = await compute([x, y], (a, b) => a.pipe(op(b)))
        expect([got.dtype, got.shape]).toEqual(['u8', [2, 3]])
        expect(got.values).toEqual(left.map((value, i) => (holds(value, right[i % 3]!) ? 1 : 0)))
        const number = await compute([x], a => a.pipe(op(right[5])))
        expect(number.values).toEqual(left.map(value => (holds(value, right[5]!) ? 1 : 0)))
      }),
      { numRuns: runs(30) },
    )
    const odd = [Number.NaN, Number.NEGATIVE_INFINITY, -0, 2 ** 31 - 1]
    for (const other of odd) {
      const got = await compute([f32([4], ...odd), f32([], other)], (a, b) => a.pipe(op(b)))
      expect(got.values).toEqual(odd.map(value => (holds(Math.fround(value), Math.fround(other)) ? 1 : 0)))
    }
    const near = typed('i32', [2], 2 ** 31 - 1, 2 ** 31 - 2)
    const exact = await compute([near], a => a.pipe(op(2 ** 31 - 1)))
    expect(exact.values).toEqual(near.values.map(value => (holds(value, 2 ** 31 - 1) ? 1 : 0)))
  })

  it('where takes the one or the other; all three broadcast', async () => {
    const condition = typed('u8', [2, 1], 0, 7)
    const yes = f32([3], 1, 2, 3)
    const no = f32([4, 1, 1], -1, -2, -3, -4)
    const got = await compute([condition, yes, no], (c, a, b) => c.pipe(braid.where(a, b)))
    expect(got.shape).toEqual([4, 2, 3])
    got.values.forEach((value, flat) => {
      const index = indexOf([4, 2, 3], flat)
      expect(value).toBe(broadcastTo(broadcastTo(condition, index) !== 0 ? yes : no, index))
    })
    const masked = await compute([typed('i32', [3], 0, -5, 2 ** 30), yes], (c, a) =>
      c.pipe(braid.where(Number.NEGATIVE_INFINITY, a)),
    )
    expect(masked.values).toEqual([1, Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY])
    const whole = await compute([typed('u8', [2], 0, 1), typed('i32', [2], 2 ** 31 - 1, 5)], (c, a) =>
      c.pipe(braid.where(a, -3)),
    )
    expect([whole.dtype, whole.values]).toEqual(['i32', [-3, 5]])
  })

  it('refuse what does not fit', () => {
    const c = typed('u8', [2])
    const tags = (condition: Given, yes: unknown, no: unknown) =>
      problemsOf([condition, f32([2]), typed('i32', [2]), f32([3])], (p, ...flows) => {
        const of = (one: unknown) => (typeof one === 'string' ? flows[Number(one)] : one)
        return p.pipe(braid.where(of(yes) as never, of(no) as never))
      })
    expect(tags(c, '0', 0)).toEqual([])
    expect(tags(f32([2]), '0', 0)).toEqual(['DTypeMismatch'])
    expect(tags(c, '0', '1')).toEqual(['DTypeMismatch'])
    expect(tags(c, '2', 0)).toEqual(['ShapeMismatch'])
    expect(tags(c, '0', '2')).toEqual(['ShapeMismatch'])
    for (const [yes, no] of [
      [1, 0],
      ['0', undefined],
      ['0', Number.NaN],
      ['0', [Number.POSITIVE_INFINITY]],
      ['0', Symbol('infinite')],
      ['0', 10n],
      ['1', Number.POSITIVE_INFINITY],
      ['1', 0.5],
      ['1', 2 ** 31],
    ])
      expect(tags(c, yes, no)).toEqual(['BadAttribute'])
    expect(problemsOf([typed('i32', [2])], x => x.pipe(braid.less(2 ** 31)))).toEqual(['BadAttribute'])
  })
})

describe('transpose and split', () => {
  const moved = shapes.chain(shape =>
    fc.record({
      shape: fc.constant(shape),
      axes: fc.shuffledSubarray(
        shape.map((_, d) => d),
        { minLength: shape.length },
      ),
      dtype: fc.constantFrom<DType>('f32', 'f16', 'bf16', 'i32', 'u8'),
    }),
  )

  it('transpose puts axis axes[d] in place d', async () => {
    await fc.assert(
      fc.asyncProperty(moved, async ({ shape, axes, dtype }) => {
        const x = typed(dtype, shape, ...Array.from({ length: elements(shape) }, (_, i) => i % 251))
        const got = await compute([x], a => a.pipe(braid.transpose(axes)))
        expect([got.dtype, got.shape]).toEqual([dtype, axes.map(axis => shape[axis])])
        got.values.forEach((value, flat) => {
          const index = indexOf(got.shape as Shape, flat)
          const from = shape.map((_, axis) => index[axes.indexOf(axis)]!)
          expect(value).toBe(x.values[flatOf(shape, from)])
        })
      }),
      { numRuns: runs(60) },
    )
    const symbols = braid.graph({ x: braid.tensor('f32', ['n', 3, 'm']) }, flows => ({
      y: flows.x.pipe(braid.upload(), braid.transpose([2, 0, -2]), braid.download()),
    }))
    expect(braid.irOf(symbols).nodes.at(-1)!.spec.shape).toEqual(['m', 'n', 3])
  })

  it('split takes a value apart along an axis', async () => {
    const cuts = shapes.chain(shape =>
      fc.nat(shape.length - 1).chain(axis =>
        fc.record({
          shape: fc.constant(shape),
          axis: fc.constant(axis),
          at: fc.subarray(
            Array.from({ length: shape[axis]! - 1 }, (_, i) => i + 1),
            { minLength: 0 },
          ),
          which: fc.nat(4),
        }),
      ),
    )
    await fc.assert(
      fc.asyncProperty(cuts, async ({ shape, axis, at, which }) => {
        const x = f32(shape, ...Array.from({ length: elements(shape) }, (_, i) => i))
        const ends = [...at, shape[axis]!]
        const sizes = ends.map((end, i) => end - (ends[i - 1] ?? 0))
        const part = which % sizes.length
        const [from, to] = [ends[part - 1] ?? 0, ends[part]!]
        const got = await compute([x], a => a.pipe(braid.split({ axis, sizes }))[part])
        expect(got.shape).toEqual(shape.map((size, d) => (d === axis ? sizes[part] : size)))
        const inside = (flat: number) =>
          indexOf(shape, flat)[axis]! >= from && indexOf(shape, flat)[axis]! < to
        expect(got.values).toEqual(x.values.filter(inside))
        if (new Set(sizes).size === 1) {
          const equal = await compute([x], a => a.pipe(braid.split({ axis, parts: sizes.length }))[part])
          expect(equal.values).toEqual(got.values)
        }
      }),
      { numRuns: runs(40) },
    )
  })

  it('refuse axes and sizes that do not fit', () => {
    const x = f32([2, 6])
    for (const axes of [[0], [0, 0], [0, 2], [1, 0, 2], ['1', 0], undefined, 1])
      expect(problemsOf([x], a => a.pipe(braid.transpose(axes as never)))).toEqual(['BadAttribute'])
    for (const options of [
      undefined,
      { axis: 1 },
      { axis: 1, parts: 4 },
      { axis: 1, parts: 0 },
      { axis: 2, parts: 1 },
      { axis: 1, sizes: [2, 3] },
      { axis: 1, sizes: [7, -1] },
      { axis: 1, sizes: 6 },
      { axis: 1, parts: 2, sizes: [3, 3] },
    ])
      expect(problemsOf([x], a => a.pipe(braid.split(options as never) as AnyOp)[0])).toEqual([
        'BadAttribute',
      ])
    const open = braid.graph({ x: braid.tensor('f32', ['n']) }, flows => {
      const [a, b] = flows.x.pipe(braid.upload(), braid.split({ axis: 0, parts: 2 }))
      return { y: a.pipe(braid.add(b as never), braid.download()) }
    })
    expect(braid.irOf(open).problems.map(({ _tag }) => _tag)).toEqual(['BadAttribute'])
  })
})

describe('linear', () => {
  it('is x · weightᵀ + bias', async () => {
    const sizes = fc.tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 4 }), fc.boolean())
    await fc.assert(
      fc.asyncProperty(fc.oneof(fc.constant([]), shapes), sizes, async (lead, [k, n, biased]) => {
        const of = (shape: Shape, by: number) =>
          f32(shape, ...Array.from({ length: elements(shape) }, (_, i) => ((i * by) % 11) - 5))
        const [x, weight, bias] = [of([...lead, k], 7), of([n, k], 3), of([n], 5)]
        const given = biased ? [x, weight, bias] : [x, weight]
        const got = await compute(given, (a, w, b) => a.pipe(braid.linear(w, b)))
        expect(got.shape).toEqual([...lead, n])
        got.values.forEach((value, flat) => {
          const [row, column] = [Math.floor(flat / n), flat % n]
          let want = biased ? bias.values[column]! : 0
          for (let i = 0; i < k; i++) want += x.values[row * k + i]! * weight.values[column * k + i]!
          expect(value).toBe(want)
        })
      }),
      { numRuns: runs(30) },
    )
  })

  it('refuses shapes and types that do not fit', () => {
    const tags = (...given: readonly Given[]) => problemsOf(given, (x, w, b) => x.pipe(braid.linear(w, b)))
    expect(tags(f32([2, 3]), f32([3, 4]))).toEqual(['ShapeMismatch'])
    expect(tags(f32([3]), f32([3, 4]))).toEqual(['ShapeMismatch'])
    expect(tags(f32([]), f32([3, 4]))).toEqual(['ShapeMismatch'])
    expect(tags(f32([2, 3]), f32([4, 3]), f32([3]))).toEqual(['ShapeMismatch'])
    expect(tags(f32([2, 3]), f32([4, 3]), f32([5, 2, 4]))).toEqual(['ShapeMismatch'])
    expect(tags(f32([2, 3]), typed('f16', [4, 3]))).toEqual(['DTypeMismatch'])
  })
})

it('sin and cos are those of angles in radians', async () => {
  const angles = [-20, -1.5, 0, 0.5, Math.PI, 1000]
  near(
    (await compute([f32([6], ...angles)], x => x.pipe(braid.sin()))).values,
    angles.map(a => Math.sin(Math.fround(a))),
  )
  near(
    (await compute([f32([6], ...angles)], x => x.pipe(braid.cos()))).values,
    angles.map(a => Math.cos(Math.fround(a))),
  )
})
