// Tensors without elements: what each operator makes of them, on every device, fused and not, eagerly and as a
// graph, and from a plan that was written to JSON and read again. Each result is the one of `interpret`; where
// it has elements, they are given here too, as NumPy and PyTorch have them.
import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import {
  type AnyTensor,
  abs,
  add,
  append,
  argmax,
  argmin,
  attention,
  avgPool,
  BraidError,
  cast,
  clamp,
  compile,
  concat,
  conv,
  cos,
  cumsum,
  type DType,
  delay,
  div,
  download,
  embedding,
  equal,
  exp,
  expand,
  type Flow,
  type Graph,
  gather,
  gelu,
  graph,
  greater,
  greaterOrEqual,
  iota,
  keep,
  layerNorm,
  less,
  lessOrEqual,
  linear,
  log,
  logSoftmax,
  logSumExp,
  map,
  matmul,
  max,
  maxPool,
  mean,
  min,
  mul,
  neg,
  normal,
  notEqual,
  oneHot,
  orThrow,
  type Ports,
  pad,
  parsePlan,
  pow,
  relu,
  reshape,
  rmsNorm,
  rope,
  rsqrt,
  scan,
  scatterAdd,
  sigmoid,
  silu,
  sin,
  slice,
  softmax,
  split,
  sqrt,
  sub,
  sum,
  takeAlong,
  tanh,
  tensor,
  toJSON,
  topK,
  transpose,
  uniform,
  upload,
  variance,
  verify,
  where,
} from '../../dsl/index.js'
import { elements } from '../../dsl/ir/tensor.js'
import { type HostArray, numbers } from '../../dsl/language/values.js'
import { open } from '../../runtime/index.js'
import { sample, valuesOf } from '../fixtures/graphs/random.js'
import { often, runs } from '../fixtures/runs.js'
import { opened, present } from './devices.js'
import { expectMeant, meantOf, outputsOf } from './meant.js'
import { expectMeaning } from './yields.js'

type Any = Flow<'device', AnyTensor>
// Shapes here are made for each case, so operators are used without their types.
// biome-ignore lint/suspicious/noExplicitAny: the types of operators are tested in spec/types
type Anything = any
type Untyped = (...given: Anything[]) => Anything
type Made = Readonly<Record<string, Any>>

interface Case {
  readonly name: string
  /** By input: its type. */
  readonly given: Readonly<Record<string, readonly [DType, readonly (number | string)[]]>>
  readonly make: (given: Readonly<Record<string, Anything>>) => Any | Made
  readonly dims?: Readonly<Record<string, number>>
  /** By output, or of the only one: its elements. Absent: it has none. */
  readonly wanted?: readonly number[] | Readonly<Record<string, readonly number[]>>
}

const [f32, i32] = ['f32', 'i32'] as const
const rows = { x: [f32, [0, 4]] } as const
const columns = { x: [f32, [3, 0]] } as const
const of = (count: number, value: number): number[] => new Array<number>(count).fill(value)
const each = (operators: Readonly<Record<string, (x: Anything) => Any | Made>>): readonly Case[] =>
  Object.entries(operators).map(([name, make]) => ({
    name: `${name} of no rows`,
    given: rows,
    make: ({ x }) => make(x),
  }))

const cases: readonly Case[] = [
  ...each({
    relu: x => x.pipe(relu()),
    unary: x => x.pipe(abs(), exp(), log(), sigmoid(), gelu(), silu(), tanh()),
    'unary, further': x => x.pipe(neg(), sin(), cos(), abs(), sqrt(), rsqrt()),
    arithmetic: x => x.pipe(add(1), sub(x), mul(x), div(2), pow(2)),
    'min and max of two': x => x.pipe(max(x), min(0.5)),
    comparison: x => ({
      equal: x.pipe(equal(x)),
      less: x.pipe(less(0)),
      lessOrEqual: x.pipe(lessOrEqual(x)),
      greater: x.pipe(greater(0)),
      greaterOrEqual: x.pipe(greaterOrEqual(x)),
    }),
    clamp: x => x.pipe(clamp({ min: 0, max: 1 })),
    cast: x => x.pipe(cast('bf16')),
    map: x => x.pipe(map((a: Anything) => a.mul(a))),
    where: x => x.pipe(notEqual(0), where(x, 1) as Untyped),
    keep: x => x.pipe(keep()),
    softmax: x => x.pipe(softmax()),
    logSoftmax: x => x.pipe(logSoftmax()),
    layerNorm: x => x.pipe(layerNorm()),
    rmsNorm: x => x.pipe(rmsNorm()),
    'sum of each row': x => x.pipe(sum({ axis: 1 })),
    'max of each row': x => x.pipe(max({ axis: 1 })),
    'argmax of each row': x => x.pipe(argmax({ axis: 1 })),
    'topK of each row': x => x.pipe(topK({ k: 2 })),
    'cumsum of rows': x => x.pipe(cumsum({ axis: 1 })),
    'cumsum along the empty axis': x => x.pipe(cumsum({ axis: 0 })),
    iota: x => x.pipe(iota()),
    oneHot: x => x.pipe(cast('i32'), oneHot({ classes: 3 })),
    transpose: x => x.pipe(transpose([1, 0])),
    reshape: x => x.pipe(reshape([2, 0, 7])),
    'reshape with an open size': x => x.pipe((reshape as Untyped)([-1, 4])),
    expand: x => x.pipe((expand as Untyped)([3, 0, 4])),
    split: x => {
      const [a, b] = x.pipe((split as Untyped)({ axis: 1, parts: 2 }))
      return { a, b }
    },
    'pad along another axis': x => x.pipe(pad({ axis: 1, before: 1 })),
    uniform: x => x.pipe(uniform({ seed: 1 })),
    normal: x => x.pipe(normal({ seed: 1 })),
    rope: x => x.pipe(reshape([1, 0, 4]), rope() as Untyped),
    delay: x => x.pipe(delay(0) as Untyped),
    scan: x => x.pipe(scan((a: Anything, b: Anything) => a.pipe(add(b)), 0) as Untyped),
    'scan of given elements': x => x.pipe(scan((a: Anything, b: Anything) => a.pipe(add(b)), []) as Untyped),
  }),
  {
    name: 'a symbol that is bound to 0',
    given: { x: [f32, ['batch', 4]] },
    dims: { batch: 0 },
    make: ({ x }) => ({ y: x.pipe(relu()), total: x.pipe(sum({ axis: 0 })) }),
    wanted: { total: of(4, 0) },
  },
  {
    name: 'broadcasting 1 to 0',
    given: { x: [f32, [0, 4]], y: [f32, [1, 4]] },
    make: ({ x, y }) => y.pipe(add(x)),
  },
  {
    name: 'broadcasting a scalar',
    given: { x: [f32, [0, 4]], y: [f32, []] },
    make: ({ x, y }) => y.pipe(mul(x)),
  },
  { name: 'sum', given: rows, make: ({ x }) => x.pipe(sum({ axis: 0 })), wanted: of(4, 0) },
  { name: 'sum of all', given: rows, make: ({ x }) => x.pipe(sum()), wanted: [0] },
  {
    name: 'sum of whole numbers',
    given: { x: ['u8', [0, 4]] },
    make: ({ x }) => x.pipe(sum({ axis: 0, keepDims: true })),
    wanted: of(4, 0),
  },
  {
    name: 'sum of two axes that are not adjacent',
    given: { x: ['f16', [0, 2, 3]] },
    make: ({ x }) => x.pipe(sum({ axis: [0, 2] })),
    wanted: of(2, 0),
  },
  { name: 'mean', given: columns, make: ({ x }) => x.pipe(mean({ axis: 1 })), wanted: of(3, Number.NaN) },
  {
    name: 'variance',
    given: columns,
    make: ({ x }) => x.pipe(variance({ axis: 1 })),
    wanted: of(3, Number.NaN),
  },
  {
    name: 'logSumExp',
    given: columns,
    make: ({ x }) => x.pipe(logSumExp({ axis: 1 })),
    wanted: of(3, Number.NEGATIVE_INFINITY),
  },
  {
    name: 'logSumExp of a symbol',
    given: { x: ['bf16', [3, 'n']] },
    dims: { n: 0 },
    make: ({ x }) => x.pipe(logSumExp({ axis: 1, keepDims: true })),
    wanted: of(3, Number.NEGATIVE_INFINITY),
  },
  { name: 'softmax along the empty axis', given: columns, make: ({ x }) => x.pipe(softmax()) },
  { name: 'layerNorm along the empty axis', given: columns, make: ({ x }) => x.pipe(layerNorm()) },
  {
    name: 'max of none of no rows',
    given: { x: [f32, [0, 0]] },
    make: ({ x }) => ({ most: x.pipe(max({ axis: 1 })), at: x.pipe(argmin({ axis: 1 })) }),
  },
  {
    name: 'matmul over nothing',
    given: { x: [f32, [2, 0]], w: [f32, [0, 3]] },
    make: ({ x, w }) => x.pipe(matmul(w)),
    wanted: of(6, 0),
  },
  {
    name: 'matmul over nothing, with a bias and relu',
    given: { x: ['f16', [2, 0]], w: ['f16', [3, 0]], b: ['f16', [3]] },
    make: ({ x, w, b }) => x.pipe(matmul(w, { transpose: true }), mul(0), add(b), sub(b), relu()),
    wanted: of(6, 0),
  },
  {
    name: 'matmul of no rows',
    given: { x: [f32, [0, 4]], w: [f32, [4, 3]] },
    make: ({ x, w }) => x.pipe(matmul(w)),
  },
  {
    name: 'matmul of no matrices',
    given: { x: [f32, [0, 2, 4]], w: [f32, [0, 4, 3]] },
    make: ({ x, w }) => x.pipe(matmul(w)),
  },
  {
    name: 'linear over nothing',
    given: { x: [f32, [2, 0]], w: [f32, [3, 0]], b: [f32, [3]] },
    make: ({ x, w, b }) => x.pipe((linear as Untyped)(w, b.pipe(mul(0), add(2)))),
    wanted: of(6, 2),
  },
  {
    name: 'concat with empty parts',
    given: { x: [f32, [0, 2]], y: [f32, [1, 2]], z: [f32, [0, 2]] },
    make: ({ x, y, z }) => {
      const one = y.pipe(mul(0), add(3))
      return { one: x.pipe(concat([one, z], { axis: 0 })), two: one.pipe(concat([x, one], { axis: 0 })) }
    },
    wanted: { one: of(2, 3), two: of(4, 3) },
  },
  {
    name: 'concat of empty parts',
    given: rows,
    make: ({ x }) => x.pipe(concat([x, x], { axis: 0 })),
  },
  {
    name: 'pad',
    given: rows,
    make: ({ x }) => x.pipe(pad({ axis: 0, before: 1, value: 7 })),
    wanted: of(4, 7),
  },
  {
    name: 'pad with -0',
    given: { x: [f32, [0]] },
    make: ({ x }) => x.pipe(pad({ axis: 0, after: 1, value: -0 })),
    wanted: [-0],
  },
  {
    name: 'an empty slice, and what is made of it',
    given: { x: [f32, [3, 4]] },
    make: ({ x }) => {
      const none = x.pipe(slice(0, 3))
      return { none, total: none.pipe(sum({ axis: 0 })) }
    },
    wanted: { total: of(4, 0) },
  },
  {
    name: 'split into sizes of which one is 0',
    given: { x: [f32, [3, 4]] },
    make: ({ x }) => {
      const [a, b, c] = x.pipe((split as Untyped)({ axis: 0, sizes: [1, 0, 2] }))
      return { a: a.pipe(abs(), mul(0)), b, c: c.pipe(abs(), mul(0)) }
    },
    wanted: { a: of(4, 0), c: of(8, 0) },
  },
  {
    name: 'gather with no indices',
    given: { x: [f32, [3, 4]], at: [i32, [0]] },
    make: ({ x, at }) => x.pipe(gather(at, { axis: 0 })),
  },
  {
    name: 'gather from an empty table with no indices',
    given: { x: [f32, [0, 4]], at: [i32, [0]] },
    make: ({ x, at }) => x.pipe(gather(at, { axis: 0 })),
  },
  {
    name: 'embedding from an empty table',
    given: { x: [f32, [0, 4]], at: [i32, [2]] },
    make: ({ x, at }) => at.pipe(embedding(x)),
    wanted: of(8, 0),
  },
  {
    name: 'scatterAdd of no rows',
    given: { x: [f32, [0, 4]], at: [i32, [0]] },
    make: ({ x, at }) => x.pipe(scatterAdd(at, { axis: 0, size: 3 })),
    wanted: of(12, 0),
  },
  {
    name: 'scatterAdd of rows without elements, and to no rows',
    given: { x: [f32, [2, 0]], y: [f32, [2]], at: [i32, [2]] },
    make: ({ x, y, at }) => ({
      a: x.pipe(scatterAdd(at, { axis: 0, size: 3 })),
      b: y.pipe(scatterAdd(at, { axis: 0, size: 0 })),
    }),
  },
  {
    name: 'takeAlong an empty axis',
    given: { x: [f32, [0, 2]], at: [i32, [3, 2]] },
    make: ({ x, at }) => x.pipe(takeAlong(at, { axis: 0 })),
    wanted: of(6, 0),
  },
  {
    name: 'append of no rows',
    given: { x: [f32, [2, 3]], rows: [f32, [2, 0]], at: [i32, []] },
    make: ({ x, rows, at }) => x.pipe(mul(0), add(4), append(rows, { axis: 1, at })),
    wanted: of(6, 4),
  },
  {
    name: 'append to a value without room',
    given: { x: [f32, [2, 0]], at: [i32, [1]] },
    make: ({ x, at }) => x.pipe(append(x, { axis: 1, at })),
  },
  {
    name: 'attention with no queries',
    given: { q: [f32, [2, 0, 4]], k: [f32, [2, 3, 4]] },
    make: ({ q, k }) => q.pipe(attention(k, k)),
  },
  {
    name: 'attention with no keys',
    given: { q: [f32, [1, 2, 4]], k: [f32, [1, 0, 4]], v: [f32, [1, 0, 3]] },
    make: ({ q, k, v }) => q.pipe(attention(k, v)),
    wanted: of(6, Number.NaN),
  },
  {
    name: 'attention with a mask and a length, with no keys',
    given: { q: [f32, [1, 2, 4]], k: [f32, [1, 0, 4]], m: ['u8', [2, 0]], n: [i32, [1]] },
    make: ({ q, k, m, n }) => q.pipe(attention(k, k, { mask: m, length: n, causal: true })),
    wanted: of(8, Number.NaN),
  },
  {
    name: 'attention with values of no elements',
    given: { q: [f32, [1, 2, 4]], k: [f32, [1, 3, 4]], v: [f32, [1, 3, 0]] },
    make: ({ q, k, v }) => q.pipe(attention(k, v)),
  },
  {
    name: 'conv of an empty batch',
    given: { x: [f32, [0, 2, 5]], w: [f32, [3, 2, 3]] },
    make: ({ x, w }) => x.pipe(conv(w, { padding: 1 })),
  },
  {
    name: 'conv of no channels',
    given: { x: [f32, [1, 0, 3]], w: [f32, [2, 0, 1]], b: [f32, [2]] },
    make: ({ x, w, b }) => x.pipe(conv(w, { bias: b.pipe(mul(0), add(1)) })),
    wanted: of(6, 1),
  },
  {
    name: 'conv of places without elements, which stay so',
    given: { x: [f32, [1, 2, 'n']], w: [f32, [3, 2, 3]] },
    dims: { n: 0 },
    make: ({ x, w }) => x.pipe(conv(w, { padding: 'same' })),
  },
  {
    name: 'conv with the channels last, as a product over nothing',
    given: { x: [f32, [1, 3, 0]], w: [f32, [2, 1, 0]] },
    make: ({ x, w }) => x.pipe(conv(w, { channels: 'last' })),
    wanted: of(6, 0),
  },
  {
    name: 'pools of an empty batch',
    given: { x: [f32, [0, 2, 4]] },
    make: ({ x }) => ({ a: x.pipe(maxPool({ kernel: 2 })), b: x.pipe(avgPool({ kernel: 2 })) }),
  },
  {
    name: 'values without elements beside others',
    given: { x: [f32, [0, 4]], y: [f32, [2]] },
    make: ({ x, y }) => ({ x: x.pipe(relu()), y: y.pipe(abs(), mul(0)) }),
    wanted: { y: [0, 0] },
  },
]

const graphOf = ({ given, make }: Case): Graph<Ports, Ports> =>
  graph(
    'empty',
    Object.fromEntries(Object.entries(given).map(([name, [dtype, shape]]) => [name, tensor(dtype, shape)])),
    inputs => {
      const on = Object.fromEntries(Object.entries(inputs).map(([name, x]) => [name, x.pipe(upload())]))
      const made = make(on)
      const flows = 'pipe' in made ? { y: made as Any } : made
      return Object.fromEntries(Object.entries(flows).map(([name, y]) => [name, y.pipe(download())]))
    },
  ) as never

const feedsOf = ({ given, dims = {} }: Case): Readonly<Record<string, readonly HostArray[]>> =>
  Object.fromEntries(
    Object.entries(given).map(([name, [dtype, shape]], i) => {
      const sizes = shape.map(size => (typeof size === 'number' ? size : dims[size]!))
      return [name, [1, 2, 3].map(tick => valuesOf(dtype, elements(sizes), 10 * i + tick))]
    }),
  )

const expectWanted = ({ wanted = {} }: Case, made: Graph<Ports, Ports>, outputs: readonly object[]): void => {
  const byName = (Array.isArray(wanted) ? { y: wanted } : wanted) as Readonly<Record<string, number[]>>
  const { nodes } = made.ir
  for (const output of outputs as readonly Readonly<Record<string, HostArray>>[])
    for (const { name, node } of made.ir.outputs)
      expect([name, [...numbers(output[name]!, nodes[node]!.spec.dtype)]]).toEqual([name, byName[name] ?? []])
}

const ways = [
  { storage: 'pooled', mode: 'eager', fuse: true },
  { storage: 'pooled', mode: 'eager', fuse: false },
  { storage: 'planned', mode: 'eager', fuse: true },
  { storage: 'planned', mode: 'graph', fuse: false },
  { storage: 'planned', mode: 'graph', fuse: true },
] as const

describe.each(present)('on %s', device => {
  it.each(cases)('$name', async made => {
    const { dims = {} } = made
    const net = graphOf(made)
    const feeds = feedsOf(made)
    for (const way of ways) {
      const options = { ...way, dims }
      expectWanted(made, net, await expectMeaning(net, device, feeds, { compile: options }))
      const read = orThrow(parsePlan(toJSON(orThrow(compile(net, options)))))
      expect(verify(read)).toEqual([])
      await using session = orThrow(await open(read, { device, poison: true })())
      expectWanted(made, net, await outputsOf(session as never, { feeds }))
    }
  })

  it('200 generated graphs yield what interpret yields, or are refused by both', {
    timeout: 120_000,
  }, async () => {
    const seeds = fc.integer({ min: 1, max: 1e6 })
    const samples = fc.oneof(sample({ empty: true }), sample({ empty: true, rates: true }))
    const withoutElements: boolean[] = []
    await fc.assert(
      fc.asyncProperty(samples, seeds, fc.constantFrom(...ways), async (made, seed, way) => {
        const { graph: net, params, dims, inFlight } = made
        const options = { ...way, dims, inFlight }
        const compiled = compile(net, options)
        if (E.isLeft(compiled)) {
          await expect(meantOf(made)).rejects.toThrow(BraidError)
          return
        }
        withoutElements.push(compiled.right.buffers.some(({ bytes }) => bytes === 0))
        const host = device === 'host' ? { host: { jitter: seed, jitterMicroseconds: 60, poison: true } } : {}
        await using session = await opened(net, device, { compile: options, params, poison: true, ...host })
        await expectMeant(made, await outputsOf(session as never, made))
        const { peak, bound } = session.stats()
        expect(peak.reserved).toBeLessThanOrEqual(bound.device)
        expect(peak.pinned).toBeLessThanOrEqual(bound.pinned)
      }),
      { numRuns: runs(200) },
    )
    expect(withoutElements.filter(is => is).length).toBeGreaterThan(often(50))
  })
})
