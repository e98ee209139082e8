import { laneName, nodeName, placeOf } from '../../ir/names.js'
import type { Plan } from '../../ir/plan.js'
import { arrowsOf } from '../arrows.js'
import { because } from '../bounds.js'
import { criticalPath } from '../critical.js'
import { usageOf } from '../memory.js'
import type { Timeline } from '../timeline.js'

/** Runs that are written at most: a trace is opened in a browser. */
const most = 100_000

/**
 * What a machine is predicted to do, in Chrome's trace format: a process for each device with a row for each lane, an arrow for each wait, and a counter of the memory in
 * use beside the bound. Every tick that was predicted is there, of a large plan the settled one and its neighbours; operations of the chain that sets the pace are in the category `pace`.
 */
export const perfettoOf = (plan: Plan, timeline: Timeline | undefined): string => {
  const named = (name: string, pid: number, tid: number, to: string) => ({
    ph: 'M',
    pid,
    tid,
    name,
    args: { name: to },
  })
  const all = timeline?.spans ?? []
  const spans = all.length <= most ? all : all.filter(({ tick }) => Math.abs(tick - timeline!.tick) <= 1)
  const pace = new Set(timeline === undefined ? [] : criticalPath(timeline).spans)
  const events: object[] = []
  for (let device = 0; device < plan.devices; device++) {
    const on = plan.devices > 1 ? ` on device ${device}` : ''
    events.push(
      named('process_name', device, 0, `${plan.name}${on}, predicted for ${timeline?.machine ?? 'nothing'}`),
    )
  }
  const device = (lane: number): number => plan.lanes[lane]!.device
  for (const { id } of plan.lanes) {
    events.push(named('thread_name', device(id), id, laneName(plan, id)))
    events.push({ ph: 'M', pid: device(id), tid: id, name: 'thread_sort_index', args: { sort_index: id } })
  }
  for (const span of spans) {
    const { tick, node, lane, start, end, resource } = span
    const at = placeOf(plan.nodes[node])
    events.push({
      ph: 'X',
      pid: device(lane),
      tid: lane,
      ts: start,
      dur: end - start,
      name: nodeName(plan, node),
      cat: pace.has(span) ? `${resource},pace` : resource,
      args: { tick, because: because(span, timeline!), ...(at === '' ? {} : { at }) },
    })
  }
  const first = spans[0]?.tick ?? 0
  const perTick = spans.length === 0 ? 0 : spans.length / (spans[spans.length - 1]!.tick - first + 1)
  const waits = arrowsOf(plan)
  for (let begin = 0; begin < spans.length; begin += perTick)
    waits.forEach(({ from, to, ticks, event }, i) => {
      const [before, after] = [spans[begin - ticks * perTick + from], spans[begin + to]]
      if (before === undefined || after === undefined) return
      const id = (begin / perTick) * waits.length + i
      const flow = { cat: 'wait', name: `e${event}`, id }
      // Perfetto binds a flow to what runs at that moment: within both operations, not at their edges.
      const inside = (span: typeof before) => Math.min(1e-3, (span.end - span.start) / 2)
      events.push({
        ph: 's',
        pid: device(before.lane),
        tid: before.lane,
        ts: before.end - inside(before),
        ...flow,
      })
      events.push({
        ph: 'f',
        bp: 'e',
        pid: device(after.lane),
        tid: after.lane,
        ts: after.start + inside(after),
        ...flow,
      })
    })
  if (timeline !== undefined)
    for (let d = 0; d < plan.devices; d++)
      for (const { us, bytes } of usageOf({ ...timeline, spans }, d))
        events.push({
          ph: 'C',
          pid: d,
          tid: 0,
          ts: us,
          name: 'device memory, bytes',
          args: { 'in use': bytes, bound: plan.bound.device[d] ?? 0 },
        })
  return `${JSON.stringify({ traceEvents: events, displayTimeUnit: 'ns' })}\n`
}
