import type { Plan } from '../../ir/plan.js'
import { because } from '../bounds.js'
import { criticalPath } from '../critical.js'
import type { Timeline } from '../timeline.js'
import { traceJson } from './trace-json.js'

/** Runs that are written at most: of a larger plan the tick that the explanation is about, and its neighbours. */
const most = 100_000

/** What a machine is predicted to do, as Perfetto shows it. Operations of the chain that sets the pace are in the category `pace`. */
export const perfettoOf = (plan: Plan, timeline: Timeline | undefined): string => {
  const all = timeline?.spans ?? []
  const spans = all.length <= most ? all : all.filter(({ tick }) => Math.abs(tick - timeline!.tick) <= 1)
  const pace = new Set(timeline === undefined ? [] : criticalPath(timeline).spans)
  const chunks = traceJson(plan, spans, {
    process: `${plan.name}, predicted for ${timeline?.machine ?? 'nothing'}`,
    category: span => (pace.has(span) ? `${span.resource},pace` : span.resource),
    args: span => ({ because: because(span, timeline!) }),
  })
  return [...chunks].join('')
}
