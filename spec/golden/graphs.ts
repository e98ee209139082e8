import {
  add,
  after,
  delay,
  download,
  every,
  gelu,
  graph,
  hold,
  kernel,
  lane,
  matmul,
  mean,
  mul,
  on,
  param,
  relu,
  scan,
  sub,
  tensor,
  upload,
  window,
} from '../../dsl/index.js'
import { families } from './families.js'

const copy = lane('copy')
const math = lane('math', { priority: 'high' })
const side = lane('side')
const rows = lane('rows')

const square = tensor('f32', [64, 64])

const inPlace = kernel({
  name: 'twice',
  cuda: 'extern "C" __global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }',
  reads: { x: tensor('f32', [64]) },
  writes: { y: tensor('f32', [64]) },
  donates: { y: 'x' },
  launch: { grid: 1, block: 64 },
  reference: ({ x }, { y }) =>
    void x.forEach((value, i) => {
      y[i] = 2 * value
    }),
})

/** Graphs whose plans are kept as text in this folder. */
export const goldens = {
  ...families,
  'weight-streaming': graph('weight-streaming', { x: square }, ({ x }) => {
    const w = [0, 1, 2, 3].map(i => param(`w${i}`, square, { on: 'host' }).pipe(upload(copy, { ahead: 1 })))
    const h = x.pipe(upload(rows), on(math), matmul(w[0]!), matmul(w[1]!), matmul(w[2]!), matmul(w[3]!))
    return { y: h.pipe(download(rows)) }
  }),
  'double-buffer': graph('double-buffer', { frame: square }, ({ frame }) => ({
    y: frame.pipe(upload(copy), on(math), relu(), download(rows)),
  })),
  diamond: graph('diamond', { x: square }, ({ x }) => {
    const a = x.pipe(upload(copy), on(math), relu())
    return { y: a.pipe(add(a.pipe(on(side), gelu())), download(rows)) }
  }),
  state: graph('state', { x: square }, ({ x }) => {
    const now = x.pipe(upload(copy))
    return { y: now.pipe(on(math), add(now.pipe(on(math), delay(0))), download(rows)) }
  }),
  rates: graph('rates', { x: square, slow: square }, ({ x, slow }) => {
    const weights = x.pipe(
      upload(copy),
      on(math),
      scan((w, now) => {
        const moved = now.pipe(on(math), matmul(w), window(3), mean(0), mul(0.1))
        return w.pipe(every(3), sub(moved), hold(1))
      }, 1),
    )
    const seen = slow.pipe(upload(copy), hold(0, 3))
    return {
      weights: weights.pipe(every(3), download(rows)),
      y: x.pipe(upload(copy), on(side), sub(seen), relu(), download(rows)),
    }
  }),
  donated: graph('donated', { x: tensor('f32', [64]) }, ({ x }) => ({
    y: inPlace({ x: x.pipe(upload(copy), on(math), relu()) }).y.pipe(download(rows)),
  })),
  'two-devices': graph('two-devices', { x: square }, ({ x }) => {
    const w = param('w', square)
    const near = x.pipe(upload(copy), on(math), matmul(w), relu())
    const far = near.pipe(on(lane('far', { device: 1 })), matmul(w), add(near), gelu())
    const state = far.pipe(scan((acc, now) => acc.pipe(add(now), mul(0.5)), 0))
    return { y: far.pipe(download()), z: state.pipe(on(math), add(near), download(rows)) }
  }),
} as const

/** A product fills the device beside a sum on another lane that starts first; the rest is after both. */
export const ordered = graph('ordered', { x: square }, ({ x }) => {
  const here = x.pipe(upload(copy))
  const small = here.pipe(on(math), relu(), on(side), add(1))
  const large = here.pipe(on(math), gelu(), after(small, 'start'), matmul(here))
  return { small: small.pipe(download(rows)), y: large.pipe(after(small), relu(), download(rows)) }
})
