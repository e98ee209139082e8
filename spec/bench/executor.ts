// What running a plan eagerly costs the thread that issues it: the executor by itself, over a driver that
// does nothing, before its pool has reached the steady state and after; tasks that launch nothing, and tasks
// that launch an empty kernel, beside the same driver calls made by a loop; and a tick of 1,000 nodes as a
// graph, beside the driver's launch call alone and the tick issued command by command. Task graphs as
// CUDASTF's stress benchmarks have them: a task a datum, eight lanes of a hundred tasks, and a chain.
//
// CUDASTF is measured in the same run where BRAID_CUDASTF names a folder with its stress benchmarks built
// (cudax/test/stf/stress/task_bench.cu and empty_tasks.cu of NVIDIA's CCCL):
//     nvcc -O3 -DNDEBUG -std=c++17 -arch=sm_90 --extended-lambda --expt-relaxed-constexpr -lcuda \
//       -Icudax/include -Ilibcudacxx/include -Icub -Ithrust -o FOLDER/NAME cudax/test/stf/stress/NAME.cu
// Elsewhere its figures are those of another machine, and the table says so.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { measure } from './allocator-run.js'

/** CUDASTF's time for a task, in microseconds, and where it was measured. */
interface Peer {
  readonly us: Readonly<Record<string, number>>
  readonly from: string
}

/** Its stream back end with one thread, on another H200: its own stress benchmarks. */
const elsewhere: Peer = {
  us: {
    'task bench, trivial': 1.51,
    'task bench, stencil': 3.16,
    'task bench, fft': 1.94,
    'task bench, sweep': 2.46,
    'ping-pong': 1.84,
  },
  from: 'another machine, 2026-08',
}

/** What one of its programs prints: `Elapsed: 1.51+-0.01 us per task`, on standard error. */
const elapsed = (program: string, args: readonly (string | number)[]): number => {
  const { status, stderr, error } = spawnSync(program, args.map(String), { encoding: 'utf8' })
  const found = Number(/Elapsed: ([0-9.]+)/.exec(stderr ?? '')?.[1])
  if (status === 0 && found > 0) return found
  throw new Error(`${program} ${args.join(' ')} failed: ${error?.message ?? stderr.trim()}`)
}

const peerOf = (folder: string | undefined, log: (line: string) => void): Peer => {
  if (!folder) return elsewhere
  // Eight columns of a hundred steps, as here, ten times over: the n-th pattern.
  const taskBench = (n: number) => elapsed(join(folder, 'task_bench'), [8, 100, 10, n])
  try {
    return {
      us: {
        'task bench, trivial': taskBench(0),
        'task bench, stencil': taskBench(1),
        'task bench, fft': taskBench(2),
        'task bench, sweep': taskBench(3),
        'ping-pong': elapsed(join(folder, 'empty_tasks'), [200_000]),
      },
      from: 'the same run',
    }
  } catch (error) {
    log(`CUDASTF could not be measured here: ${(error as Error).message}`)
    return elsewhere
  }
}

const bars = {
  executor: { most: 40, of: 'ns a command' },
  'executor-empty': { most: 0.25, of: "CUDASTF's time" },
  'executor-launch': { most: 1.05, of: 'the driver calls' },
  'executor-graph': { most: 2, of: 'us a launch of 1,000 empty nodes' },
} as const

export const bench = {
  name: 'executor',
  title: 'Issuing a plan: what the executor adds to the driver calls, by command and by task',
  run: async (log: (line: string) => void) => {
    const peer = peerOf(process.env['BRAID_CUDASTF'], log)
    const { name, ours, device } = measure(['executor'], log, { peer: false })
    let ok = true
    const rows = ours
      .filter(({ bench }) => bench in bars)
      .map(figure => {
        const kind = figure.bench as keyof typeof bars
        const stf = peer.us[figure.case.replace(/, (pooled|planned)$/, '')]
        const against =
          kind === 'executor' || kind === 'executor-graph'
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
          calls: figure['calls'] ?? figure['call'] ?? '',
          // Of a graph: the same tick issued command by command, and the memory that its executable holds.
          eager: figure['eager'] ?? '',
          'held, KiB': figure['heldKiB'] ?? '',
          // Of a pooled session's first ticks, until its pool is in steady state: a command's cost.
          'before steady state': figure['starting'] ?? '',
          'ticks before': figure['startingTicks'] ?? '',
          against,
          ...(kind === 'executor-empty' && { 'CUDASTF, ns': stf! * 1000, 'CUDASTF from': peer.from }),
          bar: `≤ ${bars[kind].most} ${bars[kind].of}`,
          held: held === undefined ? '' : held ? 'yes' : 'no',
        }
      })
    log(`on ${name}`)
    return { rows, ok }
  },
}
