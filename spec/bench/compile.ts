// How long it takes to describe a graph in the language and to compile it, and what that holds, pass by pass,
// as graphs of many shapes grow.
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { isLeft } from 'fp-ts/lib/Either.js'
import { observePasses } from '../../dsl/compiler/analysis/pass.js'
import { compile, type Graph, type Plan, render } from '../../dsl/index.js'
import { tracesOf } from '../../dsl/memory/plan-trace.js'
import { poolPeakFrom } from '../../dsl/memory/pool-peak.js'
import { commandTableOf } from '../../dsl/order/command-table.js'
import { type Shape as LargeShape, largeProgram } from '../fixtures/graphs/large.js'
import { training } from './model-bodies.js'

/** `training`: a step of a GPT of GPT-2's width, its gradients and all weights after it, of so many layers. */
type Shape = LargeShape | 'training'

/** A graph to compile; `lanes` that the program names. */
interface Subject {
  readonly shape: Shape
  readonly nodes: number
  readonly lanes: number
  /** Whether the bound is compared with a long replay. */
  readonly replayed: boolean
  /**
   * Whether operations become one kernel where that is better. Else the graph is planned once, and the times
   * of passes are those of its own operations.
   */
  readonly fuse: boolean
  readonly mode: 'eager' | 'graph'
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
  readonly peak?: number
  readonly steady?: 'yes' | 'no'
  /**
   * What it takes to describe the graph in the language, once the program has the tasks that it describes.
   */
  readonly describeMs: number
  /** What it takes to compile it. */
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

const trainingStep = (layers: number): Graph =>
  training({ batch: 8, tokens: 1024, vocabulary: 256, width: 768, heads: 12, layers }).graph as Graph

/** Describes and compiles once, in this process. */
const measure = ({ shape, nodes: size, lanes, replayed, fuse, mode }: Subject): Figures => {
  let program: (() => Graph) | undefined =
    shape === 'training' ? () => trainingStep(size) : largeProgram(shape, size, lanes)
  const opened = processorMs()
  const source = program()
  program = undefined // and with it the program's own lists
  const describeMs = processorMs() - opened
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
  const plan = compile(source, { mode, fuse })
  const ms = processorMs() - began
  observePasses(undefined)
  if (isLeft(plan)) throw new Error(render(plan.left[0]))
  const wallMs = performance.now() - wall
  const mb = process.resourceUsage().maxRSS / 1024
  const read = processorMs()
  const { nodes, commands, bound, boundKind = 'absent' } = plan.right
  const listsMs = processorMs() - read
  const replay = replayed ? replayOf(plan.right) : {}
  return {
    operations: nodes.length,
    commands: commands.length,
    bound: bound.device[0]!,
    kind: boundKind,
    ...replay,
    describeMs,
    ms,
    wallMs,
    verifyMs: passes['verify']!,
    listsMs,
    mb,
    graphMb,
    passes,
  }
}

const replayOf = (plan: Plan): Pick<Figures, 'peak' | 'steady'> => {
  const table = commandTableOf(plan)
  const { device, exact } = poolPeakFrom(table, tracesOf(table, { releases: 'uses' }), longReplay)
  return { peak: device[0]!, steady: exact ? 'yes' : 'no' }
}

/**
 * Ticks, and free ranges looked at, of the replay that a bound is compared with: some minutes at the most.
 */
const longReplay = { ticks: 1024, work: 2 ** 32 }

const here = fileURLToPath(import.meta.url)

/** What `node` is given: one thread for all that it does. */
const nodeOptions = ['--single-threaded']

/** Each in a process of its own: a peak of memory is a process's, and what ran before must not warm it up. */
const measured = (subject: Subject): Figures => {
  const script = [...process.execArgv, ...nodeOptions, here, JSON.stringify(subject)]
  const { status, stdout, stderr } = spawnSync(process.execPath, script, {
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  })
  if (status !== 0) throw new Error(`${subject.shape}, ${subject.nodes}: ${stderr.slice(-2000)}`)
  return JSON.parse(stdout) as Figures
}

if (process.argv[1] === here)
  process.stdout.write(JSON.stringify(measure(JSON.parse(process.argv[2]!) as Subject)))

interface Row {
  readonly shape: Shape
  readonly sizes: readonly number[]
  readonly lanes?: number
  readonly replayed?: true
  readonly fuse?: true
  readonly mode?: 'graph'
  /** Milliseconds of `compile` at each size; the usual limit where there is none. */
  readonly most?: Readonly<Record<number, number>>
}

const sizes = [10_000, 30_000, 100_000, 300_000, 1_000_000]

const fusedShapes = [
  'transformer',
  'cholesky',
  'random',
  'layered',
  'chains',
  'stencil',
  'fft',
  'unet',
] as const

/**
 * Rows without `fuse` are compiled with `fuse: false`: a graph is planned once, with an operation for each
 * node. With `fuse` it is planned as it is and with fused kernels. Of `streamed` so many layers, of `outputs`
 * and `shared` so many values, of `scans` so many, of `training` layers; else nodes.
 */
const table: readonly Row[] = [
  { shape: 'cholesky', sizes, replayed: true },
  { shape: 'random', sizes, replayed: true },
  { shape: 'layered', sizes, replayed: true },
  { shape: 'chains', sizes, replayed: true },
  { shape: 'stencil', sizes, replayed: true },
  { shape: 'fft', sizes, replayed: true },
  { shape: 'chains', sizes: [2_000, 20_000], lanes: 1_000 },
  { shape: 'streamed', sizes: [100, 300, 600, 1_200, 10_000], most: { 1200: 1_000, 10000: 5_000 } },
  { shape: 'outputs', sizes: [800, 8_000, 80_000] },
  { shape: 'shared', sizes: [2_000, 20_000] },
  { shape: 'transformer', sizes: [100_000, 1_000_000] },
  { shape: 'unet', sizes: [50_000, 500_000] },
  { shape: 'scans', sizes: [300, 3_000] },
  { shape: 'nested', sizes: [300, 3_000] },
  { shape: 'chain', sizes: [20_000, 200_000] },
  { shape: 'chain', sizes: [5_000, 50_000], fuse: true },
  ...fusedShapes.map(shape => ({ shape, sizes: [10_000, 100_000], fuse: true }) as const),
  { shape: 'cholesky', sizes: [250_000], fuse: true },
  { shape: 'stencil', sizes: [250_000], fuse: true },
  { shape: 'training', sizes: [12, 24, 48, 96], fuse: true, mode: 'graph' },
]

const limits = {
  ms: 15_000,
  verifyMs: 5_000,
  synchronizeMs: 800,
  fuseMs: 1_000,
  mb: 1536,
  growth: 15,
  overPeak: 1.1,
  describeMs: 6_000,
}

const line = ({ shape, nodes, lanes, fuse, mode }: Subject, figures: Figures): string => {
  const { describeMs, ms, verifyMs, listsMs, mb, passes, bound, kind, peak, steady } = figures
  const parts = Object.entries(passes).map(([pass, ms]) => `${pass} ${ms.toFixed(0)}`)
  const replay =
    peak === undefined
      ? ''
      : `, ${(bound / peak).toFixed(3)} of the pool's peak ${steady === 'yes' ? '' : 'so far '}${peak}`
  return (
    `${shape.padEnd(11)} ${String(nodes).padStart(7)}, ${lanes} lanes${fuse ? ', fused' : ''}${mode === 'graph' ? ', as a graph' : ''}: ` +
    `described in ${describeMs.toFixed(0)} ms, compiled in ${ms.toFixed(0)} ms, ${mb.toFixed(0)} MB; of it verify ${verifyMs.toFixed(0)} ms; ` +
    `lists of commands ${listsMs.toFixed(0)} ms more (${parts.join(', ')}); bound ${bound} (${kind})${replay}`
  )
}

/** What `fuse` may take grows with the nodes of a graph; of `training` `nodes` are layers. */
const mostFuse = ({ shape, nodes }: Subject): number =>
  limits.fuseMs * Math.max(1, shape === 'training' ? nodes / 24 : nodes / 100_000)

const isWithin = (subject: Subject, figures: Figures, most: number): boolean =>
  figures.ms <= most &&
  figures.describeMs <= limits.describeMs &&
  figures.verifyMs <= limits.verifyMs &&
  figures.mb <= limits.mb &&
  figures.passes['synchronize']! <= limits.synchronizeMs &&
  (figures.passes['fuse'] ?? 0) <= mostFuse(subject) &&
  (figures.peak === undefined || figures.bound <= limits.overPeak * figures.peak)

export const bench = {
  name: 'compile',
  title:
    `describe and compile on one core (node ${nodeOptions.join(' ')}), as graphs grow: ` +
    'milliseconds of each pass, and peak resident memory',
  run: async (
    log: (line: string) => void,
  ): Promise<{ rows: Record<string, number | string>[]; ok: boolean }> => {
    const rows: Record<string, number | string>[] = []
    let ok = true
    for (const {
      shape,
      sizes,
      lanes = 8,
      replayed = false,
      fuse = false,
      mode = 'eager',
      most = {},
    } of table) {
      const times = new Map<number, number>()
      for (const nodes of sizes) {
        const subject: Subject = { shape, nodes, lanes, replayed, fuse, mode }
        const figures = measured(subject)
        const { passes, ...rest } = figures
        times.set(nodes, rest.ms)
        const synchronizeMs = passes['synchronize']!
        rows.push({
          shape,
          nodes,
          lanes,
          ...(fuse ? { fuseMs: passes['fuse']! } : {}),
          ...rest,
          synchronizeMs,
          perNode: (1000 * rest.ms) / nodes,
        })
        ok &&= isWithin(subject, figures, most[nodes] ?? limits.ms)
        log(line(subject, figures))
      }
      const largest = sizes[sizes.length - 1]!
      const tenth = times.get(largest / 10)
      if (tenth === undefined) continue
      const growth = times.get(largest)! / tenth
      log(`${shape}: ten times the size takes ${growth.toFixed(1)} times as long`)
      ok &&= growth <= limits.growth
    }
    return { rows, ok }
  },
}
