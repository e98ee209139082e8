// A model learns a text by its bytes, on the device alone: the weights are states, and a tick is a step. Then
// the weights are read from the session, and a second plan writes with them. Compares the losses of the first
// steps with `interpret`. Exit status 1 if one differs, or if the model has not learned the text.
import { readFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { compile, distance, meaning, orThrow } from 'braid-gpu'
import { type OpenOptions, open, pulledTogether } from 'braid-gpu/runtime'
import { lastValueFrom, map, tap, toArray } from 'rxjs'
import { shapes, training, writing } from './network.js'
import { batch, batches, context, places, sample } from './text.js'

const usage = `node dist/examples/train/main.js [options]
  --text FILE    what is learned; default: three sentences of its own
  --steps N      default 600
  --rate R       of gradient descent; default 0.5
  --save FILE    the weights, as safetensors
  --device NAME  host (default), cuda:0, auto`

/** Steps that are compared, and how far the loss must have come down in a run of the default length. */
const compared = 5
const [learned, enough] = [0.1, 600]

const row = (name: string, text: string) => console.log(`  ${name.padEnd(8)} ${text}`)

const settings = () => {
  const { values } = parseArgs({
    options: {
      text: { type: 'string' },
      steps: { type: 'string', default: `${enough}` },
      rate: { type: 'string', default: '0.5' },
      save: { type: 'string' },
      device: { type: 'string', default: 'host' },
      help: { type: 'boolean', short: 'h', default: false },
    },
  })
  const [steps, rate] = [Number(values.steps), Number(values.rate)]
  if (!Number.isSafeInteger(steps) || steps < 1)
    throw new Error(`--steps: wanted a whole number from 1, found ${values.steps}`)
  if (!(rate > 0 && rate < 1e3)) throw new Error(`--rate: wanted a number above 0, found ${values.rate}`)
  return { ...values, steps, rate }
}

const check = (holds: boolean, text: string) => {
  console.log(`  ${holds ? '✓' : '✗'} ${text}`)
  return holds
}

/** Whether the first losses are what the graph means, as near as rounding allows. */
const isMeant = async (
  net: ReturnType<typeof training>,
  text: Uint8Array,
  losses: readonly number[],
): Promise<boolean> => {
  const first = Array.from({ length: Math.min(compared, losses.length) }, (_, step) => places(text, step))
  const meant = await lastValueFrom(
    meaning(net)({ tokens: first.map(each => each.tokens), target: first.map(each => each.target) }).pipe(
      toArray(),
    ),
  )
  return meant.every(
    ({ values, allowed }, step) =>
      distance(Float32Array.of(losses[step]!), values['loss']!, allowed['loss']!).wrong === undefined,
  )
}

const main = async (): Promise<boolean> => {
  const { help, steps, rate, save, text: path, device: name } = settings()
  if (help) {
    console.log(usage)
    return true
  }
  const text = path === undefined ? new TextEncoder().encode(sample) : await readFile(path)
  if (text.length <= context)
    throw new Error(`--text: wanted more than ${context} bytes, found ${text.length} in ${path}`)
  // `open` reports an unknown device, with the devices of this machine.
  const device = name as NonNullable<OpenOptions['device']>

  console.log(`Braid · train: ${steps} steps over ${text.length} bytes`)
  const net = training(rate)
  await using session = orThrow(await open(orThrow(compile(net)), { device })())
  row('device', session.device.name)
  const feeds = pulledTogether(batches(text), ['tokens', 'target'])
  let done = 0
  const losses = await lastValueFrom(
    session.run(feeds, { ticks: steps }).pipe(
      map(lease => {
        using held = lease
        return held.loss[0]!
      }),
      tap(loss => {
        if (done++ % 100 === 0) row(`step ${done}`, `loss ${loss.toFixed(4)}`)
      }),
      toArray(),
    ),
  )
  row('time', `${session.stats().tickMs.median.toFixed(2)} ms a step of ${batch} bytes (median)`)
  if (save !== undefined) {
    await session.state.save(save)
    row('saved', save)
  }

  const names = Object.keys(shapes) as (keyof typeof shapes)[]
  const weights = Object.fromEntries(
    await Promise.all(names.map(async each => [each, await session.state.read(each)] as const)),
  )
  const start = [...text.subarray(0, context)]
  const plan = orThrow(compile(writing(start)))
  await using writer = orThrow(await open(plan, { device, params: weights })())
  const written: number[] = []
  await writer.run({}, { ticks: Math.min(72, text.length - context) }).forEach(lease => {
    using held = lease
    written.push(held.byte[0]!)
  })
  row('writes', JSON.stringify(Buffer.from([...start, ...written]).toString()))

  const last = losses.slice(-20).reduce((sum, loss) => sum + loss, 0) / Math.min(20, losses.length)
  return [
    check(
      await isMeant(net, text, losses),
      `losses of the first ${Math.min(compared, steps)} steps: as interpret has them`,
    ),
    check(
      last < learned || steps < enough || path !== undefined,
      `loss: ${losses[0]!.toFixed(4)} at first, ${last.toFixed(4)} at the end`,
    ),
  ].every(holds => holds)
}

try {
  process.exitCode = (await main()) ? 0 : 1
} catch (error) {
  console.error(`\ntrain: ${error instanceof Error ? error.message : String(error)}`)
  process.exitCode = 1
}
