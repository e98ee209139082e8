// Tensors without elements: their types, and what is an error of them, where it is described and where symbols
// are bound.
import * as E from 'fp-ts/lib/Either.js'
import { lastValueFrom } from 'rxjs'
import { describe, expect, it } from 'vitest'
import {
  type AnyTensor,
  allGather,
  allReduce,
  allToAll,
  argmax,
  argmin,
  attention,
  BraidError,
  broadcast,
  communicator,
  compile,
  concat,
  conv,
  download,
  expand,
  type Flow,
  graph,
  interpret,
  interpretRanks,
  matmul,
  max,
  maxPool,
  min,
  orThrow,
  permute,
  reduceScatter,
  relu,
  reshape,
  slice,
  softmax,
  split,
  sum,
  tensor,
  topK,
  upload,
  verifyRanks,
} from '../../../dsl/index.js'
import { showSpec } from '../../../dsl/ir/tensor.js'

type Any = Flow<'device', AnyTensor>
// biome-ignore lint/suspicious/noExplicitAny: the types of operators are tested in spec/types
type Anything = any
type Untyped = (...given: Anything[]) => Anything
type Operator = (x: Anything) => Any

/** The graph of one operator; a symbol is bound to 0. */
const netOf = (shape: readonly (number | string)[], operator: Operator, dtype: 'f32' | 'i32' = 'f32') =>
  graph({ x: tensor(dtype, shape) }, ({ x }) => ({ y: operator(x.pipe(upload())).pipe(download()) }))
const dims = { n: 0 }
const given = (net: ReturnType<typeof netOf>) => (net.ir.nodes[0]!.spec.shape.includes('n') ? { dims } : {})

const faultsOf = (net: ReturnType<typeof netOf>) => {
  const compiled = compile(net, given(net))
  return E.isLeft(compiled) ? compiled.left : []
}

describe('a choice among no elements is an error', () => {
  const along: readonly (readonly [string, Operator])[] = [
    ['max', x => x.pipe(max({ axis: 1 }))],
    ['min', x => x.pipe(min({ axis: 1 }))],
    ['argmax', x => x.pipe(argmax({ axis: 1 }))],
    ['argmin', x => x.pipe(argmin({ axis: 1 }))],
  ]

  it.each(along)('%s says where, what was wanted and what was found', async (name, operator) => {
    for (const size of [0, 'n']) {
      const net = netOf([3, size], operator)
      const [fault, ...others] = faultsOf(net)
      expect(others).toEqual([])
      expect(fault).toMatchObject({
        _tag: 'ShapeMismatch',
        at: expect.stringContaining('empty.test.ts'),
        wanted: `an axis with elements: ${name} of none is not defined`,
        found: 'axis 1 of f32[3, 0]',
      })
      await expect(
        lastValueFrom(interpret(net, given(net))({ x: [new Float32Array(0)] } as never)),
      ).rejects.toThrow(BraidError)
    }
  })

  it.each(along)('%s of no rows has no elements itself', (_, operator) => {
    for (const shape of [
      [0, 0],
      ['n', 0],
      [0, 'n'],
      ['n', 'n'],
    ])
      expect(faultsOf(netOf(shape, operator))).toEqual([])
  })

  it('of all elements, of which there are none', () => {
    expect(faultsOf(netOf([2, 0], x => x.pipe(max())))[0]!.found).toBe('axes 0 to 1 of f32[2, 0]')
  })

  it('topK takes at most as many as there are', () => {
    const top: Operator = x => x.pipe((topK as Untyped)({ k: 1, axis: 1 })).values
    expect(faultsOf(netOf([3, 0], top))[0]!.wanted).toBe('k: at most 0, the size of axis 1 of f32[3, 0]')
    expect(faultsOf(netOf([3, 'n'], top))[0]!.wanted).toBe('k: at most 0, the size of axis 1 of f32[3, 0]')
    expect(faultsOf(netOf([0, 3], top))).toEqual([])
  })

  it('softmax along no elements is none', () => {
    for (const size of [0, 'n']) expect(faultsOf(netOf([3, size], x => x.pipe(softmax())))).toEqual([])
  })
})

describe('types', () => {
  const typeOf = (shape: readonly (number | string)[], operator: Operator): string => {
    let found = ''
    const net = netOf(shape, x => {
      const y = operator(x)
      found = showSpec(y.spec)
      return y
    })
    expect(faultsOf(net)).toEqual([])
    return found
  }

  it('of operators that change the shape', () => {
    expect(typeOf([0, 4], x => x.pipe(reshape([-1, 2])))).toBe('f32[0, 2]')
    expect(typeOf([0, 4], x => x.pipe(reshape([3, 0])))).toBe('f32[3, 0]')
    expect(typeOf([1, 4], x => x.pipe(expand([0, 4])))).toBe('f32[0, 4]')
    expect(typeOf([3, 4], x => x.pipe(slice(0, 2, 2)))).toBe('f32[0, 4]')
    expect(typeOf([0, 4], x => x.pipe((split as Untyped)({ axis: 0, parts: 3 }))[2])).toBe('f32[0, 4]')
    expect(typeOf([0, 4], x => x.pipe(concat([x], { axis: 0 })))).toBe('f32[0, 4]')
    expect(typeOf([0, 4], x => x.pipe(sum({ axis: 0, keepDims: true })))).toBe('f32[1, 4]')
    expect(typeOf([2, 0], x => x.pipe((matmul as Untyped)(x, { transpose: true })))).toBe('f32[2, 2]')
  })

  it.each<[string, readonly number[], Operator, string]>([
    [
      'a reshape of which -1 may be any size',
      [0, 4],
      x => x.pipe(reshape([-1, 0])),
      'as many elements as f32[0, 4]',
    ],
    ['a reshape to elements', [0, 4], x => x.pipe(reshape([1])), 'as many elements as f32[0, 4]'],
    [
      'an expand of no elements',
      [0],
      x => x.pipe((expand as Untyped)([3])),
      'a shape that the value broadcasts to',
    ],
    ['a slice whose end is before its start', [3], x => x.pipe(slice(0, 2, 1)), '0 ≤ from ≤ to ≤ 3'],
    [
      'sizes that do not add up',
      [3],
      x => x.pipe((split as Untyped)({ axis: 0, sizes: [0, 2] }))[0],
      'sizes from 0 that add up to 3',
    ],
    [
      'queries without elements',
      [1, 2, 0],
      x => x.pipe(attention(x, x)),
      'queries of at least one element each',
    ],
    [
      'a kernel without elements',
      [1, 1, 0],
      x => x.pipe(reshape([1, 0, 1]), (conv as Untyped)(x.pipe(reshape([1, 0, 0])))),
      'a kernel with elements',
    ],
    [
      'a convolution of its padding alone',
      [1, 1, 0],
      x => x.pipe(reshape([1, 0, 0]), (conv as Untyped)(x.pipe(reshape([1, 0, 3])), { padding: 3 })),
      'an input with elements',
    ],
    [
      'a pool of no places',
      [1, 1, 0],
      x => x.pipe(maxPool({ kernel: 1 })),
      'a kernel of at most the 0 elements',
    ],
    ['a negative size', [-1], x => x, 'each a whole number from 0'],
  ])('%s is an error', (_, shape, operator, wanted) => {
    expect(faultsOf(netOf(shape, operator))[0]!.wanted).toContain(wanted)
  })

  it('a symbol is bound to a whole number from 0', () => {
    const net = netOf(['n'], x => x.pipe(relu()))
    for (const n of [-1, 0.5, Number.NaN]) {
      const compiled = compile(net, { dims: { n } })
      expect(E.isLeft(compiled) && compiled.left[0].wanted).toBe('a whole number from 0')
    }
    expect(E.isRight(compile(net, { dims }))).toBe(true)
  })
})

it('collectives of values without elements exchange nothing, on every rank', async () => {
  const world = communicator('world', 2)
  const net = graph({ x: tensor('f32', [0, 3]), y: tensor('f32', [2]) }, given => {
    const x = given.x.pipe(upload())
    const parts = x.pipe(reshape([2, 0, 3]))
    return {
      reduced: x.pipe(allReduce(world, 'max'), download()),
      gathered: x.pipe(allGather(world), download()),
      given: x.pipe(broadcast(world, 1), download()),
      moved: x.pipe(permute(world, [[0, 1]]), download()),
      exchanged: parts.pipe(allToAll(world), download()),
      scattered: parts.pipe(reduceScatter(world, 'sum'), download()),
      total: x.pipe(allReduce(world, 'sum'), sum({ axis: 0 }), download()),
      y: given.y.pipe(upload(), allReduce(world, 'sum'), download()),
    }
  })
  const plan = orThrow(compile(net))
  expect(verifyRanks([plan, plan])).toEqual([])
  expect(plan.nodes.flatMap(({ collective }) => (collective ? [collective.count] : []))).toEqual([2])
  const none = new Float32Array(0)
  const feeds = [1, 2].map(rank => ({ x: [none], y: [new Float32Array([rank, 10 * rank])] }))
  const others = { reduced: none, gathered: none, given: none, moved: none, exchanged: none, scattered: none }
  const wanted = { ...others, total: new Float32Array(3), y: new Float32Array([3, 30]) }
  expect(await lastValueFrom(interpretRanks(net)(feeds))).toEqual([wanted, wanted])
})
