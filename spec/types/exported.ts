// A program of a user's that exports what it makes. `spec/conformance/package.test.ts` compiles it with
// `declaration: true`: TypeScript must be able to name every type here by what the package exports. `Device` of
// the runtime stands beside the language.
import type { DeviceFlow, Tensor } from 'braid-gpu'
import {
  add,
  allGather,
  allToAll,
  argmax,
  attention,
  communicator,
  compile,
  concat,
  conv,
  download,
  embedding,
  expand,
  graph,
  interpret,
  layerNorm,
  less,
  linear,
  matmul,
  max,
  maxPool,
  mean,
  orThrow,
  pad,
  param,
  reduceScatter,
  relu,
  reshape,
  rope,
  slice,
  softmax,
  split,
  sub,
  sum,
  takeAlong,
  tensor,
  topK,
  transpose,
  upload,
  where,
} from 'braid-gpu'
import { Device, open } from 'braid-gpu/runtime'

type Of<S extends readonly (number | string)[]> = DeviceFlow<Tensor<'f32', S>>

export const net = graph('net', { x: tensor('f32', ['batch', 64]) }, ({ x }) => {
  const w = param('w', tensor('f32', [64, 64]))
  return { y: x.pipe(upload(), matmul(w), relu(), download()), stays: x.pipe(upload()) }
})
export const compiled = compile(net)
export const plan = orThrow(compiled)
export const opening = open(plan, { device: 'host' })
export const meant = interpret(net)
export const opened = () => Device.open('host')

const world = communicator('world', 2)
export const functions = {
  best: topK({ k: 3, axis: 1 }),
  bigger: add(1),
  flat: reshape([2, 3]),
  gathered: allGather(world),
  halves: split({ axis: 1, parts: 2 }),
  largest: max(),
  less: less(3),
  mean: mean(),
  norm: layerNorm(),
  padded: pad({ axis: 0, before: 1 }),
  place: argmax({ axis: 1 }),
  pooled: maxPool({ kernel: 2 }),
  positive: relu(),
  scattered: reduceScatter(world, 'sum'),
  sliced: slice(0, 1, 2),
  spread: expand([2, 3]),
  swapped: allToAll(world),
  total: sum({ axis: 1 }),
  turned: transpose([1, 0]),
  weights: softmax({ axis: 1 }),
  withPlaces: rope(),
}

export const attending = (k: Of<readonly [1, 64, 64]>) => attention(k, k)
export const convolving = (w: Of<readonly [4, 3, 3, 3]>) => conv(w)
export const dense = (w: Of<readonly [64, 64]>) => linear(w)
export const joining = (x: Of<readonly [1, 64]>) => concat([x], { axis: 0 })
export const rows = (table: Of<readonly [64, 64]>) => embedding(table)
export const shifting = (bias: Of<readonly [64]>) => sub(bias)
export const taking = (places: DeviceFlow<Tensor<'i32', readonly [1]>>) => takeAlong(places, { axis: 0 })
export const times = (w: Of<readonly [64, 64]>) => matmul(w)
export const choosing = (yes: Of<readonly [64]>) => where(yes, 0)
