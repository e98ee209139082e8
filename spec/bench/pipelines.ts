// Pipelines with something to overlap, on a GPU beside the same pipelines written by hand in PyTorch:
// branches that meet at the end, a chain of diamonds, an ensemble of two models, and weights streamed in
// while activations are offloaded. PyTorch runs each in eight ways, and the best one counts: on one stream
// or on several, call by call or as CUDA graphs, ticks in turn or overlapped (pipelines.py). Both sides
// have as many ticks in flight. Then the windows that the compiler finds, beside those written by hand.
import {
  allowedOf,
  compared,
  type Lengths,
  logWays,
  middle,
  type Own,
  ours,
  type Theirs,
  waysOf,
  withPytorch,
} from './pipeline-runs.js'
import { offloaded, pipelineOf, shapes } from './pipeline-shapes.js'

const lengths: Lengths = { warm: 20, steps: 200, seconds: 0.5 }
/**
 * How often Braid and PyTorch take turns, each from the start: on a machine that others use, one turn is now
 * and then a hundredth slower.
 */
const turns = 3

const bars = { ratio: 1, window: 1.03 } as const

const pipelines = (['branches', 'diamonds', 'ensemble', 'offload'] as const).map(name => pipelineOf(name))

// The window that the compiler finds in the memory of each hand-written window, compared with the best
// hand-written window that fits there.
const windows = async (log: (line: string) => void) => {
  const { values } = pipelineOf('offload')
  const windowed = (ahead?: number, memory?: number) =>
    ours({ graph: offloaded(shapes.offload, ahead), values }, lengths, { memory })
  const written = []
  for (const ahead of [1, 2, 3, 4]) {
    const plan = await windowed(ahead)
    written.push(plan)
    log(
      `  ${ahead} ahead by hand, ${plan.boundMiB.toFixed(1)} MiB: ` +
        `${plan.wallMs.toFixed(3)} ms a step, ${plan.predictedMs.toFixed(3)} predicted`,
    )
  }
  const rows = []
  for (const [i, { boundMiB }] of written.entries()) {
    const found = await windowed(undefined, Math.ceil(boundMiB * 2 ** 20))
    const fitting = written.filter(other => other.boundMiB <= boundMiB)
    const best = Math.min(...fitting.map(({ wallMs }) => wallMs))
    rows.push({
      pipeline: `offload, window found in the memory of ${i + 1} ahead`,
      wallMs: found.wallMs,
      tickMs: found.tickMs,
      tickP90Ms: found.tickP90Ms,
      predictedMs: found.predictedMs,
      boundMiB: found.boundMiB,
      bestWrittenMs: best,
      ratio: found.wallMs / best,
    })
    log(
      `  window found in ${boundMiB.toFixed(1)} MiB: ${found.wallMs.toFixed(3)} ms a step; ` +
        `the best written by hand ${best.toFixed(3)}`,
    )
  }
  const fast = await windowed()
  log(
    `  no window by hand and no memory said, ${fast.boundMiB.toFixed(1)} MiB: ` +
      `${fast.wallMs.toFixed(3)} ms a step, ${fast.predictedMs.toFixed(3)} predicted`,
  )
  return rows
}

const besidePytorch = (log: (line: string) => void) =>
  withPytorch(pipelines, lengths, async turn => {
    const rounds: { theirs: Theirs; mine: Own[] }[] = []
    for (let round = 0; round < turns; round++) {
      const theirs = turn()
      const mine: Own[] = []
      for (const pipeline of pipelines) mine.push(await ours(pipeline, lengths))
      rounds.push({ theirs, mine })
    }
    return pipelines.map((pipeline, p) => {
      const ways = waysOf(
        rounds.map(({ theirs }) => theirs.ways[p]!),
        log,
      )
      const best = (kind: string) =>
        ways.filter(({ way }) => way.startsWith(kind)).sort((a, b) => a.ms - b.ms)[0]
      const [eager, graph] = [best('eager'), best('graph')]
      const wallMs = middle(rounds.map(({ mine }) => mine[p]!.wallMs))
      const mine = rounds.map(round => round.mine[p]!).find(own => own.wallMs === wallMs)!
      const ratio = mine.wallMs / Math.min(...ways.map(({ ms }) => ms))
      const { unequal, difference } = compared(mine.outputs, rounds[0]!.theirs.outputs[p]!)
      const allowed = allowedOf(pipeline)
      log(`  ${pipeline.name}: ${mine.wallMs.toFixed(3)} ms a step, bound ${mine.boundMiB.toFixed(1)} MiB`)
      logWays(ways, log)
      log(`    outputs: ${unequal} elements differ, by ${difference.toExponential(1)} at most (${allowed})`)
      // All eight ways count: where one failed, the best one is not known.
      const whole = ways.length === rounds[0]!.theirs.ways[p]!.length
      const { outputs: _, kernels, graphs, ...figures } = mine
      const row = {
        pipeline: pipeline.name,
        ...figures,
        eager: eager?.way ?? 'failed',
        eagerMs: eager?.ms ?? Number.NaN,
        graph: graph?.way ?? 'failed',
        graphMs: graph?.ms ?? Number.NaN,
        ratio,
        'Braid is': ratio <= 1 ? 'ahead' : `behind by ${((ratio - 1) * 100).toFixed(1)} %`,
        unequal,
        difference,
        allowed,
      }
      return { row, ok: ratio <= bars.ratio && difference <= allowed && whole }
    })
  })

export const bench = {
  name: 'pipelines',
  title: 'Pipelines on cuda:0, and the same by hand in PyTorch, the best of eight ways: milliseconds a step',
  run: async (log: (line: string) => void) => {
    const beside = await besidePytorch(log)
    const found = await windows(log)
    return {
      rows: [...beside.map(({ row }) => row), ...found],
      ok: beside.every(({ ok }) => ok) && found.every(({ ratio }) => ratio <= bars.window),
    }
  },
}
