// Which elementwise operations a product takes into its own kernel.
import { expect, it } from 'vitest'
import {
  add,
  cast,
  compile,
  download,
  gelu,
  graph,
  keep,
  lane,
  linear,
  matmul,
  mul,
  on,
  orThrow,
  param,
  relu,
  tensor,
  upload,
  verify,
} from '../../../dsl/index.js'
import type { DType } from '../../../dsl/ir/tensor.js'

// biome-ignore lint/suspicious/noExplicitAny: every operator passes through here
type Anything = any

const [n, k] = [10, 20]

/** The epilogues of all products of a plan, and how many other kernels it has. */
const compiled = (op: (flows: Anything) => Anything, dtype: DType = 'bf16', fuse = true) => {
  // All but x is on the device already, so that no upload decides what is fused.
  const shapes = { w: [k, n], v: [n, k], b: [n], r: [2, 3, n] }
  const net = graph({ x: tensor(dtype, [2, 3, k]) }, ({ x }: Anything) => {
    const there = Object.entries(shapes).map(([name, shape]) => [name, param(name, tensor(dtype, shape))])
    const flows = { x: x.pipe(upload()), ...Object.fromEntries(there) }
    const made = op(flows)
    return Object.fromEntries(
      Object.entries(made.pipe === undefined ? made : { y: made }).map(([name, flow]: Anything) => [
        name,
        flow.pipe(download()),
      ]),
    )
  })
  const plan = orThrow(compile(net as Anything, { fuse })) as Anything
  expect(verify(plan)).toEqual([])
  const kernels = plan.nodes
    .map(({ kernel }: Anything) => kernel)
    .filter((kernel: Anything) => kernel && kernel.kind !== 'copy')
  return {
    epilogues: kernels
      .filter(({ kind }: Anything) => kind === 'matmul')
      .map(({ epilogue }: Anything) => epilogue),
    others: kernels.filter(({ kind }: Anything) => kind !== 'matmul').length,
  }
}

const tanh = { approximate: 'tanh' } as const

it.each<readonly [string, (flows: Anything) => Anything, object]>([
  ['a bias', ({ x, w, b }) => x.pipe(matmul(w), add(b)), { bias: true }],
  ['a bias on the left', ({ x, w, b }) => b.pipe(add(x.pipe(matmul(w)))), { bias: true }],
  ['a linear layer', ({ x, v, b }) => x.pipe(linear(v, b)), { bias: true }],
  [
    'a bias and gelu',
    ({ x, w, b }) => x.pipe(matmul(w), add(b), gelu(tanh)),
    { bias: true, activation: 'gelu' },
  ],
  [
    'a bias and a residual',
    ({ x, v, b, r }) => r.pipe(add(x.pipe(linear(v, b)))),
    { bias: true, residual: true },
  ],
  ['relu', ({ x, w }) => x.pipe(matmul(w), relu()), { activation: 'relu' }],
  [
    'a scale, a bias and relu',
    ({ x, w, b }) => x.pipe(matmul(w), mul(-2), add(b), relu()),
    { scale: -2, bias: true, activation: 'relu' },
  ],
  ['scales', ({ x, w, b }) => x.pipe(matmul(w), mul(2), mul(0.25), add(b)), { scale: 0.5, bias: true }],
])('%s is part of the product', (_, op, epilogue) => {
  expect(compiled(op)).toEqual({ epilogues: [epilogue], others: 0 })
  expect(compiled(op, 'bf16', false).epilogues).toEqual([undefined])
})

it.each<readonly [string, (flows: Anything) => Anything]>([
  ['a cast to f32 is', ({ x, w }) => x.pipe(matmul(w), cast('f32'), mul(2))],
  ['keep() is', ({ x, w, b }) => x.pipe(matmul(w), keep(), add(b))],
  ['another lane computes', ({ x, w, b }) => x.pipe(on(lane('one')), matmul(w), on(lane('two')), add(b))],
  [
    'another operation reads',
    ({ x, w, b, r }) => {
      const product = x.pipe(matmul(w))
      return { y: product.pipe(add(b)), z: product.pipe(add(r)) }
    },
  ],
  [
    'an output is',
    ({ x, w, b }) => {
      const product = x.pipe(matmul(w))
      return { y: product.pipe(add(b)), z: product }
    },
  ],
  ['a library may compute otherwise: gelu by erf', ({ x, w }) => x.pipe(matmul(w), gelu())],
  ['all of it becomes 0, but for NaN', ({ x, w }) => x.pipe(matmul(w), mul(1e-46))],
  [
    'is squared',
    ({ x, w }) => {
      const product = x.pipe(matmul(w))
      return product.pipe(mul(product))
    },
  ],
])('the product is stored where %s', (_, op) => {
  expect(compiled(op).epilogues).toEqual([undefined])
})

it('of f16 and f32 computes relu, and no gelu', () => {
  for (const dtype of ['f16', 'f32'] as const) {
    const op = (activation: Anything) => (flows: Anything) =>
      flows.x.pipe(matmul(flows.w), mul(-2), add(flows.b), activation)
    const epilogue = { scale: -2, bias: true, activation: 'relu' }
    expect(compiled(op(relu()), dtype)).toEqual({ epilogues: [epilogue], others: 0 })
    expect(compiled(op(gelu(tanh)), dtype)).toEqual({ epilogues: [{ scale: -2, bias: true }], others: 1 })
    const residual = compiled(({ x, v, b, r }) => r.pipe(add(x.pipe(linear(v, b)))), dtype)
    expect(residual).toEqual({ epilogues: [{ bias: true, residual: true }], others: 0 })
  }
})

it('of f32 rounds after each scale, and so computes one', () => {
  const scales = compiled(({ x, w }) => x.pipe(matmul(w), mul(1e30), mul(1e-30)), 'f32')
  expect(scales).toEqual({ epilogues: [{ scale: 1e30 }], others: 1 })
})

it('of several layers computes the same', () => {
  const layers = (next: Anything) => (flows: Anything) => {
    const t = param('t', tensor('bf16', [2, k, n]))
    return flows.x.pipe(matmul(t), mul(2), next(flows))
  }
  const none = compiled(layers(() => relu()))
  expect(none).toEqual({ epilogues: [{ scale: 2, activation: 'relu' }], others: 0 })
  const other = compiled(layers(() => gelu(tanh)))
  expect(other).toEqual({ epilogues: [{ scale: 2, activation: 'gelu' }], others: 0 })
  const bias = compiled(layers(({ b }: Anything) => add(b)))
  expect(bias).toEqual({ epilogues: [{ scale: 2, bias: true }], others: 0 })
  const residual = compiled(layers(({ r }: Anything) => add(r)))
  expect(residual).toEqual({ epilogues: [{ scale: 2, residual: true }], others: 0 })
  // A bias for each layer is neither.
  const own = () => add(param('rows', tensor('bf16', [2, 1, n])) as Anything)
  expect(compiled(layers(own))).toEqual({ epilogues: [{ scale: 2 }], others: 1 })
})

it.each<readonly [string, (flows: Anything) => Anything]>([
  ['a product', ({ x, w }) => x.pipe(matmul(w))],
  ['a biased sum', ({ x, w, b }) => x.pipe(matmul(w), add(b))],
])('writes %s that gelu and others read', (_, op) => {
  const both = compiled(flows => {
    const z = op(flows)
    // What reads it comes before gelu and after it.
    const early = z.pipe(mul(flows.r))
    const y = z.pipe(gelu(tanh))
    return { early, y, late: z.pipe(add(1)), z }
  })
  const [{ bias, ...epilogue }] = both.epilogues
  expect(epilogue).toEqual({ activation: 'gelu', auxiliary: true })
  expect(both.others).toBeLessThanOrEqual(2)
})

it('leaves what relu is computed of to relu, of which the library writes a mask', () => {
  const both = (dtype: DType, activation: Anything) =>
    compiled(({ x, w, b }) => {
      const z = x.pipe(matmul(w), add(b))
      return { z, y: z.pipe(activation) }
    }, dtype)
  expect(both('bf16', relu())).toEqual({ epilogues: [{ bias: true }], others: 1 })
  expect(both('bf16', gelu())).toEqual({ epilogues: [{ bias: true }], others: 1 })
  expect(both('f16', gelu(tanh))).toEqual({ epilogues: [{ bias: true }], others: 1 })
})

it('by erf follows in one kernel, with what follows it', () => {
  const layer = ({ x, v, b, r }: Anything) => x.pipe(linear(v, b), gelu(), add(r), mul(2))
  for (const dtype of ['bf16', 'f16', 'f32'] as const)
    expect(compiled(layer, dtype)).toEqual({ epilogues: [{ bias: true }], others: 1 })
})

it('ends before what it cannot do', () => {
  const both = compiled(({ x, w, b, r }) => x.pipe(matmul(w), add(b), gelu(tanh), add(r)))
  expect(both).toEqual({ epilogues: [{ bias: true, activation: 'gelu' }], others: 1 })
  const sum = compiled(({ x, w, r }) => x.pipe(matmul(w), add(r), relu()))
  expect(sum).toEqual({ epilogues: [{ residual: true }], others: 1 })
  const twice = compiled(({ x, w, b, r }) => x.pipe(matmul(w), add(r), add(b)))
  expect(twice).toEqual({ epilogues: [{ residual: true }], others: 1 })
  const cut = compiled(({ x, w, b }) => x.pipe(matmul(w), add(b), cast('f32')))
  expect(cut).toEqual({ epilogues: [{ bias: true }], others: 1 })
})

it('adds an earlier product to a later one', () => {
  const sum = compiled(({ w, r, v }) => {
    const first = r.pipe(matmul(v))
    return first.pipe(matmul(w), matmul(v), add(first))
  })
  expect(sum).toEqual({ epilogues: [undefined, undefined, { residual: true }], others: 0 })
})

it('does not wait for an operand that comes later', () => {
  const { epilogues } = compiled(({ x, w, r, v }) => {
    const far = r.pipe(matmul(v), gelu(), matmul(w), gelu(), matmul(v), matmul(w), gelu())
    return x.pipe(matmul(w), add(far))
  })
  expect(epilogues).toEqual(new Array(5).fill(undefined))
})
