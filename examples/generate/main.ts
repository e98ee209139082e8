// Writes text with a GPT over bytes and a key-value cache, and checks it twice: a forward pass over the whole
// text, without a cache, must give the same scores; and `interpret` must, for the prompt and the first bytes.
// Exit status 1 if one does not.
import { compile, explain, orThrow } from 'braid-gpu'
import { Device, open, params, pulled, type SharedParams } from 'braid-gpu/runtime'
import { lastValueFrom, map, type Observable, tap, toArray } from 'rxjs'
import { type Model, openCheckpoint } from './checkpoint.js'
import { compareWithMeaning, isInterpreted, type Written } from './meant.js'
import { decoder, forward } from './network.js'
import { readOptions, usage } from './options.js'

/**
 * The first ticks that are compared with `interpret`: those of the default prompt, and a few of the decoder's
 * own.
 */
const interpreted = 10

const row = (name: string, text: string): void => console.log(`  ${name.padEnd(12)}${text}`)

/** A byte as it is printed; one that is no letter stands as its number. */
const shown = (byte: number): string =>
  byte === 10 || (byte >= 32 && byte < 127)
    ? String.fromCharCode(byte)
    : `\\x${byte.toString(16).padStart(2, '0')}`

/** The bytes of the prompt; then the decoder goes on with its own. */
const forcedBytes = function* (prompt: Uint8Array, ticks: number) {
  for (let tick = 0; tick < ticks; tick++) yield Int32Array.of(prompt[tick] ?? -1)
}

const largest = (values: Iterable<number>): number => {
  let most = 0
  for (const value of values) if (!(Math.abs(value) <= most)) most = Math.abs(value)
  return most
}

/** The largest difference of two lists, relative to the largest number. */
const difference = (a: Float32Array, b: Float32Array): number =>
  largest(a.map((value, i) => value - b[i]!)) / largest(b)

/** The scores of every byte of a text, without a cache. */
const scoresOf = async (model: Model, text: Int32Array, device: Device, weights: SharedParams) => {
  const plan = orThrow(compile(forward(model, text.length)))
  await using session = orThrow(await open(plan, { device, params: weights })())
  const scores = session.run({ text: pulled([text]) }).pipe(
    map(lease => {
      using held = lease
      return held.logits.slice()
    }),
  )
  return await lastValueFrom(scores)
}

const main = async (): Promise<boolean> => {
  const options = readOptions()
  if (options.help) {
    console.log(usage)
    return true
  }
  const { prompt, bytes, temperature, seed } = options
  const {
    model,
    path,
    seeded,
    params: source,
    file,
  } = await openCheckpoint(options.checkpoint, options.heads)
  await using _file = file
  const { width, layers, heads, context, dtype } = model
  // The prompt's last byte gives the first one that is written.
  const ticks = prompt.length + bytes - 1
  if (ticks > context)
    throw new Error(
      `wanted at most ${context + 1} bytes with the prompt, found ${ticks + 1}; give fewer --bytes`,
    )

  console.log(`Braid · generate: ${bytes} bytes after a prompt of ${prompt.length}`)
  row('checkpoint', `${path}${seeded ? ': random weights, so what it writes is noise' : ''}`)
  row('model', `${layers} layers of width ${width}, ${heads} heads, ${dtype}; ${context} positions`)
  await using device = orThrow(await Device.open(options.device as string)())
  row('device', device.name)
  await using weights = await params(device, source)
  const net = decoder(model, { temperature, seed })
  const plan = orThrow(compile(net, { inFlight: 2 }))
  const inPlace = explain(plan, 'text').match(/changes .* in place/g)?.length ?? 0
  row('cache', `${2 * layers} states, ${inPlace} of them written in place`)
  await using session = orThrow(await open(plan, { device, params: weights })())

  process.stdout.write(`\n${[...prompt].map(shown).join('')}`)
  const written: Observable<Written> = session.run({ forced: pulled(forcedBytes(prompt, ticks)) }).pipe(
    map(lease => {
      using held = lease
      return { byte: held.byte[0]!, logits: held.logits.slice() }
    }),
    // Before its end the prompt says itself what comes next.
    tap({ next: ({ byte }) => process.stdout.write(++tick < prompt.length ? '' : shown(byte)) }),
  )
  let tick = 0
  const all = await lastValueFrom(written.pipe(toArray()))
  console.log(`\n\n  ${session.stats().tickMs.median.toFixed(2)} ms a byte (median)`)

  const text = Int32Array.from({ length: ticks }, (_, i) => prompt[i] ?? all[i - 1]!.byte)
  const wanted = await scoresOf(model, text, device, weights)
  const apart = all.map(({ logits }, i) =>
    difference(logits, wanted.subarray(i * logits.length, (i + 1) * logits.length)),
  )
  const allowed = dtype === 'f32' ? 1e-4 : 0.05
  const holds = all.length === ticks && largest(apart) <= allowed
  console.log(
    `  ${holds ? '✓' : '✗'} scores of ${all.length} bytes, against a forward pass without a cache: ` +
      `within ${largest(apart).toExponential(1)} (allowed: ${allowed})`,
  )
  if (!isInterpreted(model)) {
    console.log('  not compared with interpret, which would take long for so many weights')
    return holds
  }
  const few = text.subarray(0, Math.min(ticks, interpreted))
  const meant = await compareWithMeaning(net, source, few, all)
  console.log(
    `  ${meant.holds ? '✓' : '✗'} first ${meant.ticks} bytes and their scores, against interpret: ` +
      `within ${meant.apart.toExponential(1)} (allowed: ${meant.allowed.toExponential(1)})`,
  )
  return holds && meant.holds
}

try {
  process.exitCode = (await main()) ? 0 : 1
} catch (error) {
  console.error(`\ngenerate: ${error instanceof Error ? error.message : String(error)}`)
  process.exitCode = 1
}
