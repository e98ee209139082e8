import { traceJson } from '../../dsl/internal.js'
import type { Plan } from '../../dsl/ir/plan.js'
import type { NativeTrace } from '../addon.js'
import { describe } from '../values.js'

/** One run command as it really ran, in milliseconds since the session's first traced run. */
export interface TraceRecord {
  readonly tick: number
  /** Number, name and operator of the plan's node. */
  readonly node: number
  readonly name: string
  readonly op: string
  /** The user's file and line. */
  readonly at: string
  readonly lane: string
  readonly laneId: number
  /** The device of the plan that it ran on. */
  readonly device: number
  readonly startMs: number
  readonly endMs: number
}

export const traceRecords = (trace: NativeTrace, plan: Plan): readonly TraceRecord[] =>
  Array.from(trace.tick, (tick, i) => {
    const node = trace.node[i]!
    const laneId = trace.lane[i]!
    const { name = `node ${node}`, op = 'run', at = '' } = plan.nodes[node] ?? {}
    return {
      tick,
      node,
      name,
      op,
      at,
      lane: plan.lanes[laneId]?.name ?? `lane ${laneId}`,
      laneId,
      device: plan.lanes[laneId]?.device ?? 0,
      startMs: trace.start[i]!,
      endMs: trace.end[i]!,
    }
  })

const numbersOf = ['tick', 'node', 'laneId', 'startMs', 'endMs'] as const

// JavaScript callers can pass any value, for example a trace of another plan.
const expectTrace = (caller: string, records: unknown, plan: Plan): void => {
  const fail = (wanted: string, found: string): never => {
    throw new TypeError(
      `${caller}: wanted ${wanted}; found ${found}. Next: ${caller}(session.trace(), session.plan)`,
    )
  }
  if (!Array.isArray(records)) fail('the records of session.trace()', describe(records))
  if (!Array.isArray(plan?.lanes) || !Array.isArray(plan.buffers) || !Array.isArray(plan.commands))
    fail('the plan that ran', describe(plan))
  const given = records as readonly unknown[]
  given.forEach((record, i) => {
    if (
      !numbersOf.every(field => Number.isFinite((record as Partial<TraceRecord> | null | undefined)?.[field]))
    )
      fail('records with numbers of ticks, nodes, lanes and milliseconds', `record ${i}: ${describe(record)}`)
  })
}

/**
 * The records by index among the plan's runs. Runs of one lane never overlap: where the device's clock is
 * coarser than a run is long, a run starts when the previous run of its lane ends. Times are whole
 * nanoseconds, in microseconds.
 */
const runsOf = (records: readonly TraceRecord[], plan: Plan) => {
  const place = new Map<number, number>()
  for (const command of plan.commands) if (command[0] === 'run') place.set(command[1], place.size)
  // A lane's clock may start before the session's first traced run; a viewer takes no negative times.
  const origin = records.reduce((least, { startMs }) => Math.min(least, startMs), 0)
  const nanoseconds = (ms: number): number => Math.round((ms - origin) * 1e6)
  const until = new Map<number, number>()
  return records.map(({ tick, node, laneId, startMs, endMs, op }) => {
    const start = Math.max(nanoseconds(startMs), until.get(laneId) ?? 0)
    const end = Math.max(nanoseconds(endMs), start)
    until.set(laneId, end)
    return { tick, run: place.get(node) ?? -1, node, lane: laneId, start: start / 1000, end: end / 1000, op }
  })
}

/**
 * The runs in Chrome's trace format, which Perfetto opens: a row for each lane, a slice for each run, an
 * arrow for each wait, and the memory in use. In chunks, since a trace of some million runs exceeds the
 * longest string.
 */
export const traceChunks = (records: readonly TraceRecord[], plan: Plan): Iterable<string> => {
  expectTrace('traceChunks', records, plan)
  return chunksOf(records, plan)
}

const chunksOf = (records: readonly TraceRecord[], plan: Plan): Iterable<string> =>
  traceJson(plan, runsOf(records, plan), { process: `braid: ${plan.name}`, category: ({ op }) => op })

const bytesOf = (records: readonly TraceRecord[], plan: Plan): Uint8Array => {
  const encoder = new TextEncoder()
  return Buffer.concat(Array.from(chunksOf(records, plan), chunk => encoder.encode(chunk)))
}

/** The trace of `traceChunks` as one string. */
export const chromeTrace = (records: readonly TraceRecord[], plan: Plan): string => {
  expectTrace('chromeTrace', records, plan)
  return [...chunksOf(records, plan)].join('')
}

/** The trace of `traceChunks` as the bytes of a file for https://ui.perfetto.dev. */
export const perfettoTrace = (records: readonly TraceRecord[], plan: Plan): Uint8Array => {
  expectTrace('perfettoTrace', records, plan)
  return bytesOf(records, plan)
}

/** The same bytes under any file name: `braid run --trace FILE` writes them. */
export const traceFile = (path: string, records: readonly TraceRecord[], plan: Plan): Uint8Array => {
  if (typeof path !== 'string')
    throw new TypeError(
      `traceFile: wanted the file's path; found ${describe(path)}. ` +
        "Next: traceFile('run.json', session.trace(), session.plan)",
    )
  expectTrace('traceFile', records, plan)
  return bytesOf(records, plan)
}
