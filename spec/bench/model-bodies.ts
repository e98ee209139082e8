// What `bench models` measures: chains of elementwise operations, rows that are normalised, and a byte-level
// GPT. models.py has the same bodies under the same names, with the same values.
import {
  add,
  append,
  argmax,
  attention,
  cast,
  conv,
  embedding,
  type Graph,
  gelu,
  gradients,
  graph,
  layerNorm,
  linear,
  logSoftmax,
  matmul,
  mean as meanOf,
  mul,
  neg,
  oneHot,
  param,
  relu,
  reshape,
  rmsNorm,
  rsqrt,
  softmax,
  split,
  state,
  sub,
  sum,
  tanh,
  tensor,
  transpose,
} from '../../dsl/index.js'
import { hashed } from './stream-values.js'

export type Float = 'f32' | 'bf16'
type Values = Float32Array | Uint16Array | Int32Array

/** A parameter: elements of (2k − 255) / 256 · scale, k a byte of a hash of the index and the seed. */
export interface Weight {
  readonly shape: readonly number[]
  readonly dtype: Float | 'i32'
  readonly seed: number
  /** A power of two, so that bf16 holds each value exactly; of `i32` the number that values are below. */
  readonly scale: number
  /** Is added to each. */
  readonly plus: number
}

export interface Body {
  readonly name: string
  readonly kind: 'chain' | 'rows' | 'columns' | 'lines' | 'gpt' | 'training' | 'decode' | 'attention' | 'conv'
  readonly dtype: Float
  readonly sizes: Readonly<Record<string, number>>
  /** The operations of a chain or of rows, in order; of the GPT none. */
  readonly steps: readonly string[]
  readonly weights: Readonly<Record<string, Weight>>
  readonly graph: Graph<never, never>
  /** Bytes that one kernel would read and write. */
  readonly bytes: number
  /** Braid's milliseconds beside the best way of PyTorch's, at most. */
  readonly bar: number
  /** The difference that is allowed, relative to the largest value. */
  readonly allowed: number
}

const period = 2 ** 20

/** The values of a weight: a period of hashed values, repeated. */
export const valuesOf = ({ shape, dtype, seed, scale, plus }: Weight): Values => {
  const count = shape.reduce((product, size) => product * size, 1)
  const base = new Float32Array(Math.min(count, period))
  for (let i = 0; i < base.length; i++) {
    const byte = hashed(i + seed)
    base[i] = dtype === 'i32' ? (byte % scale) + plus : ((2 * byte - 255) / 256) * scale + plus
  }
  const repeated = <A extends Values>(values: A, whole: A): A => {
    for (let at = 0; at < count; at += values.length)
      whole.set(values.subarray(0, Math.min(values.length, count - at)) as never, at)
    return whole
  }
  if (dtype === 'f32') return repeated(base, new Float32Array(count))
  if (dtype === 'i32') return repeated(Int32Array.from(base), new Int32Array(count))
  const bits = Uint16Array.from(new Uint32Array(base.buffer), word => word >>> 16)
  return repeated(bits, new Uint16Array(count))
}

const bytesOf = { f32: 4, bf16: 2, i32: 4 } as const
const weight = (
  dtype: Weight['dtype'],
  shape: readonly number[],
  seed: number,
  scale = 1,
  plus = 0,
): Weight => ({
  dtype,
  shape,
  seed,
  scale,
  plus,
})

/** Flows of any type: the bodies are built from tables. */
// biome-ignore lint/suspicious/noExplicitAny: the shapes are those of the tables
type Any = any

const chainSteps = ['add b', 'mul s', 'tanh', 'mul 1.5', 'sub b', 'relu']

const step = (x: Any, name: string, flows: Readonly<Record<string, Any>>): Any => {
  const [operation, operand] = name.split(' ')
  const other = operand === undefined ? undefined : (flows[operand] ?? Number(operand))
  const operations: Readonly<Record<string, () => Any>> = {
    add: () => x.pipe(add(other)),
    mul: () => x.pipe(mul(other)),
    sub: () => x.pipe(sub(other)),
    tanh: () => x.pipe(tanh()),
    relu: () => x.pipe(relu()),
    sum: () => x.pipe(sum({ axis: 1 })),
    total: () => x.pipe(sum()),
    columns: () => x.pipe(sum({ axis: 0 })),
    softmax: () => x.pipe(softmax()),
    layerNorm: () => x.pipe(layerNorm({ scale: flows['b'], shift: flows['c'] })),
    rmsNorm: () => x.pipe(rmsNorm({ scale: flows['b'] })),
    columnSoftmax: () => x.pipe(softmax({ axis: 0 })),
    batchNorm: () => {
      const mean = { axis: 0, keepDims: true } as const
      const apart = x.pipe(sub(x.pipe(meanOf(mean))))
      const spread = apart.pipe(mul(apart), meanOf(mean), add(1e-5), rsqrt())
      return apart.pipe(mul(spread), mul(flows['b']), add(flows['c']))
    },
  }
  return operations[operation!]!()
}

/** Elements of the last step's result. */
const writtenBy = (last: string, rows: number, columns: number): number =>
  ({ sum: rows, total: 1, columns })[last] ?? rows * columns

const stepped = (
  given: Pick<Body, 'name' | 'kind' | 'dtype' | 'steps' | 'bar'>,
  rows: number,
  columns: number,
): Body => {
  const { dtype, steps } = given
  const all: Record<string, Weight> = {
    x: weight(dtype, [rows, columns], 1),
    b: weight(dtype, [columns], 7919, 1 / 4, 1),
    c: weight(dtype, [columns], 104729, 1 / 4),
    s: weight(dtype, [rows, 1], 1299709, 1 / 4, 1),
  }
  const used = Object.entries(all).filter(
    ([name]) =>
      name === 'x' ||
      steps.some(text => text.endsWith(` ${name}`)) ||
      (name === 'b' && steps.some(text => text.endsWith('Norm'))) ||
      (name === 'c' && steps.some(text => text === 'layerNorm' || text === 'batchNorm')),
  )
  const weights = Object.fromEntries(used)
  const read = Object.values(weights).reduce(
    (sum, { shape }) => sum + shape.reduce((product, size) => product * size, 1),
    0,
  )
  return {
    ...given,
    sizes: { rows, columns },
    weights,
    bytes: (read + writtenBy(steps.at(-1)!, rows, columns)) * bytesOf[dtype],
    // Rounded after each operation on one side and once on the other; sums of thousands add up in any order.
    // Of a sum of millions of either sign little is left.
    allowed: dtype === 'bf16' ? 2 ** -6 : steps.includes('total') ? 2 ** -10 : 2 ** -17,
    graph: graph('body', {}, () => {
      const flows = Object.fromEntries(
        used.map(([name, { shape }]) => [name, param(name, tensor(dtype, shape))]),
      )
      return { y: steps.reduce((x, name) => step(x, name, flows), flows['x'] as Any) }
    }) as never,
  }
}

const chain = (operations: number, dtype: Float, reduced: boolean): Body => {
  const steps = Array.from({ length: operations }, (_, i) => chainSteps[i % chainSteps.length]!)
  return stepped(
    {
      name: `${operations} operations${reduced ? ', then the sum of each row' : ''}`,
      kind: 'chain',
      dtype,
      steps: reduced ? [...steps, 'sum'] : steps,
      bar: 0.95,
    },
    dtype === 'f32' ? 4096 : 8192,
    4096,
  )
}

const rows = (steps: readonly string[], dtype: Float, length: number): Body =>
  stepped(
    { name: `${steps.join(', then ')} of ${length}`, kind: 'rows', dtype, steps, bar: 1 },
    2 ** 29 / bytesOf[dtype] / length,
    length,
  )

/** Operations, then the sum of each column; softmax and norms along columns. */
const columns = (steps: readonly string[], dtype: Float, length: number, inner: number): Body =>
  stepped(
    { name: `${steps.join(', then ')} of ${length} × ${inner}`, kind: 'columns', dtype, steps, bar: 1 },
    length,
    inner,
  )

/** What `bench models` measures of reductions along another axis than the last. */
export const acrossRows = (): readonly Body[] =>
  floats.flatMap(dtype => [
    columns(['add b', 'tanh', 'mul 1.5', 'columns'], dtype, 8192, 4096),
    columns(['columnSoftmax'], dtype, 512, 65536),
    columns(['columnSoftmax'], dtype, 8192, 4096),
    columns(['batchNorm'], dtype, 256, 65536),
    columns(['batchNorm'], dtype, 8192, 1024),
  ])

/** Reductions of rows or columns that are too few to fill a device. */
const line = (step: string, dtype: Float, rows: number, columns: number): Body =>
  stepped(
    { name: `${step} of ${rows} × ${columns}`, kind: 'lines', dtype, steps: [step], bar: 1.25 },
    rows,
    columns,
  )

const gptWeights = (sizes: { vocabulary: number; width: number; layers: number; tokens: number }) => {
  const { vocabulary, width, layers, tokens } = sizes
  let seed = 1
  const of = (shape: readonly number[], plus = 0) => weight('bf16', shape, 7919 * seed++, 2 ** -5, plus)
  const weights: Record<string, Weight> = { wte: of([vocabulary, width]), wpe: of([tokens, width]) }
  const norm = (name: string) => {
    weights[`${name}.weight`] = of([width], 1)
    weights[`${name}.bias`] = of([width])
  }
  const product = (name: string, k: number, n: number) => {
    weights[`${name}.weight`] = of([k, n])
    weights[`${name}.bias`] = of([n])
  }
  for (let l = 0; l < layers; l++) {
    norm(`h.${l}.ln_1`)
    product(`h.${l}.attn.c_attn`, width, 3 * width)
    product(`h.${l}.attn.c_proj`, width, width)
    norm(`h.${l}.ln_2`)
    product(`h.${l}.mlp.c_fc`, width, 4 * width)
    product(`h.${l}.mlp.c_proj`, 4 * width, width)
  }
  norm('ln_f')
  return weights
}

type Flows = (name: string) => Any
const normed = (x: Any, name: string, flow: Flows): Any =>
  x.pipe(layerNorm({ scale: flow(`${name}.weight`), shift: flow(`${name}.bias`) }))
const projected = (x: Any, name: string, flow: Flows): Any =>
  x.pipe(matmul(flow(`${name}.weight`)), add(flow(`${name}.bias`)))
const feedForward = (x: Any, layer: number, flow: Flows): Any => {
  const hidden = projected(normed(x, `h.${layer}.ln_2`, flow), `h.${layer}.mlp.c_fc`, flow)
  return projected(hidden.pipe(gelu({ approximate: 'tanh' })), `h.${layer}.mlp.c_proj`, flow)
}

interface GptSizes {
  readonly batch: number
  readonly tokens: number
  readonly vocabulary: number
  readonly width: number
  readonly heads: number
  readonly layers: number
}

/** The scores of a GPT-2 for the tokens, all positions at once. */
const scoresOf = (ids: Any, { batch, tokens, width, heads, layers }: GptSizes, flow: Flows): Any => {
  const inHeads = (x: Any): Any =>
    x.pipe(reshape([batch, tokens, heads, width / heads]), transpose([0, 2, 1, 3]))
  const table = flow('wte')
  let x: Any = ids.pipe(embedding(table), add(flow('wpe')))
  for (let l = 0; l < layers; l++) {
    const all = projected(normed(x, `h.${l}.ln_1`, flow), `h.${l}.attn.c_attn`, flow)
    const [q, k, v] = all.pipe(split({ axis: 2, parts: 3 })).map(inHeads)
    const seen = q.pipe(attention(k, v, { causal: true }), transpose([0, 2, 1, 3]))
    x = x.pipe(add(projected(seen.pipe(reshape([batch, tokens, width])), `h.${l}.attn.c_proj`, flow)))
    x = x.pipe(add(feedForward(x, l, flow)))
  }
  return normed(x, 'ln_f', flow).pipe(linear(table))
}

/** The forward pass of a GPT-2 over bytes. */
export const gpt = (sizes: GptSizes): Body => {
  const { batch, tokens, vocabulary } = sizes
  const weights: Record<string, Weight> = {
    tokens: weight('i32', [batch, tokens], 13, vocabulary),
    ...gptWeights(sizes),
  }
  const flow = (name: string): Any => param(name, tensor(weights[name]!.dtype, weights[name]!.shape))
  return {
    name: 'byte-level GPT, forward',
    kind: 'gpt',
    dtype: 'bf16',
    sizes: { ...sizes },
    steps: [],
    weights,
    bytes: 0,
    bar: 1,
    // A dozen layers of bf16, whose roundings differ.
    allowed: 2 ** -4,
    graph: graph('gpt', {}, () => ({ y: scoresOf(flow('tokens'), sizes, flow) })) as never,
  }
}

/** So small that no weight of bf16 changes: each step is the same. */
const rate = 2 ** -40

/** A step of gradient descent of the same: the loss, its gradients, and all weights after it. */
export const training = (sizes: GptSizes): Body => {
  const { batch, tokens, vocabulary } = sizes
  const own = gptWeights(sizes)
  const ids: Record<string, Weight> = {
    tokens: weight('i32', [batch, tokens], 13, vocabulary),
    targets: weight('i32', [batch, tokens], 17, vocabulary),
  }
  const fill = (name: string) => (memory: Uint8Array) => {
    const { buffer, byteLength } = valuesOf(own[name]!)
    memory.set(new Uint8Array(buffer, 0, byteLength))
  }
  return {
    name: 'byte-level GPT, training step',
    kind: 'training',
    dtype: 'bf16',
    sizes: { ...sizes, rate },
    steps: [],
    weights: { ...ids, ...own },
    bytes: 0,
    bar: 1,
    allowed: 2 ** -4,
    graph: graph('training', {}, () => {
      const [given, targets] = Object.entries(ids).map(([name, { shape }]) =>
        param(name, tensor('i32', shape)),
      ) as [Any, Any]
      const names = Object.keys(own)
      const s: Any = state(
        Object.fromEntries(names.map(name => [name, tensor(own[name]!.dtype, own[name]!.shape)])),
        Object.fromEntries(names.map(name => [name, fill(name)])),
      )
      const truth = targets.pipe(reshape([batch * tokens]), oneHot({ classes: vocabulary }))
      const scores = scoresOf(given, sizes, name => s[name])
      const loss = scores.pipe(
        reshape([batch * tokens, vocabulary]),
        cast('f32'),
        logSoftmax(),
        mul(truth),
        sum(1),
        meanOf(0),
        neg(),
      )
      const by: Any = gradients(loss, Object.fromEntries(names.map(name => [name, s[name]])))
      s.next(Object.fromEntries(names.map(name => [name, s[name].pipe(sub(by[name].pipe(mul(rate))))])))
      return { y: loss.pipe(cast('bf16')) }
    }) as never,
  }
}

/**
 * One token more, whose keys and values go into caches, at a place that stays the same from step to step. It is
 * always the same token, but it is known when the one before has been chosen: else steps would overlap.
 */
export const decode = (sizes: {
  readonly cached: number
  readonly length: number
  readonly vocabulary: number
  readonly width: number
  readonly heads: number
  readonly layers: number
}): Body => {
  const { cached, length, width, heads, layers, vocabulary } = sizes
  const weights: Record<string, Weight> = {
    tokens: weight('i32', [1], 13, vocabulary),
    length: { ...weight('i32', [1], 0, 1), plus: length },
    ...gptWeights({ ...sizes, tokens: cached }),
  }
  const flow = (name: string): Any => param(name, tensor(weights[name]!.dtype, weights[name]!.shape))
  const cache = tensor('bf16', [heads, cached, width / heads])
  return {
    name: 'byte-level GPT, one token',
    kind: 'decode',
    dtype: 'bf16',
    sizes,
    steps: [],
    weights,
    bytes: 0,
    bar: 0.75,
    allowed: 2 ** -4,
    graph: graph('decode', {}, () => {
      const s: Any = state(
        Object.fromEntries(
          Array.from({ length: layers }, (_, l) => [`keys.${l}`, `values.${l}`])
            .flat()
            .map(name => [name, cache] as const)
            .concat([['chosen', tensor('i32', [1])]] as never),
        ),
      )
      const next: Record<string, unknown> = {}
      const at = flow('length')
      const there = at.pipe(add(1))
      const table = flow('wte')
      let x: Any = flow('tokens').pipe(add(s.chosen), embedding(table), add(at.pipe(embedding(flow('wpe')))))
      for (let l = 0; l < layers; l++) {
        const all = projected(normed(x, `h.${l}.ln_1`, flow), `h.${l}.attn.c_attn`, flow)
        const [q, k, v] = all
          .pipe(split({ axis: 1, parts: 3 }))
          .map((part: Any) => part.pipe(reshape([heads, 1, width / heads])))
        const [keys, values] = [
          [`keys.${l}`, k],
          [`values.${l}`, v],
        ].map(([name, rows]) => {
          next[name] = s[name].pipe(append(rows, { axis: 1, at }))
          return next[name]
        })
        const seen = q.pipe(attention(keys as Any, values as Any, { length: there }), reshape([1, width]))
        x = x.pipe(add(projected(seen, `h.${l}.attn.c_proj`, flow)))
        x = x.pipe(add(feedForward(x, l, flow)))
      }
      const y = normed(x, 'ln_f', flow).pipe(linear(table))
      s.next({ ...next, chosen: y.pipe(argmax({ axis: 1 }), mul(0)) })
      return { y }
    }) as never,
  }
}

const floats: readonly Float[] = ['f32', 'bf16']
const lengths = [128, 1024, 8192, 65536]
const norms = [['softmax'], ['layerNorm'], ['rmsNorm'], ['layerNorm', 'softmax']]

export const bodies = (): readonly Body[] => [
  ...floats.flatMap(dtype =>
    [false, true].flatMap(reduced => [6, 12, 20].map(operations => chain(operations, dtype, reduced))),
  ),
  ...norms.flatMap(steps => floats.flatMap(dtype => lengths.map(length => rows(steps, dtype, length)))),
  gpt({ batch: 8, tokens: 1024, vocabulary: 256, width: 768, heads: 12, layers: 12 }),
  training({ batch: 8, tokens: 1024, vocabulary: 256, width: 768, heads: 12, layers: 12 }),
  decode({ cached: 1024, length: 1000, vocabulary: 256, width: 768, heads: 12, layers: 12 }),
]

/** What `bench models` measures beside these: few long rows and columns. */
export const longLines = (): readonly Body[] => [
  line('total', 'f32', 8192, 4096),
  line('total', 'bf16', 8192, 8192),
  line('columns', 'f32', 2 ** 20, 32),
  line('columns', 'bf16', 8192, 4096),
  line('softmax', 'bf16', 64, 128256),
  line('softmax', 'f32', 16, 2 ** 20),
  line('layerNorm', 'f32', 16, 2 ** 20),
]

/** Causal attention of as many keys as queries; `heads` share `groups` of keys. */
const attended = (sizes: {
  readonly batch: number
  readonly heads: number
  readonly groups: number
  readonly tokens: number
  readonly size: number
}): Body => {
  const { batch, heads, groups, tokens, size } = sizes
  const weights = {
    q: weight('bf16', [batch, heads, tokens, size], 1, 2),
    k: weight('bf16', [batch, groups, tokens, size], 7919, 2),
    v: weight('bf16', [batch, groups, tokens, size], 104729),
  }
  const shared = heads === groups ? '' : `, ${groups} groups of keys`
  return {
    name: `attention, ${batch} × ${heads} heads × ${tokens} × ${size}${shared}`,
    kind: 'attention',
    dtype: 'bf16',
    sizes,
    steps: [],
    weights,
    bytes: 0,
    bar: 1.05,
    allowed: 2 ** -6,
    graph: graph('attention', {}, () => {
      const [q, k, v] = Object.entries(weights).map(([name, { shape }]) => param(name, tensor('bf16', shape)))
      return { y: (q as Any).pipe(attention(k as Any, v as Any, { causal: true })) }
    }) as never,
  }
}

/** A convolution of square images by square kernels, padded to keep the size but for the stride. */
const convolved = (
  dtype: Float,
  sizes: {
    readonly batch: number
    readonly channels: number
    readonly filters: number
    readonly size: number
    readonly kernel: number
    readonly stride?: number
    readonly groups?: number
  },
  isLast = false,
): Body => {
  const { batch, channels, filters, size, kernel, stride = 1, groups = 1 } = sizes
  const padding = (kernel - 1) / 2
  const shaped = (first: number, second: number, sides: number) =>
    isLast ? [first, sides, sides, second] : [first, second, sides, sides]
  const weights = {
    x: weight(dtype, shaped(batch, channels, size), 1),
    w: weight(dtype, shaped(filters, channels / groups, kernel), 7919),
  }
  const less = [
    stride > 1 ? `, stride ${stride}` : '',
    groups > 1 ? `, ${groups} groups` : '',
    isLast ? ', channels last' : '',
  ].join('')
  const options = { stride, padding, groups, channels: isLast ? 'last' : 'first' }
  return {
    name: `conv, ${batch} × ${channels} × ${size}², ${filters} filters of ${kernel}²${less}`,
    kind: 'conv',
    dtype,
    sizes: { stride, padding, groups, last: isLast ? 1 : 0 },
    steps: [],
    weights,
    bytes: 0,
    bar: 1.05,
    allowed: dtype === 'bf16' ? 2 ** -6 : 2 ** -17,
    graph: graph('conv', {}, () => {
      const [x, w] = Object.entries(weights).map(([name, { shape }]) => param(name, tensor(dtype, shape)))
      return { y: (x as Any).pipe(conv(w as Any, options as Any)) }
    }) as never,
  }
}

const layers = [
  { batch: 32, channels: 3, filters: 64, size: 224, kernel: 7, stride: 2 },
  { batch: 32, channels: 64, filters: 64, size: 56, kernel: 3 },
  { batch: 32, channels: 256, filters: 256, size: 14, kernel: 3 },
  { batch: 32, channels: 1024, filters: 256, size: 14, kernel: 1 },
  { batch: 32, channels: 128, filters: 128, size: 28, kernel: 3, groups: 32 },
]

/** What `bench libraries` measures. */
export const ofLibraries = (): readonly Body[] => [
  attended({ batch: 8, heads: 12, groups: 12, tokens: 1024, size: 64 }),
  attended({ batch: 1, heads: 32, groups: 32, tokens: 4096, size: 128 }),
  attended({ batch: 4, heads: 32, groups: 8, tokens: 2048, size: 128 }),
  ...layers.map(layer => convolved('bf16', layer, true)),
  ...layers.map(layer => convolved('bf16', layer)),
  convolved('f32', { batch: 8, channels: 64, filters: 64, size: 56, kernel: 3 }),
  convolved('f32', { batch: 8, channels: 256, filters: 256, size: 14, kernel: 3 }),
]

/** The same, small enough for a test of every body. */
export const smallBodies = (): readonly Body[] => [
  attended({ batch: 1, heads: 4, groups: 2, tokens: 40, size: 16 }),
  ...floats.flatMap(dtype =>
    [false, true].map(isLast =>
      convolved(dtype, { batch: 1, channels: 8, filters: 12, size: 9, kernel: 3, stride: 2 }, isLast),
    ),
  ),
  ...floats.flatMap(dtype =>
    [chainSteps, [...chainSteps, 'sum'], ...norms].map(steps =>
      stepped({ name: steps.join(', '), kind: 'rows', dtype, steps, bar: 1 }, 6, 40),
    ),
  ),
  ...floats.flatMap(dtype => ['total', 'columns'].map(step => line(step, dtype, 6, 40))),
  gpt({ batch: 2, tokens: 16, vocabulary: 32, width: 32, heads: 2, layers: 2 }),
  training({ batch: 2, tokens: 16, vocabulary: 32, width: 32, heads: 2, layers: 2 }),
  decode({ cached: 16, length: 9, vocabulary: 32, width: 32, heads: 2, layers: 2 }),
]
