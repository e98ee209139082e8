import { laneName, nodeName, placeOf } from '../../ir/names.js'
import type { Plan } from '../../ir/plan.js'
import { arrowsOf } from '../facts/arrows.js'
import { memoryInUse } from '../facts/memory.js'
import { runsOf } from '../facts/runs.js'

/** A run of one tick, measured or predicted, in microseconds. `run` is its place among the runs of a tick. */
export interface TracedRun {
  readonly tick: number
  readonly run: number
  readonly node: number
  readonly lane: number
  readonly start: number
  readonly end: number
}

/** The process name of a trace, and the category and further arguments of each run. */
export interface TraceLabels<Run> {
  readonly process: string
  readonly category: (run: Run) => string
  readonly args?: (run: Run) => object
}

type TraceEvent = Readonly<Record<string, unknown>>

/** Events of one chunk of text: some hundred KB. */
const perChunk = 1024

/**
 * Runs in Chrome's trace format, which Perfetto opens, in chunks of text: a process for each device with a
 * row for each lane, a slice for each run, an arrow for each wait, and a counter of the memory in use with
 * the bound. One event a line.
 */
export function* traceJson<Run extends TracedRun>(
  plan: Plan,
  runs: readonly Run[],
  labels: TraceLabels<Run>,
): Generator<string> {
  let chunk: string[] = []
  let separator = '{"displayTimeUnit":"ns","traceEvents":[\n'
  for (const event of eventsOf(plan, runs, labels)) {
    chunk.push(JSON.stringify(event))
    if (chunk.length < perChunk) continue
    yield separator + chunk.join(',\n')
    separator = ',\n'
    chunk = []
  }
  yield `${chunk.length > 0 ? separator + chunk.join(',\n') : ''}\n]}\n`
}

function* eventsOf<Run extends TracedRun>(
  plan: Plan,
  runs: readonly Run[],
  { process, category, args }: TraceLabels<Run>,
): Generator<TraceEvent> {
  const deviceOf = (lane: number): number => plan.lanes[lane]!.device
  for (let device = 0; device < plan.devices; device++) {
    const on = plan.devices > 1 ? `, device ${device}` : ''
    yield { ph: 'M', pid: device, tid: 0, name: 'process_name', args: { name: process + on } }
  }
  for (const { id, device } of plan.lanes) {
    yield { ph: 'M', pid: device, tid: id, name: 'thread_name', args: { name: laneName(plan, id) } }
    yield { ph: 'M', pid: device, tid: id, name: 'thread_sort_index', args: { sort_index: id } }
  }
  for (const run of runs) {
    const at = placeOf(plan.nodes[run.node])
    yield {
      ph: 'X',
      pid: deviceOf(run.lane),
      tid: run.lane,
      ts: run.start,
      dur: run.end - run.start,
      // As the plan has it, by which a trace is compared with its plan. JSON escapes it.
      name: plan.nodes[run.node]?.name || nodeName(plan, run.node),
      cat: category(run),
      args: { tick: run.tick, ...args?.(run), ...(at === '' ? {} : { at }) },
    }
  }
  yield* flowsOf(plan, runs)
  for (let device = 0; device < plan.devices; device++)
    for (const { us, bytes } of memoryInUse(plan, runs, device))
      yield {
        ph: 'C',
        pid: device,
        tid: 0,
        ts: us,
        name: 'device memory, bytes',
        args: { 'in use': bytes, bound: plan.bound.device[device] ?? 0 },
      }
}

/** An arrow for each wait whose two runs are both in the trace. */
function* flowsOf(plan: Plan, runs: readonly TracedRun[]): Generator<TraceEvent> {
  const perTick = runsOf(plan).length
  const ticks = new Map<number, (TracedRun | undefined)[]>()
  for (const run of runs) {
    let tick = ticks.get(run.tick)
    if (tick === undefined) ticks.set(run.tick, (tick = new Array<undefined>(perTick)))
    tick[run.run] = run
  }
  const waits = arrowsOf(plan)
  // Perfetto attaches an arrow's end to the slice at that time, so both ends lie inside their slices.
  const inside = ({ start, end }: TracedRun): number => Math.min(1e-3, (end - start) / 2)
  const flow = (ph: 's' | 'f', { lane }: TracedRun, ts: number, event: number, id: number): TraceEvent => ({
    ph,
    ...(ph === 'f' ? { bp: 'e' } : {}),
    pid: plan.lanes[lane]!.device,
    tid: lane,
    ts,
    cat: 'wait',
    name: `e${event}`,
    id,
  })
  let id = 0
  for (const [tick, own] of ticks)
    for (const { from, to, ticks: back, event } of waits) {
      const before = ticks.get(tick - back)?.[from]
      const after = own[to]
      if (before === undefined || after === undefined) continue
      yield flow('s', before, before.end - inside(before), event, id)
      yield flow('f', after, after.start + inside(after), event, id++)
    }
}
