import { parseArgs } from 'node:util'
import type { OpenOptions } from 'braid-gpu/runtime'

export const usage = `npm start -- [FILE] [options]
  (or: node dist/examples/weight-streaming/main.js [FILE] [options])
  FILE             its bytes are the rows that flow through the network; default: README.md
  --device NAME    host (default), cuda:0, auto
  --ticks N        how many blocks of 16 rows; default 8
  --weights FILE   a .safetensors file with layers.0.weight … layers.31.weight, f32[512, 512] each
  --trace FILE     where to write the trace; default .cache/weight-streaming.json`

export const readOptions = () => {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      device: { type: 'string', default: 'host' },
      ticks: { type: 'string', default: '8' },
      weights: { type: 'string' },
      trace: { type: 'string' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  })
  const ticks = Number(values.ticks)
  if (!Number.isSafeInteger(ticks) || ticks < 3)
    throw new Error(`--ticks: wanted a whole number from 3, found ${values.ticks}`)
  if (positionals.length > 1)
    throw new Error(`wanted one file, found ${positionals.length}: ${positionals.join(' ')}`)
  // `open` reports an unknown device, with the devices of this machine.
  const device = values.device as NonNullable<OpenOptions['device']>
  return { ...values, ticks, device, file: positionals[0] }
}
