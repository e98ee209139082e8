import { download, graph, lane, matmul, param, relu, tensor, upload } from '../../dsl/index.js'

const copy = lane('copy')
const math = lane('math')
const count = 6

/** Rows of 64 through six layers of 64 × 64, whose weights are uploaded one ahead of their readers. */
export const width = 64
export const network = graph('layers', { x: tensor('f32', [16, width]) }, ({ x }) => {
  let value = x.pipe(upload(math))
  for (let layer = 0; layer < count; layer++) {
    const weight = param(`w[${layer}]`, tensor('f32', [width, width]), { on: 'host' }).pipe(upload(copy, { ahead: 1 }))
    value = value.pipe(matmul(weight), relu())
  }
  return { y: value.pipe(download(math)) }
})

/** Weights that are 0.01, 0.02, … throughout. */
export const params = Object.fromEntries(
  Array.from({ length: count }, (_, i) => [
    `w[${i}]`,
    (into: Uint8Array) => void new Float32Array(into.buffer, into.byteOffset, width * width).fill(0.01 * (i + 1)),
  ]),
)
