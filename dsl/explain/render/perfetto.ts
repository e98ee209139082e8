import { planName } from '../../ir/names.js'
import type { Plan } from '../../ir/plan.js'
import { because } from '../facts/bounds.js'
import { criticalPath } from '../facts/critical.js'
import type { Timeline } from '../facts/timeline.js'
import { traceJson } from './trace-json.js'

/** Runs that a trace has at most: of a larger plan only the tick shown and its neighbours are written. */
const most = 100_000

/**
 * A predicted timeline as a trace for Perfetto. Operations of the chain that sets the pace have the category
 * `pace`.
 */
export const perfettoOf = (plan: Plan, timeline: Timeline | undefined): string => {
  const all = timeline?.spans ?? []
  const spans = all.length <= most ? all : all.filter(({ tick }) => Math.abs(tick - timeline!.tick) <= 1)
  const pace = new Set(timeline === undefined ? [] : criticalPath(timeline).spans)
  const chunks = traceJson(plan, spans, {
    process: `${planName(plan)}, predicted for ${timeline?.machine ?? 'nothing'}`,
    category: span => (pace.has(span) ? `${span.resource},pace` : span.resource),
    args: span => ({ because: because(span, timeline!) }),
  })
  return [...chunks].join('')
}
