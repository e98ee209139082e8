// Layers of matrix products, in one stage a device: each device has the weights of its stage, and the result
// of a stage goes to the next device.
import {
  device,
  download,
  type Flow,
  graph,
  lane,
  matmul,
  on,
  param,
  relu,
  type Tensor,
  tensor,
  upload,
} from 'braid-gpu'

export const width = 256
export const rows = 64
export const layers = 8

/** The values of every layer's weights, from its number: small, so that the results stay bounded. */
export const weights = (): Record<string, Float32Array> =>
  Object.fromEntries(
    Array.from({ length: layers }, (_, layer) => [
      `w${layer}`,
      Float32Array.from({ length: width * width }, (_, i) => (((i * 31 + layer * 17) % 23) - 11) / width),
    ]),
  )

export const feed = (tick: number): Float32Array =>
  Float32Array.from({ length: rows * width }, (_, i) => ((i + 7 * tick) % 19) / 19)

/** The compiler adds the copies between devices, from the lanes of the layers. */
export const network = (devices: number) =>
  graph(`${layers} layers on ${devices}`, { x: tensor('f32', [rows, width]) }, ({ x }) => {
    let flow: Flow<'device', Tensor<'f32', readonly [number, number]>> = x.pipe(upload(device(0)))
    for (let layer = 0; layer < layers; layer++) {
      const stage = Math.floor((layer * devices) / layers)
      const math = lane(`stage ${stage}`, { device: stage })
      flow = flow.pipe(on(math), matmul(param(`w${layer}`, tensor('f32', [width, width]))), relu())
    }
    return { y: flow.pipe(download()) }
  })
