// Operators that make and take positions, and products of matrices in every layout, against plain loops.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as braid from '../../../dsl/index.js'
import { type DType, elements } from '../../../dsl/ir/tensor.js'
import { type AnyOp, compute, f32, type Given, problemsOf, typed } from '../../fixtures/compute.js'
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

const types = fc.constantFrom<DType>('f32', 'f16', 'bf16', 'i32', 'u8')
const size = fc.integer({ min: 1, max: 4 })
const shapes = fc.array(size, { minLength: 1, maxLength: 4 })
const withAxis = shapes.chain(shape =>
  fc.record({ shape: fc.constant(shape), axis: fc.nat(shape.length - 1) }),
)

describe('products of matrices', () => {
  // The last dimensions of some, any of which may be 1.
  const partOf = (lead: readonly number[]) =>
    fc
      .tuple(fc.nat(lead.length), fc.array(fc.boolean(), { minLength: lead.length, maxLength: lead.length }))
      .map(([from, ones]) => lead.map((one, d) => (ones[d] ? 1 : one)).slice(from))
  const leads = fc
    .array(size, { maxLength: 3 })
    .chain(lead => fc.record({ x: partOf(lead), w: partOf(lead) }))
  it('either operand may be transposed, and leading dimensions broadcast', async () => {
    await fc.assert(
      fc.asyncProperty(leads, size, size, size, fc.nat(7), async (lead, m, k, n, how) => {
        const [left, right, option] = [(how & 1) > 0, (how & 2) > 0, (how & 4) > 0]
        const axes = (rank: number) => [...Array(rank - 2).keys(), rank - 1, rank - 2]
        const x = counting('f32', [...lead.x, ...(left ? [k, m] : [m, k])])
        // A transposed weight by an operator, or by the option, or by both: then it is as it was.
        const swapped = right !== option
        const w = counting('f32', [...lead.w, ...(swapped ? [n, k] : [k, n])], 5)
        const got = await compute([x, w], (a, b) => {
          const p = left ? a.pipe(braid.transpose(axes(x.shape.length))) : a
          const q = right ? b.pipe(braid.transpose(axes(w.shape.length))) : b
          return p.pipe(braid.matmul(q, { transpose: option }))
        })
        const rank = Math.max(lead.x.length, lead.w.length)
        const padded = (own: Shape) => [...Array(rank - own.length).fill(1), ...own]
        const wanted = padded(lead.x).map((own, d) => Math.max(own, padded(lead.w)[d]!))
        expect(got.shape).toEqual([...wanted, m, n])
        got.values.forEach((value, flat) => {
          const index = indexOf([...wanted, m, n], flat)
          const [row, column] = index.slice(-2) as [number, number]
          const from = (own: Shape, ...rest: number[]) => [
            ...own.map((one, d) => (one === 1 ? 0 : index[rank - own.length + d]!)),
            ...rest,
          ]
          let want = 0
          for (let i = 0; i < k; i++)
            want +=
              x.values[flatOf(x.shape, from(lead.x, ...(left ? [i, row] : [row, i])))]! *
              w.values[flatOf(w.shape, from(lead.w, ...(swapped ? [column, i] : [i, column])))]!
          expect(value).toBe(want)
        })
      }),
      { numRuns: runs(100) },
    )
  })

  it('read a transposed operand where it lies', () => {
    const net = braid.graph({ x: braid.tensor('f32', [2, 3, 4]), w: braid.tensor('f32', [5, 3]) }, flows => ({
      y: flows.x.pipe(
        braid.upload(),
        braid.transpose([0, 2, 1]),
        braid.matmul(flows.w.pipe(braid.upload(), braid.transpose([1, 0]))),
        braid.download(),
      ),
    }))
    const plan = braid.orThrow(braid.compile(net))
    const kernels = plan.nodes.flatMap(({ kernel }) => (kernel && kernel.kind !== 'copy' ? [kernel] : []))
    expect(kernels).toMatchObject([
      {
        kind: 'matmul',
        m: 4,
        n: 5,
        k: 3,
        batch: 2,
        transposeA: true,
        transposeB: true,
        b: { batchStride: 0 },
      },
    ])
    const read = braid.parsePlan(braid.toJSON(plan))
    expect(read).toMatchObject({ right: { nodes: plan.nodes } })
  })

  it('refuse leading dimensions that do not broadcast, and symbols where an operand would be repeated', async () => {
    const [x, w] = [counting('f32', [2, 3, 2, 2]), counting('f32', [2, 2, 2], 5)]
    expect(problemsOf([x, w], (a, b) => a.pipe(braid.matmul(b)))).toEqual(['ShapeMismatch'])
    const made = braid.graph(
      { x: braid.tensor('f32', ['n', 1, 2, 2]), w: braid.tensor('f32', [3, 2, 2]) },
      ({ x, w }) => ({ y: x.pipe(braid.upload(), braid.matmul(w.pipe(braid.upload())), braid.download()) }),
    )
    expect(braid.irOf(made).problems.map(({ _tag }) => _tag)).toEqual(['ShapeMismatch'])
  })
})

it('positions beyond i32 are refused, of a symbol once it is bound', () => {
  const long = 2 ** 31 + 5
  const given = (size: number | string) => (op: (x: never) => unknown) =>
    braid.graph({ x: braid.tensor('u8', [size]) }, ({ x }) => ({
      y: (x.pipe(braid.upload()) as unknown as { pipe: (...all: unknown[]) => never }).pipe(
        op,
        braid.download(),
      ),
    }))
  for (const op of [
    braid.argmax({ axis: 0 }),
    braid.iota(),
    (x: { pipe(...all: unknown[]): { values: unknown } }) => x.pipe(braid.topK({ k: 2 })).values,
  ]) {
    expect(braid.irOf(given(long)(op as never)).problems[0]?.wanted).toContain('positions are of i32')
    const bound = braid.compile(given('n')(op as never), { dims: { n: long } })
    expect(bound._tag === 'Left' && bound.left[0].wanted).toContain('positions are of i32')
  }
})

describe('argmax and argmin', () => {
  it('yield the first of the largest and smallest elements', async () => {
    const given = withAxis.chain(({ shape, axis }) =>
      fc.record({
        shape: fc.constant(shape),
        axis: fc.constant(axis),
        dtype: types,
        keepDims: fc.boolean(),
        values: fc.array(fc.integer({ min: 0, max: 3 }), {
          minLength: elements(shape),
          maxLength: elements(shape),
        }),
      }),
    )
    await fc.assert(
      fc.asyncProperty(given, async ({ shape, axis, dtype, keepDims, values }) => {
        for (const [op, pick] of [
          [braid.argmax, Math.max],
          [braid.argmin, Math.min],
        ] as const) {
          const got = await compute([typed(dtype, shape, ...values)], x => x.pipe(op({ axis, keepDims })))
          const kept = shape.map((own, d) => (d === axis ? 1 : own))
          expect([got.dtype, got.shape]).toEqual([
            'i32',
            keepDims ? kept : shape.filter((_, d) => d !== axis),
          ])
          const lines = got.values.map((_, flat) =>
            Array.from({ length: shape[axis]! }, (_, at) => {
              const index = indexOf(kept, flat)
              return values[flatOf(shape, index.with(axis, at))]!
            }),
          )
          expect(got.values).toEqual(lines.map(line => line.indexOf(pick(...line))))
        }
      }),
      { numRuns: runs(40) },
    )
    const odd = f32([2, 4], 1, Number.NaN, 5, Number.NaN, -0, 0, -0, 0)
    expect((await compute([odd], x => x.pipe(braid.argmax({ axis: 1 })))).values).toEqual([1, 0])
    expect((await compute([odd], x => x.pipe(braid.argmin({ axis: -1 })))).values).toEqual([1, 0])
  })

  it('refuse axes that are not there', () => {
    for (const options of [undefined, {}, { axis: 2 }, { axis: [0, 1] }, { axis: 0, keepDims: 1 }])
      expect(problemsOf([f32([2, 3])], x => x.pipe(braid.argmax(options as never)))).toEqual(['BadAttribute'])
    expect(problemsOf([f32([])], x => x.pipe(braid.argmin({ axis: 0 })))).toEqual(['BadAttribute'])
  })
})

describe('positions', () => {
  it('iota is the index along an axis', async () => {
    await fc.assert(
      fc.asyncProperty(withAxis, types, async ({ shape, axis }, dtype) => {
        const got = await compute([counting(dtype, shape)], x => x.pipe(braid.iota({ axis })))
        expect([got.dtype, got.shape]).toEqual(['i32', shape])
        expect(got.values).toEqual(got.values.map((_, flat) => indexOf(shape, flat)[axis]))
      }),
      { numRuns: runs(30) },
    )
    expect(problemsOf([f32([2])], x => x.pipe(braid.iota({ axis: 1 })))).toEqual(['BadAttribute'])
  })

  it('oneHot has a 1 at the class, and none for a class that is not there', async () => {
    const given = fc.tuple(shapes, size, types, fc.constantFrom<DType>('i32', 'u8'))
    await fc.assert(
      fc.asyncProperty(given, async ([shape, classes, dtype, from]) => {
        const x = counting(from, shape)
        const got = await compute([x], a => a.pipe(braid.oneHot({ classes, dtype })))
        expect([got.dtype, got.shape]).toEqual([dtype, [...shape, classes]])
        expect(got.values).toEqual(
          x.values.flatMap(own => Array.from({ length: classes }, (_, c) => (c === own ? 1 : 0))),
        )
      }),
      { numRuns: runs(30) },
    )
    for (const options of [undefined, { classes: 0 }, { classes: 1.5 }, { classes: 2, dtype: 'f64' }])
      expect(problemsOf([typed('i32', [2])], x => x.pipe(braid.oneHot(options as never)))).toEqual([
        'BadAttribute',
      ])
    const float = (x: braid.DeviceFlow) => x.pipe(braid.oneHot({ classes: 2 }) as AnyOp)
    expect(problemsOf([f32([2])], float)).toEqual(['DTypeMismatch'])
    expect(problemsOf([typed('i32', Array(8).fill(1))], float)).toEqual(['ShapeMismatch'])
  })

  it('expand repeats along new dimensions and those of size 1', async () => {
    const from = counting('bf16', [3, 1, 2])
    const got = await compute([from], x => x.pipe(braid.expand([2, 3, 4, 2])))
    expect(got.shape).toEqual([2, 3, 4, 2])
    got.values.forEach((value, flat) => {
      const [, i, , j] = indexOf([2, 3, 4, 2], flat)
      expect(value).toBe(from.values[i! * 2 + j!])
    })
    expect(problemsOf([from], x => x.pipe(braid.expand([3, 4, 3])))).toEqual(['ShapeMismatch'])
    expect(problemsOf([from], x => x.pipe(braid.expand([4, 2])))).toEqual(['ShapeMismatch'])
    expect(problemsOf([from], x => x.pipe(braid.expand(['n', 1, 2] as never)))).toEqual(['ShapeMismatch'])
    for (const shape of [undefined, [-1], [''], [1.5]])
      expect(problemsOf([f32([1])], x => x.pipe(braid.expand(shape as never)))).toEqual(['BadAttribute'])
  })
})

describe('append', () => {
  it('writes rows at a position, and none outside', async () => {
    const given = withAxis.chain(one =>
      fc.record({
        shape: fc.constant(one.shape),
        axis: fc.constant(one.axis),
        dtype: types,
        count: fc.integer({ min: 1, max: one.shape[one.axis]! }),
        at: fc.constantFrom(-(2 ** 31), -1, 0, 1, 2, 3, 4, 2 ** 31 - 1),
        place: fc.constantFrom<Shape>([], [1]),
      }),
    )
    await fc.assert(
      fc.asyncProperty(given, async ({ shape, axis, dtype, count, at, place }) => {
        const x = counting(dtype, shape)
        const rows = counting(
          dtype,
          shape.map((own, d) => (d === axis ? count : own)),
          3,
        )
        const got = await compute([x, rows, typed('i32', place, at)], (a, b, p) =>
          a.pipe(braid.append(b, { axis, at: p })),
        )
        expect([got.dtype, got.shape]).toEqual([dtype, shape])
        got.values.forEach((value, flat) => {
          const index = indexOf(shape, flat)
          const row = index[axis]! - at
          const from = [...index.slice(0, axis), row, ...index.slice(axis + 1)]
          expect(value).toBe(row >= 0 && row < count ? rows.values[flatOf(rows.shape, from)] : x.values[flat])
        })
      }),
      { numRuns: runs(100) },
    )
  })

  it('refuses what does not fit', () => {
    const [x, rows, at] = [f32([2, 3]), f32([2, 1]), typed('i32', [1])]
    const tags = (given: Given[], axis: unknown = 1) =>
      problemsOf(given, (a, b, p) => a.pipe(braid.append(b, { axis: axis as never, at: p })))
    expect(tags([x, rows, at])).toEqual([])
    expect(tags([x, rows, at], 2)).toEqual(['BadAttribute'])
    expect(tags([x, rows, typed('i32', [2])])).toEqual(['DTypeMismatch'])
    expect(tags([x, rows, f32([1])])).toEqual(['DTypeMismatch'])
    expect(tags([x, typed('i32', [2, 1]), at])).toEqual(['DTypeMismatch'])
    for (const shape of [[2], [1, 1], [2, 4]]) expect(tags([x, f32(shape), at])).toEqual(['ShapeMismatch'])
    expect(problemsOf([x, rows], (a, b) => a.pipe(braid.append(b, undefined as never)))).not.toEqual([])
  })
})

describe('scatterAdd', () => {
  it('adds the rows of each index, as the gradient of gather does', async () => {
    const given = fc.record({
      lead: fc.array(size, { maxLength: 2 }),
      places: fc.array(fc.nat(5), { maxLength: 2 }),
      row: fc.array(size, { maxLength: 2 }),
      dtype: types,
      count: fc.integer({ min: 0, max: 5 }),
      seed: fc.nat(20),
    })
    await fc.assert(
      fc.asyncProperty(given, async ({ lead, places, row, dtype, count, seed }) => {
        const axis = lead.length
        // An axis of the value.
        if (axis === lead.length + places.length + row.length) return
        const odd = [-1, 2 ** 31 - 1, -(2 ** 31), count]
        const indices = typed(
          'i32',
          places,
          ...Array.from({ length: elements(places) }, (_, i) =>
            (i + seed) % 3 === 0 ? odd[(i + seed) % 4]! : (i * seed) % 5,
          ),
        )
        const x = counting(dtype, [...lead, ...places, ...row])
        const got = await compute([x, indices], (a, i) => a.pipe(braid.scatterAdd(i, { axis, size: count })))
        expect([got.dtype, got.shape]).toEqual([dtype === 'u8' ? 'i32' : dtype, [...lead, count, ...row]])
        const wanted = Array(elements(got.shape as Shape)).fill(0)
        x.values.forEach((value, flat) => {
          const index = indexOf(x.shape, flat)
          const at = indices.values[flatOf(places, index.slice(axis, axis + places.length))]!
          const to = [...index.slice(0, axis), at, ...index.slice(axis + places.length)]
          if (at >= 0 && at < count) wanted[flatOf(got.shape as Shape, to)] += value
        })
        expect(got.values).toEqual(wanted)
      }),
      { numRuns: runs(80) },
    )
  })

  it('takes axes whose size is a symbol', () => {
    const made = braid.graph(
      { x: braid.tensor('f32', ['n', 3]), at: braid.tensor('i32', ['n']) },
      ({ x, at }) => ({
        y: x.pipe(
          braid.upload(),
          braid.scatterAdd(at.pipe(braid.upload()), { axis: 0, size: 4 }),
          braid.download(),
        ),
      }),
    )
    const plan = braid.orThrow(braid.compile(made, { dims: { n: 6 } }))
    const kernels = plan.nodes.map(({ kernel }) => kernel?.kind)
    expect(kernels).toContain('scatterAdd')
    expect(braid.parsePlan(braid.toJSON(plan))).toMatchObject({ right: { nodes: plan.nodes } })
  })

  it('refuses what does not fit', () => {
    const [x, i] = [f32([4, 3]), typed('i32', [4])]
    const tags = (given: Given[], options: unknown) =>
      problemsOf(given, (a, b) => a.pipe(braid.scatterAdd(b, options as never)))
    for (const options of [
      undefined,
      {},
      { axis: 0 },
      { size: 3 },
      { axis: 2, size: 3 },
      { axis: 0, size: 1.5 },
      { axis: 0, size: -1 },
      { axis: 0, size: 2 ** 31 },
      { axis: 0, size: 3, sizes: 4 },
    ])
      expect(tags([x, i], options)).toEqual(['BadAttribute'])
    const fits = { axis: 0, size: 3 }
    expect(tags([x, f32([4])], fits)).toEqual(['DTypeMismatch'])
    expect(tags([x, typed('i32', [3])], fits)).toEqual(['ShapeMismatch'])
    expect(tags([x, typed('i32', [4, 3, 1])], fits)).toEqual(['ShapeMismatch'])
    expect(problemsOf([x], a => a.pipe(braid.scatterAdd(3 as never, fits)))).toContain('NotAFlow')
    const symbols = braid.graph(
      { x: braid.tensor('f32', ['n', 3]), at: braid.tensor('i32', ['n', 3]) },
      ({ x, at }) => ({
        y: x.pipe(
          braid.upload(),
          braid.scatterAdd(at.pipe(braid.upload()), { axis: 0, size: 4 }),
          braid.download(),
        ),
      }),
    )
    expect(braid.irOf(symbols).problems.map(({ _tag }) => _tag)).toContain('ShapeMismatch')
  })
})

describe('gather and embedding', () => {
  it('take rows by index, and zeros for an index that is not there', async () => {
    const given = withAxis.chain(one =>
      fc.record({
        shape: fc.constant(one.shape),
        axis: fc.constant(one.axis),
        dtype: types,
        places: fc.array(size, { maxLength: 2 }),
        seed: fc.nat(20),
      }),
    )
    await fc.assert(
      fc.asyncProperty(given, async ({ shape, axis, dtype, places, seed }) => {
        const odd = [-1, 2 ** 31 - 1, -(2 ** 31), 4]
        const indices = typed(
          'i32',
          places,
          ...Array.from({ length: elements(places) }, (_, i) =>
            (i + seed) % 3 === 0 ? odd[(i + seed) % 4]! : (i * seed) % 5,
          ),
        )
        const x = counting(dtype, shape)
        const got = await compute([x, indices], (a, i) => a.pipe(braid.gather(i, { axis })))
        expect([got.dtype, got.shape]).toEqual([
          dtype,
          [...shape.slice(0, axis), ...places, ...shape.slice(axis + 1)],
        ])
        got.values.forEach((value, flat) => {
          const index = indexOf(got.shape as Shape, flat)
          const at = indices.values[flatOf(places, index.slice(axis, axis + places.length))]!
          const from = [...index.slice(0, axis), at, ...index.slice(axis + places.length)]
          expect(value).toBe(at >= 0 && at < shape[axis]! ? x.values[flatOf(shape, from)] : 0)
        })
        if (axis > 0) return
        const looked = await compute([x, indices], (table, i) => i.pipe(braid.embedding(table)))
        expect(looked).toEqual(got)
      }),
      { numRuns: runs(60) },
    )
  })

  it('refuse what does not fit', () => {
    const [x, i] = [f32([2, 3]), typed('i32', [4])]
    const tags = (given: Given[], options: unknown) =>
      problemsOf(given, (a, b) => a.pipe(braid.gather(b, options as never)))
    for (const options of [undefined, {}, { axis: 2 }, { axis: '0' }])
      expect(tags([x, i], options)).toEqual(['BadAttribute'])
    expect(tags([x, f32([4])], { axis: 0 })).toEqual(['DTypeMismatch'])
    expect(tags([x, typed('i32', Array(8).fill(1))], { axis: 0 })).toEqual(['ShapeMismatch'])
    expect(problemsOf([f32([]), i], (t, b) => b.pipe(braid.embedding(t)))).toEqual(['BadAttribute'])
    expect(problemsOf([i], b => b.pipe(braid.embedding(3 as never)))).toEqual(['NotAFlow'])
  })
})
