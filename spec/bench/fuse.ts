// What fused kernels take on the host device, beside one kernel for each operation: medians of ticks, run in
// turns, so that other work on the machine slows both.
import {
  abs,
  add,
  compile,
  download,
  type Graph,
  graph,
  max,
  min,
  mul,
  neg,
  orThrow,
  type Plan,
  param,
  relu,
  softmax,
  sub,
  tensor,
} from '../../dsl/index.js'
import { open } from '../../runtime/index.js'
import { middle } from './pipeline-runs.js'

const [rows, columns] = [2048, 1024]
const matrix = tensor('f32', [rows, columns])
const x = Float32Array.from({ length: rows * columns }, (_, i) => Math.sin(i))
const bias = new Float32Array(columns).fill(0.5)

/** The bodies, their parameters, and how many times faster they are to be. */
const bodies = {
  'ten elementwise operations': {
    graph: graph({}, () => {
      const value = param('x', matrix)
      const shifted = value.pipe(mul(1.5), add(param('bias', tensor('f32', [columns]))), relu(), mul(value))
      return { y: shifted.pipe(sub(0.25), max(-1), min(1), neg(), abs(), add(value), download()) }
    }),
    params: { x, bias },
    least: 2,
  },
  'softmax of a scaled and shifted value': {
    graph: graph({}, () => ({ y: param('x', matrix).pipe(mul(2), add(1), softmax(), download()) })),
    params: { x },
    least: 1,
  },
} as const

const ticks = 5
const turns = 9

const kernelsIn = ({ nodes }: Plan): number =>
  nodes.filter(({ kernel }) => kernel !== undefined && kernel.kind !== 'copy').length

interface Row {
  readonly body: string
  readonly kernels: number
  readonly fusedKernels: number
  readonly tickMs: number
  readonly fusedTickMs: number
  readonly boundMiB: number
  readonly fusedBoundMiB: number
  readonly ratio: number
}

const measured = async (body: string, made: Graph, params: object): Promise<Row> => {
  const plans = [false, true].map(
    fuse => orThrow(compile(made, { mode: 'eager', fuse, inFlight: 1 })) as Plan,
  )
  const [plain, fused] = plans as [Plan, Plan]
  const opened = (plan: Plan) => open(plan, { device: 'host', params: params as never })()
  await using slow = orThrow(await opened(plain))
  await using fast = orThrow(await opened(fused))
  const times = { slow: [] as number[], fast: [] as number[] }
  for (let turn = 0; turn <= turns; turn++)
    for (const [name, session] of [['slow', slow] as const, ['fast', fast] as const]) {
      const began = performance.now()
      await session.run({} as never, { ticks }).forEach(lease => {
        using _held = lease as unknown as Disposable
      })
      if (turn > 0) times[name].push((performance.now() - began) / ticks)
    }
  const [tickMs, fusedTickMs] = [middle(times.slow), middle(times.fast)]
  const mib = ({ bound }: Plan): number => bound.device[0]! / 2 ** 20
  return {
    body,
    kernels: kernelsIn(plain),
    fusedKernels: kernelsIn(fused),
    tickMs,
    fusedTickMs,
    boundMiB: mib(plain),
    fusedBoundMiB: mib(fused),
    ratio: tickMs / fusedTickMs,
  }
}

export const bench = {
  name: 'fuse',
  title: `fused kernels of [${rows}, ${columns}] f32 on the host device, beside one kernel an operation`,
  run: async (
    log: (line: string) => void,
  ): Promise<{ rows: Readonly<Record<string, unknown>>[]; ok: boolean }> => {
    const found: Readonly<Record<string, unknown>>[] = []
    let ok = true
    for (const [name, { graph: made, params, least }] of Object.entries(bodies)) {
      const row = await measured(name, made as unknown as Graph, params)
      found.push({ ...row })
      ok &&= row.ratio >= least
      log(
        `${name}: ${row.kernels} kernels in ${row.tickMs.toFixed(2)} ms, ` +
          `${row.fusedKernels} in ${row.fusedTickMs.toFixed(2)} ms: ${row.ratio.toFixed(2)} times as fast`,
      )
    }
    return { rows: found, ok }
  },
}
