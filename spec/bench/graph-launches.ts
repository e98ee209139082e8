// What it takes to launch a graph of 1,000 nodes, from JavaScript and from C++, beside PyTorch's replay of as
// many small kernels.
import { spawnSync } from 'node:child_process'
import { orThrow } from '../../dsl/index.js'
import { Device, ExecutableGraph, GraphDefinition, type GraphNode } from '../../runtime/index.js'
import { measure } from './allocator-run.js'
import { middle } from './pipeline-runs.js'
import { reasonOf, scriptOf } from './python.js'

const nodes = 1000
/** Launches in a row on an idle device, and how often. */
const launches = 10
const repeats = 50
/**
 * Microseconds of a launch of empty nodes, at most. The rest of what JavaScript takes is the way into the
 * addon. Launches of 1,000 fills wait for the device, whose queue is full.
 */
const bars = { javascript: 6, native: 2 } as const

/** Nodes in a chain: nothing at all, or four bytes that are filled. */
const kinds = ['empty', 'fill'] as const

/** Microseconds of one launch, by repeat. */
const launched = async (device: Device, kind: (typeof kinds)[number]): Promise<readonly number[]> => {
  const lane = device.lane({ name: 'launches' })
  using block = device.malloc(4, lane)
  using definition = GraphDefinition.create(device)
  let last: GraphNode | undefined
  for (let i = 0; i < nodes; i++) {
    const options = last === undefined ? {} : { after: [last] }
    last = kind === 'empty' ? definition.empty(options) : definition.fill(block, 1, options)
  }
  using graph = ExecutableGraph.instantiate(definition)
  const each: number[] = []
  for (let repeat = 0; repeat <= repeats; repeat++) {
    await lane.synchronize()
    const began = performance.now()
    for (let i = 0; i < launches; i++) graph.launch(lane)
    // The first launches upload the graph, and run before the code is compiled.
    if (repeat > 0) each.push(((performance.now() - began) / launches) * 1000)
  }
  await lane.synchronize()
  return each
}

const replayed = (): readonly number[] => {
  const args = [scriptOf('graph_replay.py'), nodes, launches, repeats].map(String)
  const { status, stdout, stderr } = spawnSync('python3', args, { encoding: 'utf8' })
  if (status === 0) return JSON.parse(stdout) as number[]
  throw new Error(`python3 ${args.join(' ')} failed: ${reasonOf(stderr)}`)
}

const rowOf = (
  words: string,
  us: number,
  least: number,
  most: number,
  theirs: number | undefined,
  bar?: number,
) => {
  const held = bar === undefined || us <= bar
  const row = {
    pipeline: words,
    'µs a launch': us,
    spread: `${least.toFixed(1)} to ${most.toFixed(1)}`,
    ...(theirs === undefined ? {} : { 'PyTorch, µs a replay': theirs, ratio: us / theirs }),
    ...(bar === undefined ? {} : { bar: `≤ ${bar} µs: ${held ? 'held' : 'missed'}` }),
  }
  return { row, held }
}

/** The same launches without JavaScript, on the first GPU. */
const fromNative = (theirs: number | undefined, log: (line: string) => void) =>
  measure(['graph-launches'], log, { peer: false }).ours.map(figure =>
    rowOf(
      `launch of ${figure['nodes']} ${figure.case} nodes from C++`,
      figure.median,
      figure.least,
      figure.most,
      theirs,
      figure.case === 'empty' ? bars.native : undefined,
    ),
  )

/** A row for each kind of node, from JavaScript and from C++. Without `peer`, PyTorch is not run. */
export const graphLaunches = async (name: string, log: (line: string) => void, peer = true) => {
  await using device = orThrow(await Device.open(name)())
  const theirs = peer ? middle(replayed()) : undefined
  const results = []
  for (const kind of kinds) {
    const each = await launched(device, kind)
    const words = `launch of ${nodes} ${kind} nodes from JavaScript`
    const bar = kind === 'empty' ? bars.javascript : undefined
    results.push(rowOf(words, middle(each), Math.min(...each), Math.max(...each), theirs, bar))
  }
  return [...results, ...fromNative(theirs, log)]
}
