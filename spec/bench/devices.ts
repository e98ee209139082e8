// What a second device is worth to a pipeline, and what a copy between two takes: on two GPUs where there are
// two, else on host devices of known rates.
import { compile } from '../../dsl/compiler/compile.js'
import {
  add,
  cast,
  device,
  download,
  type Graph,
  graph,
  lane,
  matmul,
  max,
  on,
  param,
  relu,
  simulate,
  tensor,
  upload,
} from '../../dsl/index.js'
import { orThrow } from '../../dsl/ir/braid-error.js'
import { devices, open, pulled } from '../../runtime/index.js'

const layers = 8
const ticks = 30
const largestRatio = 0.6

interface Fleet {
  readonly names: readonly string[]
  readonly rows: number
  readonly width: number
  readonly sizes: readonly number[]
  readonly host: { readonly flopRate?: number; readonly copyRate?: number }
}

const fleet = (): Fleet => {
  const gpus = devices().filter(({ kind }) => kind === 'cuda')
  if (gpus.length >= 2)
    return {
      names: ['cuda:0', 'cuda:1'],
      rows: 4096,
      width: 8192,
      sizes: [16, 20, 24, 28].map(n => 2 ** n),
      host: {},
    }
  const [rows, width] = [64, 256]
  const host = { flopRate: (2 * rows * width * width * layers) / 16e-3, copyRate: 4e9 }
  return { names: ['host:0', 'host:1'], rows, width, sizes: [20, 24].map(n => 2 ** n), host }
}

const small = (bytes: Uint8Array): void => {
  // bf16: 0x3c00 is 1/128, and its neighbours are as small.
  for (let i = 0; i + 1 < bytes.length; i += 2) {
    bytes[i] = (i * 31) & 0xff
    bytes[i + 1] = (i & 6) === 0 ? 0xbc : 0x3c
  }
}

/**
 * Products one after the other; on two devices the first half is on one, the rest on the other. Little comes
 * in and little goes out.
 */
const products = ({ rows, width }: Fleet, count: number): Graph =>
  graph(`${layers} products on ${count}`, { x: tensor('f32', [width]) }, ({ x }) => {
    const math = Array.from({ length: count }, (_, where) => lane(`math ${where}`, { device: where }))
    const base = param('base', tensor('bf16', [rows, width]))
    let flow = base.pipe(on(math[0]!), add(x.pipe(upload(device(0)), cast('bf16'))))
    for (let layer = 0; layer < layers; layer++) {
      const where = math[Math.floor((layer * count) / layers)]!
      flow = flow.pipe(on(where), matmul(param(`w${layer}`, tensor('bf16', [width, width]))), relu())
    }
    return { y: flow.pipe(max({ axis: 0 }), cast('f32'), download()) }
  }) as unknown as Graph

/** One value that crosses: made on the first device, read on the second. */
const crossing = (bytes: number): Graph =>
  graph(`${bytes} bytes`, { x: tensor('f32', [1]) }, ({ x }) => {
    const made = param('p', tensor('f32', [bytes / 4])).pipe(on(device(0)), add(x.pipe(upload(device(0)))))
    return { y: made.pipe(on(device(1)), max({ axis: 0 }), download()) }
  }) as unknown as Graph

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN

const measured = async (
  made: Graph,
  { names, host }: Fleet,
  count: number,
  fill: (bytes: Uint8Array) => void,
) => {
  const plan = orThrow(
    compile(made, { mode: 'eager', inFlight: 3, fuse: false, machine: count === 1 ? 'h200' : 'h200x2' }),
  )
  const params = Object.fromEntries(
    plan.buffers.filter(({ life }) => life === 'param').map(({ name }) => [name, fill]),
  )
  const run = async (trace: boolean) => {
    const opened = await open(plan, { device: names.slice(0, count), params: params as never, host, trace })()
    await using session = orThrow(opened)
    const input = new Float32Array(plan.buffers.find(({ life }) => life === 'input')!.bytes / 4)
    const feeds = { x: pulled(Array.from({ length: ticks }, () => input)) }
    await session.run(feeds as never).forEach(lease => {
      lease[Symbol.dispose]()
    })
    return { tickMs: session.stats().tickMs.median, rows: trace ? session.trace() : [] }
  }
  const [plain, traced] = [await run(false), await run(true)]
  const peers = traced.rows
    .filter(({ op }) => op === 'peer')
    .map(({ startMs, endMs }) => 1000 * (endMs - startMs))
  const { timeline, tickMs } = simulate(plan, count === 1 ? 'h200' : 'h200x2')
  const at = timeline.node.findIndex(node => plan.nodes[node]?.op === 'peer')
  const predictedUs = at < 0 ? 0 : (timeline.end[at]! - timeline.start[at]!) / 1000
  return { tickMs: plain.tickMs, peerUs: median(peers), predictedMs: tickMs, predictedUs }
}

export const bench = {
  name: 'devices',
  title:
    `Two devices: ${layers} products in two stages, relative to all of them on one ` +
    `(wanted: at most ${largestRatio} of its tick), and copies between the two`,
  run: async (log: (line: string) => void) => {
    const found = fleet()
    const onGpus = found.names[0] === 'cuda:0'
    const one = await measured(products(found, 1), found, 1, small)
    const two = await measured(products(found, 2), found, 2, small)
    const ratio = two.tickMs / one.tickMs
    log(
      `${found.names.join(' and ')}: ${two.tickMs.toFixed(3)} ms a tick, ` +
        `${one.tickMs.toFixed(3)} on one: ${ratio.toFixed(3)} of it`,
    )
    const rows: Record<string, unknown>[] = [
      { case: 'one device', tickMs: one.tickMs, ...(onGpus ? { predictedMs: one.predictedMs } : {}) },
      { case: 'two devices', tickMs: two.tickMs, ratio, ...(onGpus ? { predictedMs: two.predictedMs } : {}) },
    ]
    for (const bytes of found.sizes) {
      const { peerUs, predictedUs } = await measured(crossing(bytes), found, 2, into => void into.fill(0))
      const predicted = onGpus ? { predictedUs } : {}
      rows.push({
        case: `copy of ${bytes} bytes`,
        us: peerUs,
        gigabytesPerSecond: bytes / peerUs / 1000,
        ...predicted,
      })
    }
    return { rows, ok: ratio <= largestRatio }
  },
}
