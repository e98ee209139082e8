// Every instruction of a map, every cast and the picking reductions, at the edges of their types and on
// random bits: a device yields what `interpret` yields, bit for bit where the tolerance is 0, else within it.
// Any two NaNs are equal, whatever their bits.
import fc from 'fast-check'
import { lastValueFrom } from 'rxjs'
import { describe, expect, it } from 'vitest'
import {
  cast,
  download,
  graph,
  interpret,
  map,
  matmul,
  max,
  min,
  relu,
  sum,
  tensor,
  upload,
} from '../../dsl/index.js'
import { mapBinary, mapUnary } from '../../dsl/ir/kernel-spec.js'
import { type DType, dtypes, isFloat } from '../../dsl/ir/tensor.js'
import { mapTolerance } from '../../dsl/language/operators/elementwise.js'
import { type HostArray, hostArray, numbers, roundoff, writer } from '../../dsl/language/values.js'
import { pulled } from '../../runtime/index.js'
import { opened, present } from './devices.js'
import type { Values } from './meant.js'
import { expectMeaning, ran } from './yields.js'

// biome-ignore lint/suspicious/noExplicitAny: the graphs here are built in loops, which no type follows
type Anything = any

const unary = mapUnary.filter(op => !dtypes.some(type => type === op))
const ofWholes: ReadonlySet<string> = new Set([
  'neg',
  'abs',
  'add',
  'sub',
  'mul',
  'min',
  'max',
  'floorDiv',
  'mod',
  'lt',
  'le',
  'eq',
])

const magnitudes = [
  0,
  2 ** -149,
  3 * 2 ** -149,
  2 ** -133,
  2 ** -127,
  2 ** -126,
  2 ** -25,
  2 ** -24,
  3 * 2 ** -25,
  2 ** -15,
  2 ** -14,
  0.1,
  0.3,
  0.5,
  1 - 2 ** -24,
  1,
  1 + 2 ** -23,
  1.5,
  2,
  2.5,
  3,
  10,
  88.5,
  104,
  254.5,
  255,
  255.5,
  256,
  65504,
  65519.996,
  65520,
  2 ** 23 + 0.5,
  2 ** 24 + 2,
  2147483520,
  2 ** 31,
  2 ** 32,
  3.3895313892515355e38,
  3.4028234663852886e38,
  Number.POSITIVE_INFINITY,
]
const edges: Readonly<Record<DType, readonly number[]>> = {
  u8: [0, 1, 2, 127, 128, 254, 255],
  i32: [0, 1, 2, 255, 256, 46341, 65536, 2 ** 24 + 1, 2 ** 31 - 1].flatMap(x => [x, -x]).concat(-(2 ** 31)),
  f16: [],
  bf16: [],
  f32: [],
}
const floatEdges = [...magnitudes.flatMap(x => [x, -x]), Number.NaN]

/** All pairs of edges, then random bits. Any bits are a value of their type. */
const operands = (dtype: DType, random: number): readonly [HostArray, HostArray] => {
  const list = isFloat(dtype) ? floatEdges : edges[dtype]
  const pairs = list.flatMap(a => list.map(b => [a, b] as const))
  const write = writer(dtype)
  const two = [0, 1].map(which => {
    const values = hostArray(dtype, pairs.length + random)
    pairs.forEach((pair, i) => {
      values[i] = write(pair[which]!)
    })
    const bytes = new Uint8Array(values.buffer, values.BYTES_PER_ELEMENT * pairs.length)
    const seeded = fc.sample(fc.nat(255), { numRuns: bytes.length, seed: 7 + which })
    bytes.set(seeded)
    return values
  })
  return [two[0]!, two[1]!]
}

// The rounding error of a value that is too small to be normal, and the largest finite value.
const smallest: Readonly<Record<DType, number>> = {
  u8: 0,
  i32: 0,
  f16: 2 ** -24,
  bf16: 2 ** -126,
  f32: 2 ** -126,
}
const largest: Readonly<Record<DType, number>> = {
  u8: 255,
  i32: 2 ** 31,
  f16: 65504,
  bf16: 3.3895313892515355e38,
  f32: 3.4028234663852886e38,
}

const near = (a: number, b: number, dtype: DType, tolerance: number): boolean => {
  if (Object.is(a, b) || (Number.isNaN(a) && Number.isNaN(b))) return true
  if (tolerance === 0 || Number.isNaN(a) || Number.isNaN(b)) return false
  const [x, y] = [a, b].map(value => Math.max(-largest[dtype], Math.min(largest[dtype], value))) as [
    number,
    number,
  ]
  return Math.abs(x - y) <= tolerance * Math.abs(y) + smallest[dtype]
}

interface Wanted {
  readonly dtype: DType
  readonly tolerance: number
}

/**
 * Runs one tick on the device and by `interpret`, and reports the first element of each output that is
 * outside the tolerance.
 */
const differences = async (
  device: string,
  net: Anything,
  feeds: Values,
  outputs: Readonly<Record<string, Wanted>>,
): Promise<readonly string[]> => {
  const rows = Object.fromEntries(Object.entries(feeds).map(([name, value]) => [name, [value]]))
  const meant = (await lastValueFrom(interpret(net)(rows as Anything))) as Values
  const [yielded] = await ran(net as Anything, device, rows)
  const found: string[] = []
  for (const [name, { dtype, tolerance }] of Object.entries(outputs)) {
    const [got, want] = [numbers(yielded![name]!, dtype), numbers(meant[name]!, dtype)]
    const wrong = got.findIndex((value, i) => !near(value, want[i]!, dtype, tolerance))
    if (got.length !== want.length) found.push(`${name}: ${got.length} elements, not ${want.length}`)
    else if (wrong >= 0) found.push(`${name}[${wrong}]: ${got[wrong]}, not ${want[wrong]}`)
  }
  return found
}

describe.each(present)('arithmetic on %s', device => {
  it.each(dtypes)('1. every instruction, on %s', async dtype => {
    const [x, y] = operands(dtype, 4000)
    const type = tensor(dtype, [x.length])
    const known = (op: string): boolean => isFloat(dtype) || ofWholes.has(op)
    const ones = unary.filter(known)
    const twos = mapBinary.filter(known)
    const net = graph(
      { x: type, y: type } as Anything,
      (({ x, y }: Anything) => {
        const [a, b] = [x.pipe(upload()), y.pipe(upload())]
        return Object.fromEntries([
          ...ones.map(op => [
            op,
            a.pipe(
              map((v: Anything) => v[op]()),
              download(),
            ),
          ]),
          ...twos.map(op => [
            op,
            a.pipe(map(((v: Anything, w: Anything) => v[op](w)) as Anything, b), download()),
          ]),
          ['select', a.pipe(map(((v: Anything, w: Anything) => v.select(w, v)) as Anything, b), download())],
          ['relu', a.pipe(relu(), download())],
        ])
      }) as Anything,
    )
    const exact = { dtype, tolerance: 0 }
    const outputs: Record<string, Wanted> = { select: exact, relu: exact }
    for (const op of ones)
      outputs[op] = {
        dtype,
        tolerance: mapTolerance(
          [
            ['operand', 0],
            [op, 0],
          ],
          dtype,
        ),
      }
    for (const op of twos)
      outputs[op] = {
        dtype,
        tolerance: mapTolerance(
          [
            ['operand', 0],
            ['operand', 1],
            [op, 0, 1],
          ],
          dtype,
        ),
      }
    expect(await differences(device, net, { x, y }, outputs)).toEqual([])
  })

  it.each(dtypes)('2. every cast from %s', async from => {
    const [x] = operands(from, 4000)
    const others = dtypes.filter(to => to !== from)
    const net = graph(
      { x: tensor(from, [x.length]) } as Anything,
      (({ x }: Anything) => {
        const a = x.pipe(upload())
        return Object.fromEntries(others.map(to => [to, a.pipe(cast(to), download())]))
      }) as Anything,
    )
    const outputs = Object.fromEntries(others.map(to => [to, { dtype: to, tolerance: 0 }]))
    expect(await differences(device, net, { x }, outputs)).toEqual([])
  })

  it.each(dtypes)(
    '3. the largest and the least along an axis of %s, and whole sums, which wrap',
    async dtype => {
      const [rows, columns] = [61, 67]
      const [all] = operands(dtype, rows * columns)
      const x = all.slice(all.length - rows * columns)
      const list = isFloat(dtype) ? floatEdges : edges[dtype]
      const write = writer(dtype)
      // Edges here and there: most rows and columns keep a maximum that is a number.
      list.forEach((value, i) => {
        x[(i * 97) % x.length] = write(value)
      })
      for (let row = 0; row < 40; row++)
        x.subarray(row * columns, (row + 1) * columns).forEach((_, i, line) => {
          if (Number.isNaN(numbers(line.slice(i, i + 1), dtype)[0])) line[i] = write(row === 0 ? -0 : 1)
        })
      x.subarray(0, columns).fill(write(-0), 0, columns)
      x[columns >> 1] = write(0)
      const net = graph(
        { x: tensor(dtype, [rows, columns]) } as Anything,
        (({ x }: Anything) => {
          const a = x.pipe(upload())
          const wholes = isFloat(dtype)
            ? []
            : [
                ['sum0', a.pipe(sum(0), download())],
                ['sum1', a.pipe(sum(1), download())],
              ]
          return Object.fromEntries([
            ...[0, 1].flatMap(axis => [
              [`max${axis}`, a.pipe(max({ axis }), download())],
              [`min${axis}`, a.pipe(min({ axis }), download())],
            ]),
            ...wholes,
          ])
        }) as Anything,
      )
      const same = { dtype, tolerance: 0 }
      const outputs: Record<string, Wanted> = { max0: same, max1: same, min0: same, min1: same }
      if (!isFloat(dtype)) outputs['sum0'] = outputs['sum1'] = { dtype: 'i32', tolerance: 0 }
      expect(await differences(device, net, { x }, outputs)).toEqual([])
    },
  )

  it('4. a NaN wins in max, min and relu, as in PyTorch, and rounding keeps the sign of zero', async () => {
    const type = tensor('f32', [4])
    const net = graph({ x: type, y: type }, ({ x, y }) => {
      const [a, b] = [x.pipe(upload()), y.pipe(upload())]
      return {
        most: a.pipe(max(b), download()),
        least: a.pipe(min(b), download()),
        relu: a.pipe(relu(), download()),
        round: a.pipe(
          map(v => v.round()),
          download(),
        ),
      }
    })
    const x = Float32Array.of(Number.NaN, 1, -0, -0.3)
    const y = Float32Array.of(1, Number.NaN, 0, -0.3)
    await using session = await opened(net, device)
    await session.run({ x: pulled([x]), y: pulled([y]) }).forEach(lease => {
      using held = lease
      expect([...held.most]).toEqual([Number.NaN, Number.NaN, 0, Math.fround(-0.3)])
      expect([...held.least]).toEqual([Number.NaN, Number.NaN, -0, Math.fround(-0.3)])
      expect([...held.relu]).toEqual([Number.NaN, 1, 0, 0])
      expect([...held.round]).toEqual([Number.NaN, 1, -0, -0])
    })
  })
})

describe.each(present)('shapes on %s', device => {
  it('leading dimensions of products broadcast, and all elements are reduced, bit for bit', async () => {
    for (const [ofX, ofW] of [
      [[2, 1], [3]],
      [[2, 2], [2]],
      [
        [2, 1],
        [1, 3],
      ],
      [[], [3, 1]],
      [[3, 2, 1], [2]],
    ] as const)
      for (const dtype of ['f32', 'bf16'] as const) {
        const net = graph(
          { x: tensor(dtype, [...ofX, 5, 8]), w: tensor(dtype, [...ofW, 8, 6]) } as Anything,
          ({ x, w }: Anything) => {
            const y = x.pipe(upload(), matmul(w.pipe(upload())))
            return { y: y.pipe(download()), all: y.pipe(sum(), download()), most: y.pipe(max(), download()) }
          },
        )
        const write = writer(dtype)
        const wholes = (sizes: readonly number[], times: number): HostArray => {
          const values = hostArray(
            dtype,
            sizes.reduce((product, size) => product * size, 1),
          )
          for (let i = 0; i < values.length; i++) values[i] = write(((i * times) % 5) - 2)
          return values
        }
        // Whole numbers that every type holds: no order of additions rounds.
        await expectMeaning(net as Anything, device, {
          x: [wholes([...ofX, 5, 8], 3)],
          w: [wholes([...ofW, 8, 6], 7)],
        })
      }
  })
})

it('the tolerances are those of the operators, and rounding alone is none', () => {
  expect(
    mapTolerance(
      [
        ['operand', 0],
        ['add', 0, 0],
      ],
      'f16',
    ),
  ).toBe(0)
  expect(
    mapTolerance(
      [
        ['operand', 0],
        ['exp', 0],
      ],
      'f32',
    ),
  ).toBeLessThan(64 * roundoff.f32)
})
