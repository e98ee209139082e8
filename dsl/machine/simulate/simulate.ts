import { isLeft } from 'fp-ts/lib/Either.js'
import { BraidError } from '../../ir/braid-error.js'
import type { Plan } from '../../ir/plan.js'
import { shown } from '../../ir/show.js'
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
  /**
   * The most ticks to simulate; fewer where the pace is steady. Default: as many as 2^21 commands allow,
   * between 4 and 64.
   */
  readonly ticks?: number
  /** Nanoseconds by name of node, as from a trace; they take precedence over the machine's model. */
  readonly measured?: MeasuredTimes
}

/** The prediction of a plan on a machine. Times are milliseconds a tick at a steady pace; sizes are bytes. */
export interface Simulation {
  readonly machine: string
  readonly tickMs: number
  /**
   * The longest chain of runs, divided by the ticks that it spans: a lower bound in this order, with these
   * rates, on any number of lanes and engines.
   */
  readonly criticalPathMs: number
  /** From the issue of a tick's first command to the end of its last run. */
  readonly latencyMs: number
  /** Time of the issuing thread for a tick's commands. */
  readonly issueMs: number
  /**
   * By lane: its busy time; and the time in which it copies or communicates while no kernel runs on its
   * device.
   */
  readonly busy: Readonly<Record<string, number>>
  readonly exposed: Readonly<Record<string, number>>
  /**
   * The tick's time by kind, along the chain of runs that each waited for the one before; their sum is
   * `tickMs`.
   */
  readonly bounds: Readonly<Partial<Record<Bound, number>>>
  /** The peak of law L9: from the order of commands alone, so the same on every machine. */
  readonly peak: { readonly device: readonly number[]; readonly pinned: number }
  readonly bound: Plan['bound']
  /** Whether the simulated ticks reached a steady state. */
  readonly settled: boolean
  /** The chain behind `bounds`, over the last ticks. */
  readonly chain: readonly TimelineRun[]
  readonly timeline: Timeline
}

const maxSteps = 2 ** 21
/**
 * The number of slower clocks that are tried, and the tolerance between a tick's time and the time that its
 * power needs.
 */
const rounds = 12
const alike = 1e-3
const ms = 1e-6

const machineFrom = (machine: Machine | string): Machine => {
  const made = machineOf(machine)
  if (isLeft(made)) throw new BraidError(made.left)
  return made.right
}

/** Lane names as unique keys: a repeated name gets the lane's number. */
export const laneNames = ({ lanes }: Plan): readonly string[] => {
  const count = new Map<string, number>()
  const names = lanes.map(({ name }) => shown(name))
  for (const name of names) count.set(name, (count.get(name) ?? 0) + 1)
  return names.map((name, id) => (count.get(name)! > 1 ? `${name}#${id}` : name))
}

/**
 * Predicts a plan on a machine, given by name (`h200`, `h200x2`, `h200x8`) or description, without running
 * anything. A discrete-event model: a thread that issues, lanes that run their commands in order, copy
 * engines that do one copy at a time, and kernels that share the device. `sharing.ts` and `simulator.ts`
 * state the model. It ignores priorities of lanes and other programs on the device, and takes every rank to
 * be as fast as this one. Deterministic. Throws a `BraidError` where `machine` is not a machine.
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
