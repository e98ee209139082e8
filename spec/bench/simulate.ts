// `simulate` compared with a GPU: ten pipelines, their predicted and measured ticks and peaks; then, by kind
// of run, what to correct in the machine's figures.
import { orThrow } from '../../dsl/ir/braid-error.js'
import type { Plan, PlanNode } from '../../dsl/ir/plan.js'
import { machineOf } from '../../dsl/machine/load.js'
import { runsOf, type Simulation, simulate } from '../../dsl/machine/simulate/simulate.js'
import { poolPeakOf } from '../../dsl/memory/pool-peak.js'
import { machineFile, measuredMachine } from '../../runtime/cli/doctor-machine.js'
import { measureHost } from '../../runtime/cli/host-figures.js'
import { table } from '../../runtime/cli/table.js'
import { devices } from '../../runtime/device/devices.js'
import { type Measured, measure } from './simulate-measure.js'
import { type Pipeline, pipelines, probes } from './simulate-pipelines.js'

/**
 * What the predictions are held to: pipelines of the ten whose tick is within so much of the measured one.
 */
const wanted = { pipelines: 8, within: 0.1 } as const
const known = 'h200'
const mebi = 2 ** 20

const mebibytes = (bytes: number): number => bytes / mebi

interface Row {
  readonly [figure: string]: number | string
}

const rowOf = ({ name, plan }: Pipeline, predicted: Simulation, measured: Measured | undefined): Row => ({
  pipeline: name,
  predictedMs: predicted.tickMs,
  anyHostMs: simulate(plan, known).tickMs,
  ...(measured ? { measuredMs: measured.tickMs, ratio: predicted.tickMs / measured.tickMs } : {}),
  peakMiB: mebibytes(predicted.peak.device[0]!),
  boundMiB: mebibytes(predicted.bound.device[0]!),
  ...(measured ? { heldMiB: mebibytes(measured.reserved) } : {}),
  poolMiB: mebibytes(poolPeakOf(plan).device[0]!),
  ...(measured ? { poolTakenMiB: mebibytes(measured.poolPeak) } : {}),
  boundBy: Object.entries(predicted.bounds).sort(([, a], [, b]) => b - a)[0]?.[0] ?? '',
})

/**
 * A run by what it does, its sizes with it: `matmul bf16 8192×8192×8192`, `map 402.7 MB`, `upload 134.2 MB`.
 */
const kindOf = ({ op, kernel, movedBytes = 0 }: PlanNode): string => {
  const size = (bytes: number): string => `${(bytes / 1e6).toPrecision(4)} MB`
  if (kernel?.kind === 'matmul') return `matmul ${kernel.a.dtype} ${kernel.m}×${kernel.n}×${kernel.k}`
  if (kernel?.kind === 'copy')
    return `${op === 'upload' || op === 'download' ? op : 'copy'} ${size(kernel.bytes)}`
  return `${kernel?.kind ?? op} ${size(movedBytes)} moved`
}

interface Kind {
  readonly node: PlanNode
  readonly planned: number[]
  readonly measured: number[]
}

const median = (values: readonly number[]): number =>
  [...values].sort((a, b) => a - b)[values.length >> 1] ?? 0

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
  const head = [
    'run, in company',
    'count',
    'planned µs',
    'measured µs',
    'ratio',
    'least µs',
    'rate at the least',
  ]
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
      return [
        name,
        String(planned.length),
        p.toFixed(2),
        m.toFixed(2),
        (p / m).toFixed(3),
        least.toFixed(2),
        rate,
      ]
    })
  return table([head, ...rows], '  ')
}

/**
 * With a trace: a tick, and what its busiest lane does in it. Without one: the tick, and the clock that the
 * device had.
 */
const tickTable = (runs: readonly { name: string; predicted: Simulation; measured: Measured }[]): string => {
  const head = [
    'pipeline',
    'planned ms',
    'measured',
    'traced',
    'busiest lane, planned',
    'traced',
    'clock MHz',
    'W',
  ]
  const rows = runs.map(({ name, predicted, measured: { tickMs, traced, clocks } }) => [
    name,
    predicted.tickMs.toFixed(4),
    tickMs.toFixed(4),
    traced.tickMs.toFixed(4),
    Math.max(0, ...Object.values(predicted.busy)).toFixed(4),
    traced.busyMs.toFixed(4),
    clocks === undefined ? '' : clocks.megahertz.toFixed(0),
    clocks === undefined ? '' : clocks.watts.toFixed(0),
  ])
  return table([head, ...rows], '  ')
}

/**
 * Where lanes share an engine: its copies in the order in which they began, planned and measured, by lane.
 */
const copyOrder = (plan: Plan, { timeline }: Simulation, { copies }: Measured): string[] => {
  const all = runsOf(timeline).filter(({ resource }) => resource === 'h2d')
  if (new Set(all.map(({ lane }) => lane)).size < 2) return []
  // From the first of a steady tick on, whichever tick the others are of.
  const steady = Math.max(0, timeline.ticks - 1 - 2 * plan.inFlight)
  const from = all.reduce(
    (least, { tick, start }) => (tick === steady ? Math.min(least, start) : least),
    Number.POSITIVE_INFINITY,
  )
  const planned = all
    .filter(({ start }) => start >= from)
    .sort((a, b) => a.start - b.start)
    .map(({ node, start }) => `${plan.nodes[node]!.name}+${((start - from) * 1e-3).toFixed(0)}`)
  const count = 3 * plan.nodes.filter(({ op }) => op === 'upload').length
  return [
    `  planned:  ${planned.slice(0, count).join(' ')}`,
    `  measured: ${copies
      .slice(0, count)
      .map(({ name, startUs }) => `${name.split('@')[0]}+${startUs.toFixed(0)}`)
      .join(' ')}`,
  ]
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
  title:
    `simulate for ${known} compared with a GPU: ticks within ${100 * wanted.within} % ` +
    `on ${wanted.pipelines} of 10 pipelines, peaks equal`,
  run: async (log: (line: string) => void): Promise<{ rows: Row[]; ok: boolean }> => {
    const device = devices().find(({ kind }) => kind === 'cuda')?.device
    if (device === undefined) {
      const ten = pipelines(known)
      log('There is no GPU here: predictions alone, nothing to hold them against')
      return {
        rows: ten.map(pipeline => rowOf(pipeline, simulate(pipeline.plan, known), undefined)),
        ok: true,
      }
    }
    // The device is the one that Braid knows; the host is this one, measured right before, from other work
    // than the pipelines.
    const figures = await measureHost(device)
    const machine = orThrow(machineOf(measuredMachine(figures)))
    log('the host, measured before the pipelines and from other work (braid doctor --machine FILE):')
    for (const line of machineFile(figures, device).split('\n').slice(1, -1)) log(`  ${line}`)
    const ten = pipelines(machine)
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
          if (measured.reserved === plan.bound.device[0] && measured.poolPeak === poolPeakOf(plan).device[0])
            equal++
        }
        log(
          `${name.padEnd(44)} ${predicted.tickMs.toFixed(3).padStart(9)} ms predicted ` +
            `${measured.tickMs.toFixed(3).padStart(9)} ms measured`,
        )
      } catch (error) {
        log(
          `${name.padEnd(44)} could not be measured: ` +
            (error instanceof Error ? error.message : String(error)),
        )
        if (i < ten.length) rows.push(rowOf(pipeline, predicted, undefined))
      }
    }
    log(
      `${near >= wanted.pipelines ? '✓' : '✗'} ${near} of ${ten.length} ticks ` +
        `within ${100 * wanted.within} % (wanted: ${wanted.pipelines})`,
    )
    log(
      `${equal === ten.length ? '✓' : '✗'} ${equal} of ${ten.length} peaks as predicted, ` +
        'to the byte (wanted: all)',
    )
    log('with a trace and without:')
    for (const line of tickTable(runs).split('\n')) log(line)
    log('copies of lanes that share an engine, in the order in which they began:')
    for (const { name, plan, predicted, measured } of runs) {
      const lines = copyOrder(plan, predicted, measured)
      if (lines.length > 0) for (const line of [name, ...lines]) log(`  ${line}`)
    }
    log('by kind of run, with the runs concurrent with it:')
    for (const line of calibration(runs).split('\n')) log(line)
    log('the two threads, a tick:')
    for (const line of hostCosts(runs).split('\n')) log(line)
    return { rows: [...rows, ...small], ok: near >= wanted.pipelines && equal === ten.length }
  },
}
