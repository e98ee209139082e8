import { conv, download, graph, lane, on, param, relu, tensor, upload } from '../../dsl/index.js'

/** A convolution with a bias and an activation, and one by channel. */
export const convolutions = graph('convolutions', { x: tensor('f32', [2, 3, 32, 32]) }, ({ x }) => {
  const [w, b] = [param('w', tensor('f32', [16, 3, 3, 3])), param('b', tensor('f32', [16]))]
  const each = param('each', tensor('f32', [16, 1, 3, 3]))
  const math = lane('math', { priority: 'high' })
  const h = x.pipe(upload(lane('copy')), on(math), conv(w, { stride: 2, padding: 1, bias: b }), relu())
  return { y: h.pipe(conv(each, { padding: 'same', groups: 16 }), download(lane('rows'))) }
})
