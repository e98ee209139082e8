// For the command line: `npx braid run examples/two-devices/program.ts --device host --ticks 20 --check`, or
// `--device cuda:0,cuda:1`.
import { program } from 'braid-gpu'
import { pulled } from 'braid-gpu/runtime'
import { feed, network, weights } from './network.js'

function* frames() {
  for (let tick = 0; ; tick++) yield feed(tick)
}

export default program({
  graph: network(2),
  params: weights(),
  feeds: () => ({ x: pulled(frames()) }),
  options: { inFlight: 3 },
})
