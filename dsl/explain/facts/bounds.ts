import { joinNames, laneName, nodeName, placeOf } from '../../ir/names.js'
import type { Cause } from '../../machine/simulate/simulate.js'
import { type CriticalPath, criticalPath } from './critical.js'
import { plural, timeOf } from './names.js'
import { type Line, section } from './section.js'
import { extentOf, overlapWith, type Span, type Timeline, union } from './timeline.js'

/** Time in which a copy or a collective runs and nothing else does. */
export interface Exposed {
  readonly name: string
  readonly lane: string
  readonly at: string
  readonly us: number
}

/** What sets a tick's time, by a prediction for a machine. */
export interface Bounds {
  readonly machine: string
  readonly tickUs: number
  readonly path: CriticalPath
  /** Busy microseconds in one tick's time, busiest first. */
  readonly lanes: readonly { readonly name: string; readonly us: number }[]
  readonly exposedUs: number
  readonly exposed: readonly Exposed[]
  /** Operations whose work is unknown: only their launch is counted. */
  readonly unknown: number
}

const moves = ({ resource }: Span): boolean =>
  resource === 'h2d' || resource === 'd2h' || resource === 'peer' || resource === 'link'

export const boundsOf = (timeline: Timeline): Bounds => {
  const { plan, spans, tickUs, machine, over } = timeline
  const { to } = extentOf(timeline)
  const from = to - tickUs * over
  const inside = spans.filter(({ start, end }) => start < to && end > from)
  const works = union(inside.filter(span => !moves(span)))
  const copies = inside.filter(moves)
  const lanes = plan.lanes
    .map((_, lane) => ({
      name: laneName(plan, lane),
      us: overlapWith(union(inside.filter(span => span.lane === lane)), from, to) / over,
    }))
    .sort((a, b) => b.us - a.us)
  const byRun = new Map<number, Exposed>()
  for (const span of copies) {
    const [start, end] = [Math.max(from, span.start), Math.min(to, span.end)]
    const us = end - start - overlapWith(works, start, end)
    byRun.set(span.run, {
      name: nodeName(plan, span.node),
      lane: laneName(plan, span.lane),
      at: placeOf(plan.nodes[span.node]),
      us: us / over + (byRun.get(span.run)?.us ?? 0),
    })
  }
  const exposed = [...byRun.values()].filter(({ us }) => us > 0).sort((a, b) => b.us - a.us)
  const alone = union(copies)
  const exposedUs =
    alone.reduce((sum, { start, end }) => {
      const [first, last] = [Math.max(from, start), Math.min(to, end)]
      return sum + Math.max(0, last - first - overlapWith(works, first, last))
    }, 0) / over
  const unknown = plan.nodes.filter(
    ({ flops, movedBytes }) => flops === undefined && movedBytes === undefined,
  ).length
  return { machine, tickUs, path: criticalPath(timeline), lanes, exposedUs, exposed, unknown }
}

const percent = (part: number, whole: number): string =>
  whole > 0 ? `${Math.round((100 * part) / whole)} %` : '0 %'

/** Groups the consecutive operations of one lane. */
const stretches = ({ spans }: CriticalPath): Span[][] => {
  const found: Span[][] = []
  for (const span of spans) {
    const last = found[found.length - 1]
    if (last !== undefined && last[0]!.lane === span.lane && span.cause === 'lane') last.push(span)
    else found.push([span])
  }
  return found
}

const ticksBefore = (count: number): string =>
  count === 0 ? '' : count === 1 ? ' of the tick before' : ` of ${count} ticks before`

/** Time from the end of the last run that a run waited for to its own start. */
const gapOf = (span: Span, { spans }: Timeline): number =>
  span.after === undefined ? 0 : span.start - spans[span.after]!.end

export const because = (span: Span, timeline: Timeline): string => {
  const { plan, spans } = timeline
  const after = span.after === undefined ? undefined : spans[span.after]
  const name =
    after === undefined ? '' : `${nodeName(plan, after.node)}${ticksBefore(span.tick - after.tick)}`
  const gap = gapOf(span, timeline)
  const late = gap >= 0.05 ? `, ${timeOf(gap)} later` : ''
  const says: Readonly<Record<Cause, string>> = {
    start: 'waits for nothing',
    lane: `after ${name}`,
    wait: `waits for ${name}${after === undefined ? '' : ` on ${laneName(plan, after.lane)}`}`,
    engine: `in line behind ${name}, on the same engine`,
    issue: name === '' ? 'starts as soon as the host has issued it' : `issued only after ${name}${late}`,
    queue: `issued only when ${name === '' ? 'a full lane' : name} had left its queue${late}`,
    tick: `the host begins a tick when ${name === '' ? 'an earlier one' : name} has ended${late}`,
    feed: 'starts when the program has filled its inputs',
  }
  return says[span.cause]
}

/** The parts of a chain's time: by lane that works, and by reason of the gaps between runs. */
const sharesOf = (timeline: Timeline, { spans, us, ticks }: CriticalPath): string => {
  const parts = new Map<string, number>()
  const put = (what: string, time: number) => parts.set(what, (parts.get(what) ?? 0) + time)
  for (const span of spans) {
    put(laneName(timeline.plan, span.lane), span.end - span.start)
    if (ticks === 0 && span === spans[0]) continue
    const host =
      span.cause === 'issue' || span.cause === 'queue' || span.cause === 'tick' || span.cause === 'feed'
    put(host ? 'waiting for the host' : 'between operations', gapOf(span, timeline))
  }
  return [...parts]
    .filter(([, time]) => time >= us / 200)
    .sort(([, a], [, b]) => b - a)
    .map(([what, time]) => `${what} ${timeOf(time)}`)
    .join(', ')
}

/** Longer groups of operations are shown by their first and last. */
const few = 4

const pathLines = (timeline: Timeline, path: CriticalPath): Line[] => {
  const { plan } = timeline
  const said = stretches(path).flatMap(stretch =>
    stretch.length > few ? [stretch] : stretch.map(span => [span]),
  )
  const rows = said.map(spans => {
    const [first, last] = [spans[0]!, spans[spans.length - 1]!]
    const name = (span: Span) => nodeName(plan, span.node)
    const names = spans.length === 1 ? name(first) : `${name(first)} … ${name(last)} (${spans.length})`
    return {
      lane: laneName(plan, first.lane),
      names,
      time: timeOf(last.end - first.start),
      why: `${because(first, timeline)}${spans.length === 1 ? '' : ', then one after the other'}`,
      at: placeOf(plan.nodes[first.node]),
    }
  })
  const width = (of: (row: (typeof rows)[number]) => string) =>
    rows.reduce((most, row) => Math.max(most, of(row).length), 0)
  const [lanes, names, times] = [
    width(({ lane }) => lane),
    width(({ names }) => names),
    width(({ time }) => time),
  ]
  return rows.map(row => ({
    says: `${row.lane.padEnd(lanes)}  ${row.names.padEnd(names)}  ${row.time.padStart(times)}  ${row.why}`,
    at: row.at,
  }))
}

/** One line that names what sets the pace. */
export const paceText = (timeline: Timeline, { path }: Bounds): string => {
  if (path.spans.length === 0) return ''
  const shares = sharesOf(timeline, path)
  if (path.ticks > 1) return `what sets the pace, over ${path.ticks} ticks: ${shares}`
  if (path.ticks > 0) return `what sets the pace: ${shares}`
  return path.spans[0]!.cause === 'issue'
    ? 'the host sets the pace: it issues operations no faster than the device does them'
    : `ticks do not wait for each other; the longest chain of one: ${shares}`
}

/** The section's lines. Empty where the work of every operation is unknown. */
export const boundsText = (timeline: Timeline, bounds: Bounds): string[] => {
  const { machine, tickUs, path, lanes, exposedUs, exposed, unknown } = bounds
  if (unknown === timeline.plan.nodes.length) return []
  const silent =
    unknown === 0
      ? ''
      : `; ${plural(unknown, 'operation')} of unknown work ${unknown === 1 ? 'is' : 'are'} taken for a launch`
  const [first] = path.spans
  const what =
    path.ticks > 0
      ? `a chain that comes round again every ${path.ticks === 1 ? 'tick' : `${path.ticks} ticks`}`
      : first?.cause === 'issue'
        ? 'the host, which issues operations no faster than the device does them; the last chain of a tick'
        : 'ticks do not wait for each other; the longest chain of one'
  const shared = timeline.plan.nodes.some(({ collective }) => collective !== undefined)
  const longest = exposed.slice(0, few).map(({ name, us }) => `${name} ${timeOf(us)}`)
  const names =
    exposed.length > few ? `${longest.join(', ')} and ${exposed.length - few} more` : joinNames(longest)
  return [
    ...section(
      `what bounds the tick (${timeline.steady ? '' : 'about '}${timeOf(tickUs)} on ${machine}, predicted)`,
      `${what}, ${timeOf(path.us)}${silent}`,
      [
        ...pathLines(timeline, path),
        { says: `that time: ${sharesOf(timeline, path)}` },
        {
          says: `busiest lane: ${lanes
            .filter(({ us }) => us > 0)
            .map(({ name, us }) => `${name} ${percent(us, tickUs)}`)
            .join(', ')}`,
        },
        {
          says:
            exposed.length === 0
              ? `every ${shared ? 'copy and collective' : 'copy'} runs beside other work`
              : `exposed: for ${timeOf(exposedUs)} a tick only ${
                  shared ? 'copies and collectives' : 'copies'
                } run: ${names}`,
        },
      ],
    ),
  ]
}
