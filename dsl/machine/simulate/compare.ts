import type { Plan } from '../../ir/plan.js'
import { laneNames, type Simulation } from './simulate.js'

/** One run of a trace. Times are milliseconds. */
export interface MeasuredRun {
  readonly tick: number
  readonly name: string
  readonly laneId: number
  readonly startMs: number
  readonly endMs: number
}

export interface Side {
  readonly plannedMs: number
  readonly measuredMs: number
  /** Measured divided by planned. */
  readonly ratio: number
}

export interface ComparedRun extends Side {
  readonly name: string
  readonly op: string
  readonly at: string
  readonly lane: string
  /** The difference in a tick: measured less planned. */
  readonly differenceMs: number
}

/** Planned and measured times. */
export interface Comparison {
  /** The ticks that were compared: those of the trace without the first ones, which fill the pipeline. */
  readonly ticks: number
  readonly tick: Side
  /** Busy time of each lane in a tick. */
  readonly lanes: Readonly<Record<string, Side>>
  /** Time of each operation, the largest differences first. */
  readonly operations: readonly ComparedRun[]
}

const ratio = (measured: number, planned: number): number =>
  planned > 0 ? measured / planned : measured > 0 ? Number.POSITIVE_INFINITY : 1

const side = (plannedMs: number, measuredMs: number): Side => ({
  plannedMs,
  measuredMs,
  ratio: ratio(measuredMs, plannedMs),
})

const median = (values: readonly number[]): number => {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted.length === 0 ? 0 : (sorted[(sorted.length - 1) >> 1]! + sorted[sorted.length >> 1]!) / 2
}

type Run = readonly ['run', node: number, lane: number, reads: readonly number[], writes: readonly number[]]

const runsOf = (plan: Plan): readonly Run[] =>
  plan.commands.filter((command): command is Run => command[0] === 'run')

/**
 * The ticks of a trace, each in the order of the plan's commands; or why it is not a trace of this plan.
 * Lanes run their commands in order, so the runs of a lane in a tick are identified by their place.
 * Incomplete ticks are left out.
 */
export const ticksOf = (
  plan: Plan,
  trace: readonly MeasuredRun[],
): readonly (readonly MeasuredRun[])[] | string => {
  const runs = runsOf(plan)
  const places = plan.lanes.map((): number[] => [])
  for (const [i, [, , lane]] of runs.entries()) places[lane]!.push(i)
  const ticks = new Map<number, { found: MeasuredRun[]; seen: number[]; strange: boolean }>()
  let mismatch: string | undefined
  for (const run of [...trace].sort((a, b) => a.startMs - b.startMs)) {
    let tick = ticks.get(run.tick)
    if (tick === undefined)
      ticks.set(run.tick, (tick = { found: [], seen: plan.lanes.map(() => 0), strange: false }))
    const place = places[run.laneId]?.[tick.seen[run.laneId]!++]
    const wanted = place === undefined ? undefined : plan.nodes[runs[place]![1]]!.name
    if (wanted === run.name) tick.found[place!] = run
    else {
      tick.strange = true
      const planned = wanted === undefined ? 'nothing more' : `'${wanted}'`
      mismatch ??= `'${run.name}' on lane ${run.laneId}, where the plan runs ${planned}`
    }
  }
  const whole = [...ticks].filter(
    ([, { seen, strange }]) => !strange && seen.every((count, lane) => count === places[lane]!.length),
  )
  if (whole.length === 0) return mismatch ?? 'no tick with all runs of the plan'
  return whole.sort(([a], [b]) => a - b).map(([, { found }]) => found)
}

/**
 * Nanoseconds by name of node, medians over the ticks of a trace: the `profile` of `compile`, and the
 * `measured` of `simulate`.
 */
export const timesOf = (trace: readonly MeasuredRun[]): ReadonlyMap<string, number> => {
  const times = new Map<string, number[]>()
  for (const { name, startMs, endMs } of trace) {
    const known = times.get(name)
    const nanoseconds = Math.max(0, endMs - startMs) * 1e6
    if (known === undefined) times.set(name, [nanoseconds])
    else known.push(nanoseconds)
  }
  return new Map([...times].map(([name, all]) => [name, median(all)]))
}

/** Compares a simulation with the ticks of a trace of the same plan, by medians over the steady ticks. */
export const compareWith = (
  plan: Plan,
  { timeline, tickMs, busy }: Simulation,
  all: readonly (readonly MeasuredRun[])[],
): Comparison => {
  const runs = runsOf(plan)
  // In the first ticks every lane is idle. A trace of few ticks keeps at least one.
  const ticks = all.slice(Math.min(plan.inFlight, Math.max(0, all.length - 2)))
  const ends = ticks.map(runs => runs.reduce((last, { endMs }) => Math.max(last, endMs), 0))
  const first = ticks[0]!.reduce((least, { startMs }) => Math.min(least, startMs), Number.POSITIVE_INFINITY)
  const measuredTick =
    ends.length > 1 ? (ends[ends.length - 1]! - ends[0]!) / (ends.length - 1) : ends[0]! - first
  // The last tick that has successors.
  const last = Math.max(0, timeline.ticks - 1 - plan.inFlight) * runs.length
  const names = laneNames(plan)
  const lanes = new Map(names.map(name => [name, 0]))
  const operations = runs.map(([, node, lane], i): ComparedRun => {
    const plannedMs = (timeline.end[last + i]! - timeline.start[last + i]!) * 1e-6
    const measuredMs = median(ticks.map(tick => tick[i]!.endMs - tick[i]!.startMs))
    lanes.set(names[lane]!, lanes.get(names[lane]!)! + measuredMs)
    const { name, op, at } = plan.nodes[node]!
    return {
      name,
      op,
      at,
      lane: names[lane]!,
      ...side(plannedMs, measuredMs),
      differenceMs: measuredMs - plannedMs,
    }
  })
  return {
    ticks: ticks.length,
    tick: side(tickMs, measuredTick),
    lanes: Object.fromEntries([...lanes].map(([name, measured]) => [name, side(busy[name] ?? 0, measured)])),
    operations: operations.sort((a, b) => Math.abs(b.differenceMs) - Math.abs(a.differenceMs)),
  }
}
