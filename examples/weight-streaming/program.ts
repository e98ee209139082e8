// For the command line: `npx braid run examples/weight-streaming/program.ts --device host --ticks 8 --check`.
import { join } from 'node:path'
import { program } from 'braid-gpu'
import { pulled } from 'braid-gpu/runtime'
import { layers, network, weightName } from './network.js'
import { rowsOf } from './rows.js'
import { checkout, openWeights } from './weights.js'

/** The file is opened, or made, when the first layer is requested. */
const lazily = () => {
  let opened: ReturnType<typeof openWeights> | undefined
  return async (layer: number, into: Uint8Array) => {
    opened ??= openWeights()
    await (await opened).file.source(weightName(layer))(into)
  }
}

const read = lazily()

/**
 * Rates at which a copy of a layer's weights takes as long as its product (5 ms each), and memory for four
 * layers.
 */
export const slowed = { memory: 4 << 20, copyRate: 210e6, flopRate: 1.68e9 } as const

export default program({
  graph: network,
  feeds: () => ({ rows: pulled(rowsOf(join(checkout, 'README.md'), Number.POSITIVE_INFINITY)) }),
  params: Object.fromEntries(
    Array.from({ length: layers }, (_, layer) => [
      weightName(layer),
      (into: Uint8Array) => read(layer, into),
    ]),
  ),
  options: { inFlight: 2, mode: 'eager', host: slowed },
})
