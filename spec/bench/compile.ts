// How long `compile` takes and what it holds, pass by pass, as graphs grow: tiled Cholesky, random layers,
// and chains that meet now and then.
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { isLeft } from 'fp-ts/lib/Either.js'
import { observePasses } from '../../dsl/compiler/analysis/pass.js'
import { compile, render } from '../../dsl/index.js'
import type { GraphIR, GraphNode, LaneSpec } from '../../dsl/ir/graph.js'
import type { Graph } from '../../dsl/language/graph.js'
import { tracesOf } from '../../dsl/memory/plan-trace.js'
import { poolPeakFrom } from '../../dsl/memory/pool-peak.js'
import { commandTableOf } from '../../dsl/order/command-table.js'
import { graphOf, tasksOf } from '../fixtures/graphs/of-tasks.js'
import { xorshift } from '../fixtures/graphs/tasks.js'

const spec = { dtype: 'f32', shape: [16] } as const
const lanesOf = (count: number): LaneSpec[] =>
  Array.from({ length: count }, (_, i) => ({ name: `lane${i}`, priority: 'normal' }))
const code = [
  ['operand', 0],
  ['operand', 1],
  ['add', 0, 1],
] as const

interface Shape {
  readonly shape: 'cholesky' | 'random' | 'layered' | 'chains'
  readonly nodes: number
  readonly lanes: number
}

/** A graph of `nodes` additions over one uploaded input; each reads two earlier values that `pick` names. */
export const generated = ({
  shape,
  nodes,
  lanes,
}: Shape & { readonly shape: 'layered' | 'chains' }): GraphIR => {
  const random = xorshift(7)
  const width = 4 * lanes
  const lane = lanesOf(lanes)
  const at = 'spec/bench/compile.ts:1:1'
  const node = (
    id: number,
    op: string,
    inputs: readonly number[],
    more: Partial<GraphNode> = {},
  ): GraphNode => ({
    id,
    op,
    name: `${op}[${id}]`,
    inputs,
    attrs: {},
    spec,
    place: 'device',
    lane: undefined,
    at,
    ...more,
  })
  const list: GraphNode[] = [node(0, 'input', [], { name: 'x', place: 'host' }), node(1, 'upload', [0])]
  const layerOf = (i: number): number => Math.floor(i / width)
  for (let i = 0; list.length < nodes; i++) {
    const id = list.length
    const above = (back: number): number =>
      Math.max(1, 2 + (layerOf(i) - back) * width + Math.floor(random() * width))
    const own = Math.max(1, id - width)
    const layer = 1 + Math.floor(random() * random() * 4)
    const inputs = shape === 'layered' ? [above(1), above(layer)] : [own, random() < 0.05 ? above(1) : own]
    list.push(
      node(
        id,
        'add',
        inputs.map(input => (input < id ? input : 1)),
        { attrs: { code, salt: i }, lane: lane[i % lanes] },
      ),
    )
  }
  // The last few are added up, so that no node is dead for long: every value reaches the output or is dropped
  // by the compiler.
  const first = list.length - width
  let sum = first
  for (let i = 1; i < width; i++) {
    const id = list.length
    list.push(node(id, 'add', [sum, first + i], { attrs: { code, salt: -i }, lane: lane[0] }))
    sum = id
  }
  const id = list.length
  list.push(node(id, 'download', [sum], { place: 'host', name: 'y' }))
  return { name: `${shape} ${nodes}`, nodes: list, outputs: [{ name: 'y', node: id }], problems: [] }
}

/**
 * Passes in order, and the parts of `bound`; times are of the processor, so that other work on the machine
 * counts for little.
 */
interface Figures {
  readonly operations: number
  readonly commands: number
  readonly bound: number
  /** How the plan says that its bound is kept. */
  readonly kind: string
  /** What the session's pool takes in the end, by a long replay; and whether that came to a steady state. */
  readonly peak: number
  readonly steady: 'yes' | 'no'
  readonly ms: number
  readonly wallMs: number
  /** Of `ms`, the proof. */
  readonly verifyMs: number
  /** On top of `ms`: the first read of the commands of a plan so large that they are kept flat. */
  readonly listsMs: number
  /**
   * The resident memory at its peak until then, in MiB, the graph itself and Node included; and of that, what
   * was there before `compile`.
   */
  readonly mb: number
  readonly graphMb: number
  readonly passes: Readonly<Record<string, number>>
}

const processorMs = (): number => {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

const familyOf = ({ shape, nodes, lanes }: Shape): GraphIR =>
  shape === 'cholesky' || shape === 'random'
    ? graphOf(shape, tasksOf(shape === 'random' ? 'layered' : shape, nodes), lanes)
    : generated({ shape, nodes, lanes })

/** Compiles once, in this process. */
const measure = (shape: Shape): Figures => {
  const source = { ir: familyOf(shape) } as unknown as Graph
  const graphMb = process.memoryUsage().rss / 2 ** 20
  const passes: Record<string, number> = {}
  observePasses(pass => {
    const began = processorMs()
    return () => {
      passes[pass] = (passes[pass] ?? 0) + processorMs() - began
    }
  })
  const wall = performance.now()
  const began = processorMs()
  const plan = compile(source)
  const ms = processorMs() - began
  observePasses(undefined)
  if (isLeft(plan)) throw new Error(render(plan.left[0]))
  const wallMs = performance.now() - wall
  const mb = process.resourceUsage().maxRSS / 1024
  const read = processorMs()
  const { nodes, commands, bound, boundKind = 'absent' } = plan.right
  const listsMs = processorMs() - read
  const table = commandTableOf(plan.right)
  const { device, exact } = poolPeakFrom(table, tracesOf(table, { releases: 'uses' }), longReplay)
  return {
    operations: nodes.length,
    commands: commands.length,
    bound: bound.device[0]!,
    kind: boundKind,
    peak: device[0]!,
    steady: exact ? 'yes' : 'no',
    ms,
    wallMs,
    verifyMs: passes['verify']!,
    listsMs,
    mb,
    graphMb,
    passes,
  }
}

/** Ticks, and free ranges looked at, of the replay that a bound is compared with: some minutes at the most. */
const longReplay = { ticks: 1024, work: 2 ** 32 }

const here = fileURLToPath(import.meta.url)

/** What `node` is given: one thread for all that it does. */
const nodeOptions = ['--single-threaded']

/** Each in a process of its own: a peak of memory is a process's, and what ran before must not warm it up. */
const measured = (shape: Shape): Figures => {
  const script = [...process.execArgv, ...nodeOptions, here, JSON.stringify(shape)]
  const { status, stdout, stderr } = spawnSync(process.execPath, script, {
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  })
  if (status !== 0) throw new Error(`${shape.shape}, ${shape.nodes} nodes: ${stderr.slice(-2000)}`)
  return JSON.parse(stdout) as Figures
}

if (process.argv[1] === here)
  process.stdout.write(JSON.stringify(measure(JSON.parse(process.argv[2]!) as Shape)))

const sizes = [10_000, 30_000, 100_000, 300_000, 1_000_000]
const limits = { ms: 15_000, verifyMs: 5_000, synchronizeMs: 800, mb: 1536, growth: 15, overPeak: 1.1 }

const line = ({ shape, nodes }: Shape, figures: Figures): string => {
  const { ms, verifyMs, listsMs, mb, passes, bound, kind, peak, steady } = figures
  const parts = Object.entries(passes).map(([pass, ms]) => `${pass} ${ms.toFixed(0)}`)
  return (
    `${shape.padEnd(8)} ${String(nodes).padStart(7)} nodes: ${ms.toFixed(0)} ms, ${mb.toFixed(0)} MB; ` +
    `of it verify ${verifyMs.toFixed(0)} ms; lists of commands ${listsMs.toFixed(0)} ms more ` +
    `(${parts.join(', ')}); bound ${bound} (${kind}), ` +
    `${(bound / peak).toFixed(3)} of the pool's peak ${steady === 'yes' ? '' : 'so far '}${peak}`
  )
}

export const bench = {
  name: 'compile',
  title:
    `compile on one core (node ${nodeOptions.join(' ')}), 8 lanes, as graphs grow: ` +
    'milliseconds of each pass, and peak resident memory',
  run: async (
    log: (line: string) => void,
  ): Promise<{ rows: Record<string, number | string>[]; ok: boolean }> => {
    const rows: Record<string, number | string>[] = []
    let ok = true
    for (const shape of ['cholesky', 'random', 'layered', 'chains'] as const) {
      const ms = new Map<number, number>()
      for (const nodes of sizes) {
        const figures = measured({ shape, nodes, lanes: 8 })
        const { passes, ...rest } = figures
        ms.set(nodes, rest.ms)
        const synchronizeMs = passes['synchronize']!
        rows.push({ shape, nodes, ...rest, synchronizeMs, perNode: (1000 * rest.ms) / nodes })
        ok &&= rest.ms <= limits.ms && rest.verifyMs <= limits.verifyMs && rest.mb <= limits.mb
        ok &&= synchronizeMs <= limits.synchronizeMs && rest.bound <= limits.overPeak * rest.peak
        log(line({ shape, nodes, lanes: 8 }, figures))
      }
      const [tenth, whole] = [ms.get(100_000)!, ms.get(1_000_000)]
      if (whole !== undefined) {
        log(`${shape}: ten times the nodes take ${(whole / tenth).toFixed(1)} times as long`)
        ok &&= whole / tenth <= limits.growth
      }
    }
    return { rows, ok }
  },
}
