// Bytes that the allocator reserves at its peak, relative to the bytes alive then: on recorded traces
// (BRAID_TRACES, a folder of them) with PyTorch's own peaks, or on programs that are made up.
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { isLeft } from 'fp-ts/lib/Either.js'
import { orThrow } from '../../dsl/ir/braid-error.js'
import { allocatorOptions } from '../../runtime/device/settings/options.js'
import { type AllocatorTrace, parseTrace } from '../../runtime/device/trace.js'
import { readTrace } from '../../runtime/device/trace-file.js'
import { replayTrace } from '../../runtime/device/trace-replay.js'
import { mixture, programs } from '../fixtures/traces.js'

const most = 1.03
const seeds = [1, 2]

const recorded = (folder: string): readonly AllocatorTrace[] =>
  readdirSync(folder)
    .filter(name => /\.json(\.gz)?$/.test(name))
    .sort()
    .map(name => {
      const trace = readTrace(join(folder, name))
      if (isLeft(trace)) throw new Error(trace.left.map(({ at, found }) => `${at}: ${found}`).join('\n'))
      return trace.right
    })

const madeUp = (): readonly AllocatorTrace[] =>
  [...programs, mixture].flatMap(make => seeds.map(seed => orThrow(parseTrace(make(seed)))))

export const bench = {
  name: 'traces',
  title: `Peak reserved over peak live, at most ${most} on each; BRAID_TRACES: a folder of recorded traces`,
  run: async (log: (line: string) => void) => {
    const folder = process.env['BRAID_TRACES']
    const traces = folder ? recorded(folder) : madeUp()
    if (traces.length === 0) throw new Error(`BRAID_TRACES: no traces (*.json.gz) in ${folder}`)
    const allocator = orThrow(allocatorOptions({}))
    const still = orThrow(allocatorOptions({ movePages: false }))
    const rows: Record<string, unknown>[] = []
    for (const trace of traces) {
      const done = await replayTrace(trace, { device: 'auto', allocator })
      const staying = await replayTrace(trace, { device: 'auto', allocator: still })
      if (rows.length === 0) log(`on ${done.device}: ${done.deviceName}`)
      const over = (bytes: number | undefined) => (bytes === undefined ? undefined : bytes / done.peakLive)
      const { torch } = trace
      const row = {
        trace: trace.name,
        'live MiB': Math.round(done.peakLive / 2 ** 20),
        Braid: over(done.peakReserved),
        'pages stay': over(staying.peakReserved),
        PyTorch: over(torch.default?.peakReserved),
        'PyTorch expandable': over(torch.expandable?.peakReserved),
        'ns an event': done.nsPerEvent,
        'pages stay ns': staying.nsPerEvent,
        'pages moved': done.pagesMoved,
        'µs a move': done.moves === 0 ? 0 : done.moveNs / done.moves / 1000,
      }
      rows.push(Object.fromEntries(Object.entries(row).filter(([, value]) => value !== undefined)))
    }
    return { rows, ok: rows.every(row => (row['Braid'] as number) <= most) }
  },
}
