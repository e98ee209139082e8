// Pipelines that benches run beside the same by hand in PyTorch (pipeline_bodies.py, under the same names).
import {
  add,
  div,
  download,
  exp,
  type Graph,
  gelu,
  graph,
  lane,
  map,
  matmul,
  max,
  mul,
  on,
  param,
  relu,
  slice,
  sub,
  sum,
  tensor,
  upload,
} from '../../dsl/index.js'
import { bf16Values } from './stream-values.js'

export type Sizes = Readonly<Record<string, number>>

export interface Pipeline {
  readonly name: string
  /** Named as the body in pipeline_bodies.py names them. */
  readonly shape: Sizes
  readonly graph: Graph<never, never>
  /** The values of each parameter, the input `x` among them, made once: bf16 as their bits, or i32. */
  readonly values: () => Readonly<Record<string, Uint16Array | Int32Array>>
  /**
   * Roundings to bf16 that only one side makes: 0 where both do the same arithmetic, so that outputs are
   * equal bit for bit.
   */
  readonly roundings: number
}

const bf16 = <const S extends readonly number[]>(shape: S) => tensor('bf16', shape)
const input = (rows: number, width: number) => param('x', bf16([rows, width]), { on: 'host' }).pipe(upload())
const square = (i: number, width: number) => param(`w[${i}]`, bf16([width, width]))
const list = <A>(count: number, of: (i: number) => A): A[] => Array.from({ length: count }, (_, i) => of(i))

// Weights that keep a value's size: variance 2 / width, nearly, by a power of two.
const scaleOf = (elements: number) => 2 ** -Math.round(Math.log2(Math.sqrt(elements) / 6) / 2)

/** An input of so many elements, and weights of so many each. */
const valued =
  (elements: number, weights: number, each: number, scale = scaleOf(each)) =>
  (): Record<string, Uint16Array> => {
    const values: Record<string, Uint16Array> = { x: bf16Values(elements, 0x40000000, 1) }
    for (let i = 0; i < weights; i++) values[`w[${i}]`] = bf16Values(each, i * 7919, scale)
    return values
  }

/** Branches of products with relu, added up. */
const products = (rows: number, width: number, count: number, depth: number) =>
  graph('branches', {}, () => {
    const start = input(rows, width)
    const ends = list(count, b => {
      let y = start
      for (let d = 0; d < depth; d++) y = y.pipe(matmul(square(b * depth + d, width)), relu())
      return y
    })
    return { y: ends.reduce((all, end) => all.pipe(add(end))).pipe(download()) }
  })

const branches = ({ width, count, depth }: { width: number; count: number; depth: number }) => ({
  roundings: 0,
  values: valued(width ** 2, count * depth, width ** 2),
  graph: products(width, width, count, depth),
})

const towers = (shape: { rows: number; width: number; count: number; depth: number }) => ({
  roundings: 0,
  values: valued(shape.rows * shape.width, shape.count * shape.depth, shape.width ** 2),
  graph: products(shape.rows, shape.width, shape.count, shape.depth),
})

const diamonds = ({ width, count }: { width: number; count: number }) => ({
  roundings: 0,
  values: valued(width ** 2, 2 * count, width ** 2),
  graph: graph('diamonds', {}, () => {
    let y = input(width, width)
    for (let d = 0; d < count; d++) {
      const left = y.pipe(matmul(square(2 * d, width)), relu())
      const right = y.pipe(matmul(square(2 * d + 1, width)), relu())
      y = left.pipe(add(right))
    }
    return { y: y.pipe(download()) }
  }),
})

const ensemble = ({ rows, features, classes }: { rows: number; features: number; classes: number }) => ({
  // PyTorch's softmax rounds once, at its end. Braid rounds the differences, exponentials and sums too.
  roundings: 3,
  values: valued(rows * features, 2, features * classes),
  graph: graph('ensemble', {}, () => {
    const data = input(rows, features)
    const scores = (i: number) => {
      const raw = data.pipe(matmul(param(`w[${i}]`, bf16([features, classes]))))
      const shifted = raw.pipe(sub(raw.pipe(max({ axis: 1, keepDims: true }))), exp())
      return shifted.pipe(div(shifted.pipe(sum(1, { keepDims: true }))))
    }
    return { y: scores(0).pipe(add(scores(1)), max({ axis: 1 }), download()) }
  }),
})

/**
 * Weights are streamed in, `ahead` of their layer or as far as the compiler finds; every third activation
 * goes out to the host.
 */
export const offloaded = (
  { width, rows, layers }: { width: number; rows: number; layers: number },
  ahead?: number,
): Graph<never, never> =>
  graph('offload', {}, () => {
    const weights = lane('weights')
    let y = input(rows, width)
    const kept: Record<string, unknown> = {}
    for (let layer = 0; layer < layers; layer++) {
      const w = param(`w[${layer}]`, bf16([width, width]), { on: 'host' })
      y = y.pipe(matmul(w.pipe(ahead === undefined ? upload(weights) : upload(weights, { ahead }))), relu())
      if (layer % 3 === 2 && layer + 1 < layers) kept[`a${layer}`] = y.pipe(download())
    }
    return { ...kept, y: y.pipe(mul(0.5), download()) } as never
  }) as never

const offload = (shape: { width: number; rows: number; layers: number }) => ({
  roundings: 0,
  values: valued(shape.rows * shape.width, shape.layers, shape.width ** 2),
  graph: offloaded(shape, 2),
})

const decode = (shape: { rows: number; width: number; hidden: number; layers: number }) => {
  const { rows, width, hidden, layers } = shape
  return {
    // A library adds the terms of such thin products in parts, each side as its own choice of algorithm has
    // it. So a product now and then rounds the other way, and the layers carry that on.
    roundings: Math.ceil(layers / 4),
    values: valued(rows * width, 2 * layers, width * hidden, 2 ** -6),
    graph: graph('decode', {}, () => {
      let y = input(rows, width)
      for (let layer = 0; layer < layers; layer++) {
        const into = param(`w[${2 * layer}]`, bf16([width, hidden]))
        const out = param(`w[${2 * layer + 1}]`, bf16([hidden, width]))
        y = y.pipe(add(y.pipe(matmul(into), gelu(), matmul(out))))
      }
      return { y: y.pipe(download()) }
    }),
  }
}

/** A Walsh-Hadamard transform over the rows, then the largest of each column. */
const wide = ({ rows, size }: { rows: number; size: number }) => ({
  roundings: 0,
  values: valued(rows * size, 0, 1),
  graph: graph('wide', {}, () => {
    const x = input(rows, size)
    let values = list(rows, i => x.pipe(slice(0, i, i + 1)))
    for (let stride = 1; stride < rows; stride *= 2)
      values = values.map((value, i) =>
        i & stride ? values[i - stride]!.pipe(sub(value)) : value.pipe(add(values[i + stride]!)),
      )
    for (let left = rows >> 1; left > 0; left >>= 1)
      values = values.slice(0, left).map((value, i) => value.pipe(max(values[i + left]!)))
    return { y: values[0]!.pipe(download()) }
  }),
})

/** Rows of one small kernel a column, each from its column and the next one in the row above. */
const lattice = ({ columns, rows, size }: { columns: number; rows: number; size: number }) => ({
  roundings: 0,
  values: () => ({ x: Int32Array.from({ length: columns * size }, (_, i) => Math.imul(i + 1, 0x9e3779b1)) }),
  graph: graph('lattice', {}, () => {
    const x = param('x', tensor('i32', [columns, size]), { on: 'host' }).pipe(upload())
    const lanes = list(columns, c => lane(`column ${c}`))
    let values = list(columns, c => x.pipe(slice(0, c, c + 1)))
    for (let row = 0; row < rows; row++)
      values = values.map((value, c) =>
        value.pipe(
          on(lanes[c]!),
          map((a, b) => a.add(b.mul(2)), values[(c + 1) % columns]!),
        ),
      )
    return { y: values.reduce((all, value) => all.pipe(add(value))).pipe(download()) }
  }),
})

const kinds = { branches, diamonds, ensemble, offload, decode, towers, wide, lattice }
type Kind = keyof typeof kinds
export type Shapes = { readonly [K in Kind]: Parameters<(typeof kinds)[K]>[0] }

/** The sizes for a GPU. */
export const shapes: Shapes = {
  branches: { width: 512, count: 8, depth: 6 },
  diamonds: { width: 1024, count: 12 },
  ensemble: { rows: 16384, features: 256, classes: 16 },
  offload: { width: 2048, rows: 4096, layers: 12 },
  decode: { rows: 16, width: 1024, hidden: 4096, layers: 32 },
  towers: { rows: 128, width: 256, count: 16, depth: 6 },
  wide: { rows: 64, size: 16384 },
  lattice: { columns: 4, rows: 500, size: 65536 },
}

export const pipelineOf = (name: Kind, sizes: Shapes = shapes): Pipeline => {
  const made = kinds[name](sizes[name] as never) as unknown as Omit<Pipeline, 'name' | 'shape'>
  let values: ReturnType<Pipeline['values']> | undefined
  return {
    ...made,
    name,
    shape: sizes[name],
    values: () => {
      values ??= made.values()
      return values
    },
  }
}
