// The network: 32 layers of relu(x · w), whose weights together are eight times larger than the device memory
// they run in.
import { cast, download, graph, lane, matmul, mul, on, param, relu, sub, tensor, upload } from 'braid-gpu'

export const layers = 32
export const width = 512
export const rows = 16

/** Bytes of one layer's weights, and of all of them: 1 MiB and 32 MiB. */
export const layerBytes = width * width * 4
export const networkBytes = layers * layerBytes

export const weightName = (layer: number) => `layers.${layer}.weight`

// Three lanes: weights come in on one, arithmetic runs on another, and rows go in and out on the third, so
// that rows and arithmetic never queue behind a weight.
const weights = lane('weights')
const math = lane('math', { priority: 'high' })
const io = lane('rows')

/**
 * One tick: 16 rows of 512 bytes go through all layers. The compiler decides the place and lifetime of each
 * buffer.
 */
export const network = graph('weight-streaming', { rows: tensor('u8', [rows, width]) }, inputs => {
  let x = inputs.rows.pipe(upload(io), on(math), cast('f32'), mul(1 / 64), sub(2))
  for (let layer = 0; layer < layers; layer++) {
    // In pinned host memory; while one layer computes, the weights of at most one more are being copied.
    const w = param(weightName(layer), tensor('f32', [width, width]), { on: 'host' }).pipe(
      upload(weights, { ahead: 1 }),
    )
    x = x.pipe(matmul(w), relu())
  }
  return { y: x.pipe(download(io)) }
})
