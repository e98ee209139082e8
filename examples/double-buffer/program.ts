// For the command line: `npx braid run examples/double-buffer/program.ts --device host --ticks 20 --check`.
import { abs, cast, download, graph, lane, mean, on, program, slice, sub, tensor, upload } from 'braid-gpu'
import { pulled } from 'braid-gpu/runtime'
import { frame, height, width } from './frames.js'

const up = lane('up')
const math = lane('math')
const down = lane('down')

/** While one frame is computed, the next comes in and the one before goes out. */
export const pipeline = graph('double-buffer', { frame: tensor('u8', [height, width]) }, inputs => {
  const raw = inputs.frame.pipe(upload(up))
  const pixels = raw.pipe(on(math), cast('f32'))
  const contrast = pixels.pipe(sub(pixels.pipe(mean({ axis: 1, keepDims: true }))), abs(), cast('u8'))
  return { contrast: contrast.pipe(download(down)), first: raw.pipe(slice(0, 0, 1), download(down)) }
})

/** Rates at which upload, compute and download of a frame take about 6 ms each. */
export const slowed = {
  memory: 4 << 20,
  copyRate: (height * width) / 0.006,
  deviceRate: (height * width * 29) / 0.006,
} as const

function* frames() {
  for (let number = 0; ; number++) yield frame(number)
}

export default program({
  graph: pipeline,
  feeds: () => ({ frame: pulled(frames()) }),
  options: { inFlight: 3, host: slowed },
})
