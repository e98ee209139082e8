// For the command line: `npx braid run examples/train/program.ts --device host --ticks 20 --check`.
import { program } from 'braid-gpu'
import { pulledTogether } from 'braid-gpu/runtime'
import { training } from './network.js'
import { batches, sample } from './text.js'

const text = new TextEncoder().encode(sample)

export default program({
  graph: training(0.5),
  feeds: () => pulledTogether(batches(text), ['tokens', 'target']),
})
