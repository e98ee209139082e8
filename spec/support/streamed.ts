import { download, graph, lane, matmul, on, param, relu, slice, tensor, upload } from '../../dsl/index.js'

/** Weights of 64 KiB streamed through a chain of layers, `ahead` of their readers, if that is said; x and each activation are 4 KiB. */
export const streamed = (layers: number, ahead?: number) =>
  graph('streamed', {}, () => {
    let y = param('x', tensor('f32', [8, 128])).pipe(on(lane('math')))
    for (let i = 0; i < layers; i++) {
      const w = param(`w${i}`, tensor('f32', [128, 128]), { on: 'host' }).pipe(
        upload(lane('copy'), ahead === undefined ? {} : { ahead }),
      )
      y = y.pipe(matmul(w), relu())
    }
    return { y: y.pipe(slice(0, 0, 4), download(lane('out'))) }
  })

/** The fewest bytes that hold x, two activations, the layer in use and those ahead of it. */
export const streamedLeast = (ahead: number): number => (4 + 2 * 4 + (ahead + 1) * 64) * 2 ** 10
