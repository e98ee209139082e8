// Over 300 lines as one thing: what really ran, in the two forms that viewers open, from the same rows, arrows and counters.
import type { Plan } from '../../dsl/ir/plan.js'
import type { NativeTrace } from '../addon.js'
import { describe } from '../values.js'
import { Message } from './protobuf.js'
import { annotation, begin, end, event, firstLane, packet, packetOfTrace, track } from './trace-fields.js'

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
  /** Of the plan's devices the one that it ran on. */
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

// JavaScript callers can pass anything, also a trace of another plan.
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

/** An arrow of the trace: a run on one lane that a run on another waited for, by index of records. */
export interface Arrow {
  readonly from: number
  readonly to: number
}

/**
 * The waits of the plan, tick by tick: from the last run before a record to the first run after a wait for it. A wait for the tick
 * before points back one tick.
 */
export const arrowsOf = (records: readonly TraceRecord[], plan: Plan): readonly Arrow[] => {
  const at = new Map<string, number>()
  records.forEach(({ tick, node }, i) => void at.set(`${tick} ${node}`, i))
  const pairs = waitedRuns(plan)
  const seen = new Set<string>()
  const arrows: Arrow[] = []
  records.forEach(({ tick, node }, to) => {
    for (const { before, ticksAgo } of pairs.get(node) ?? []) {
      const from = at.get(`${tick - ticksAgo} ${before}`)
      if (from === undefined || seen.has(`${from} ${to}`)) continue
      seen.add(`${from} ${to}`)
      arrows.push({ from, to })
    }
  })
  return arrows
}

const waitedRuns = (plan: Plan): ReadonlyMap<number, readonly { before: number; ticksAgo: number }[]> => {
  // The events of the tick before are those that the end of the list leaves, so the list is walked twice.
  const recorded = new Map<number, number>()
  const lastRun = new Map<number, number>()
  const result = new Map<number, { before: number; ticksAgo: number }[]>()
  for (const pass of [0, 1]) {
    const pending = new Map<number, { before: number; ticksAgo: number }[]>()
    for (const command of plan.commands) {
      if (command[0] === 'record') {
        const run = lastRun.get(command[2])
        if (run !== undefined) recorded.set(command[1], run)
      } else if (command[0] === 'wait' && pass === 1) {
        const before = recorded.get(command[1])
        if (before === undefined) continue
        const waits = pending.get(command[2]) ?? []
        waits.push({ before, ticksAgo: command[3] === -1 ? 1 : 0 })
        pending.set(command[2], waits)
      } else if (command[0] === 'run') {
        const waits = pending.get(command[2])
        if (waits) {
          result.set(command[1], [...(result.get(command[1]) ?? []), ...waits])
          pending.delete(command[2])
        }
        lastRun.set(command[2], command[1])
      }
    }
    if (pass === 0) lastRun.clear()
  }
  return result
}

/** What a lane is called in a picture: with its device, where there are several. */
const labelOf = (plan: Plan, { name, device }: Plan['lanes'][number]): string =>
  plan.devices > 1 ? `device ${device}: ${name}` : name

const counter = 4
const sequence = 1
const stateCleared = 1
const processTrack = 1
const memoryTrack = 2

/** A Perfetto trace (TrackEvent protobuf): a track a lane, a slice a run, an arrow a wait, and the bytes that ticks held. */
export const perfettoTrace = (records: readonly TraceRecord[], plan: Plan): Uint8Array => {
  expectTrace('perfettoTrace', records, plan)
  const trace = new Message()
  let first = true
  const put = (fill: (message: Message) => void): void => {
    const message = new Message().number(packet.sequence, sequence)
    if (first) message.number(packet.flags, stateCleared)
    first = false
    fill(message)
    trace.message(packetOfTrace, message)
  }
  const name = new Message().number(1, 1).text(6, `braid: ${plan.name}`)
  put(message =>
    message.message(
      packet.track,
      new Message().number(track.uuid, processTrack).message(track.process, name),
    ),
  )
  for (const lane of plan.lanes)
    put(message =>
      message.message(
        packet.track,
        new Message()
          .number(track.uuid, firstLane + lane.id)
          .number(track.parent, processTrack)
          .text(track.name, labelOf(plan, lane)),
      ),
    )
  put(message =>
    message.message(
      packet.track,
      new Message()
        .number(track.uuid, memoryTrack)
        .number(track.parent, processTrack)
        .text(track.name, 'bytes of tick buffers in use')
        .message(track.counter, new Message().number(3, 3)),
    ),
  )
  const flows = flowIds(arrowsOf(records, plan))
  for (const entry of entriesOf(records, plan)) put(message => writeEntry(message, entry, records, flows))
  return trace.bytes().slice()
}

type Entry = { readonly at: number; readonly order: number } & (
  | { readonly begin: number }
  | { readonly end: number }
  | { readonly bytes: number }
)

// Timestamps ascend. Where two are equal the order is that of issue, in which a lane's runs stand one after the other, each with its
// end behind its begin: so slices of one track never cross, though a clock's steps may be coarser than a run is long.
const entriesOf = (records: readonly TraceRecord[], plan: Plan): readonly Entry[] => {
  const nanoseconds = (ms: number): number => Math.max(0, Math.round(ms * 1e6))
  const until = new Map<number, number>()
  const entries: Entry[] = []
  records.forEach(({ laneId, startMs, endMs }, i) => {
    const start = Math.max(nanoseconds(startMs), until.get(laneId) ?? 0)
    const end = Math.max(nanoseconds(endMs), start)
    until.set(laneId, end)
    entries.push({ at: start, order: 2 * i, begin: i }, { at: end, order: 2 * i + 1, end: i })
  })
  for (const { ms, bytes } of memoryOf(records, plan)) entries.push({ at: nanoseconds(ms), order: -1, bytes })
  return entries.sort((a, b) => a.at - b.at || a.order - b.order)
}

/** Bytes of tick buffers that hold a value: from the start of the first run that writes one to the end of the last that uses it. */
const memoryOf = (records: readonly TraceRecord[], plan: Plan): readonly { ms: number; bytes: number }[] => {
  const touched = new Map<number, readonly number[]>()
  for (const command of plan.commands)
    if (command[0] === 'run')
      touched.set(
        command[1],
        [...command[3], ...command[4]]
          .map(id => plan.buffers[id]!.alias ?? id)
          .filter(id => plan.buffers[id]!.life === 'tick' && plan.buffers[id]!.space === 'device'),
      )
  const spans = new Map<string, { start: number; end: number; bytes: number }>()
  for (const { tick, node, startMs, endMs } of records)
    for (const id of touched.get(node) ?? []) {
      const key = `${tick} ${id}`
      const span = spans.get(key)
      if (!span) spans.set(key, { start: startMs, end: endMs, bytes: plan.buffers[id]!.bytes })
      else {
        span.start = Math.min(span.start, startMs)
        span.end = Math.max(span.end, endMs)
      }
    }
  const steps = [...spans.values()].flatMap(({ start, end, bytes }) => [
    { ms: start, bytes },
    { ms: end, bytes: -bytes },
  ])
  let held = 0
  return steps
    .sort((a, b) => a.ms - b.ms || a.bytes - b.bytes)
    .map(({ ms, bytes }) => ({ ms, bytes: (held += bytes) }))
}

interface Flows {
  readonly out: ReadonlyMap<number, readonly number[]>
  readonly into: ReadonlyMap<number, readonly number[]>
}

const flowIds = (arrows: readonly Arrow[]): Flows => {
  const out = new Map<number, number[]>()
  const into = new Map<number, number[]>()
  arrows.forEach(({ from, to }, i) => {
    out.set(from, [...(out.get(from) ?? []), i + 1])
    into.set(to, [...(into.get(to) ?? []), i + 1])
  })
  return { out, into }
}

const writeEntry = (
  message: Message,
  entry: Entry,
  records: readonly TraceRecord[],
  { out, into }: Flows,
): void => {
  message.number(packet.timestamp, entry.at)
  if ('bytes' in entry) {
    message.message(
      packet.event,
      new Message()
        .number(event.type, counter)
        .number(event.track, memoryTrack)
        .signed(event.counter, BigInt(entry.bytes)),
    )
    return
  }
  const index = 'begin' in entry ? entry.begin : entry.end
  const { laneId, name, op, at, tick } = records[index]!
  const slice = new Message()
    .number(event.type, 'begin' in entry ? begin : end)
    .number(event.track, firstLane + laneId)
  if ('begin' in entry) {
    slice.text(event.categories, op).text(event.name, name)
    slice.message(event.annotation, new Message().text(annotation.name, 'at').text(annotation.text, at))
    slice.message(
      event.annotation,
      new Message().text(annotation.name, 'tick').signed(annotation.int, BigInt(tick)),
    )
    for (const id of out.get(index) ?? []) slice.fixed64(event.flow, BigInt(id))
    for (const id of into.get(index) ?? []) slice.fixed64(event.endFlow, BigInt(id))
  }
  message.message(packet.event, slice)
}

/** The readable twin: Chrome's JSON trace format, a thread a lane, times in microseconds. */
export const chromeTrace = (records: readonly TraceRecord[], plan: Plan): string => {
  expectTrace('chromeTrace', records, plan)
  const lanes = plan.lanes.map(lane => ({
    ph: 'M',
    name: 'thread_name',
    pid: 1,
    tid: lane.id,
    args: { name: labelOf(plan, lane) },
  }))
  const runs = records.map(({ name, op, at, tick, laneId, startMs, endMs }) => ({
    ph: 'X',
    name,
    cat: op,
    pid: 1,
    tid: laneId,
    ts: startMs * 1000,
    dur: Math.max(0, endMs - startMs) * 1000,
    args: { tick, at },
  }))
  const arrows = arrowsOf(records, plan).flatMap(({ from, to }, id) => [
    {
      ph: 's',
      name: 'wait',
      cat: 'wait',
      id,
      pid: 1,
      tid: records[from]!.laneId,
      ts: records[from]!.endMs * 1000,
    },
    {
      ph: 'f',
      bp: 'e',
      name: 'wait',
      cat: 'wait',
      id,
      pid: 1,
      tid: records[to]!.laneId,
      ts: records[to]!.startMs * 1000,
    },
  ])
  const processName = { ph: 'M', name: 'process_name', pid: 1, args: { name: `braid: ${plan.name}` } }
  return `${JSON.stringify({ displayTimeUnit: 'ms', traceEvents: [processName, ...lanes, ...runs, ...arrows] })}\n`
}

/** The trace as a file holds it: JSON where its name ends in .json, else Perfetto's protobuf (`.pftrace`). */
export const traceFile = (path: string, records: readonly TraceRecord[], plan: Plan): Uint8Array => {
  if (typeof path !== 'string')
    throw new TypeError(
      `traceFile: wanted the file's path; found ${describe(path)}. Next: traceFile('run.pftrace', session.trace(), session.plan)`,
    )
  return path.endsWith('.json')
    ? new TextEncoder().encode(chromeTrace(records, plan))
    : perfettoTrace(records, plan)
}
