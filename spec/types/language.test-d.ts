// Programs that must compile, and programs that must not. `tsc --noEmit` is the test: a missing expected
// error is an error.
import type { Observable } from 'rxjs'
import {
  abs,
  add,
  after,
  allGather,
  allReduce,
  allToAll,
  append,
  argmax,
  attention,
  avgPool,
  broadcast,
  type Communicator,
  type ConvOptions,
  cast,
  clamp,
  communicator,
  concat,
  conv,
  crossEntropy,
  cumsum,
  delay,
  div,
  download,
  dropout,
  embedding,
  every,
  expand,
  type Feed,
  type FeedsOf,
  type Flow,
  gather,
  gelu,
  gradients,
  graph,
  greater,
  hold,
  type InputsOf,
  type interpret,
  type interpretRanks,
  kernel,
  lane,
  layerNorm,
  linear,
  map,
  matmul,
  max,
  maxPool,
  mean,
  mul,
  type OnDevice,
  type OutputsOf,
  on,
  oneHot,
  pad,
  param,
  permute,
  pow,
  program,
  recompute,
  reduceScatter,
  relu,
  reshape,
  rmsNorm,
  rope,
  scan,
  scatterAdd,
  slice,
  softmax,
  split,
  state,
  stopGradient,
  sub,
  sum,
  type Tensor,
  takeAlong,
  tensor,
  topK,
  transpose,
  upload,
  variance,
  where,
  window,
} from '../../dsl/index.js'
import type { Block, ValuesOf } from '../../runtime/index.js'

type Equal<A, B> = (<X>() => X extends A ? 1 : 2) extends <X>() => X extends B ? 1 : 2 ? true : false
const same = <A, B>(_: Equal<A, B>): void => {}
type F32<S extends readonly (number | string)[]> = Flow<'device', Tensor<'f32', S>>

const copy = lane('copy')
const math = lane('math', { priority: 'high' })

// @ts-expect-error there is no such priority
lane('math', { priority: 'urgent' })

// ---- shapes are carried, symbols and all ------------------------------------------------------------------
export const net = graph(
  { image: tensor('u8', ['batch', 784]), weight: tensor('f32', [784, 64]) },
  ({ image, weight }) => {
    const w = weight.pipe(upload(copy))
    const x = image.pipe(upload(copy), on(math), cast('f32'))
    const y = x.pipe(matmul(w), relu())
    same<typeof y, F32<readonly ['batch', 64]>>(true)
    return { y: y.pipe(download(copy)) }
  },
)

// ---- orders without data keep what they order as it is ----------------------------------------------------
export const ordered = graph({ x: tensor('f32', [8]), w: tensor('f32', [8]) }, ({ x, w }) => {
  const y = x.pipe(upload(copy), relu())
  const host = w.pipe(after(y, 'start'))
  same<typeof host, typeof w>(true)
  const device = host.pipe(upload(copy), after(y))
  same<typeof device, F32<readonly [8]>>(true)
  // @ts-expect-error nothing makes a host value on the device: there is nothing to come after
  device.pipe(after(x))
  // @ts-expect-error it is the start or the finish
  device.pipe(after(y, 'end'))
  return { y: device.pipe(download(copy)) }
})

// ---- default and negative axes, and sizes that follow from literals ----------------------------------------
graph({ a: tensor('f32', ['n', 6, 8]), i: tensor('i32', [5]) }, ({ a, i }) => {
  const x = a.pipe(upload())
  const at = i.pipe(upload())
  const axis: number = 1

  const best = x.pipe(topK({ k: 3 }))
  same<typeof best.values, F32<readonly ['n', 6, 3]>>(true)
  const middle = x.pipe(topK({ k: 3, axis: -2 }))
  same<typeof middle.indices, Flow<'device', Tensor<'i32', readonly ['n', 3, 8]>>>(true)
  const last = x.pipe(sum({ axis: -1 }))
  same<typeof last, F32<readonly ['n', 6]>>(true)
  const both = x.pipe(mean({ axis: [-3, 2], keepDims: true }))
  same<typeof both, F32<readonly [1, 6, 1]>>(true)
  const place = x.pipe(argmax({ axis: -2 }))
  same<typeof place, Flow<'device', Tensor<'i32', readonly ['n', 8]>>>(true)
  const rows = x.pipe(gather(at, { axis: -2 }))
  same<typeof rows, F32<readonly ['n', 5, 8]>>(true)
  const turned = x.pipe(transpose([-1, 0, 1]))
  same<typeof turned, F32<readonly [8, 'n', 6]>>(true)
  const open = x.pipe(sum({ axis }))
  same<typeof open, F32<readonly (number | string)[]>>(true)

  const joined = x.pipe(concat([x, x.pipe(slice(-1, 0, 3))], { axis: -1 }))
  same<typeof joined, F32<readonly ['n', 6, 19]>>(true)
  const many = x.pipe(concat([x, x].slice(axis), { axis: 1 }))
  same<typeof many, F32<readonly ['n', number, 8]>>(true)
  const bordered = x.pipe(pad({ axis: -2, before: 2, after: 1 }), pad({ axis: 2, after: 100 }))
  same<typeof bordered, F32<readonly ['n', 9, 108]>>(true)
  const [first, second] = x.pipe(split({ axis: -1, parts: 2 }))
  same<typeof first, F32<readonly ['n', 6, 4]>>(true)
  same<typeof second, F32<readonly ['n', 6, 4]>>(true)
  const [little] = x.pipe(split({ axis: -2, sizes: [1, 5] }))
  same<typeof little, F32<readonly ['n', 1, 8]>>(true)
  const tail = x.pipe(slice(1, 2))
  same<typeof tail, F32<readonly ['n', 4, 8]>>(true)
  const part = x.pipe(slice(-1, 2, 7))
  same<typeof part, F32<readonly ['n', 6, 5]>>(true)
  // @ts-expect-error [n, 6, 3] and [n, 6, 8] do not broadcast
  best.values.pipe(add(x))
  // @ts-expect-error values to join have one element type
  x.pipe(concat([at], { axis: 0 }))
  return { y: last.pipe(download()) }
})

same<InputsOf<typeof net>['weight'], Tensor<'f32', readonly [784, 64]>>(true)
same<OutputsOf<typeof net>['y'], Tensor<'f32', readonly ['batch', 64]>>(true)
same<
  ReturnType<ReturnType<typeof interpret<InputsOf<typeof net>, OutputsOf<typeof net>>>>,
  Observable<{ readonly y: Float32Array }>
>(true)

graph({ a: tensor('f32', ['n', 3]), b: tensor('f32', [5, 3]), c: tensor('f16', ['n', 3]) }, ({ a, b, c }) => {
  const x = a.pipe(upload())
  const w = b.pipe(upload())
  const h = c.pipe(upload())

  const z = x.pipe(matmul(w, { transpose: true }))
  same<typeof z, F32<readonly ['n', 5]>>(true)
  // @ts-expect-error the inner dimensions 3 and 5 differ
  x.pipe(matmul(w))
  // @ts-expect-error the inner dimensions 3 and 5 differ, the other way round
  w.pipe(matmul(x.pipe(reshape([5, 'n'])), { transpose: true }))
  // @ts-expect-error a product of f32 and f16: cast one of them
  x.pipe(matmul(h, { transpose: true }))
  // @ts-expect-error a vector is not a matrix
  x.pipe(reshape([3]), matmul(w))
  // @ts-expect-error the weight is still on the host: upload it first
  x.pipe(matmul(b, { transpose: true }))

  // @ts-expect-error f32 and f16 do not add up: cast one of them
  x.pipe(add(h))
  const cast32 = x.pipe(add(h.pipe(cast('f32'))))
  same<typeof cast32, F32<readonly ['n', 3]>>(true)
  // @ts-expect-error [n, 3] and [n, 5] do not broadcast
  x.pipe(add(z))
  // @ts-expect-error an operand on the host: upload it first
  x.pipe(mul(b))
  // @ts-expect-error a string is no operand
  x.pipe(add('1'))
  const row = x.pipe(mul(x.pipe(slice(0, 0, 1))))
  same<typeof row, F32<readonly ['n', 3]>>(true)
  const none = x.pipe(slice(1, 0, 0))
  same<typeof none, F32<readonly ['n', 0]>>(true)
  const beside = none.pipe(add(x.pipe(slice(1, 0, 1))))
  same<typeof beside, F32<readonly ['n', 0]>>(true)
  // @ts-expect-error [n, 0] and [n, 3] do not broadcast
  none.pipe(add(x))

  const mapped = x.pipe(map((p, q) => p.mul(q).add(1), x.pipe(reshape(['n', 3]))))
  const image = param('image', tensor('f32', [8, 32, 7, 7]))
  const flat = image.pipe(reshape([8, -1]))
  same<typeof flat, F32<readonly [8, 1568]>>(true)
  const halves = image.pipe(reshape([-1, 16, 14, 7]))
  same<typeof halves, F32<readonly [8, 16, 14, 7]>>(true)
  const symbol = x.pipe(reshape([-1, 3]))
  same<typeof symbol, F32<readonly ['n', 3]>>(true)
  const parts = x.pipe(reshape(['n', -1, 1]))
  same<typeof parts, F32<readonly ['n', 3, 1]>>(true)
  const large = image.pipe(reshape([-1]))
  same<typeof large, F32<readonly [number]>>(true)
  // @ts-expect-error 1,568 elements of a row, and a weight of 1,569
  flat.pipe(matmul(param('f', tensor('f32', [1569, 10]))))
  same<typeof mapped, F32<readonly ['n', 3]>>(true)
  // @ts-expect-error the operands of map have two element types
  x.pipe(map((p, q) => p.mul(q), h))
  // @ts-expect-error the function is given one element for each operand, and has no second one here
  x.pipe(map((p, q) => p.mul(q)))
  // @ts-expect-error what the function returns is an expression or a number
  x.pipe(map(p => `${p}`))

  const total = x.pipe(sum(1))
  same<typeof total, F32<readonly ['n']>>(true)
  const kept = x.pipe(mean({ axis: 1, keepDims: true }))
  same<typeof kept, F32<readonly ['n', 1]>>(true)
  const most = x.pipe(max({ axis: 0 }))
  same<typeof most, F32<readonly [3]>>(true)
  const atLeast = x.pipe(max(0))
  same<typeof atLeast, F32<readonly ['n', 3]>>(true)

  const before = x.pipe(delay(0))
  same<typeof before, F32<readonly ['n', 3]>>(true)
  const running = x.pipe(scan((acc, now) => acc.pipe(add(now)), 0))
  same<typeof running, F32<readonly ['n', 3]>>(true)
  const sums = x.pipe(scan((acc, now) => acc.pipe(add(now.pipe(sum(0)))), 0, tensor('f32', [3])))
  same<typeof sums, F32<readonly [3]>>(true)
  const named = x.pipe(scan((acc, now) => acc.pipe(add(now)), 0, { name: 'total' }))
  same<typeof named, F32<readonly ['n', 3]>>(true)
  x.pipe(scan((acc, now) => acc.pipe(add(now.pipe(sum(0)))), 0, tensor('f32', [3]), { name: 'sums' }))
  x.pipe(delay(0, { name: 'before' }))
  const s = state({ w: tensor('f32', ['n', 3]), n: tensor('i32', []) }, { w: 1 })
  same<typeof s.w, F32<readonly ['n', 3]>>(true)
  s.next({ w: s.w.pipe(add(x)), n: s.n })
  // @ts-expect-error every state has a next value
  s.next({ w: s.w })
  // @ts-expect-error the next n is of another type
  s.next({ w: s.w, n: s.w })
  // @ts-expect-error next is the method that sets them
  state({ next: tensor('f32', []) })
  // @ts-expect-error there is no state v
  state({ w: tensor('f32', []) }, { v: 1 })
  // @ts-expect-error the option is called name
  x.pipe(delay(0, { called: 'before' }))
  // @ts-expect-error the next acc has another shape than acc
  x.pipe(scan((acc, now) => acc.pipe(add(now), sum(0)), 0))

  // @ts-expect-error an operator is called: relu(), not relu, which gives no flow to go on with
  x.pipe(relu, relu())
  // @ts-expect-error a flow is not an operator
  x.pipe(w)
  return { z: z.pipe(download(copy)) }
})

// ---- places -----------------------------------------------------------------------------------------------
// @ts-expect-error a host value has nothing to be downloaded
graph({ a: tensor('f32', [2, 2]) }, ({ a }) => ({ a: a.pipe(download(copy)) }))
const left = graph({ a: tensor('f32', [2, 2]) }, ({ a }) => ({ a: a.pipe(upload(copy)), b: a }))
same<OutputsOf<typeof left>['a'], OnDevice<Tensor<'f32', readonly [2, 2]>>>(true)
same<OutputsOf<typeof left>['b'], Tensor<'f32', readonly [2, 2]>>(true)
declare const leased: ValuesOf<OutputsOf<typeof left>>
same<typeof leased.a, Block>(true)
same<typeof leased.b, Float32Array>(true)
// @ts-expect-error an output that is left on the device is a block, and no array
leased.a[0]
graph({ a: tensor('f32', [2, 2]), u: tensor('u8', [2]) }, ({ a, u }) => {
  // @ts-expect-error a device value is not uploaded again
  a.pipe(upload(copy), upload(copy))
  // @ts-expect-error compute reads device values, and this value is on the host
  a.pipe(relu())
  // @ts-expect-error a lane hint is for compute, which has no host values
  a.pipe(on(math))
  // @ts-expect-error gelu wants floats: cast first
  u.pipe(upload(), gelu())
  const between = u.pipe(upload(), clamp({ min: 1, max: 9 }), clamp({ max: 8 }))
  same<typeof between, Flow<'device', Tensor<'u8', readonly [2]>>>(true)
  // @ts-expect-error clamp wants a bound
  u.pipe(upload(), clamp({}))
  const whole = u.pipe(upload(), abs(), sum(0))
  same<typeof whole, Flow<'device', Tensor<'i32', readonly []>>>(true)
  // @ts-expect-error the mean of whole numbers: cast first
  u.pipe(upload(), mean(0))
  // @ts-expect-error a lane is made by lane('copy')
  a.pipe(upload('copy'))
  // @ts-expect-error ahead is a number
  a.pipe(upload(copy, { ahead: '1' }))
  return { a }
})

graph({ x: tensor('f32', [1, 8]) }, ({ x }) => {
  const resident = param('w', tensor('f32', [8, 8]))
  same<typeof resident, F32<readonly [8, 8]>>(true)
  const pinned = param('v', tensor('f32', [8, 8]), { on: 'host' })
  same<typeof pinned, Flow<'host', Tensor<'f32', readonly [8, 8]>>>(true)
  // @ts-expect-error a parameter on the host is uploaded before it is used
  x.pipe(upload(), matmul(pinned))
  // @ts-expect-error a parameter on the device is there already
  resident.pipe(upload(copy))
  // @ts-expect-error there is no such place
  param('u', tensor('f32', [8]), { on: 'disk' })
  return {
    y: x.pipe(upload(), matmul(resident), matmul(pinned.pipe(upload(copy, { ahead: 1 }))), download()),
  }
})

// @ts-expect-error there is no such element type
tensor('f64', [2])
// @ts-expect-error a dimension is a number or a symbol
tensor('f32', [true])

// ---- kernels ----------------------------------------------------------------------------------------------
const scale = kernel({
  name: 'scale',
  cuda: 'extern "C" __global__ void scale(const float* x, float* y) {}',
  reads: { x: tensor('f32', ['rows', 64]) },
  writes: { y: tensor('f32', ['rows']) },
  launch: ({ rows }) => ({ grid: rows!, block: 64 }),
  reference: ({ x }, { y }) => {
    same<typeof x, Float32Array>(true)
    y[0] = x[0]!
  },
})
graph(
  { a: tensor('f32', ['batch', 64]), b: tensor('f32', ['batch', 32]), c: tensor('f16', ['batch', 64]) },
  ({ a, b, c }) => {
    const { y } = scale({ x: a.pipe(upload()) })
    same<typeof y, F32<readonly ['batch']>>(true)
    // @ts-expect-error a read of 64 columns is given 32
    scale({ x: b.pipe(upload()) })
    // @ts-expect-error a read of f32 is given f16
    scale({ x: c.pipe(upload()) })
    // @ts-expect-error a kernel reads device values
    scale({ x: a })
    // @ts-expect-error the read x is missing
    scale({})
    return { y: y.pipe(download()) }
  },
)
const shifted = kernel({
  name: 'shifted',
  cuda: 'extern "C" __global__ void shifted(const float* x, const float* by, float* y, float* sums) {}',
  reads: { x: tensor('f32', ['rows', 'columns']), by: tensor('f32', [1]) },
  writes: { y: tensor('f32', ['rows', 'columns']), sums: tensor('f32', ['rows']) },
  launch: { grid: 1, block: 64 },
  reference: () => {},
})
const constant = kernel({
  name: 'constant',
  cuda: 'extern "C" __global__ void constant(const float* x, float* y) {}',
  reads: { x: tensor('f32', [4]) },
  writes: { y: tensor('f32', [8]) },
  launch: { grid: 1, block: 1 },
  reference: () => {},
})
graph({ a: tensor('f32', ['batch', 64]), by: tensor('f32', [1]), c: tensor('f32', [4]) }, ({ a, by, c }) => {
  // Symbols are bound by the reads that have them, whatever other reads there are.
  const { y, sums } = shifted({ x: a.pipe(upload()), by: by.pipe(upload()) })
  same<typeof y, F32<readonly ['batch', 64]>>(true)
  same<typeof sums, F32<readonly ['batch']>>(true)
  const { y: z } = constant({ x: c.pipe(upload()) })
  same<typeof z, F32<readonly [8]>>(true)
  return { y: y.pipe(download()), z: z.pipe(download()), sums: sums.pipe(download()) }
})
kernel({
  name: 'wrong',
  cuda: '',
  reads: { x: tensor('f32', ['n']) },
  writes: { y: tensor('f32', ['n']) },
  // @ts-expect-error z is no read of this kernel
  donates: { y: 'z' },
  launch: { grid: 1, block: 1 },
  reference: () => {},
})

// ---- losses, and values of any shape ----------------------------------------------------------------------
graph({ x: tensor('f32', ['n', 10]), labels: tensor('i32', ['n']) }, ({ x: given, labels: of }) => {
  const [x, labels] = [given.pipe(upload()), of.pipe(upload())]
  const lost = x.pipe(crossEntropy(labels))
  same<typeof lost, F32<readonly ['n']>>(true)
  const dropped = x.pipe(dropout({ p: 0.1, seed: 1 }))
  same<typeof dropped, typeof x>(true)
  // @ts-expect-error labels are whole numbers
  x.pipe(crossEntropy(lost))
  // @ts-expect-error a label for each row
  x.pipe(crossEntropy(x.pipe(cast('i32'))))
  // @ts-expect-error scores are floats
  labels.pipe(crossEntropy(labels))
  // @ts-expect-error of floats
  labels.pipe(dropout({ p: 0.1, seed: 1 }))
  gradients(x.pipe(mean({ axis: [0, 1], keepDims: true })), { x })
  // @ts-expect-error the loss is one float
  gradients(x, { x })
  // @ts-expect-error the loss is one float, of any batch
  gradients(lost, { x })
  type Weight = F32<readonly number[]>
  const step = (w: Weight, by: Weight): Weight => w.pipe(sub(by.pipe(mul(0.1))))
  const norm = (all: readonly Weight[]) =>
    all.map(by => by.pipe(mul(by), sum())).reduce((a, b) => a.pipe(add(b)))
  same<ReturnType<typeof norm>, F32<readonly []>>(true)
  return { y: step(x as never, x as never).pipe(download()) }
})

// ---- rates ------------------------------------------------------------------------------------------------
graph({ x: tensor('u8', ['n', 3]) }, ({ x }) => {
  const four = x.pipe(window(4))
  same<typeof four, Flow<'host', Tensor<'u8', readonly [4, 'n', 3]>>>(true)
  const nested = four.pipe(upload(), window(2))
  same<typeof nested, Flow<'device', Tensor<'u8', readonly [2, 4, 'n', 3]>>>(true)
  const some = nested.pipe(every(3))
  same<typeof some, typeof nested>(true)
  const held = some.pipe(hold(0))
  same<typeof held, typeof some>(true)
  const total = nested.pipe(cast('f32'), sum(0))
  same<typeof total, F32<readonly [4, 'n', 3]>>(true)
  // @ts-expect-error a window's values have a dimension more
  four.pipe(upload(), cast('f32'), add(x.pipe(upload(), window(2), cast('f32'))))
  // @ts-expect-error a host flow is not held: upload it first
  x.pipe(hold(0))
  // @ts-expect-error how many is a number
  x.pipe(window('4'))
  // @ts-expect-error how many is a number
  x.pipe(every())
  // @ts-expect-error an initial value
  x.pipe(upload(), hold())
  return { y: x.pipe(every(2)), z: held.pipe(download()) }
})

// ---- collectives ------------------------------------------------------------------------------------------
const world = communicator('world', 8)
const pairs = communicator('pairs', {
  groups: [
    [0, 1],
    [2, 3],
  ],
})
declare const ranks: number
declare const dealt: number[][]
same<typeof world, Communicator<8>>(true)
same<typeof pairs, Communicator<2>>(true)
const anyone = communicator('anyone', ranks)
const dealtOut = communicator('dealt', { groups: dealt })
same<typeof anyone, Communicator<number>>(true)
same<typeof dealtOut, Communicator<number>>(true)
// @ts-expect-error a communicator has a name
communicator(8)
// @ts-expect-error how many, or which groups
communicator('world')
// @ts-expect-error groups are lists of ranks
communicator('world', { groups: [0, 1] })

export const meshed = graph(
  { x: tensor('f32', [8, 'n']), c: tensor('i32', [3]), b: tensor('bf16', []) },
  flows => {
    const x = flows.x.pipe(upload())
    const c = flows.c.pipe(upload())
    const b = flows.b.pipe(upload())
    const part = x.pipe(reduceScatter(world, 'mean', copy))
    same<typeof part, F32<readonly ['n']>>(true)
    const whole = part.pipe(allGather(world, copy, { ahead: 1 }))
    same<typeof whole, F32<readonly [8, 'n']>>(true)
    const reduced = whole.pipe(
      allReduce(pairs, 'sum', copy),
      allToAll(world),
      broadcast(pairs, 1),
      permute(world, [[0, 7]]),
    )
    same<typeof reduced, typeof whole>(true)
    const scalars = b.pipe(allGather(pairs))
    same<typeof scalars, Flow<'device', Tensor<'bf16', readonly [2]>>>(true)
    const scalar = scalars.pipe(reduceScatter(pairs, 'max'))
    same<typeof scalar, Flow<'device', Tensor<'bf16', readonly []>>>(true)
    // For a size that is known later, compile checks it.
    const some = whole.pipe(reduceScatter(anyone, 'sum'), allGather(anyone))
    same<typeof some, F32<readonly [number, 'n']>>(true)
    // @ts-expect-error the leading dimension is 8, and the communicator's size 2
    x.pipe(reduceScatter(pairs, 'sum'))
    // @ts-expect-error the leading dimension is 3, and the communicator's size 2
    c.pipe(allToAll(pairs))
    // @ts-expect-error a symbol is not known to be the communicator's size
    part.pipe(allToAll(world))
    // @ts-expect-error a scalar has no parts
    b.pipe(reduceScatter(pairs, 'sum'))
    // @ts-expect-error the mean of whole numbers is not one
    c.pipe(allReduce(world, 'mean'))
    // @ts-expect-error there is no such way to join
    x.pipe(allReduce(world, 'average'))
    // @ts-expect-error a collective is of device values
    flows.x.pipe(allReduce(world, 'sum'))
    // @ts-expect-error a communicator, not its size
    x.pipe(allGather(8))
    // @ts-expect-error the root is missing
    x.pipe(broadcast(world))
    // @ts-expect-error the pairs are missing
    x.pipe(permute(world, [0, 1]))
    // @ts-expect-error the lane comes before the options
    x.pipe(allGather(world, { ahead: 1 }))
    return { y: reduced.pipe(download(copy)) }
  },
)
same<
  ReturnType<ReturnType<typeof interpretRanks<InputsOf<typeof meshed>, OutputsOf<typeof meshed>>>>,
  Observable<readonly { readonly y: Float32Array }[]>
>(true)

// ---- feeds ------------------------------------------------------------------------------------------------
declare const images$: Observable<Uint8Array>
declare const images: Feed<Uint8Array>
declare const weights: Feed<Float32Array>
declare const run: (feeds: FeedsOf<InputsOf<typeof net>>) => void
run({ image: images, weight: weights })
// @ts-expect-error a bare Observable has no policy for a full session
run({ image: images$, weight: weights })
// @ts-expect-error the weight's feed is missing
run({ image: images })
// @ts-expect-error u8 images are fed as Uint8Array
run({ image: weights, weight: weights })

program({
  graph: net,
  feeds: () => ({ image: images, weight: weights }),
  options: { dims: { batch: 4 }, inFlight: 3 },
})
// @ts-expect-error there is no input of this name
program({ graph: net, feeds: { picture: images, weight: weights } })
// @ts-expect-error a program's feeds are feeds
program({ graph: net, feeds: { image: images$, weight: weights } })

// ---- operators composed of others --------------------------------------------------------------------------
graph({ a: tensor('f32', ['n', 4, 6]), h: tensor('f16', [6]), i: tensor('i32', [6]) }, ({ a, h, i }) => {
  const x = a.pipe(upload())
  const half = h.pipe(upload())
  const whole = i.pipe(upload())

  const both = x.pipe(sum({ axis: [0, 2] }))
  same<typeof both, F32<readonly [4]>>(true)
  const kept = x.pipe(max({ axis: [0, 1], keepDims: true }))
  same<typeof kept, F32<readonly [1, 1, 6]>>(true)
  const all = x.pipe(sum())
  same<typeof all, F32<readonly []>>(true)
  const allKept = x.pipe(variance({ keepDims: true }))
  same<typeof allKept, F32<readonly [1, 1, 1]>>(true)
  const largest = whole.pipe(max())
  same<typeof largest, Flow<'device', Tensor<'i32', readonly []>>>(true)
  const fromEnd = x.pipe(variance({ axis: [0, -1] }))
  same<typeof fromEnd, F32<readonly [4]>>(true)
  const normed = x.pipe(layerNorm({ scale: x.pipe(sum([0, 1])) }), softmax({ axis: 1 }), rmsNorm())
  same<typeof normed, F32<readonly ['n', 4, 6]>>(true)
  // @ts-expect-error a scale of another element type
  x.pipe(layerNorm({ scale: half }))
  // @ts-expect-error a scale that does not broadcast
  x.pipe(rmsNorm({ scale: x.pipe(sum([0, 2])) }))
  // @ts-expect-error whole numbers have no softmax
  whole.pipe(softmax())

  const mask = x.pipe(greater(0))
  same<typeof mask, Flow<'device', Tensor<'u8', readonly ['n', 4, 6]>>>(true)
  const chosen = mask.pipe(where(x, Number.NEGATIVE_INFINITY))
  same<typeof chosen, F32<readonly ['n', 4, 6]>>(true)
  const some = whole.pipe(where(0, half))
  same<typeof some, Flow<'device', Tensor<'f16', readonly [6]>>>(true)
  // @ts-expect-error a float is no condition: compare it
  x.pipe(where(x, 0))
  // @ts-expect-error the element types differ
  mask.pipe(where(x, half))
  // @ts-expect-error one of the two is a flow
  mask.pipe(where(1, 0))

  const moved = x.pipe(transpose([2, 0, 1]))
  same<typeof moved, F32<readonly [6, 'n', 4]>>(true)
  const [first, second] = x.pipe(split({ axis: 2, sizes: [1, 5] }))
  same<typeof second, F32<readonly ['n', 4, 5]>>(true)
  const [, , third] = x.pipe(split({ axis: 2, parts: 3 }))
  same<typeof third, F32<readonly ['n', 4, 2]>>(true)
  // @ts-expect-error there are three parts
  x.pipe(split({ axis: 2, parts: 3 }))[3]

  const w = moved.pipe(sum(1), transpose([1, 0]))
  same<typeof w, F32<readonly [4, 6]>>(true)
  const vector = w.pipe(sum(0), linear(w, w.pipe(sum(1))))
  same<typeof vector, F32<readonly [4]>>(true)
  // @ts-expect-error the inner dimensions differ
  w.pipe(sum(1), linear(w))
  const projected = x.pipe(linear(w, w.pipe(sum(1))))
  same<typeof projected, F32<readonly ['n', 4, 4]>>(true)
  // @ts-expect-error the bias has as many elements as the weight has rows
  x.pipe(linear(w, w.pipe(sum(0))))
  // @ts-expect-error the inner dimensions differ
  x.pipe(linear(w.pipe(transpose([1, 0]))))

  const batch = x.pipe(matmul(x.pipe(transpose([0, 2, 1]))))
  same<typeof batch, F32<readonly ['n', 4, 4]>>(true)
  const best = x.pipe(argmax({ axis: 1 }))
  same<typeof best, Flow<'device', Tensor<'i32', readonly ['n', 6]>>>(true)
  const rows = w.pipe(gather(best, { axis: 0 }))
  same<typeof rows, F32<readonly ['n', 6, 6]>>(true)
  const looked = whole.pipe(embedding(w))
  same<typeof looked, F32<readonly [6, 6]>>(true)
  // @ts-expect-error indices are whole numbers
  w.pipe(gather(x, { axis: 0 }))
  const added = rows.pipe(scatterAdd(best, { axis: 0, size: 4 }))
  same<typeof added, F32<readonly [4, 6]>>(true)
  const counted = whole.pipe(scatterAdd(whole, { axis: -1, size: 9 }))
  same<typeof counted, Flow<'device', Tensor<'i32', readonly [9]>>>(true)
  // @ts-expect-error indices are whole numbers
  rows.pipe(scatterAdd(x, { axis: 0, size: 4 }))
  // @ts-expect-error indices are whole numbers
  x.pipe(embedding(w))
  const place = whole.pipe(slice(0, 0, 1), slice(1, 0, 1), reshape([1]))
  const grown = w.pipe(append(w.pipe(slice(0, 0, 1)), { axis: 0, at: place }))
  same<typeof grown, typeof w>(true)
  // @ts-expect-error a position is one element
  w.pipe(append(w, { axis: 0, at: whole }))
  // @ts-expect-error the element types differ
  w.pipe(append(whole, { axis: 0, at: place }))
  const longer = x.pipe(concat([x, x], { axis: 1 }))
  same<typeof longer, F32<readonly ['n', 12, 6]>>(true)
  // @ts-expect-error the element types differ
  x.pipe(concat([best], { axis: 1 }))
  const wider = w.pipe(pad({ axis: 0, before: 1 }))
  same<typeof wider, F32<readonly [5, 6]>>(true)
  const top = x.pipe(topK({ k: 2, axis: 1 }))
  same<typeof top.values, F32<readonly ['n', 2, 6]>>(true)
  same<typeof top.indices, Flow<'device', Tensor<'i32', readonly ['n', 2, 6]>>>(true)
  const taken = x.pipe(takeAlong(top.indices, { axis: 1 }))
  same<typeof taken, F32<readonly ['n', 2, 6]>>(true)
  // @ts-expect-error indices are whole numbers
  x.pipe(takeAlong(x, { axis: 1 }))
  const summed = whole.pipe(cumsum({ axis: 0 }))
  same<typeof summed, Flow<'device', Tensor<'i32', readonly [6]>>>(true)
  const turned = x.pipe(rope({ positions: best.pipe(slice(1, 0, 4)) }))
  same<typeof turned, F32<readonly ['n', 4, 6]>>(true)
  // @ts-expect-error angles turn floats
  whole.pipe(rope())
  const hot = whole.pipe(oneHot({ classes: 10 }))
  same<typeof hot, F32<readonly [6, 10]>>(true)
  return { y: first.pipe(download()) }
})

// Convolutions: sizes that are literals are computed.
graph({ x: tensor('f32', ['n', 6, 224, 32]), u: tensor('f32', ['n', 6, 'h', 'w']) }, flows => {
  const [x, u] = [flows.x.pipe(upload()), flows.u.pipe(upload())]
  const w = param('w', tensor('f32', [64, 6, 7, 3]))
  const stem = x.pipe(conv(w, { stride: [2, 1], padding: [3, 1] }))
  same<typeof stem, F32<readonly ['n', 64, 112, 32]>>(true)
  const dilated = x.pipe(conv(w, { stride: 3, dilation: 2 }))
  same<typeof dilated, F32<readonly ['n', 64, 71, 10]>>(true)
  const plain = x.pipe(conv(w))
  same<typeof plain, F32<readonly ['n', 64, 218, 30]>>(true)
  const valid = x.pipe(conv(w, { padding: 'valid', bias: param('b', tensor('f32', [64])) }))
  same<typeof valid, F32<readonly ['n', 64, 218, 30]>>(true)
  const grouped = x.pipe(conv(param('g', tensor('f32', [9, 2, 1, 1])), { groups: 3 }))
  same<typeof grouped, F32<readonly ['n', 9, 224, 32]>>(true)

  // A symbol stays where its size does.
  const kept = u.pipe(conv(w, { padding: 'same' }))
  same<typeof kept, F32<readonly ['n', 64, 'h', 'w']>>(true)
  const padded = u.pipe(conv(w, { padding: [3, 1] }))
  same<typeof padded, F32<readonly ['n', 64, 'h', 'w']>>(true)

  // What is not known is a number.
  const options: ConvOptions = { stride: 2 }
  const open = x.pipe(conv(w, options))
  same<typeof open, F32<readonly ['n', number, number, number]>>(true)
  const strided = x.pipe(conv(w, { stride: 2 as number }))
  same<typeof strided, F32<readonly ['n', 64, number, number]>>(true)

  // Channels that are last.
  const images = x.pipe(transpose([0, 2, 3, 1]))
  const filters = param('f', tensor('f32', [66, 7, 3, 2]))
  const last = images.pipe(conv(filters, { channels: 'last', groups: 3, stride: [2, 1], padding: [3, 1] }))
  same<typeof last, F32<readonly ['n', 112, 32, 66]>>(true)
  const lastPooled = last.pipe(maxPool({ kernel: 3, stride: 2, padding: 1, channels: 'last' }))
  same<typeof lastPooled, F32<readonly ['n', 56, 16, 66]>>(true)
  // @ts-expect-error the channels of the weight are last too
  images.pipe(conv(w, { channels: 'last' }))
  // @ts-expect-error there is no such place for channels
  images.pipe(conv(filters, { channels: 'second', groups: 3 }))
  const long = x.pipe(reshape(['n', 1, 43008]), conv(param('l', tensor('f32', [8, 1, 9]))))
  same<typeof long, F32<readonly ['n', 8, number]>>(true)

  const pooled = stem.pipe(maxPool({ kernel: 3, stride: 2, padding: 1 }))
  same<typeof pooled, F32<readonly ['n', 64, 56, 16]>>(true)
  const halved = stem.pipe(avgPool({ kernel: [2, 4] }))
  same<typeof halved, F32<readonly ['n', 64, 56, 8]>>(true)
  // @ts-expect-error one size for each spatial dimension
  stem.pipe(maxPool({ kernel: [2] }))
  // @ts-expect-error the kernel is larger than the input
  stem.pipe(avgPool({ kernel: [1, 33] }))
  // @ts-expect-error a kernel has a size
  stem.pipe(maxPool({ stride: 2 }))
  // @ts-expect-error a stride is whole
  stem.pipe(maxPool({ kernel: 2, stride: 0.5 }))

  // @ts-expect-error the weight has channels of its own number
  x.pipe(conv(param('a', tensor('f32', [64, 5, 3, 3]))))
  // @ts-expect-error there are 6 / 2 channels in a group
  x.pipe(conv(w, { groups: 2 }))
  // @ts-expect-error four groups do not divide six channels
  x.pipe(conv(param('c', tensor('f32', [8, 1, 3, 3])), { groups: 4 }))
  // @ts-expect-error three groups do not divide eight channels of the result
  x.pipe(conv(param('d', tensor('f32', [8, 2, 3, 3])), { groups: 3 }))
  // @ts-expect-error the kernel is larger than the padded input
  x.pipe(conv(param('e', tensor('f32', [8, 6, 1, 35])), { padding: 1 }))
  // @ts-expect-error a dilated kernel is larger than the input
  x.pipe(conv(w, { dilation: 16 }))
  // @ts-expect-error a weight has a size for each spatial dimension
  x.pipe(conv(param('f', tensor('f32', [8, 6, 3]))))
  // @ts-expect-error a matrix has no spatial dimension
  x.pipe(reshape([6, 224]), conv(w))
  // @ts-expect-error a stride is whole
  x.pipe(conv(w, { stride: 1.5 }))
  // @ts-expect-error a stride is 1 or more
  x.pipe(conv(w, { stride: [1, 0] }))
  // @ts-expect-error one dilation for each spatial dimension
  x.pipe(conv(w, { dilation: [1, 1, 1] }))
  // @ts-expect-error padding is not negative
  x.pipe(conv(w, { padding: [-1, 1] }))
  // @ts-expect-error there is no padding of that name
  x.pipe(conv(w, { padding: 'full' }))
  // @ts-expect-error "same" keeps sizes, which a stride does not
  x.pipe(conv(w, { padding: 'same', stride: 2 }))
  // @ts-expect-error groups are whole
  x.pipe(conv(w, { groups: 0.5 }))
  // @ts-expect-error a bias has one number for each channel of the result
  x.pipe(conv(w, { bias: param('h', tensor('f32', [6])) }))
  // @ts-expect-error the element types differ
  x.pipe(conv(param('i', tensor('f16', [64, 6, 7, 3]))))
  // @ts-expect-error so does that of the bias
  x.pipe(conv(w, { bias: param('j', tensor('f16', [64])) }))
  // @ts-expect-error whole numbers are cast first
  x.pipe(cast('i32'), conv(param('k', tensor('i32', [64, 6, 7, 3]))))
  return { y: kept.pipe(download()) }
})

// ---- sizes and element types that are known in part --------------------------------------------------------
graph({ g: tensor('f32', [Number(3), 6]), u: tensor('u8', [4]), q: tensor('f32', ['b', 3, 1, 4]) }, given => {
  const g = given.g.pipe(upload())
  const s = state({ w: tensor('f32', [3, 6]) })
  const [before, after] = [g.pipe(add(s.w)), s.w.pipe(add(g))]
  same<typeof before, F32<readonly [3, 6]>>(true)
  same<typeof after, F32<readonly [3, 6]>>(true)
  s.next({ w: after })
  const bytes = given.u.pipe(upload())
  // @ts-expect-error quotients are of floats
  bytes.pipe(div(2))
  // @ts-expect-error and so are powers
  bytes.pipe(pow(2))
  const repeated = given.q.pipe(upload(), expand(['b', 3, 2, 4]))
  same<typeof repeated, F32<readonly ['b', 3, 2, 4]>>(true)
  const [keys, values] = [param('keys', tensor('f32', [2, 6, 4])), param('values', tensor('f16', [2, 6, 4]))]
  // @ts-expect-error keys and values have one element type
  param('q', tensor('f32', [2, 3, 4])).pipe(attention(keys, values))
  return { y: before.pipe(download()) }
})

// ---- gradients are as what they are by ---------------------------------------------------------------------
graph({ x: tensor('f32', ['b', 6]) }, given => {
  const [w, h] = [param('w', tensor('f32', [6, 4])), param('h', tensor('bf16', [4]))]
  const loss = given.x.pipe(upload(), matmul(w), mul(h.pipe(cast('f32'))), mean())
  const by = gradients(loss, { w, h })
  same<typeof by.w, F32<readonly [6, 4]>>(true)
  same<typeof by.h, Flow<'device', Tensor<'bf16', readonly [4]>>>(true)
  // @ts-expect-error there is no such value
  void by.v
  // @ts-expect-error a loss is of floats
  gradients(loss.pipe(cast('i32')), { w })
  // @ts-expect-error whole numbers have no gradient
  gradients(loss, { w: w.pipe(cast('i32')) })
  const still = w.pipe(stopGradient())
  same<typeof still, typeof w>(true)
  const again = w.pipe(recompute(relu()), recompute(cast('bf16')))
  same<typeof again, Flow<'device', Tensor<'bf16', readonly [6, 4]>>>(true)
  return { y: by.w.pipe(download()) }
})
