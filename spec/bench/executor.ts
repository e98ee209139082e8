// What running a plan eagerly costs the thread that issues it: the executor by itself, over a driver that
// does nothing; tasks that launch nothing, and tasks that launch an empty kernel, beside the same driver
// calls made by a loop. Task graphs as CUDASTF's stress benchmarks have them: a task a datum, eight lanes of
// a hundred tasks, and a chain.
import { measure } from './allocator-run.js'

/**
 * Microseconds a task of CUDASTF's stream back end with one thread, on an H200 (its stress benchmarks, August
 * 2026).
 */
const cudastf: Readonly<Record<string, number>> = {
  'task bench, trivial': 1.51,
  'task bench, stencil': 3.16,
  'task bench, fft': 1.94,
  'task bench, sweep': 2.46,
  'ping-pong': 1.84,
}

const bars = {
  executor: { most: 40, of: 'ns a command' },
  'executor-empty': { most: 0.25, of: "CUDASTF's time" },
  'executor-launch': { most: 1.05, of: 'the driver calls' },
} as const

export const bench = {
  name: 'executor',
  title: 'Issuing a plan: what the executor adds to the driver calls, by command and by task',
  run: async (log: (line: string) => void) => {
    const { name, ours, device } = measure(['executor'], log, { peer: false })
    let ok = true
    const rows = ours
      .filter(({ bench }) => bench in bars)
      .map(figure => {
        const kind = figure.bench as keyof typeof bars
        const stf = cudastf[figure.case.replace(/, (pooled|planned)$/, '')]
        const against =
          kind === 'executor'
            ? figure.median
            : kind === 'executor-launch'
              ? Number(figure['overCalls'])
              : figure.median / 1000 / (stf ?? Number.NaN)
        // Beside a device whose calls take no time there is nothing to hold the last two to.
        const held = kind !== 'executor' && device === 'host' ? undefined : against <= bars[kind].most
        ok &&= held !== false
        return {
          bench: kind,
          case: figure.case,
          unit: figure.unit,
          median: figure.median,
          least: figure.least,
          most: figure.most,
          calls: figure['calls'] ?? '',
          against,
          bar: `≤ ${bars[kind].most} ${bars[kind].of}`,
          held: held === undefined ? '' : held ? 'yes' : 'no',
        }
      })
    log(`on ${name}`)
    return { rows, ok }
  },
}
