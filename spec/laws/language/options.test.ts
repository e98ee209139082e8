// What a program says by mistake is an error, and never something else than was meant.
import * as E from 'fp-ts/lib/Either.js'
import { firstValueFrom } from 'rxjs'
import { describe, expect, it, test } from 'vitest'
import * as braid from '../../../dsl/index.js'

const { compile, download, graph, interpret, tensor, upload } = braid

type Pipe = { pipe(...operators: readonly unknown[]): never }

/** The errors of a program of one value of [2, 3, 4]. */
const errorsOf = (operator: (x: Pipe) => unknown, type = tensor('f32', [2, 3, 4])) => {
  const made = compile(
    graph('one', { x: type as never }, ({ x }) => {
      const flow = (x as unknown as Pipe).pipe(upload()) as unknown as Pipe
      return { y: (flow.pipe(operator(flow)) as unknown as Pipe).pipe(download()) }
    }),
  )
  return E.isLeft(made) ? made.left : []
}

const { attention, conv, cumsum, layerNorm, matmul, maxPool, mean, pad, rmsNorm, rope, softmax, sum, topK } =
  braid as unknown as Readonly<Record<string, (...given: readonly unknown[]) => unknown>>

const all = braid as unknown as Readonly<Record<string, (...given: readonly unknown[]) => unknown>>

describe('an option that an operator does not have is refused by its name', () => {
  test.each<readonly [stranger: string, operator: (x: unknown) => unknown]>([
    ['axes', () => softmax!({ axes: 0 })],
    ['eps', () => layerNorm!({ eps: 1e-6 })],
    ['shift', x => rmsNorm!({ shift: x })],
    ['keepdim', () => sum!({ axis: 0, keepdim: true })],
    ['keepdim', () => mean!(0, { keepdim: true })],
    ['strides', x => conv!(x, { strides: 2 })],
    ['is_causal', x => attention!(x, x, { is_causal: true })],
    ['theta', () => rope!({ theta: 500_000 })],
    [
      'largset',
      () => (y: unknown) =>
        (topK!({ k: 1, largset: false }) as (y: unknown) => { values: unknown })(y).values,
    ],
    ['transposeB', x => matmul!(x, { transposeB: true })],
    ['kernel_size', () => maxPool!({ kernel: 2, kernel_size: 2 })],
    ['reverse', () => cumsum!({ axis: 0, reverse: true })],
    ['left', () => pad!({ axis: 0, left: 1 })],
  ])('%s', (stranger, operator) => {
    expect(errorsOf(operator).some(({ _tag, found }) => _tag === 'BadAttribute' && found === stranger)).toBe(
      true,
    )
  })

  // biome-ignore lint/suspicious/noExplicitAny: what the types refuse is given on purpose
  const { upload, param, lane, on, kernel, allGather, communicator } = braid as any
  const t = tensor('f32', [4])
  const vector = (x: Pipe) => x.pipe(braid.download())
  test.each<readonly [found: string, make: (x: Pipe) => unknown]>([
    ['ahed', x => (x.pipe(upload(undefined, { ahed: 2 })) as Pipe).pipe(download())],
    ['place', () => vector(param('w', t, { place: 'host' }))],
    [
      "{ name: 'a', priority: 'normal', prio: 'high' }",
      x => (x.pipe(upload(), on(lane('a', { prio: 'high' }))) as Pipe).pipe(download()),
    ],
    ['window', x => vector(x.pipe(upload(), allGather(communicator('w', 1), undefined, { window: 1 })))],
    [
      'donate',
      x => {
        const id = kernel({
          name: 'id',
          cuda: 'extern "C" __global__ void id(const float* x, float* y) {}',
          reads: { x: t },
          writes: { y: t },
          launch: { grid: 1, block: 1 },
          reference: () => {},
          donate: { y: 'x' },
        })
        return vector(id({ x: x.pipe(upload()) }).y)
      },
    ],
  ])('of what is no operator: %s', (found, make) => {
    const made = compile(graph('one', { x: t }, ({ x }) => ({ y: make(x as unknown as Pipe) as never })))
    expect(E.isLeft(made) ? made.left.map(error => `${error._tag} ${error.found}`) : []).toContain(
      `BadAttribute ${found}`,
    )
  })

  it('and so is what is no object with names', () => {
    for (const given of [0, 'last', [0], null]) expect(errorsOf(() => softmax!(given))).not.toEqual([])
    expect(errorsOf(x => softmax!(x))).not.toEqual([])
    expect(errorsOf(() => softmax!())).toEqual([])
  })
})

it('an expression has no value while a graph is described', () => {
  const { map } = braid as unknown as { map: (fn: (a: never) => unknown) => unknown }
  type Number = { mul(by: number): unknown }
  for (const fn of [
    (a: Number) => ((a as never) > 0 ? a.mul(10) : a),
    (a: Number) => Math.max(a as never, 0),
    (a: Number) => `${a}`,
  ])
    expect(errorsOf(() => map(fn as never))[0]).toMatchObject({
      _tag: 'BadAttribute',
      found: expect.stringContaining('no value while the graph is described'),
    })
})

it('first values of 16 bits are their bits', async () => {
  for (const [dtype, one] of [
    ['f16', 0x3c00],
    ['bf16', 0x3f80],
  ] as const)
    for (const length of [2, 3000]) {
      const first = new Uint16Array(length).fill(one)
      const before = graph('before', { x: tensor(dtype, [length]) }, ({ x }) => ({
        y: x.pipe(upload(), braid.delay(first), braid.cast('f32'), download()),
      }))
      const made = await firstValueFrom(interpret(before)({ x: [new Uint16Array(length)] } as never))
      expect(new Set((made as unknown as { readonly y: Float32Array }).y)).toEqual(new Set([1]))
    }
})

it('parts that cannot be are reported, and not their absence', () => {
  const { split } = braid as unknown as { split: (options: object) => (x: unknown) => readonly Pipe[] }
  for (const options of [{ axis: 0 }, { axis: 0, parts: Number.NaN }, { axis: 0, parts: 9999 }]) {
    const made = compile(
      graph('parts', { x: tensor('f32', [2, 3]) }, ({ x }) => {
        const [, second] = split(options)(x.pipe(upload()))
        return { y: second!.pipe(download()) }
      }),
    )
    expect(E.isLeft(made) && made.left[0]!._tag).toBe('BadAttribute')
  }
})

it('a plan of terabytes is laid out like any other', () => {
  const wide = graph('wide', { x: tensor('f32', [2 ** 40]) }, ({ x }) => ({
    y: x.pipe(upload(), braid.softmax(), download()),
  }))
  expect(E.isRight(compile(wide, { mode: 'graph' }))).toBe(true)
})

test('an operand that is no flow is one error, and what is made of it is none', () => {
  for (const operator of [() => matmul!('w'), () => all['less']!('a')])
    expect(errorsOf(operator).map(({ _tag }) => _tag)).toEqual(['NotAFlow'])
})

test.each<readonly [string, unknown, string]>([
  ['f32', Number.NaN, 'a number that f32 can hold or ±Infinity'],
  ['i32', 1.5, 'a whole number from -2147483648 to 2147483647'],
  ['i32', 2 ** 31, 'a whole number from -2147483648 to 2147483647'],
  ['u8', [-1], 'a whole number from 0 to 255'],
])('an initial value that %s does not hold is refused: %s', (dtype, init, wanted) => {
  const [error] = errorsOf(() => all['delay']!(init), tensor(dtype as 'f32', [1]) as never)
  expect(error).toMatchObject({ _tag: 'BadAttribute', wanted: expect.stringContaining(wanted) })
})
