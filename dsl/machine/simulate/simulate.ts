import { isLeft } from 'fp-ts/lib/Either.js'
import { BraidError } from '../../ir/braid-error.js'
import type { Plan } from '../../ir/plan.js'
import { peakOf } from '../../memory/peak.js'
import type { MeasuredTimes } from '../cost.js'
import { machineOf } from '../load.js'
import type { Machine } from '../machine.js'
import { type Bound, chainOf } from './chain.js'
import { orderBound } from './order-bound.js'
import { throttled, workloadOf } from './plan-workload.js'
import { paceOf, playTicks, playUntilSteady } from './steady-state.js'
import { type Timeline, type TimelineRun, timelineOf } from './timeline.js'
import { busyOf, exposedOf } from './window.js'

export type { Cause } from './cause.js'
export { runsOf, type Timeline, type TimelineRun } from './timeline.js'

export interface SimulateOptions {
  /** The most ticks to replay; it stops earlier once ticks take the same time. Default: as many as 2^21 commands make, from 4 to 64. */
  readonly ticks?: number
  /** Nanoseconds by name of node, such as a trace gives: they stand before what the machine's rates say. */
  readonly measured?: MeasuredTimes
}

/** What a plan does on a machine. Times are milliseconds a tick, once ticks follow each other at a steady pace; sizes are bytes. */
export interface Simulation {
  readonly machine: string
  readonly tickMs: number
  /** The longest chain of runs, for each tick that it spans: no fewer milliseconds on any number of lanes and engines of these rates, in this order. */
  readonly criticalPathMs: number
  /** From the first command of a tick being issued to the end of its last run. */
  readonly latencyMs: number
  /** What a tick's commands cost the issuing thread. */
  readonly issueMs: number
  /** By lane: when it works; and when it copies or communicates while no kernel runs on its device. */
  readonly busy: Readonly<Record<string, number>>
  readonly exposed: Readonly<Record<string, number>>
  /** What the tick goes to, along the chain of runs that each waited for the one before: together they are `tickMs`. */
  readonly bounds: Readonly<Partial<Record<Bound, number>>>
  /** As law L9 has it: from the order of commands alone, so the same on every machine. */
  readonly peak: { readonly device: readonly number[]; readonly pinned: number }
  readonly bound: Plan['bound']
  /** Whether the pace had settled after the ticks that were replayed. */
  readonly settled: boolean
  /** That chain, over the last ticks. */
  readonly chain: readonly TimelineRun[]
  readonly timeline: Timeline
}

const maxSteps = 2 ** 21
/** Slower clocks that are tried, and how near to what power allows a tick is to come. */
const rounds = 12
const alike = 1e-3
const ms = 1e-6

const machineFrom = (machine: Machine | string): Machine => {
  const made = machineOf(machine)
  if (isLeft(made)) throw new BraidError(made.left)
  return made.right
}

/** Names of lanes as keys: a name that several have says which lane it is. */
export const laneNames = ({ lanes }: Plan): readonly string[] => {
  const count = new Map<string, number>()
  for (const { name } of lanes) count.set(name, (count.get(name) ?? 0) + 1)
  return lanes.map(({ id, name }) => (count.get(name)! > 1 ? `${name}#${id}` : name))
}

/**
 * Predicts a plan on a machine, by name (`h200`, `h200x2`, `h200x8`) or description, without running anything: a discrete-event model of the thread that issues, of
 * lanes that carry out their commands in order, of copy engines that take a copy at a time, and of kernels that share what a device has. The model is stated in
 * `sharing.ts` and `simulator.ts`; priorities of lanes and other programs on the device are not in it, and every rank is taken to be as fast as this one.
 * Deterministic. Throws a `BraidError` for what is no machine.
 */
export const simulate = (
  plan: Plan,
  machine: Machine | string,
  options: SimulateOptions = {},
): Simulation => {
  const described = machineFrom(machine)
  const full = workloadOf(plan, described, options.measured)
  const affordable = Math.floor(maxSteps / Math.max(1, full.steps))
  const most = Math.max(1, options.ticks ?? Math.min(64, Math.max(4, affordable)))
  let workload = full
  let { pace, ticks } = playUntilSteady(full, most)
  // At slower clocks, until ticks are as long as their power needs.
  for (let round = 0, slower = 1; round < rounds && pace.tick * (1 + alike) < full.usage.power; round++) {
    slower *= full.usage.power / pace.tick
    workload = throttled(full, slower)
    pace = playTicks(workload, ticks).pace
  }
  const timeline = timelineOf(workload, ticks + Math.min(plan.inFlight, ticks))
  const to = timeline.ended[ticks - 1] ?? 0
  const window = { from: to - pace.tick * pace.over, to }
  const each = (values: Float64Array): Record<string, number> =>
    Object.fromEntries(laneNames(plan).map((name, lane) => [name, (values[lane]! * ms) / pace.over]))
  const devices = plan.lanes.map(({ device }) => Math.min(plan.devices - 1, Math.max(0, device)))
  const { runs: chain, bounds } = chainOf(timeline, window)
  const { device, pinned } = peakOf(plan)
  return {
    machine: described.name,
    tickMs: pace.tick * ms,
    criticalPathMs: paceOf(orderBound(workload, ticks), plan.inFlight).tick * ms,
    latencyMs: (to - (timeline.issued[ticks - 1] ?? 0)) * ms,
    issueMs: full.issue.reduce((sum, time) => sum + time, full.trailing) * ms,
    busy: each(busyOf(timeline, plan.lanes.length, window)),
    exposed: each(exposedOf(timeline, devices, plan.devices, window)),
    bounds: Object.fromEntries([...bounds].map(([what, time]) => [what, (time * ms) / pace.over])),
    peak: { device, pinned },
    bound: plan.bound,
    settled: pace.steady,
    chain,
    timeline,
  }
}
