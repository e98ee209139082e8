import { parseArgs } from 'node:util'
import type { OpenOptions } from 'braid-gpu/runtime'

export const usage = `node dist/examples/generate/main.js [PROMPT] [options]
  PROMPT             the text to go on with; default: "Braid "
  --bytes N          how many bytes to write; default 64
  --checkpoint FILE  a .safetensors file with the names of GPT-2's; default: a small one with random weights
  --heads N          the heads of its attention; default: what its metadata says, else width / 64
  --temperature T    0: always the likeliest byte; default 0.8
  --seed N           of the choice of bytes; default 1
  --device NAME      host (default), cuda:0, auto`

const numberOf = (name: string, text: string | undefined, least: number, whole: boolean): number => {
  const number = Number(text)
  if (text === undefined || text === '' || !(number >= least) || (whole && !Number.isSafeInteger(number)))
    throw new Error(`--${name}: wanted a ${whole ? 'whole ' : ''}number from ${least}, found ${text}`)
  return number
}

export const readOptions = () => {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      bytes: { type: 'string', default: '64' },
      checkpoint: { type: 'string' },
      heads: { type: 'string' },
      temperature: { type: 'string', default: '0.8' },
      seed: { type: 'string', default: '1' },
      device: { type: 'string', default: 'host' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  })
  if (positionals.length > 1) throw new Error(`wanted one prompt, found ${positionals.length}; quote it`)
  return {
    help: values.help,
    prompt: new TextEncoder().encode(positionals[0] || 'Braid '),
    bytes: numberOf('bytes', values.bytes, 1, true),
    checkpoint: values.checkpoint,
    heads: values.heads === undefined ? undefined : numberOf('heads', values.heads, 1, true),
    temperature: numberOf('temperature', values.temperature, 0, false),
    seed: numberOf('seed', values.seed, 0, true),
    // `open` reports an unknown device, with the devices of this machine.
    device: values.device as NonNullable<OpenOptions['device']>,
  }
}
