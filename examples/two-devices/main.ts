// One network on one device, and cut into two stages on two: the same answers, each stage's weights on its
// own device, and a tick that takes about half as long, since the second stage of one tick overlaps the first
// of the next. Host devices by default, slowed to a known rate so that the figures do not depend on the
// processor; with `--device cuda:0,cuda:1` two GPUs. Exit status 1 if a check fails.
import { parseArgs } from 'node:util'
import { compile, orThrow, textOf } from 'braid-gpu'
import { open, pulled } from 'braid-gpu/runtime'
import { feed, layers, network, rows, weights, width } from './network.js'

const { values } = parseArgs({
  options: { device: { type: 'string', default: 'host' }, ticks: { type: 'string', default: '24' } },
})
const ticks = Number(values.ticks)
const names = values.device.split(',')

/** Ten milliseconds for all layers on one device. */
const host = { flopRate: (2 * rows * width * width * layers) / 10e-3 }

const run = async (devices: number) => {
  const plan = orThrow(compile(network(devices), { inFlight: 3 }))
  if (devices > 1) console.log(textOf(plan))
  const device = names.length === 1 ? names[0]! : names.slice(0, devices)
  const opened = await open(plan, { device: devices === 1 ? names[0]! : device, params: weights(), host })()
  await using session = orThrow(opened)
  const outputs: Float32Array[] = []
  await session.run({ x: pulled(Array.from({ length: ticks }, (_, tick) => feed(tick))) }).forEach(lease => {
    using held = lease
    outputs.push(held.y.slice())
  })
  return { outputs, stats: session.stats(), on: session.devices.map(one => one.device).join(' and ') }
}

const main = async (): Promise<boolean> => {
  const [one, two] = [await run(1), await run(2)]
  const check = (holds: boolean, text: string) => {
    console.log(`  ${holds ? '✓' : '✗'} ${text}`)
    return holds
  }
  const same = two.outputs.every((y, tick) => y.every((value, i) => value === one.outputs[tick]![i]))
  const [before, after] = [one, two].map(({ stats }) => stats.tickMs.median)
  const each = two.stats.devices.map(({ peak }) => peak.reserved)
  const all = one.stats.devices[0]!.peak.reserved
  console.log(`Braid · ${layers} layers on ${one.on}, then on ${two.on}\n`)
  return [
    check(one.outputs.length === ticks && two.outputs.length === ticks, `ticks: ${ticks} of each`),
    check(same, 'answers: the same bit for bit'),
    check(
      each.every(bytes => bytes < 0.75 * all),
      `memory: ${each.join(' and ')} bytes of two devices, ${all} of one`,
    ),
    check(
      names[0] !== 'host' || after! < 0.7 * before!,
      `tick: ${after!.toFixed(2)} ms, ${before!.toFixed(2)} ms on one`,
    ),
  ].every(holds => holds)
}

try {
  process.exitCode = (await main()) ? 0 : 1
} catch (error) {
  console.error(`\ntwo-devices: ${error instanceof Error ? error.message : String(error)}`)
  process.exitCode = 1
}
