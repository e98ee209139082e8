// `simulate` beside a GPU: ten pipelines, their predicted and measured ticks and peaks; then, by kind of run, what to correct in the machine's figures.
import type { Plan, PlanNode } from '../../dsl/ir/plan.js'
import { poolPeakOf } from '../../dsl/ir/pool.js'
import type { Machine } from '../../dsl/machine/machine.js'
import { type Simulation, simulate } from '../../dsl/simulate.js'
import { table } from '../../runtime/cli/table.js'
import { devices } from '../../runtime/devices.js'
import { type Measured, measure } from './simulate-measure.js'
import { type Pipeline, pipelines, probes } from './simulate-pipelines.js'

/** What the predictions are held to: pipelines of the ten whose tick is within so much of the measured one. */
const wanted = { pipelines: 8, within: 0.1 } as const
const machine: Machine | string = 'h200'
const mebi = 2 ** 20

const mebibytes = (bytes: number): number => bytes / mebi

interface Row {
  readonly [figure: string]: number | string
}

const rowOf = ({ name, plan }: Pipeline, predicted: Simulation, measured: Measured | undefined): Row => ({
  pipeline: name,
  predictedMs: predicted.tickMs,
  ...(measured ? { measuredMs: measured.tickMs, ratio: predicted.tickMs / measured.tickMs } : {}),
  peakMiB: mebibytes(predicted.peak.device[0]!),
  boundMiB: mebibytes(predicted.bound.device[0]!),
  ...(measured ? { heldMiB: mebibytes(measured.reserved) } : {}),
  poolMiB: mebibytes(poolPeakOf(plan).device[0]!),
  ...(measured ? { poolTakenMiB: mebibytes(measured.poolPeak) } : {}),
  boundBy: Object.entries(predicted.bounds).sort(([, a], [, b]) => b - a)[0]?.[0] ?? '',
})

/** A run by what it does, its sizes with it: `matmul bf16 8192×8192×8192`, `map 402.7 MB`, `upload 134.2 MB`. */
const kindOf = ({ op, kernel, movedBytes = 0 }: PlanNode): string => {
  const size = (bytes: number): string => `${(bytes / 1e6).toPrecision(4)} MB`
  if (kernel?.kind === 'matmul') return `matmul ${kernel.a.dtype} ${kernel.m}×${kernel.n}×${kernel.k}`
  if (kernel?.kind === 'copy') return `${op === 'upload' || op === 'download' ? op : 'copy'} ${size(kernel.bytes)}`
  return `${kernel?.kind ?? op} ${size(movedBytes)} moved`
}

interface Kind {
  readonly node: PlanNode
  readonly planned: number[]
  readonly measured: number[]
}

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1] ?? 0

/** What each kind of run takes, over all pipelines: the figures by which the machine's own are corrected. */
const calibration = (runs: readonly { plan: Plan; measured: Measured }[]): string => {
  const kinds = new Map<string, Kind>()
  for (const { plan, measured } of runs) {
    const nodes = new Map(plan.nodes.map(node => [node.name, node]))
    for (const { name, plannedMs, measuredMs } of measured.operations) {
      const node = nodes.get(name)!
      const key = kindOf(node)
      const kind = kinds.get(key) ?? { node, planned: [], measured: [] }
      kinds.set(key, kind)
      kind.planned.push(plannedMs * 1000)
      kind.measured.push(measuredMs * 1000)
    }
  }
  const head = ['run, in company', 'count', 'planned µs', 'measured µs', 'ratio', 'least µs', 'rate at the least']
  const rows = [...kinds]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, { node, planned, measured }]) => {
      const least = Math.min(...measured)
      const { flops = 0, movedBytes = 0, kernel } = node
      const bytes = kernel?.kind === 'copy' && node.op !== 'copy' ? kernel.bytes : movedBytes
      const rate =
        kernel?.kind === 'matmul'
          ? `${(flops / least / 1e6).toFixed(0)} TFLOP/s`
          : `${(bytes / least / 1e3).toFixed(1)} GB/s`
      const [p, m] = [median(planned), median(measured)]
      return [name, String(planned.length), p.toFixed(2), m.toFixed(2), (p / m).toFixed(3), least.toFixed(2), rate]
    })
  return table([head, ...rows], '  ')
}

const hostCosts = (runs: readonly { name: string; predicted: Simulation; measured: Measured }[]): string => {
  const head = ['pipeline', 'issue µs: planned', 'measured', 'fill µs', 'hand over µs', 'ticks measured']
  const rows = runs.map(({ name, predicted, measured }) => [
    name,
    (predicted.issueMs * 1000).toFixed(1),
    measured.issueUs.toFixed(1),
    measured.fillUs.toFixed(1),
    measured.enqueueUs.toFixed(1),
    String(measured.ticks),
  ])
  return table([head, ...rows], '  ')
}

export const bench = {
  name: 'simulate',
  title: `simulate for ${machine} beside a GPU: ticks within ${100 * wanted.within} % on ${wanted.pipelines} of 10 pipelines, peaks equal`,
  run: async (log: (line: string) => void): Promise<{ rows: Row[]; ok: boolean }> => {
    const device = devices().find(({ kind }) => kind === 'cuda')?.device
    const ten = pipelines(machine)
    if (device === undefined) {
      log('There is no GPU here: predictions alone, nothing to hold them against')
      return { rows: ten.map(pipeline => rowOf(pipeline, simulate(pipeline.plan, machine), undefined)), ok: true }
    }
    const rows: Row[] = []
    const runs: { name: string; plan: Plan; predicted: Simulation; measured: Measured }[] = []
    let near = 0
    let equal = 0
    const small: Row[] = []
    for (const [i, pipeline] of [...ten, ...probes(machine)].entries()) {
      const { name, plan } = pipeline
      const predicted = simulate(plan, machine)
      try {
        const measured = await measure(pipeline, predicted, device)
        runs.push({ name, plan, predicted, measured })
        const row = rowOf(pipeline, predicted, measured)
        if (i >= ten.length) small.push(row)
        else {
          rows.push(row)
          if (Math.abs(predicted.tickMs / measured.tickMs - 1) <= wanted.within) near++
          if (measured.reserved === plan.bound.device[0] && measured.poolPeak === poolPeakOf(plan).device[0]) equal++
        }
        log(
          `${name.padEnd(44)} ${predicted.tickMs.toFixed(3).padStart(9)} ms predicted ${measured.tickMs.toFixed(3).padStart(9)} ms measured`,
        )
      } catch (error) {
        log(`${name.padEnd(44)} could not be measured: ${error instanceof Error ? error.message : String(error)}`)
        if (i < ten.length) rows.push(rowOf(pipeline, predicted, undefined))
      }
    }
    log(
      `${near >= wanted.pipelines ? '✓' : '✗'} ${near} of ${ten.length} ticks within ${100 * wanted.within} % (wanted: ${wanted.pipelines})`,
    )
    log(`${equal === ten.length ? '✓' : '✗'} ${equal} of ${ten.length} peaks as predicted, to the byte (wanted: all)`)
    log('by kind of run, with whatever ran beside it:')
    for (const line of calibration(runs).split('\n')) log(line)
    log('the two threads, a tick:')
    for (const line of hostCosts(runs).split('\n')) log(line)
    return { rows: [...rows, ...small], ok: near >= wanted.pipelines && equal === ten.length }
  },
}
