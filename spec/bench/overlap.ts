// What overlap is worth, on the host device with copies slowed to the pace of products; and that a plan has
// one peak, whatever the timing.
import { lastValueFrom, map, toArray } from 'rxjs'
import { compile } from '../../dsl/compiler/compile.js'
import { download, graph, lane, matmul, on, param, relu, tensor, upload } from '../../dsl/index.js'
import { orThrow } from '../../dsl/ir/braid-error.js'
import { open } from '../../runtime/session/open.js'

const layers = 24
const width = 256
const rows = 16
const ticks = 6
const pieceMs = 4
const seeds = 20
const largestRatio = 0.65

const network = graph('overlap', {}, () => {
  const copy = lane('copy')
  const math = lane('math')
  const out = lane('out')
  let y = param('x', tensor('f32', [rows, width])).pipe(on(math))
  for (let layer = 0; layer < layers; layer++)
    y = y.pipe(
      matmul(
        param(`w[${layer}]`, tensor('f32', [width, width]), { on: 'host' }).pipe(upload(copy, { ahead: 1 })),
      ),
      relu(),
    )
  return { y: y.pipe(download(out)) }
})

// A copy of a layer's weights and its product take `pieceMs` each.
const rates = {
  memory: 2 << 20,
  copyRate: (width * width * 4) / (pieceMs / 1000),
  flopRate: (2 * rows * width * width) / (pieceMs / 1000),
}

const values = (count: number, seed: number) =>
  Float32Array.from(
    { length: count },
    (_, i) => ((Math.imul(i + seed, 0x9e3779b1) >>> 8) / 2 ** 24 - 0.5) * Math.sqrt(24 / width),
  )

export const bench = {
  name: 'overlap',
  title:
    `Overlap on host: ${layers} layers, copy = compute = ${pieceMs} ms, overlapped and on one lane; ` +
    `the peak under ${seeds} jitter seeds`,
  run: async (log: (line: string) => void) => {
    const params: Record<string, Float32Array> = { x: values(rows * width, 1) }
    for (let layer = 0; layer < layers; layer++) params[`w[${layer}]`] = values(width * width, 1000 * layer)
    const run = async (lanes: number, jitter: number, count = ticks) => {
      const plan = orThrow(compile(network, { mode: 'eager', fuse: false, ...(lanes ? { lanes } : {}) }))
      const host = { ...rates, jitter, jitterMicroseconds: 1000, poison: jitter > 0 }
      await using session = orThrow(await open(plan, { device: 'host', params, host })())
      const outputs = await lastValueFrom(
        session.run({}, { ticks: count }).pipe(
          map(lease => {
            using held = lease
            return held.y.slice()
          }),
          toArray(),
        ),
      )
      return { stats: session.stats(), bound: plan.bound.device[0]!, last: outputs.at(-1)! }
    }
    const apart = await run(1, 0)
    const together = await run(0, 0)
    const ratio = together.stats.tickMs.median / apart.stats.tickMs.median
    log(
      `  one lane ${apart.stats.tickMs.median.toFixed(1)} ms a tick, ` +
        `overlapped ${together.stats.tickMs.median.toFixed(1)} ms: ` +
        `${ratio.toFixed(3)} of it (wanted: at most ${largestRatio})`,
    )
    const peaks = new Set<string>()
    let same = true
    for (let seed = 1; seed <= seeds; seed++) {
      const { stats, last } = await run(0, seed, 3)
      peaks.add([stats.peak.reserved, stats.poolPeak].join(' '))
      same &&= Buffer.compare(Buffer.from(last.buffer), Buffer.from(together.last.buffer)) === 0
    }
    const { peak, poolPeak } = together.stats
    peaks.add([peak.reserved, poolPeak].join(' '))
    log(
      `  peak ${peak.reserved} bytes held, pool to ${poolPeak}, bound ${together.bound}; ` +
        `${peaks.size === 1 ? 'the same' : `${peaks.size} different ones`} in ${seeds} jittered runs; ` +
        `answers ${same ? 'the same' : 'different'}`,
    )
    const ok = ratio <= largestRatio && peaks.size === 1 && same && peak.reserved <= together.bound
    const row = (variant: string, measured: typeof together, more: Record<string, number> = {}) => ({
      variant,
      tickMs: measured.stats.tickMs.median,
      peakReserved: measured.stats.peak.reserved,
      poolPeak: measured.stats.poolPeak,
      bound: measured.bound,
      ...more,
    })
    return {
      rows: [row('one lane', apart), row('overlapped', together, { ratio, peaks: peaks.size, seeds })],
      ok,
    }
  },
}
