// Weight streaming written by hand on the allocator alone: what is reserved, over the number of layers, by
// policy; beside PyTorch's record_stream and events by hand. Layers are uploaded 1, 2 or 3 ahead, and the
// thread that issues them is far ahead of the device.
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { chart } from './allocator-chart.js'
import { type Figure, measure, root } from './allocator-run.js'

const picture = 'spec/bench/pictures/allocator-streaming.svg'
const drawnAhead = 2

const seriesOf = (figures: readonly Figure[]) => {
  const drawn = figures.filter(figure => figure['ahead'] === drawnAhead)
  return [...new Set(drawn.map(figure => String(figure['policy'])))].map(policy => ({
    name: policy,
    points: drawn
      .filter(figure => figure['policy'] === policy)
      .map(figure => ({ x: Number(figure['layers']), y: Number(figure['reservedMiB']) })),
  }))
}

export const bench = {
  name: 'allocator-streaming',
  title:
    'Weight streaming by hand on the allocator alone, 8 to 128 layers: peak reserved, by policy, and PyTorch',
  run: async (log: (line: string) => void) => {
    const { name, ours, theirs, torch } = measure(['streaming'], log)
    const rows = [...ours, ...theirs].map(figure => ({
      policy: String(figure['policy']),
      ahead: Number(figure['ahead']),
      layers: Number(figure['layers']),
      blockMiB: Number(figure['blockMiB']),
      reservedMiB: Number(figure['reservedMiB']),
      blocks: Number(figure['blocks']),
      msALayer: figure.median,
      issueUsALayer: Number(figure['issueUsALayer']),
    }))
    const waiting = rows.filter(({ policy }) => policy === 'order-then-wait')
    const most = Math.max(...waiting.map(({ blocks, ahead }) => blocks - ahead))
    log(
      `${most <= 1 ? '✓' : '✗'} order-then-wait holds k + ${most} blocks for k uploads ahead, ` +
        'from 8 to 128 layers (wanted: k + 1)',
    )
    if (theirs.length > 0) {
      const block = rows[0]!.blockMiB
      const svg = chart({
        title: `Memory reserved by a weight-streaming loop, ${drawnAhead} uploads ahead`,
        subtitle:
          `layers of ${block} MiB, no host synchronisation within a pass; ` +
          `${name}, PyTorch ${torch.replace(/\+.*/, '')}`,
        x: 'layers',
        y: 'peak reserved, MiB',
        series: seriesOf([...ours, ...theirs]).map(({ name: policy, points }) => ({
          name: policy.startsWith('PyTorch') ? policy : `Braid, ${policy}`,
          points,
        })),
      })
      writeFileSync(join(root, picture), svg)
      log(`drawn in ${picture}`)
    }
    return { rows, ok: most <= 1 }
  },
}
