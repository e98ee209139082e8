// Pipelines with something to overlap, on a GPU beside the same pipelines written by hand in PyTorch:
// branches that meet at the end, a chain of diamonds, an ensemble of two models, and weights streamed in
// while activations are offloaded. PyTorch runs each in eight ways, and the best one counts: on one stream
// or on several, call by call or as CUDA graphs, ticks in turn or overlapped (pipelines.py). Both sides
// have as many ticks in flight. In each tick the input is copied in from pinned memory and the outputs out
// to it; no copy is made by the program's own thread. All outputs of the last tick are compared.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { lastValueFrom, map } from 'rxjs'
import { compile } from '../../dsl/compiler/compile.js'
import {
  add,
  div,
  download,
  exp,
  graph,
  lane,
  matmul,
  max,
  mul,
  param,
  relu,
  sub,
  sum,
  tensor,
  upload,
} from '../../dsl/index.js'
import { orThrow } from '../../dsl/ir/braid-error.js'
import type { Graph } from '../../dsl/language/graph.js'
import { simulate } from '../../dsl/machine/simulate/simulate.js'
import { open } from '../../runtime/session/open.js'
import { scriptOf } from './python.js'
import { bf16Values, difference } from './stream-values.js'

const script = scriptOf('pipelines.py')
const steps = 200
const warm = 20
/**
 * How often Braid and PyTorch take turns, each from the start: on a machine that others use, one turn is now
 * and then a hundredth slower.
 */
const turns = 3

/** Ticks in flight, of a Braid plan and of PyTorch's loops. */
const inFlight = 3

const middle = (values: readonly number[]) => [...values].sort((a, b) => a - b)[values.length >> 1]!
const bars = { ratio: 1, window: 1.03 } as const

// Shapes, named as the script beside this file names them.
const branches = { width: 512, count: 8, depth: 6 }
const diamonds = { width: 1024, count: 12 }
const ensemble = { rows: 16384, features: 256, classes: 16 }
const offload = { width: 2048, rows: 4096, layers: 12 }

interface Pipeline {
  readonly name: string
  readonly graph: Graph<never, never>
  /** Elements of each parameter, and of the input `x`. */
  readonly params: Readonly<Record<string, number>>
  readonly input: number
  /**
   * Roundings to bf16 that only one side makes: 0 where both do the same arithmetic, so that outputs are
   * equal bit for bit.
   */
  readonly roundings: number
}

const bf16 = <const S extends readonly number[]>(shape: S) => tensor('bf16', shape)
const square = (name: string, width: number) => param(name, bf16([width, width]))

// Weights are streamed in, `ahead` of their layer or as far as the compiler finds; every third activation
// goes out to the host.
const offloaded = (ahead?: number): unknown =>
  graph('offload', {}, () => {
    const x = param('x', bf16([offload.rows, offload.width]), { on: 'host' })
    const weights = lane('weights')
    let y = x.pipe(upload())
    const kept: Record<string, unknown> = {}
    for (let layer = 0; layer < offload.layers; layer++) {
      const w = param(`w[${layer}]`, bf16([offload.width, offload.width]), { on: 'host' })
      y = y.pipe(matmul(w.pipe(ahead === undefined ? upload(weights) : upload(weights, { ahead }))), relu())
      if (layer % 3 === 2 && layer + 1 < offload.layers) kept[`a${layer}`] = y.pipe(download())
    }
    return { ...kept, y: y.pipe(mul(0.5), download()) } as never
  })

export const pipelines = (): Pipeline[] => {
  const named = (count: number, of: (i: number) => string, size: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, i) => [of(i), size] as const))
  const shapes: (Omit<Pipeline, 'graph'> & { graph: unknown })[] = [
    {
      name: 'branches',
      roundings: 0,
      input: branches.width ** 2,
      params: named(branches.count * branches.depth, i => `w[${i}]`, branches.width ** 2),
      graph: graph('branches', {}, () => {
        const x = param('x', bf16([branches.width, branches.width]), { on: 'host' })
        const start = x.pipe(upload())
        const ends = Array.from({ length: branches.count }, (_, b) => {
          let y = start
          for (let d = 0; d < branches.depth; d++)
            y = y.pipe(matmul(square(`w[${b * branches.depth + d}]`, branches.width)), relu())
          return y
        })
        return { y: ends.reduce((all, end) => all.pipe(add(end))).pipe(download()) }
      }),
    },
    {
      name: 'diamonds',
      roundings: 0,
      input: diamonds.width ** 2,
      params: named(2 * diamonds.count, i => `w[${i}]`, diamonds.width ** 2),
      graph: graph('diamonds', {}, () => {
        const x = param('x', bf16([diamonds.width, diamonds.width]), { on: 'host' })
        let y = x.pipe(upload())
        for (let d = 0; d < diamonds.count; d++) {
          const left = y.pipe(matmul(square(`w[${2 * d}]`, diamonds.width)), relu())
          const right = y.pipe(matmul(square(`w[${2 * d + 1}]`, diamonds.width)), relu())
          y = left.pipe(add(right))
        }
        return { y: y.pipe(download()) }
      }),
    },
    {
      name: 'ensemble',
      // PyTorch's softmax rounds once, at its end. Braid rounds the differences, exponentials and sums too.
      roundings: 3,
      input: ensemble.rows * ensemble.features,
      params: named(2, i => `w[${i}]`, ensemble.features * ensemble.classes),
      graph: graph('ensemble', {}, () => {
        const x = param('x', bf16([ensemble.rows, ensemble.features]), { on: 'host' })
        const rows = x.pipe(upload())
        const scores = (i: number) => {
          const raw = rows.pipe(matmul(param(`w[${i}]`, bf16([ensemble.features, ensemble.classes]))))
          const shifted = raw.pipe(sub(raw.pipe(max({ axis: 1, keepDims: true }))), exp())
          return shifted.pipe(div(shifted.pipe(sum(1, { keepDims: true }))))
        }
        const both = scores(0).pipe(add(scores(1)))
        return { y: both.pipe(max({ axis: 1 }), download()) }
      }),
    },
    {
      name: 'offload',
      roundings: 0,
      input: offload.rows * offload.width,
      params: named(offload.layers, i => `w[${i}]`, offload.width ** 2),
      graph: offloaded(2),
    },
  ]
  return shapes as unknown as Pipeline[]
}

// Weights that keep a value's size: variance 2 / width, nearly, by a power of two.
const scaleOf = (elements: number) => 2 ** -Math.round(Math.log2(Math.sqrt(elements) / 6) / 2)

const valuesOf = ({ params, input }: Pipeline): Record<string, Uint16Array> => {
  const values: Record<string, Uint16Array> = { x: bf16Values(input, 0x40000000, 1) }
  Object.entries(params).forEach(([name, elements], i) => {
    values[name] = bf16Values(elements, i * 7919, scaleOf(elements))
  })
  return values
}

const ours = async (graph: Pipeline['graph'], values: Record<string, Uint16Array>, memory?: number) => {
  const plan = orThrow(compile(graph, { inFlight, memory }))
  await using session = orThrow(await open(plan, { device: 'cuda:0', params: values })())
  let outputs: readonly Uint16Array[] = []
  const drain = (ticks: number) => {
    let left = ticks
    return lastValueFrom(
      session.run({} as never, { ticks }).pipe(
        map(lease => {
          using held = lease as unknown as Disposable & Readonly<Record<string, Uint16Array>>
          if (--left > 0) return
          const named = Object.entries(held).sort(([a], [b]) => (a < b ? -1 : 1))
          outputs = named.map(([, value]) => value.slice())
        }),
      ),
    )
  }
  await drain(warm)
  // As the script beside this file does: the median of three times all steps, each from the first submission
  // to the last lease.
  const wall: number[] = []
  for (let time = 0; time < 3; time++) {
    const began = performance.now()
    await drain(steps)
    wall.push((performance.now() - began) / steps)
  }
  const wallMs = middle(wall)
  const stats = session.stats()
  const count = (kind: string) => plan.commands.filter(([command]) => command === kind).length
  return {
    wallMs,
    // Ticks end in groups where copies of several are done together: then the median is less than the mean,
    // which is what a step takes.
    tickMs: stats.tickMs.median,
    tickP90Ms: stats.tickMs.p90,
    predictedMs: simulate(plan, 'h200').tickMs,
    issueUs: stats.issueUs.median,
    lanes: plan.lanes.length,
    waits: count('wait'),
    boundMiB: plan.bound.device[0]! / 2 ** 20,
    outputs,
  }
}

interface Way {
  readonly way: string
  readonly ms?: number
  readonly reservedMiB?: number
  /** Whether its outputs are those of the first way, bit for bit. */
  readonly equal?: boolean
  readonly error?: string
}

const pytorch = (pipeline: Pipeline, values: Record<string, Uint16Array>, folder: string) => {
  for (const [name, array] of Object.entries(values))
    writeFileSync(join(folder, `${name.replace(/\W/g, '_')}.bf16`), new Uint8Array(array.buffer))
  const shape = JSON.stringify({ branches, diamonds, ensemble, offload })
  const args = [script, pipeline.name, folder, shape, String(steps), String(warm), String(inFlight)]
  const result = spawnSync('python3', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
  if (result.status !== 0)
    throw new Error(
      `python3 ${args.join(' ')} failed: ` +
        (result.error?.message ?? result.stderr.trim().split('\n').slice(-5).join('\n')),
    )
  const { torch, ways } = JSON.parse(result.stdout) as { torch: string; ways: readonly Way[] }
  const output = new Uint16Array(new Uint8Array(readFileSync(join(folder, 'outputs.bf16'))).buffer)
  return { torch, ways, output }
}

/** By way, the median of the rounds; a way that failed in one is left out, and reported. */
const waysOf = (rounds: readonly (readonly Way[])[], log: (line: string) => void) =>
  rounds[0]!.flatMap(({ way }, i) => {
    const each = rounds.map(ways => ways[i]!)
    const wrong = each.find(({ error, equal }) => error !== undefined || equal !== true)
    if (wrong !== undefined)
      log(`  PyTorch, ${way}: ${wrong.error ?? 'its outputs differ from those of the first way'}`)
    return wrong === undefined
      ? [{ way, ms: middle(each.map(({ ms }) => ms!)), reservedMiB: each[0]!.reservedMiB! }]
      : []
  })

/** The outputs of both sides, one after the other: how many elements differ in bits, and by how much. */
const compared = (ours: readonly Uint16Array[], theirs: Uint16Array) => {
  let unequal = 0
  let gap = 0
  let from = 0
  for (const own of ours) {
    const other = theirs.subarray(from, from + own.length)
    from += own.length
    gap = Math.max(gap, difference(own, other))
    unequal += own.reduce((count, value, i) => count + (value === other[i] ? 0 : 1), 0)
  }
  return { unequal, difference: from === theirs.length ? gap : Number.POSITIVE_INFINITY }
}

// The window that the compiler finds in the memory of each hand-written window, compared with the best
// hand-written window that fits there.
const windows = async (log: (line: string) => void) => {
  const [pipeline] = pipelines().filter(({ name }) => name === 'offload')
  const values = valuesOf(pipeline!)
  const written = []
  for (const ahead of [1, 2, 3, 4]) {
    const plan = await ours(offloaded(ahead) as Pipeline['graph'], values)
    written.push(plan)
    log(
      `  ${ahead} ahead by hand, ${plan.boundMiB.toFixed(1)} MiB: ` +
        `${plan.wallMs.toFixed(3)} ms a step, ${plan.predictedMs.toFixed(3)} predicted`,
    )
  }
  const rows = []
  for (const [i, { boundMiB }] of written.entries()) {
    const found = await ours(offloaded() as Pipeline['graph'], values, Math.ceil(boundMiB * 2 ** 20))
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
  const fast = await ours(offloaded() as Pipeline['graph'], values)
  log(
    `  no window by hand and no memory said, ${fast.boundMiB.toFixed(1)} MiB: ` +
      `${fast.wallMs.toFixed(3)} ms a step, ${fast.predictedMs.toFixed(3)} predicted`,
  )
  return rows
}

export const bench = {
  name: 'pipelines',
  title: 'Pipelines on cuda:0, and the same by hand in PyTorch, the best of eight ways: milliseconds a step',
  run: async (log: (line: string) => void) => {
    const rows: Record<string, string | number>[] = []
    let ok = true
    for (const pipeline of pipelines()) {
      const values = valuesOf(pipeline)
      const folder = mkdtempSync(join(tmpdir(), 'braid-bench-'))
      try {
        const rounds = []
        for (let round = 0; round < turns; round++)
          rounds.push({ theirs: pytorch(pipeline, values, folder), mine: await ours(pipeline.graph, values) })
        const ways = waysOf(
          rounds.map(({ theirs }) => theirs.ways),
          log,
        )
        const best = (kind: string) =>
          ways.filter(({ way }) => way.startsWith(kind)).sort((a, b) => a.ms - b.ms)[0]
        const [eager, graph] = [best('eager'), best('graph')]
        const wallMs = middle(rounds.map(round => round.mine.wallMs))
        const { mine } = rounds.find(round => round.mine.wallMs === wallMs)!
        const peer = Math.min(...ways.map(({ ms }) => ms))
        const ratio = mine.wallMs / peer
        const { unequal, difference } = compared(mine.outputs, rounds[0]!.theirs.output)
        const allowed = pipeline.roundings * 2 ** -8
        // All eight ways count: where one failed, the best one is not known.
        const whole = ways.length === rounds[0]!.theirs.ways.length
        ok &&= ratio <= bars.ratio && difference <= allowed && whole
        const { outputs: _, ...figures } = mine
        rows.push({
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
        })
        log(`  ${pipeline.name}: ${mine.wallMs.toFixed(3)} ms a step, bound ${mine.boundMiB.toFixed(1)} MiB`)
        for (const { way, ms, reservedMiB } of ways)
          log(`    PyTorch, ${way.padEnd(46)} ${ms.toFixed(3)} ms, ${reservedMiB.toFixed(0)} MiB reserved`)
        log(`    outputs: ${unequal} elements differ, by ${difference.toExponential(1)} at most (${allowed})`)
      } finally {
        rmSync(folder, { recursive: true, force: true })
      }
    }
    for (const row of await windows(log)) {
      ok &&= row.ratio <= bars.window
      rows.push(row)
    }
    return { rows, ok }
  },
}
