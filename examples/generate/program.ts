// For the command line: `npx braid run examples/generate/program.ts --device host --ticks 8 --check`.
import { program } from 'braid-gpu'
import { pulled } from 'braid-gpu/runtime'
import { openCheckpoint } from './checkpoint.js'
import { decoder } from './network.js'

const { model, params } = await openCheckpoint()

function* forced() {
  yield Int32Array.of('B'.charCodeAt(0))
  for (;;) yield Int32Array.of(-1)
}

export default program({
  graph: decoder(model, { temperature: 0.8, seed: 1 }),
  feeds: () => ({ forced: pulled(forced()) }),
  params,
  options: { inFlight: 2 },
})
