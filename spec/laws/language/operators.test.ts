// Every operator of the language against a formula that shares no code with it.
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import * as braid from '../../../dsl/index.js'
import { type BoundSpec, type DType, elements } from '../../../dsl/ir/tensor.js'
import type { Lowering } from '../../../dsl/language/operators/operator.js'
import { operators } from '../../../dsl/language/operators/registry.js'
import { numbers, writer } from '../../../dsl/language/values.js'
import { type AnyOp, arrayOf, compute, f32, type Given, problemsOf, typed } from '../../fixtures/compute.js'
import { runs } from '../../fixtures/runs.js'

const f = Math.fround
const some = [-2.5, -1, -0.25, 0, 0.5, 1, 3.75]
const above = [0.125, 0.5, 1, 2, 9.5]

const normal = (x: number): number => {
  // Φ(x) by Simpson's rule over the density: independent of how erf is computed.
  const steps = 4000
  const h = x / steps
  const density = (t: number) => Math.exp((-t * t) / 2) / Math.sqrt(2 * Math.PI)
  let area = density(0) + density(x)
  for (let i = 1; i < steps; i++) area += (i % 2 === 1 ? 4 : 2) * density(i * h)
  return 0.5 + (area * h) / 3
}

/** The quotient rounded down, exact. */
const floorOf = (a: bigint, b: bigint): bigint => a / b - (a % b !== 0n && a < 0n !== b < 0n ? 1n : 0n)

describe('elementwise operators of one value', () => {
  const cases: readonly (readonly [string, AnyOp, readonly number[], (x: number) => number])[] = [
    ['relu', braid.relu, some, x => Math.max(x, 0)],
    ['neg', braid.neg, some, x => -x],
    ['abs', braid.abs, some, x => (x < 0 ? -x : x)],
    ['exp', braid.exp, some, x => Math.E ** x],
    ['log', braid.log, above, x => Math.log10(x) / Math.log10(Math.E)],
    ['sqrt', braid.sqrt, above, x => x ** 0.5],
    ['rsqrt', braid.rsqrt, above, x => x ** -0.5],
    ['tanh', braid.tanh, some, x => 1 - 2 / (Math.exp(2 * x) + 1)],
    ['sigmoid', braid.sigmoid, some, x => Math.exp(x) / (Math.exp(x) + 1)],
    ['silu', braid.silu, some, x => (x * Math.exp(x)) / (Math.exp(x) + 1)],
    ['gelu', braid.gelu, some, x => x * normal(x)],
    [
      'gelu, by tanh',
      () => braid.gelu({ approximate: 'tanh' }),
      some,
      x => x / (1 + Math.exp(-2 * Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x))),
    ],
  ]
  it.each(cases)('%s', async (_, op, values, wanted) => {
    const result = await compute([f32([values.length], ...values)], x => x.pipe(op()))
    result.values.forEach((value, i) => {
      expect(Math.abs(value - wanted(values[i]!))).toBeLessThanOrEqual(2e-6 * Math.max(1, Math.abs(value)))
    })
  })

  it.each(['f16', 'bf16'] as const)('compute in f32 and round once to %s', async dtype => {
    const write = writer(dtype)
    const values = [0.1, 0.2, 0.3, -1.7]
    const stored = arrayOf(typed(dtype, [4], ...values))
    const exact = Array.from(numbers(stored, dtype))
    const { values: got } = await compute([typed(dtype, [4], ...values)], x => x.pipe(braid.exp()))
    const wanted = exact.map(x => write(f(Math.exp(x))))
    expect(got).toEqual(Array.from(numbers(Uint16Array.from(wanted), dtype)))
  })

  it('clamp keeps to its bounds, in every element type', async () => {
    const bounds = fc.tuple(fc.integer({ min: 0, max: 100 }), fc.integer({ min: 0, max: 100 }))
    const types = fc.constantFrom<DType>('f32', 'f16', 'bf16', 'i32', 'u8')
    const values = fc.array(fc.integer({ min: 0, max: 127 }), { minLength: 1, maxLength: 9 })
    const both = fc.asyncProperty(
      types,
      values,
      bounds,
      fc.nat(2),
      async (dtype, list, [min, max], which) => {
        const options = [{ min, max }, { min }, { max }][which]!
        const { values: got, dtype: type } = await compute([typed(dtype, [list.length], ...list)], x =>
          x.pipe(braid.clamp(options)),
        )
        expect(type).toBe(dtype)
        const low = which === 2 ? 0 : min
        const high = which === 1 ? 127 : max
        expect(got).toEqual(list.map(x => (x < low ? low : x)).map(x => (x > high ? high : x)))
      },
    )
    await fc.assert(both, { numRuns: runs(60) })
    const odd = f32([3], Number.NaN, -7.5, 3)
    expect((await compute([odd], x => x.pipe(braid.clamp({ min: -0.5, max: 0.25 })))).values).toEqual([
      Number.NaN,
      -0.5,
      0.25,
    ])
  })

  it('clamp refuses bounds that the element type cannot hold, and none at all', () => {
    const refused: readonly (readonly [DType, unknown])[] = [
      ...[undefined, null, 3, {}, { low: 1 }, { min: '1' }, { max: Number.NaN }, { max: 1e39 }].map(
        options => ['f32', options] as const,
      ),
      ['u8', { min: -1 }],
      ['u8', { max: 256 }],
      ['i32', { max: 2 ** 31 }],
      ['i32', { min: 0.5, max: 1 }],
    ]
    for (const [dtype, options] of refused)
      expect(problemsOf([typed(dtype, [3])], x => x.pipe(braid.clamp(options as never)))).toEqual([
        'BadAttribute',
      ])
  })

  it('a NaN wins against a number in relu, max and min', async () => {
    const x = f32([3], Number.NaN, -1, 2)
    expect((await compute([x], a => a.pipe(braid.relu()))).values).toEqual([Number.NaN, 0, 2])
    expect((await compute([x], a => a.pipe(braid.min(1)))).values).toEqual([Number.NaN, -1, 1])
    expect((await compute([x], a => a.pipe(braid.max({ axis: 0 })))).values).toEqual([Number.NaN])
  })
})

describe('elementwise operators of two values', () => {
  const cases: readonly (readonly [string, AnyOp, (a: number, b: number) => number])[] = [
    ['add', braid.add, (a, b) => a + b],
    ['sub', braid.sub, (a, b) => a - b],
    ['mul', braid.mul, (a, b) => a * b],
    ['div', braid.div, (a, b) => a / b],
    ['min', braid.min, (a, b) => Math.min(a, b)],
    ['max', braid.max, (a, b) => Math.max(a, b)],
    ['pow', braid.pow, (a, b) => Math.exp(b * Math.log(a))],
  ]
  it.each(cases)('%s, with numpy’s broadcasting and with a number', async (name, op, wanted) => {
    const shapes = fc.constantFrom(
      [
        [2, 3],
        [2, 3],
        [2, 3],
      ],
      [[2, 3], [3], [2, 3]],
      [[3], [2, 3], [2, 3]],
      [
        [2, 1],
        [1, 3],
        [2, 3],
      ],
      [
        [4, 1, 2],
        [3, 1],
        [4, 3, 2],
      ],
      [[], [2, 2], [2, 2]],
      [[1], [], [1]],
    )
    const value = fc.double({ min: 0.25, max: 4, noNaN: true }).map(f)
    await fc.assert(
      fc.asyncProperty(shapes, fc.array(value, { minLength: 24, maxLength: 24 }), async ([a, b, c], pool) => {
        const left = f32(a!, ...pool.slice(0, elements(a!)))
        const right = f32(b!, ...pool.slice(12, 12 + elements(b!)))
        const { shape, values } = await compute([left, right], (x, y) => x.pipe(op(y)))
        expect(shape).toEqual(c)
        // Each index of the result, taken apart by hand.
        const at = (own: readonly number[], index: readonly number[]) =>
          own.reduce(
            (flat, size, d) => flat * size + (size === 1 ? 0 : index[c!.length - own.length + d]!),
            0,
          )
        values.forEach((got, flat) => {
          const index = c!.map((size, d) => Math.floor(flat / elements(c!.slice(d + 1))) % size)
          const want = wanted(left.values[at(a!, index)]!, right.values[at(b!, index)]!)
          expect(Math.abs(got - want)).toBeLessThanOrEqual(Math.abs(want) * (name === 'pow' ? 1e-5 : 6e-8))
        })
        const number = await compute([left], x => x.pipe(op(pool[23]!)))
        number.values.forEach((got, i) => {
          const want = wanted(left.values[i]!, pool[23]!)
          expect(Math.abs(got - want)).toBeLessThanOrEqual(Math.abs(want) * (name === 'pow' ? 1e-5 : 6e-8))
        })
      }),
      { numRuns: runs(30) },
    )
  })

  it('floorDiv and mod are those of Python, and 0 of whole numbers divided by 0', async () => {
    const whole = fc.oneof(
      fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
      fc.integer({ min: -9, max: 9 }),
      fc.constantFrom(-(2 ** 31), 2 ** 31 - 1, -1, 0, 1),
    )
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(whole, whole), { minLength: 1, maxLength: 9 }), async pairs => {
        const operands = ([0, 1] as const).map(which =>
          typed('i32', [pairs.length], ...pairs.map(pair => pair[which])),
        )
        const quotients = (await compute(operands, (x, y) => x.pipe(braid.floorDiv(y)))).values
        const rests = (await compute(operands, (x, y) => x.pipe(braid.mod(y)))).values
        pairs.forEach(([a, b], i) => {
          const quotient = b === 0 ? 0n : BigInt.asIntN(32, floorOf(BigInt(a), BigInt(b)))
          expect(quotients[i]).toBe(Number(quotient))
          expect(rests[i]).toBe(b === 0 ? 0 : Number(BigInt(a) - floorOf(BigInt(a), BigInt(b)) * BigInt(b)))
        })
      }),
      { numRuns: runs(100) },
    )
    const [left, right] = [f32([6], 7, -7, 7, -7, 1, -6), f32([6], 2, 2, -2, -2, 0.1, 3)]
    expect((await compute([left, right], (x, y) => x.pipe(braid.floorDiv(y)))).values).toEqual([
      3, -4, -4, 3, 9, -2,
    ])
    const rests = (await compute([left, right], (x, y) => x.pipe(braid.mod(y)))).values
    expect(rests).toEqual([1, 1, -1, -1, f(1 - 9 * f(0.1)), -0])
    expect((await compute([left], x => x.pipe(braid.mod(0)))).values).toEqual(Array(6).fill(Number.NaN))
    expect((await compute([left], x => x.pipe(braid.floorDiv(0)))).values[1]).toBe(Number.NEGATIVE_INFINITY)
  })

  it('round to f32 after every step: 0.1 + 0.2 is what f32 makes of it', async () => {
    const { values } = await compute([f32([1], 0.1)], x =>
      x.pipe(braid.add(0.2), braid.mul(3), braid.sub(0.9)),
    )
    expect(values).toEqual([f(f(f(f(0.1) + f(0.2)) * 3) - f(0.9))])
  })

  it('whole numbers wrap as i32, saturate as u8', async () => {
    const i = typed('i32', [3], 2147483647, -2147483648, 65536)
    expect((await compute([i], x => x.pipe(braid.add(1)))).values).toEqual([-2147483648, -2147483647, 65537])
    expect((await compute([i, i], (x, y) => x.pipe(braid.mul(y)))).values).toEqual([1, 0, 0])
    const u = typed('u8', [3], 250, 5, 0)
    expect((await compute([u], x => x.pipe(braid.add(10)))).values).toEqual([255, 15, 10])
    expect((await compute([u], x => x.pipe(braid.sub(10)))).values).toEqual([240, 0, 0])
  })

  it('take infinite numbers of floats, which whole numbers have not', async () => {
    const x = f32([3], 1, -2, Number.POSITIVE_INFINITY)
    const of = async (operator: Parameters<typeof compute>[1]) => (await compute([x], operator)).values
    expect(await of(a => a.pipe(braid.add(-Infinity)))).toEqual([-Infinity, -Infinity, Number.NaN])
    expect(await of(a => a.pipe(braid.max(Infinity)))).toEqual([Infinity, Infinity, Infinity])
    expect(await of(a => a.pipe(braid.equal(Infinity)))).toEqual([0, 0, 1])
    expect(await of(a => a.pipe(braid.clamp({ min: 0, max: Infinity })))).toEqual([1, 0, Infinity])
    expect(await of(a => a.pipe(braid.map(p => p.min(-Infinity))))).toEqual(Array(3).fill(-Infinity))
    expect(problemsOf([typed('i32', [3])], a => a.pipe(braid.add(Infinity)))).toEqual(['BadAttribute'])
  })

  it('refuse invalid operands', () => {
    const x = f32([2, 3])
    expect(problemsOf([x, f32([2])], (a, b) => a.pipe(braid.add(b)))).toEqual(['ShapeMismatch'])
    expect(problemsOf([x, typed('f16', [3])], (a, b) => a.pipe(braid.add(b)))).toEqual(['DTypeMismatch'])
    expect(problemsOf([typed('i32', [3])], a => a.pipe(braid.add(0.5)))).toEqual(['BadAttribute'])
    expect(problemsOf([typed('i32', [3])], a => a.pipe(braid.div(2)))).toEqual(['DTypeMismatch'])
    expect(problemsOf([typed('u8', [3])], a => a.pipe(braid.exp()))).toEqual(['DTypeMismatch'])
    for (const number of [Number.NaN, 1e39, -1e39])
      expect(problemsOf([x], a => a.pipe(braid.mul(number)))).toEqual(['BadAttribute'])
    for (const nothing of [undefined, null, '1', {}, [], 1n, () => 1])
      expect(problemsOf([x], a => a.pipe(braid.mul(nothing as never)))).toEqual(['NotAFlow'])
    expect(problemsOf([x], a => a.pipe(braid.gelu({ approximate: 'erf' as never })))).toEqual([
      'BadAttribute',
    ])
  })
})

describe('map', () => {
  it('fuses an expression over several flows', async () => {
    const a = f32([2, 2], 1, -2, 3, -4)
    const b = f32([2], 10, 20)
    const result = await compute([a, b], (x, y) =>
      x.pipe(braid.map((p, q) => p.gt(0).select(p.mul(q).add(1), p.neg().sqrt().floor()), y)),
    )
    expect(result.values).toEqual([11, 1, 31, 2])
  })

  it('shares equal parts and keeps only what the result needs', () => {
    const net = braid.graph({ x: braid.tensor('f32', [2]) }, ({ x }) => ({
      y: x.pipe(
        braid.upload(),
        braid.map(a => {
          a.exp().tanh()
          const s = a.mul(a)
          return s.add(a.mul(a))
        }),
        braid.download(),
      ),
    }))
    expect(braid.irOf(net).nodes[2]!.attrs['code']).toEqual([
      ['operand', 0],
      ['mul', 0, 0],
      ['add', 1, 1],
    ])
  })

  it('every instruction has the meaning of its name', async () => {
    const value = -1.5
    const cases: readonly (readonly [(x: braid.Expression) => braid.Expression | number, number])[] = [
      [x => x.sub(1).min(-3).max(-2), -2],
      [x => x.div(2), -0.75],
      [x => x.abs().pow(2), 2.25],
      [x => x.lt(0), 1],
      [x => x.le(-1.5), 1],
      [x => x.eq(2), 0],
      [x => x.gt(-1.5), 0],
      [x => x.ge(-1.5), 1],
      [x => x.relu(), 0],
      [x => x.floor(), -2],
      [x => x.ceil(), -1],
      [x => x.round(), -2],
      [x => x.add(1).round(), -0],
      [x => x.sin(), f(Math.sin(-1.5))],
      [x => x.cos(), f(Math.cos(-1.5))],
      [x => x.neg().log(), f(Math.log(1.5))],
      [x => x.neg().rsqrt(), f(1 / Math.sqrt(1.5))],
      [x => x.neg().sqrt(), f(Math.sqrt(1.5))],
      [() => 4, 4],
    ]
    for (const [fn, wanted] of cases) {
      const { values } = await compute([f32([1], value)], x => x.pipe(braid.map(fn)))
      expect(values[0]! === wanted).toBe(true)
    }
    const erf = await compute([f32([4], -3, -0.5, 0.5, 3)], x => x.pipe(braid.map(a => a.erf())))
    erf.values.forEach((got, i) => {
      expect(got).toBeCloseTo(2 * normal([-3, -0.5, 0.5, 3][i]! * Math.SQRT2) - 1, 6)
    })
  })

  it('tells 0 from -0, and shares equal steps of long expressions too', async () => {
    const { values } = await compute([f32([1], 2)], x => x.pipe(braid.map(a => a.div(0).add(a.div(-0)))))
    expect(values[0]).toBeNaN()
    const terms = 40
    const net = braid.graph({ x: braid.tensor('f32', [1]) }, ({ x }) => ({
      y: x.pipe(
        braid.upload(),
        braid.map(a => {
          let sum = a
          for (let i = 0; i < 2 * terms; i++) sum = sum.add(a.mul((i % terms) + 2))
          return sum
        }),
        braid.download(),
      ),
    }))
    const { attrs } = braid.irOf(net).nodes.find(({ op }) => op === 'map')!
    const code = attrs['code'] as readonly (readonly [string, ...number[]])[]
    expect(code.filter(([op]) => op === 'mul')).toHaveLength(terms)
    expect(code.filter(([op]) => op === 'add')).toHaveLength(2 * terms)
  })

  it('refuses functions that give nothing, throw, or mix expressions of two maps', () => {
    const x = f32([2])
    let stolen: unknown
    const cases: readonly unknown[] = [
      undefined,
      3,
      () => undefined,
      () => Number.NaN,
      (a: braid.Expression) => a.add('1' as never),
      () => {
        throw new Error('no')
      },
    ]
    for (const fn of cases)
      expect(problemsOf([x], a => a.pipe(braid.map(fn as never)))).toEqual(['BadAttribute'])
    expect(
      problemsOf([x], a =>
        a.pipe(
          braid.map(p => {
            stolen = p
            return p
          }),
          braid.map(p => p.add(stolen as never)),
        ),
      ),
    ).toEqual(['BadAttribute'])
  })
})

describe('cast', () => {
  it('truncates toward zero and saturates; a NaN is 0; i32 to u8 saturates', async () => {
    const x = f32([7], 1.9, -1.9, 300, -300, 3e10, -3e10, Number.NaN)
    expect((await compute([x], a => a.pipe(braid.cast('i32')))).values).toEqual([
      1, -1, 300, -300, 2147483647, -2147483648, 0,
    ])
    expect((await compute([x], a => a.pipe(braid.cast('u8')))).values).toEqual([1, 0, 255, 0, 255, 0, 0])
    const i = typed('i32', [3], -1, 256, 7)
    expect((await compute([i], a => a.pipe(braid.cast('u8')))).values).toEqual([0, 255, 7])
    expect((await compute([i], a => a.pipe(braid.cast('bf16')))).values).toEqual([-1, 256, 7])
    expect((await compute([typed('i32', [1], 16777217)], a => a.pipe(braid.cast('f32')))).values).toEqual([
      16777216,
    ])
    expect((await compute([f32([2], 0.1, 1e6)], a => a.pipe(braid.cast('f16')))).values).toEqual([
      0.0999755859375,
      Number.POSITIVE_INFINITY,
    ])
  })

  it('to the type it has is the flow itself; to none is refused', () => {
    const same = (a: { pipe: (op: unknown) => unknown }) => {
      expect(a.pipe(braid.cast('f32'))).toBe(a)
      return a
    }
    expect(problemsOf([f32([1])], same)).toEqual([])
    expect(problemsOf([f32([1])], a => a.pipe(braid.cast('f64' as never)))).toEqual(['BadAttribute'])
    expect(problemsOf([f32([1])], a => a.pipe(braid.cast(undefined as never)))).toEqual(['BadAttribute'])
  })
})

describe('matmul', () => {
  const cases = [
    { x: [2, 3], w: [3, 4], y: [2, 4], transpose: false },
    { x: [2, 3], w: [4, 3], y: [2, 4], transpose: true },
    { x: [5, 2, 3], w: [3, 4], y: [5, 2, 4], transpose: false },
    { x: [5, 2, 3], w: [5, 3, 4], y: [5, 2, 4], transpose: false },
    { x: [5, 2, 3], w: [5, 4, 3], y: [5, 2, 4], transpose: true },
    { x: [2, 3], w: [5, 3, 4], y: [5, 2, 4], transpose: false },
    { x: [2, 2, 1, 3], w: [2, 2, 3, 2], y: [2, 2, 1, 2], transpose: false },
  ]
  it.each(cases)('$x · $w, transposed: $transpose', async ({ x, w, y, transpose }) => {
    const a = f32(x, ...Array.from({ length: elements(x) }, (_, i) => ((i * 7) % 11) - 5))
    const b = f32(w, ...Array.from({ length: elements(w) }, (_, i) => ((i * 5) % 13) - 6))
    const { shape, values } = await compute([a, b], (p, q) => p.pipe(braid.matmul(q, { transpose })))
    expect(shape).toEqual(y)
    const [m, n] = y.slice(-2) as [number, number]
    const k = x.at(-1)!
    values.forEach((got, flat) => {
      const [c, r, batch] = [flat % n, Math.floor(flat / n) % m, Math.floor(flat / n / m)]
      const left = x.length > 2 ? batch : 0
      const right = w.length > 2 ? batch : 0
      let want = 0
      for (let i = 0; i < k; i++)
        want +=
          a.values[(left * m + r) * k + i]! * b.values[right * k * n + (transpose ? c * k + i : i * n + c)]!
      expect(got).toBe(want)
    })
  })

  it.each(['f16', 'bf16'] as const)('accumulates %s in more than its own precision', async dtype => {
    const k = 512
    const { values } = await compute(
      [typed(dtype, [1, k], ...Array(k).fill(1)), typed(dtype, [k, 1], ...Array(k).fill(1))],
      (x, w) => x.pipe(braid.matmul(w)),
    )
    expect(values).toEqual([512])
  })

  it('refuses shapes and types that do not fit', () => {
    const x = f32([2, 3])
    const fits = (w: Given, options?: unknown) =>
      problemsOf([x, w], (p, q) => p.pipe(braid.matmul(q, options as never)))
    expect(fits(f32([4, 5]))).toEqual(['ShapeMismatch'])
    expect(fits(f32([3, 5]), { transpose: true })).toEqual(['ShapeMismatch'])
    expect(fits(f32([3]))).toEqual(['ShapeMismatch'])
    expect(fits(typed('f16', [3, 5]))).toEqual(['DTypeMismatch'])
    expect(fits(f32([3, 5]), { transpose: 1 })).toEqual(['BadAttribute'])
    expect(problemsOf([typed('i32', [2, 2])], p => p.pipe(braid.matmul(p)))).toEqual(['DTypeMismatch'])
    expect(problemsOf([f32([2, 2, 2]), f32([3, 2, 2])], (p, q) => p.pipe(braid.matmul(q)))).toEqual([
      'ShapeMismatch',
    ])
    expect(problemsOf([x], p => p.pipe(braid.matmul(undefined as never)))).toContain('NotAFlow')
  })

  it('offers a workspace from 2^33 operations on', () => {
    const lowered = (m: number) => {
      const specs: BoundSpec[] = [
        { dtype: 'bf16', shape: [m, 1024] },
        { dtype: 'bf16', shape: [1024, 1024] },
      ]
      return operators['matmul']!.lower(specs, { dtype: 'bf16', shape: [m, 1024] }, { transpose: false })
    }
    expect(lowered(4095)).toMatchObject({
      as: 'run',
      workspace: 0,
      kernel: { m: 4095, n: 1024, k: 1024, workspace: 0 },
    })
    expect(lowered(4096)).toMatchObject({
      as: 'run',
      workspace: 2 ** 25,
      kernel: { workspace: 2 ** 25 },
      flops: 2 ** 33,
    })
  })
})

describe('scratch for a library', () => {
  const workspaces = (name: string, shapes: readonly (readonly number[])[], dtype: DType, attrs: object) => {
    const specs = shapes.map((shape): BoundSpec => ({ dtype, shape }))
    const lowered = operators[name]!.lower(specs.slice(0, -1), specs.at(-1)!, attrs as never)
    if (lowered.as !== 'run') throw new Error(`lowered as ${lowered.as}`)
    return [lowered.workspace, (lowered.kernel as { readonly workspace?: number }).workspace]
  }
  const heads = [4, 64, 32]
  const attended = (dtype: DType, more: object = {}, shapes = [heads, heads, heads, heads]) =>
    workspaces('attention', shapes, dtype, { causal: false, scale: 0.25, ...more })

  it('is offered by attention that the library computes as it is meant', () => {
    expect(attended('bf16')).toEqual([256, 256])
    expect(attended('f16', { causal: true })).toEqual([256, 256])
    expect(attended('f32')).toEqual([0, undefined])
    for (const scale of [0, -0.25]) expect(attended('bf16', { scale })).toEqual([0, undefined])
    const keys = [4, 63, 32]
    expect(attended('bf16', {}, [heads, keys, keys, heads])).toEqual([256, 256])
    // The first query would see no key.
    expect(attended('bf16', { causal: true }, [heads, keys, keys, heads])).toEqual([0, undefined])
    for (const size of [36, 264]) {
      const rows = [4, 64, size]
      expect(attended('bf16', {}, [rows, rows, rows, rows])).toEqual([0, undefined])
    }
    const few = [4, 16, 32]
    expect(attended('bf16', {}, [few, heads, heads, few])).toEqual([0, undefined])
  })

  it('is offered by convolutions from 2^30 operations on, for copies of the operands but of f32', () => {
    const attrs = { stride: [1], padding: 'same', dilation: [1], groups: 1 }
    const of = (dtype: DType, batch: number, size: number) =>
      workspaces(
        'conv',
        [
          [batch, 64, size],
          [64, 64, 4],
          [batch, 64, size],
        ],
        dtype,
        attrs,
      )
    expect(of('bf16', 1, 2 ** 15 - 1)).toEqual([0, undefined])
    const bytes = 2 * (2 * 64 * 2 ** 15 + 64 * 64 * 4) + 4096
    expect(of('bf16', 1, 2 ** 15)).toEqual([bytes, bytes])
    expect(of('f32', 1, 2 ** 15)).toEqual([4096, 4096])
    expect(of('f16', 8, 2 ** 15)).toEqual([2 ** 25, 2 ** 25])
    // f32 alone copies operands whose channels are last.
    const last = (dtype: DType) =>
      workspaces(
        'conv',
        [
          [1, 2 ** 15, 64],
          [64, 4, 64],
          [1, 2 ** 15, 64],
        ],
        dtype,
        { ...attrs, channels: 'last' },
      )
    expect(last('bf16')).toEqual([4096, 4096])
    expect(last('f32')).toEqual([2 * bytes - 4096, 2 * bytes - 4096])
  })
})

describe('reductions', () => {
  const x = f32([2, 3, 2], 1, -2, 3, 4, 5, -6, 7, 8, -9, 10, 11, 12)
  const along = (axis: number, join: (all: number[]) => number): number[] => {
    const sizes = [2, 3, 2]
    const groups = new Map<string, number[]>()
    x.values.forEach((value, flat) => {
      const index = [Math.floor(flat / 6), Math.floor(flat / 2) % 3, flat % 2]
      const key = index.filter((_, d) => d !== axis).join()
      groups.set(key, [...(groups.get(key) ?? []), value])
    })
    expect(groups.size).toBe(12 / sizes[axis]!)
    return [...groups.values()].map(join)
  }
  const total = (all: number[]) => all.reduce((a, b) => a + b)
  const cases: readonly (readonly [
    string,
    (axis: number, keepDims?: boolean) => AnyOp,
    (all: number[]) => number,
  ])[] = [
    ['sum', (axis, keepDims) => braid.sum(axis, { keepDims: keepDims ?? false }) as AnyOp, total],
    [
      'mean',
      (axis, keepDims) => braid.mean({ axis, keepDims: keepDims ?? false }) as AnyOp,
      all => f(total(all) / all.length),
    ],
    [
      'max',
      (axis, keepDims) => braid.max({ axis, keepDims: keepDims ?? false }) as AnyOp,
      all => Math.max(...all),
    ],
    [
      'min',
      (axis, keepDims) => braid.min({ axis, keepDims: keepDims ?? false }) as AnyOp,
      all => Math.min(...all),
    ],
  ]
  it.each(cases)(
    '%s along every axis, from either end, with and without the axis kept',
    async (_, op, join) => {
      for (const axis of [0, 1, 2]) {
        const plain = await compute([x], a => a.pipe(op(axis)))
        expect(plain.values).toEqual(along(axis, join))
        expect(plain.shape).toEqual([2, 3, 2].filter((_, d) => d !== axis))
        const kept = await compute([x], a => a.pipe(op(axis - 3, true)))
        expect(kept.values).toEqual(plain.values)
        expect(kept.shape).toEqual([2, 3, 2].map((size, d) => (d === axis ? 1 : size)))
      }
    },
  )

  const whole: Readonly<Record<string, AnyOp>> = {
    sum: braid.sum,
    mean: braid.mean,
    max: braid.max,
    min: braid.min,
  }
  it.each(cases)('%s of all elements where no axis is given', async (name, _, join) => {
    const op = whole[name]!
    const all = [join([...x.values])]
    expect(await compute([x], a => a.pipe(op()))).toEqual({ shape: [], dtype: 'f32', values: all })
    const kept = await compute([x], a => a.pipe(op({ keepDims: true })))
    expect(kept).toEqual({ shape: [1, 1, 1], dtype: 'f32', values: all })
    const again = await compute([x], a => a.pipe(op(), op()))
    expect(again).toEqual({ shape: [], dtype: 'f32', values: all })
    expect(problemsOf([x], a => a.pipe(braid.argmax({} as never)))).toEqual(['BadAttribute'])
    expect(problemsOf([x], a => a.pipe(braid.max(undefined as never)))).toEqual(['NotAFlow'])
  })

  it('sum u8 to i32, wrap i32, and take the mean of floats only', async () => {
    const bytes = await compute([typed('u8', [3], 200, 200, 200)], a => a.pipe(braid.sum(0)))
    expect(bytes).toEqual({ shape: [], dtype: 'i32', values: [600] })
    const wrapped = await compute([typed('i32', [2], 2147483647, 1)], a => a.pipe(braid.sum(0)))
    expect(wrapped.values).toEqual([-2147483648])
    expect(problemsOf([typed('u8', [3])], a => a.pipe(braid.mean(0)))).toEqual(['DTypeMismatch'])
  })

  it('refuse axes that are not there', () => {
    for (const axis of [3, -4, 0.5, Number.NaN, '1', null])
      expect(problemsOf([x], a => a.pipe(braid.sum(axis as never)))).toEqual(['BadAttribute'])
    expect(problemsOf([x], a => a.pipe(braid.max({ axis: null } as never)))).toEqual(['BadAttribute'])
    expect(problemsOf([x], a => a.pipe(braid.sum(0, { keepDims: 1 as never })))).toEqual(['BadAttribute'])
    expect(problemsOf([f32([])], a => a.pipe(braid.sum(0)))).toEqual(['BadAttribute'])
  })
})

describe('views', () => {
  const x = f32([4, 2, 3], ...Array.from({ length: 24 }, (_, i) => i))
  const lowering = (
    name: string,
    shape: readonly number[],
    output: readonly number[],
    attrs: object,
  ): Lowering =>
    operators[name]!.lower([{ dtype: 'f32', shape }], { dtype: 'f32', shape: output }, attrs as never)

  it('slice takes a range of an axis', async () => {
    for (const axis of [0, 1, 2])
      for (let from = 0; from < x.shape[axis]!; from++)
        for (let to = from + 1; to <= x.shape[axis]!; to++) {
          const { values, shape } = await compute([x], a => a.pipe(braid.slice(axis, from, to)))
          expect(shape).toEqual(x.shape.map((size, d) => (d === axis ? to - from : size)))
          const index = (flat: number) => [Math.floor(flat / 6), Math.floor(flat / 3) % 2, flat % 3][axis]!
          expect(values).toEqual(x.values.filter(flat => index(flat) >= from && index(flat) < to))
        }
    const rest = await compute([x], a => a.pipe(braid.slice(-1, 1)))
    expect(rest.values).toEqual(x.values.filter(flat => flat % 3 > 0))
  })

  it('slice is a view only where it is contiguous and starts on 16 bytes', () => {
    const cut = (shape: number[], output: number[], axis: number, from: number) =>
      lowering('slice', shape, output, { axis, from, to: from + output[axis]! })
    expect(cut([4, 4], [1, 4], 0, 3)).toEqual({ as: 'view', offsetBytes: 48 })
    expect(cut([1, 8], [1, 4], 1, 4)).toEqual({ as: 'view', offsetBytes: 16 })
    expect(cut([1, 8], [1, 4], 1, 2)).toMatchObject({
      as: 'run',
      kernel: { kind: 'map', operands: [{ offset: 2 }] },
    })
    expect(cut([4, 4], [4, 2], 1, 0)).toMatchObject({
      as: 'run',
      kernel: { shape: [4, 2], operands: [{ offset: 0, strides: [4, 1] }] },
    })
  })

  it('reshape keeps the elements; symbols stay symbols', async () => {
    const { values, shape } = await compute([x], a => a.pipe(braid.reshape([3, -1])))
    expect([shape, values]).toEqual([[3, 8], x.values])
    expect(lowering('reshape', [4, 6], [24], { shape: [24] })).toEqual({ as: 'view', offsetBytes: 0 })
    const net = braid.graph({ x: braid.tensor('f32', ['batch', 28, 28]) }, flows => ({
      y: flows.x.pipe(braid.upload(), braid.reshape(['batch', -1]), braid.download()),
    }))
    expect(braid.irOf(net).nodes.at(-1)!.spec.shape).toEqual(['batch', 784])
  })

  it('refuse ranges and shapes that do not fit', () => {
    const slices: readonly (readonly unknown[])[] = [
      [0, 2, 1],
      [0, 3, 5],
      [0, -1, 2],
      [3, 0, 1],
      [0, 0.5, 2],
      [0, Number.NaN, 2],
      [undefined, 0, 1],
      [0, undefined, 1],
    ]
    for (const [axis, from, to] of slices)
      expect(problemsOf([x], a => a.pipe(braid.slice(axis as 0, from as 0, to as 0)))).toEqual([
        'BadAttribute',
      ])
    expect(problemsOf([x], a => a.pipe(braid.reshape([5, 5])))).toEqual(['ShapeMismatch'])
    expect(problemsOf([x], a => a.pipe(braid.reshape([-1, 5])))).toEqual(['ShapeMismatch'])
    expect(problemsOf([x], a => a.pipe(braid.reshape([-1, -1])))).toEqual(['BadAttribute'])
    expect(problemsOf([x], a => a.pipe(braid.reshape(['n', 24])))).toEqual(['ShapeMismatch'])
    for (const shape of [undefined, 24, [Number.NaN], [1.5, 16], Array(9).fill(1)])
      expect(problemsOf([x], a => a.pipe(braid.reshape(shape as never)))).toEqual(['BadAttribute'])
  })
})

describe('every operator', () => {
  it('is registered under the name that its nodes carry', () => {
    for (const [name, operator] of Object.entries(operators)) expect(operator.name).toBe(name)
    expect(operators['constructor']).toBeUndefined()
  })

  it('lowers to data: what JSON makes of a kernel is the kernel', () => {
    const spec: BoundSpec = { dtype: 'f32', shape: [4, 4] }
    const heads: BoundSpec = { dtype: 'f32', shape: [2, 4, 4] }
    const images: BoundSpec = { dtype: 'f32', shape: [1, 1, 4] }
    const code = [
      ['operand', 0],
      ['neg', 0],
    ]
    const pairs = [[0, 1]]
    for (const operator of Object.values(operators)) {
      const attrs = {
        code,
        axis: 0,
        from: 1,
        to: 3,
        shape: [16],
        axes: [1, 0],
        to_: 'f16',
        keepDims: false,
        transpose: false,
        pairs,
        scale: 0.5,
        before: 1,
        after: 0,
        value: -Infinity,
        k: 2,
        largest: true,
        base: 10,
        stride: [1],
        kernel: [1],
        how: 'max',
        padding: 'same',
        dilation: [1],
        groups: 1,
      }
      // A plan's JSON names the infinite numbers, which JSON itself has not.
      const named = (_: string, value: unknown) => (value === -Infinity ? '-Infinity' : value)
      const number = (_: string, value: unknown) => (value === '-Infinity' ? -Infinity : value)
      for (const size of [1, 4]) {
        const given: Readonly<Record<string, readonly BoundSpec[]>> = {
          attention: [heads, heads, heads],
          attentionGradient: [heads, heads, heads],
          conv: [images, images],
          pool: [images],
        }
        const inputs = given[operator.name] ?? [spec, spec]
        const lowered = operator.lower(inputs, inputs[0]!, {
          ...attrs,
          communicator: braid.communicator('world', size),
        })
        expect(JSON.parse(JSON.stringify(lowered, named), number)).toEqual(lowered)
      }
    }
  })
})
