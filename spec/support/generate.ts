// Random valid graphs in the public language, each with its parameters, its feeds, and a proved bound on how far a device may be
// off. One thing of some length: every case stands beside the rule by which its magnitude and its error grow.
import fc from 'fast-check'
import { isRight } from 'fp-ts/lib/Either.js'
import { bindShape } from '../../dsl/bind.js'
import {
  type AnyTensor,
  abs,
  add,
  cast,
  delay,
  device,
  div,
  download,
  every,
  exp,
  type Flow,
  type Graph,
  gelu,
  graph,
  hold,
  irOf,
  kernel,
  type Lane,
  lane,
  log,
  map,
  matmul,
  max,
  mean,
  min,
  mul,
  neg,
  on,
  param,
  pow,
  relu,
  reshape,
  rsqrt,
  scan,
  sigmoid,
  silu,
  slice,
  sqrt,
  sub,
  sum,
  tanh,
  tensor,
  upload,
  window,
} from '../../dsl/index.js'
import { type Dim, type DType, elements, showSpec } from '../../dsl/ir/tensor.js'
import type { HostArray } from '../../dsl/operators/operator.js'
import { broadcast } from '../../dsl/operators/shapes.js'
import { ratesOf } from '../../dsl/rates.js'
import { hostArray, numbers, roundoff, writer } from '../../dsl/values.js'

/** A graph with all that is needed to run it, on a device or by `interpret`. */
export interface Sample {
  readonly graph: Graph
  readonly dims: Readonly<Record<string, number>>
  readonly inFlight: number
  readonly params: Readonly<Record<string, HostArray>>
  /** The values of each input, as many arrays a tick as it comes times, and perhaps the beginning of a tick more. */
  readonly feeds: Readonly<Record<string, readonly HostArray[]>>
  readonly ticks: number
  /** By output: its element type, and how far any element may be from what `interpret` yields; 0: bit for bit. */
  readonly outputs: Readonly<Record<string, { readonly dtype: DType; readonly slack: number }>>
  /** The graph, a node a line; shown with a counterexample. */
  readonly text: string
}

export interface GenerateOptions {
  /** Most operators a graph is made of; default 14. */
  readonly steps?: number
  /** With user kernels (and donations); default true. */
  readonly kernels?: boolean
  /** With delay and scan; default true. */
  readonly state?: boolean
  /** Devices that lanes are on, and that flows are put on without saying a lane; default 1. */
  readonly devices?: number
  /** With window, every and hold; default false. */
  readonly rates?: boolean
}

type Any = Flow<'device', AnyTensor>
type Op = (x: Any) => Any

/** A flow with what is known of its values: none is larger than `mag`, and a device's differ by at most `err`. */
interface Known {
  readonly flow: Any
  readonly mag: number
  readonly err: number
  readonly pace?: Pace
}

/**
 * How many instants there are from one value to the next, and the inputs that it is made from: where two flows have one of these in common, their rates are known of
 * each other whatever else is dead.
 */
interface Pace {
  readonly period: number
  readonly from: ReadonlySet<number>
}

const mostInstants = 12

interface Step {
  readonly op: number
  readonly a: number
  readonly b: number
  readonly c: number
}

const floats: readonly DType[] = ['f32', 'f32', 'f32', 'f16', 'bf16']
const isFloat = (dtype: DType): boolean => dtype !== 'u8' && dtype !== 'i32'

/** A small generator of its own, so that a seed is all that values depend on. */
const random = (seed: number) => {
  let state = (seed ^ 0x9e3779b9) >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

/** Values of a type: floats in [-1, 1], whole numbers in [0, 9]. */
export const valuesOf = (dtype: DType, count: number, seed: number): HostArray => {
  const next = random(seed)
  const write = writer(dtype)
  const values = hostArray(dtype, count)
  for (let i = 0; i < count; i++)
    values[i] = write(isFloat(dtype) ? Math.fround(next() * 2 - 1) : Math.floor(next() * 10))
  return values
}

// An error that is there becomes larger by one unit in the last place when a value is stored: it may fall to the other side.
const stored = (flow: Any, mag: number, err: number): Known => ({
  flow,
  mag,
  err: err === 0 ? 0 : err + 2 * roundoff[flow.spec.dtype] * mag,
})

const shapeOf = (known: Known): readonly Dim[] => known.flow.spec.shape
const dtypeOf = (known: Known): DType => known.flow.spec.dtype
/** What a transcendental function may be off by, in itself. */
const loose = (mag: number): number => 32 * roundoff.f32 * Math.max(mag, 1)

const twiceSource = `extern "C" __global__ void scale_rows(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
}`
const launch = ({ n }: Readonly<Record<string, number>>) => ({
  grid: Math.ceil(n! / 64),
  block: 64,
  scalars: [{ i32: n! }],
})
const twice = (x: { readonly [i: number]: number; readonly length: number }, y: Float32Array): void => {
  for (let i = 0; i < y.length; i++) y[i] = 2 * x[i]!
}
const vector = tensor('f32', ['n'])
const copying = kernel({
  name: 'scale_rows',
  cuda: twiceSource,
  reads: { x: vector },
  writes: { y: vector },
  launch,
  reference: ({ x }, { y }) => twice(x, y),
})
const donating = kernel({
  name: 'scale_rows',
  cuda: twiceSource,
  reads: { x: vector },
  writes: { y: vector },
  donates: { y: 'x' },
  launch,
  reference: ({ x }, { y }) => twice(x, y),
})
const splitting = kernel({
  name: 'split',
  cuda: `extern "C" __global__ void split(const float* x, float* low, float* high, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { low[i] = fminf(x[i], 0.0f); high[i] = fmaxf(x[i], 0.0f); }
}`,
  reads: { x: vector },
  writes: { low: vector, high: vector },
  launch,
  reference: ({ x }, { low, high }) => {
    for (let i = 0; i < x.length; i++) {
      low[i] = Math.min(x[i]!, 0)
      high[i] = Math.max(x[i]!, 0)
    }
  },
})

class Growth {
  readonly pool: Known[] = []
  readonly params: Record<string, HostArray> = {}
  /** The inputs of the flows that a step has met. */
  readonly met = new Set<number>()

  constructor(
    readonly lanes: readonly Lane[],
    readonly dims: Readonly<Record<string, number>>,
    readonly options: GenerateOptions,
  ) {}

  pick(n: number): Known {
    return this.pool[n % this.pool.length]!
  }

  lane(n: number): Lane {
    return this.lanes[n % this.lanes.length]!
  }

  size(shape: readonly Dim[]): number {
    return elements(bindShape(shape, this.dims))
  }

  /** Brings a value that has grown large, or wrong by much, back into [-1, 1]. */
  tamed(known: Known): Known {
    if (!isFloat(dtypeOf(known)) || (known.mag <= 16 && known.err <= 0.02)) return known
    const flow = known.flow.pipe(tanh() as Op)
    return { ...known, ...stored(flow, 1, 1.01 * known.err + loose(1)) }
  }

  /** One that may be wrong by more than half its range says nothing about a device: nobody reads it. */
  push(known: Known): void {
    const tamed = this.tamed(known)
    if (tamed.err < 1) this.pool.push(tamed)
  }

  /** A weight, resident or streamed, with values in [-1, 1]. */
  weight(dtype: DType, shape: readonly number[], step: Step): Any {
    const name = `w${Object.keys(this.params).length}`
    this.params[name] = valuesOf(dtype, elements(shape), step.a * 31 + step.c)
    const spec = tensor(dtype, shape)
    const how = step.c % 4
    if (how === 0) return param(name, spec)
    const streamed = param(name, spec, { on: 'host' })
    return how === 1
      ? streamed.pipe(upload(this.lane(step.a)))
      : streamed.pipe(upload(this.lane(step.a), { ahead: how - 2 + (step.b % 2) }))
  }

  /** A second operand for x: of its type, and broadcasting with it. */
  partner(x: Known, n: number): Known {
    for (let i = 0; i < this.pool.length; i++) {
      const y = this.pick(n + i)
      if (dtypeOf(y) !== dtypeOf(x) || y.pace?.period !== x.pace?.period) continue
      const shape = broadcast([shapeOf(x), shapeOf(y)])
      if (!shape || this.size(shape) > 4096) continue
      for (const input of y.pace?.from ?? []) this.met.add(input)
      return y
    }
    return x
  }
}

/** |x| + 1/2: away from 0, and above it. */
const positive = (x: Any): Any => x.pipe(abs() as Op, add(0.5) as Op)

const unary = (g: Growth, x: Known, { c }: Step) => {
  const { flow, mag, err } = x
  if (!isFloat(dtypeOf(x)))
    return g.push(stored(flow.pipe([relu(), abs(), neg()][dtypeOf(x) === 'u8' ? 0 : c % 3] as Op), mag, err))
  const cases: readonly (() => Known)[] = [
    () => stored(flow.pipe(relu() as Op), mag, err),
    () => stored(flow.pipe(neg() as Op), mag, err),
    () => stored(flow.pipe(abs() as Op), mag, err),
    () => stored(flow.pipe(tanh() as Op), 1, err + loose(1)),
    () => stored(flow.pipe(sigmoid() as Op), 1, err / 4 + loose(1)),
    () => stored(flow.pipe(silu() as Op), mag, 1.1 * err + loose(mag)),
    () => stored(flow.pipe(gelu() as Op), mag, 1.13 * err + loose(mag)),
    () => stored(flow.pipe(gelu({ approximate: 'tanh' }) as Op), mag, 1.13 * err + loose(mag)),
    () => stored(positive(flow).pipe(sqrt() as Op), Math.sqrt(mag + 0.5), stored(flow, mag + 0.5, err).err),
    () => stored(positive(flow).pipe(rsqrt() as Op), 1.42, 1.5 * stored(flow, mag + 0.5, err).err + loose(2)),
    () =>
      stored(
        positive(flow).pipe(log() as Op),
        Math.max(0.7, Math.log(mag + 0.5)),
        2 * stored(flow, mag + 0.5, err).err + loose(2),
      ),
    () =>
      mag > 3 ? x : stored(flow.pipe(exp() as Op), Math.exp(mag), Math.exp(mag + err) * err + loose(Math.exp(mag))),
    () =>
      stored(
        positive(flow).pipe(pow(2) as Op),
        (mag + 0.5) ** 2,
        2 * (mag + 1) * stored(flow, mag + 0.5, err).err + 4 * loose((mag + 0.5) ** 2),
      ),
  ]
  g.push(cases[c % cases.length]!())
}

const withNumber = (g: Growth, x: Known, { b, c }: Step) => {
  const { flow, mag, err } = x
  const n = isFloat(dtypeOf(x)) ? ((b % 17) - 8) / 4 : b % 4
  const size = Math.abs(n)
  const cases: readonly (() => Known)[] = [
    () => stored(flow.pipe(add(n) as Op), mag + size, err),
    () => stored(flow.pipe(max(n) as Op), Math.max(mag, size), err),
    () => stored(flow.pipe(min(n) as Op), Math.max(mag, size), err),
    () => stored(flow.pipe(mul(n) as Op), mag * size, err * size),
    () => stored(flow.pipe(sub(n) as Op), mag + size, err),
    () => stored(flow.pipe(div(1 + size) as Op), mag, err),
  ]
  // A u8 saturates; division wants floats.
  g.push(cases[c % (isFloat(dtypeOf(x)) ? 6 : dtypeOf(x) === 'i32' ? 5 : 3)]!())
}

const withFlow = (g: Growth, x: Known, { b, c }: Step) => {
  const y = g.partner(x, b)
  if (broadcast([shapeOf(x), shapeOf(y)]) === undefined) return
  const other = y.flow as never
  const mag = x.mag + y.mag
  const err = x.err + y.err
  const product = x.mag * y.err + y.mag * x.err + x.err * y.err
  const cases: readonly (() => Known)[] = [
    () => stored(x.flow.pipe(add(other) as Op), mag, err),
    () => stored(x.flow.pipe(max(other) as Op), Math.max(x.mag, y.mag), err),
    () => stored(x.flow.pipe(min(other) as Op), Math.max(x.mag, y.mag), err),
    () => stored(x.flow.pipe(sub(other) as Op), mag, err),
    () => stored(x.flow.pipe(mul(other) as Op), x.mag * y.mag, product),
    () => stored(x.flow.pipe(map((p, q) => p.max(q).add(p.min(q).neg()).abs(), other) as Op), 2 * mag, 2 * err),
    () => stored(x.flow.pipe(map((p, q) => p.add(q).max(0).sub(q.min(0.5)), other) as Op), 2 * mag + 0.5, 2 * err),
    () =>
      stored(
        x.flow.pipe(div(positive(y.flow) as never) as Op),
        2 * x.mag,
        2 * x.err + 4 * x.mag * stored(y.flow, y.mag + 0.5, y.err).err,
      ),
  ]
  const kinds = dtypeOf(x) === 'u8' ? 3 : dtypeOf(x) === 'i32' ? (x.mag * y.mag > 1e6 ? 4 : 5) : cases.length
  g.push(cases[c % kinds]!())
}

const product = (g: Growth, x: Known, step: Step) => {
  const shape = shapeOf(x)
  const k = shape.at(-1)
  if (!isFloat(dtypeOf(x)) || shape.length < 2 || typeof k !== 'number') return unary(g, x, step)
  const n = 1 + (step.b % 6)
  const transpose = step.c % 3 === 0
  const lead = shape.slice(0, -2)
  const batched = shape.length > 2 && step.c % 5 === 0 && lead.every(size => typeof size === 'number')
  const own = [...(batched ? (lead as number[]) : []), ...(transpose ? [n, k] : [k, n])]
  const w = g.weight(dtypeOf(x), own, step)
  const flow = x.flow.pipe(matmul(w as never, { transpose }) as unknown as Op)
  g.push(stored(flow, k * x.mag, k * x.err + 2 * (k + 1) * roundoff.f32 * k * x.mag))
}

const reduced = (g: Growth, x: Known, { b, c }: Step) => {
  const shape = shapeOf(x)
  if (shape.length === 0) return withNumber(g, x, { op: 0, a: 0, b, c })
  const axis = b % shape.length
  const length = bindShape(shape, g.dims)[axis]!
  const keepDims = c % 2 === 0
  const { flow, mag, err } = x
  const real = isFloat(dtypeOf(x))
  const own = real ? 2 * length * roundoff.f32 * length * mag : 0
  const cases: readonly (() => Known)[] = [
    () => stored(flow.pipe(max({ axis, keepDims }) as unknown as Op), mag, err),
    () => stored(flow.pipe(min({ axis, keepDims }) as unknown as Op), mag, err),
    () => stored(flow.pipe(sum(axis, { keepDims }) as unknown as Op), length * mag, length * err + own),
    () => stored(flow.pipe(mean({ axis, keepDims }) as unknown as Op), mag, err + own / length),
  ]
  g.push(cases[(c >> 1) % (real ? 4 : 3)]!())
}

const view = (g: Growth, x: Known, { b, c }: Step) => {
  const shape = shapeOf(x)
  const axis = shape.length === 0 ? 0 : b % shape.length
  const size = shape[axis]
  if (c % 2 === 0 && typeof size === 'number' && size > 1) {
    const from = (c >> 1) % size
    const to = from + 1 + ((b >> 2) % (size - from))
    return g.push({ ...x, flow: x.flow.pipe(slice(axis, from, to) as unknown as Op) })
  }
  const [first, ...rest] = shape
  const shapes: readonly (readonly Dim[])[] = [
    first === undefined ? [1] : rest.every(s => typeof s === 'number') ? [first, -1] : shape,
    shape.length < 5 ? [1, ...shape] : shape,
    shape.length < 5 ? [...shape, 1] : shape,
    typeof first === 'number' && rest.every(s => typeof s === 'number') ? [-1] : shape,
  ]
  g.push({ ...x, flow: x.flow.pipe(reshape(shapes[(c >> 1) % shapes.length]!) as unknown as Op) })
}

const converted = (g: Growth, x: Known, { b, c }: Step) => {
  const { flow, mag, err } = x
  // A truncation would make a small error a large one: only exact values become whole numbers.
  const to = c % 4 === 0 && err === 0 ? (['i32', 'u8'] as const)[b % 2]! : floats[b % floats.length]!
  if (isFloat(to)) {
    const known = { flow: flow.pipe(cast(to) as Op), mag, err }
    return g.push(stored(known.flow, mag, err))
  }
  const scaled = isFloat(dtypeOf(x)) ? flow.pipe(mul(10) as Op) : flow
  g.push({ flow: scaled.pipe(cast(to) as Op), mag: 10 * mag, err: 0 })
}

const remembered = (g: Growth, x: Known, { b, c }: Step) => {
  const { flow, mag, err } = x
  const init = isFloat(dtypeOf(x)) ? (b % 5) / 4 : b % 3
  const top = Math.max(mag, init)
  if (c % 3 === 0) return g.push({ flow: flow.pipe(delay(init) as Op), mag: top, err })
  if (c % 3 === 1 || !isFloat(dtypeOf(x)))
    return g.push({ flow: flow.pipe(scan((acc, now) => acc.pipe(max(now as never) as Op), init) as Op), mag: top, err })
  // acc / 2 + x: at most twice the largest x, and so are the errors.
  const flow2 = flow.pipe(scan((acc, now) => acc.pipe(mul(0.5) as Op, add(now as never) as Op), init) as Op)
  g.push({ flow: flow2, mag: 2 * top, err: err === 0 ? 0 : 2 * (err + 4 * roundoff[dtypeOf(x)] * top) })
}

/** A value of another rate. Where a hold does not say how long, what it meets does. */
const resampled = (g: Growth, x: Known, { b, c }: Step) => {
  const { flow, mag, err } = x
  const { period, from } = x.pace!
  const n = 2 + (b % 2)
  const put = (known: Known) => g.push({ ...known })
  if (c % 4 < 2 && period * n <= mostInstants) {
    const pace = { period: period * n, from }
    if (c % 4 === 0) return put({ flow: flow.pipe(every(n) as Op), mag, err, pace })
    if (shapeOf(x).length < 5 && g.size(shapeOf(x)) <= 1024)
      return put({ flow: flow.pipe(window(n) as unknown as Op), mag, err, pace })
  }
  const faster = period % n === 0 ? n : 1
  const init = isFloat(dtypeOf(x)) ? (b % 5) / 4 : b % 3
  const pace = { period: period / faster, from }
  const known = { mag: Math.max(mag, init), err, pace }
  const met = g.pool.find(
    y =>
      dtypeOf(y) === dtypeOf(x) &&
      y.pace!.period === pace.period &&
      [...y.pace!.from].some(input => from.has(input)) &&
      g.size(broadcast([shapeOf(x), shapeOf(y)]) ?? [4097]) <= 4096,
  )
  if (c % 3 === 0 || met === undefined) return put({ ...known, flow: flow.pipe(hold(init, faster) as Op) })
  put({
    flow: flow.pipe(hold(init) as Op, max(met.flow as never) as Op),
    mag: Math.max(known.mag, met.mag),
    err: err + met.err,
    pace: { ...pace, from: new Set([...from, ...met.pace!.from]) },
  })
}

const placed = (g: Growth, x: Known, { b }: Step) => g.push({ ...x, flow: x.flow.pipe(on(g.lane(b)) as Op) })

const custom = (g: Growth, x: Known, { c }: Step) => {
  const flat = shapeOf(x).every(size => typeof size === 'number')
  if (dtypeOf(x) !== 'f32' || !flat) return
  const vectorOf = (flow: Any) => flow.pipe(reshape([-1]) as unknown as Op) as never
  if (c % 3 === 0) return g.push(stored(copying({ x: vectorOf(x.flow) }).y as Any, 2 * x.mag, 2 * x.err))
  if (c % 3 === 1) {
    // What is given away is fresh, so nobody else can read it.
    const fresh = vectorOf(x.flow) as Any
    return g.push(stored(donating({ x: fresh.pipe(add(0.25) as Op) as never }).y as Any, 2 * x.mag + 0.5, 2 * x.err))
  }
  const { low, high } = splitting({ x: vectorOf(x.flow) })
  g.push(stored(low as Any, x.mag, x.err))
  g.push(stored(high as Any, x.mag, x.err))
}

const grow = (g: Growth, step: Step) => {
  const x = g.pick(step.a)
  const { kernels = true, state = true, rates = false } = g.options
  const before = g.pool.length
  const kinds = [
    product,
    withFlow,
    unary,
    withNumber,
    product,
    reduced,
    view,
    converted,
    placed,
    withFlow,
    ...(state ? [remembered] : []),
    ...(kernels ? [custom] : []),
    ...(rates ? [resampled, resampled, resampled] : []),
  ]
  g.met.clear()
  kinds[step.op % kinds.length]!(g, x, step)
  if (!x.pace) return
  const pace = { ...x.pace, from: new Set([...x.pace.from, ...g.met]) }
  for (let i = before; i < g.pool.length; i++) g.pool[i] = { ...g.pool[i]!, pace: g.pool[i]!.pace ?? pace }
}

interface Recipe {
  readonly inputs: readonly { readonly dtype: DType; readonly shape: readonly Dim[]; readonly lane: number }[]
  readonly steps: readonly Step[]
  readonly lanes: number
  readonly batch: number
  readonly ticks: number
  readonly inFlight: number
  readonly outputs: readonly number[]
  readonly seed: number
}

const listing = (made: Graph): string =>
  irOf(made)
    .nodes.map(
      ({ id, op, name, inputs, spec, lane: own, attrs }) =>
        `${id} ${op} ${name} (${inputs.join(', ')}) ${showSpec(spec)}${own ? ` on ${own.name || 'any lane'}${own.device === undefined ? '' : ` of ${own.device}`}` : ''} ${op === 'kernel' ? '' : JSON.stringify(attrs)}`,
    )
    .join('\n')

type Host = Flow<'host', AnyTensor>

/** What is done to a value on the host, and how many times slower it is then. */
const hostSide = ({ rates }: GenerateOptions, n: number): { host: (x: Host) => Host; times: number } => {
  if (rates && n % 5 === 0) return { host: x => x.pipe(window(2) as unknown as (x: Host) => Host), times: 2 }
  if (rates && n % 5 === 1) return { host: x => x.pipe(every(2)), times: 2 }
  if (rates && n % 20 === 2) return { host: x => x.pipe(every(2), window(2) as unknown as (x: Host) => Host), times: 4 }
  return { host: x => x, times: 1 }
}

const build = (recipe: Recipe, options: GenerateOptions): Sample => {
  const names = ['copy', 'math', 'side', 'back'].slice(0, recipe.lanes)
  const { devices = 1 } = options
  const lanes =
    devices === 1
      ? names.map(name => lane(name))
      : [
          ...names.map((name, i) => lane(name, { device: (recipe.seed >> (2 * i)) % devices })),
          ...Array.from({ length: devices }, (_, i) => device(i)),
        ]
  const dims = { batch: recipe.batch }
  const g = new Growth(lanes, dims, options)
  const named = recipe.inputs.map((input, i) => ({ ...input, name: `x${i}` }))
  const outputs: Record<string, { dtype: DType; slack: number }> = {}
  const made = graph(
    'generated',
    Object.fromEntries(named.map(({ name, dtype, shape }) => [name, tensor(dtype, shape)])),
    flows => {
      for (const [i, { name, dtype, lane: own }] of named.entries()) {
        const { host, times } = hostSide(options, recipe.seed + i)
        const flow = host(flows[name]!).pipe(upload(own === 0 ? undefined : g.lane(own)))
        const known = { flow, mag: isFloat(dtype) ? 1 : 9, err: 0 }
        const period = [2, 4, 6, 3][(recipe.seed >> (2 * i)) % 4]! * times
        g.pool.push(options.rates ? { ...known, pace: { period, from: new Set([i]) } } : known)
      }
      for (const step of recipe.steps) grow(g, step)
      const chosen = [...new Set([g.pool.at(-1)!, ...recipe.outputs.map(n => g.pick(n))])]
      return Object.fromEntries(
        chosen.map(({ flow, err }, i) => {
          outputs[`y${i}`] = { dtype: flow.spec.dtype, slack: err }
          const { host } = hostSide(options, 3 * recipe.seed + i)
          return [`y${i}`, host(flow.pipe(download(i % 2 === 0 ? undefined : g.lane(i))))]
        }),
      )
    },
  )
  // Symbols are bound only where some input has them.
  const symbols = named.some(({ shape }) => shape.includes('batch'))
  const often = ratesOf(irOf(made))
  const fires = isRight(often) ? often.right?.fires : undefined
  const count = (i: number): number => {
    const rate = fires?.[i] ?? 1
    // Perhaps some more, which are no tick.
    return recipe.ticks * rate + (i % 2 === 1 ? rate - 1 : 0)
  }
  const feeds = Object.fromEntries(
    named.map(({ name, dtype, shape }, i) => [
      name,
      Array.from({ length: count(i) }, (_, t) => valuesOf(dtype, g.size(shape), recipe.seed + 101 * i + 7 * t)),
    ]),
  )
  const { ticks, inFlight } = recipe
  return {
    graph: made,
    dims: symbols ? dims : {},
    inFlight,
    params: g.params,
    feeds,
    ticks,
    outputs,
    text: listing(made),
  }
}

const dim = fc.integer({ min: 1, max: 6 })
const input = fc.record({
  dtype: fc.constantFrom<DType>('f32', 'f32', 'f32', 'f16', 'bf16', 'i32', 'u8'),
  shape: fc.oneof(
    { weight: 4, arbitrary: fc.tuple(fc.constantFrom<Dim>('batch', 1, 2, 4), dim) },
    { weight: 1, arbitrary: fc.tuple(dim) },
    { weight: 1, arbitrary: fc.tuple(fc.constantFrom<Dim>('batch', 2), dim, dim) },
    { weight: 1, arbitrary: fc.constant<Dim[]>([]) },
  ),
  lane: fc.nat(4),
})

const step = fc.record({ op: fc.nat(999), a: fc.nat(999), b: fc.nat(999), c: fc.nat(999) })

/** Valid graphs with parameters and feeds. Shrinks to fewer steps; a counterexample prints the graph. */
export const sample = (options: GenerateOptions = {}): fc.Arbitrary<Sample> =>
  fc
    .record({
      inputs: fc.array(input, { minLength: 1, maxLength: 3 }),
      steps: fc.array(step, { minLength: 1, maxLength: options.steps ?? 14 }),
      lanes: fc.integer({ min: 1, max: 4 }),
      batch: fc.integer({ min: 1, max: 4 }),
      ticks: fc.integer({ min: 1, max: 5 }),
      inFlight: fc.integer({ min: 1, max: 3 }),
      outputs: fc.array(fc.nat(999), { maxLength: 3 }),
      seed: fc.nat(1_000_000),
    })
    .map(recipe => {
      const made = build(recipe, options)
      return {
        ...made,
        toString: () =>
          `${made.text}\nticks ${made.ticks}, inFlight ${made.inFlight}, dims ${JSON.stringify(made.dims)}`,
      }
    })

/** The first element that is further from the wanted one than `slack`; undefined where all are near enough. NaN is near NaN only. */
export const firstDifference = (
  got: HostArray,
  want: HostArray,
  dtype: DType,
  slack: number,
): { readonly index: number; readonly got: number; readonly want: number } | undefined => {
  const [a, b] = [numbers(got, dtype), numbers(want, dtype)]
  if (a.length !== b.length) return { index: Math.min(a.length, b.length), got: a.length, want: b.length }
  for (let i = 0; i < a.length; i++) {
    const near = Object.is(a[i], b[i]) || a[i] === b[i] || Math.abs(a[i]! - b[i]!) <= slack
    if (!near) return { index: i, got: a[i]!, want: b[i]! }
  }
  return undefined
}
