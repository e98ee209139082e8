// Graph mode on a GPU: pipelines issued call by call and as executable graphs, beside the best of eight ways
// of the same by hand in PyTorch, CUDA graphs among them; and a lattice of 2,000 small kernels, on which
// graph mode is held to twice the throughput of eager mode, and 1.2 times that of a graph on one stream. At
// the end, what JavaScript and C++ take to launch a graph, and a step of a plan tree.
import { compile, orThrow } from '../../dsl/index.js'
import { Device } from '../../runtime/index.js'
import { graphLaunches } from './graph-launches.js'
import {
  allowedOf,
  compared,
  inFlight,
  type Lengths,
  logWays,
  middle,
  type Own,
  ours,
  type Theirs,
  waysOf,
  withPytorch,
} from './pipeline-runs.js'
import { type Pipeline, pipelineOf } from './pipeline-shapes.js'
import { treeSteps } from './trees.js'

const lengths: Lengths = { warm: 20, steps: 200, seconds: 0.25 }
/** How often Braid and PyTorch take turns, each from the start. */
const turns = 3

/** Braid beside PyTorch's best, at most; a lattice's throughput beside eager's and one stream's, at least. */
const bars = { ratio: 1, eager: 2, oneStream: 1.2 } as const

const names = ['branches', 'diamonds', 'ensemble', 'offload', 'decode', 'towers', 'wide', 'lattice'] as const

const modes = {
  eager: { mode: 'eager' },
  graph: { mode: 'graph' },
  'graph, fused': { mode: 'graph', fuse: true },
  'graph, one stream': { mode: 'graph', lanes: 1 },
} as const
type Mode = keyof typeof modes

/** What is run of a pipeline. A graph on one stream is a peer of the lattice's, no way to run the others. */
const modesOf = ({ name }: Pipeline): readonly Mode[] =>
  name === 'lattice'
    ? ['eager', 'graph', 'graph, fused', 'graph, one stream']
    : ['eager', 'graph', 'graph, fused']

type Turn = { readonly theirs: Theirs; readonly mine: readonly ReadonlyMap<Mode, Own>[] }

const takeTurns = (pipelines: readonly Pipeline[], log: (line: string) => void): Promise<readonly Turn[]> =>
  withPytorch(pipelines, lengths, async turn => {
    const all: Turn[] = []
    for (let i = 1; i <= turns; i++) {
      const theirs = turn()
      if (i === 1) log(`PyTorch ${theirs.torch}`)
      const mine = []
      log(`turn ${i} of ${turns}, milliseconds a step`)
      for (const [p, pipeline] of pipelines.entries()) {
        const own = new Map<Mode, Own>()
        for (const mode of modesOf(pipeline)) own.set(mode, await ours(pipeline, lengths, modes[mode]))
        mine.push(own)
        const times = [...own].map(([mode, { wallMs }]) => `${mode} ${wallMs.toFixed(3)}`)
        const best = Math.min(...theirs.ways[p]!.map(({ ms }) => ms ?? Number.POSITIVE_INFINITY))
        log(`  ${pipeline.name}: ${times.join(', ')}; PyTorch's best ${best.toFixed(3)}`)
      }
      all.push({ theirs, mine })
    }
    return all
  })

/** A mode's time over the turns, and its figures in the turn of the median. */
const timed = (turns: readonly Turn[], p: number, mode: Mode) => {
  const each = turns.map(({ mine }) => mine[p]!.get(mode)!)
  const times = each.map(({ wallMs }) => wallMs)
  const ms = middle(times)
  const own = each.find(({ wallMs }) => wallMs === ms)!
  return { mode, ms, least: Math.min(...times), most: Math.max(...times), own }
}

type Timed = { readonly ms: number; readonly least: number; readonly most: number }

const spread = ({ least, most }: Timed) => `${least.toFixed(3)} to ${most.toFixed(3)}`

/** The mode that the compiler takes by itself, from its predictions. */
const chosen = ({ graph }: Pipeline): 'eager' | 'graph' => {
  const { graphs = [] } = orThrow(compile(graph, { inFlight, fuse: false, mode: 'auto' }))
  return graphs.length > 0 ? 'graph' : 'eager'
}

/**
 * Whether Braid's time is at most the peer's; or `close`: it is not, but the spreads of both sides meet, so
 * that another run may say otherwise.
 */
const verdictOf = (own: Timed, peer: Timed | undefined): 'held' | 'close' | 'missed' => {
  if (peer === undefined) return 'missed'
  if (own.ms <= bars.ratio * peer.ms) return 'held'
  return own.least <= bars.ratio * peer.most ? 'close' : 'missed'
}

/** A pipeline's row: Braid's better mode beside PyTorch's best way. */
const rowOf = (pipeline: Pipeline, p: number, turns: readonly Turn[], log: (line: string) => void) => {
  const [eager, graph] = [timed(turns, p, 'eager'), timed(turns, p, 'graph')]
  const fused = timed(turns, p, 'graph, fused')
  const best = [eager, graph, fused].reduce((a, b) => (b.ms < a.ms ? b : a))
  const auto = chosen(pipeline)
  const ways = waysOf(
    turns.map(({ theirs }) => theirs.ways[p]!),
    log,
  )
  const peer = [...ways].sort((a, b) => a.ms - b.ms)[0]
  const [theirs] = turns.map(({ theirs }) => theirs.outputs[p]!)
  const both = [eager, graph, fused].map(({ own }) => compared(own.outputs, theirs!))
  const difference = Math.max(...both.map(({ difference }) => difference))
  const ratio = best.ms / (peer?.ms ?? Number.NaN)
  // All eight ways count: where one failed, the best one is not known.
  const whole = ways.length === turns[0]!.theirs.ways[p]!.length
  const isRight = difference <= allowedOf(pipeline) && whole
  const verdict = isRight ? verdictOf(best, peer) : 'missed'
  const row = {
    pipeline: pipeline.name,
    sizes: Object.entries(pipeline.shape)
      .map(([name, size]) => `${name} ${size}`)
      .join(', '),
    kernels: graph.own.kernels,
    'eager, ms': eager.ms,
    'graph, ms': graph.ms,
    'fused, ms': fused.ms,
    'spread of the best': spread(best),
    'fused, kernels': fused.own.kernels,
    graphs: graph.own.graphs,
    'auto takes': auto,
    'of the faster': (auto === 'graph' ? graph : eager).ms / Math.min(eager.ms, graph.ms),
    'PyTorch, ms': peer?.ms ?? Number.NaN,
    'PyTorch, spread': peer === undefined ? '' : spread(peer),
    'its best way': peer?.way ?? 'failed',
    ratio,
    'bar: ratio ≤ 1': verdict === 'close' ? 'missed by less than the spread' : verdict,
    'MiB reserved': best.own.reservedMiB,
    'PyTorch, MiB': peer?.reservedMiB ?? Number.NaN,
    'elements that differ': Math.max(...both.map(({ unequal }) => unequal)),
    'by at most': difference,
    allowed: allowedOf(pipeline),
  }
  log(`  ${pipeline.name}`)
  logWays(ways, log)
  return { row, held: verdict !== 'missed' }
}

/** The throughput of graph mode on several lanes, beside another mode's. */
const throughput = (turns: readonly Turn[], p: number, other: Mode, bar: number) => {
  const [graph, beside] = [timed(turns, p, 'graph'), timed(turns, p, other)]
  const gain = beside.ms / graph.ms
  const row = {
    pipeline: `lattice, beside ${other}`,
    kernels: graph.own.kernels,
    'graph, ms': graph.ms,
    'graph, spread': spread(graph),
    'other, ms': beside.ms,
    'other, spread': spread(beside),
    'times the throughput': gain,
    bar: `≥ ${bar}: ${gain >= bar ? 'held' : 'missed'}`,
    'MiB reserved': graph.own.reservedMiB,
  }
  return { row, held: gain >= bar }
}

export const bench = {
  name: 'graphs',
  title:
    'Plans as executable graphs on cuda:0, and the same by hand in PyTorch, the best of eight ways: ' +
    'milliseconds a step',
  run: async (log: (line: string) => void) => {
    const pipelines = names.map(name => pipelineOf(name))
    const all = await takeTurns(pipelines, log)
    const lattice = names.indexOf('lattice')
    await using device = orThrow(await Device.open('cuda:0')())
    const results = [
      ...pipelines.map((pipeline, p) => rowOf(pipeline, p, all, log)),
      throughput(all, lattice, 'eager', bars.eager),
      throughput(all, lattice, 'graph, one stream', bars.oneStream),
      ...(await graphLaunches('cuda:0', log)),
      ...(await treeSteps(device)),
    ]
    return { rows: results.map(({ row }) => row), ok: results.every(({ held }) => held) }
  },
}
