// For the command line: `npx braid run examples/gradient-accumulation/program.ts --device host --ticks 20
// --check`.
import {
  download,
  graph,
  lane,
  mean,
  mul,
  on,
  program,
  repeat,
  state,
  sub,
  sum,
  tensor,
  upload,
  window,
} from 'braid-gpu'
import { pulled } from 'braid-gpu/runtime'
import { features, micro, rate, rows, sample } from './samples.js'

const copy = lane('copy')
const math = lane('math')

/**
 * A batch too large for the device, as eight micro-batches: `repeat` has the weights for each of the eight,
 * `window` collects their gradients, and the weights take one step by the mean. A tick is one step; each feed
 * gives eight values for it.
 */
export const training = graph(
  'gradient-accumulation',
  { x: tensor('f32', [rows, features]), target: tensor('f32', [rows, 1]) },
  inputs => {
    const s = state({ weights: tensor('f32', [features]) })
    const x = inputs.x.pipe(upload(copy), on(math))
    const error = x.pipe(
      mul(s.weights.pipe(repeat(micro))),
      sum({ axis: 1, keepDims: true }),
      sub(inputs.target.pipe(upload(copy))),
    )
    const gradient = x.pipe(mul(error), mean(0)) // eight times a tick
    const moved = gradient.pipe(window(micro), mean(0), mul(rate)) // once
    const weights = s.weights.pipe(on(math), sub(moved))
    s.next({ weights })
    return { weights: weights.pipe(download(copy)) }
  },
)

function* samples() {
  for (let n = 0; ; n++) yield sample(n)
}

function* only<K extends 'x' | 'target'>(key: K) {
  for (const one of samples()) yield one[key]
}

export const feeds = () => ({ x: pulled(only('x')), target: pulled(only('target')) })

export default program({ graph: training, feeds })
