// For the command line: `npx braid run examples/gradient-accumulation/program.ts --device host --ticks 20
// --check`.
import {
  download,
  every,
  graph,
  hold,
  lane,
  mean,
  mul,
  on,
  program,
  scan,
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
 * A batch too large for the device, as eight micro-batches: `window` collects the gradients of the eight, the
 * weights take one step by their mean, and `hold` keeps them for the next eight. A tick is one step; each
 * feed gives eight values for it.
 */
export const training = graph(
  'gradient-accumulation',
  { x: tensor('f32', [rows, features]), target: tensor('f32', [rows, 1]) },
  inputs => {
    const target = inputs.target.pipe(upload(copy))
    const weights = inputs.x.pipe(
      upload(copy),
      on(math),
      scan(
        (w, x) => {
          const error = x.pipe(mul(w), sum({ axis: 1, keepDims: true }), sub(target))
          const gradient = x.pipe(mul(error), mean(0))
          const moved = gradient.pipe(window(micro), mean(0), mul(rate))
          return w.pipe(every(micro), sub(moved), hold(0))
        },
        0,
        tensor('f32', [features]),
      ),
    )
    return { weights: weights.pipe(every(micro), download(copy)) }
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
