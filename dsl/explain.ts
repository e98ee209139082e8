import { dotOf } from './explain/dot.js'
import { perfettoOf } from './explain/perfetto.js'
import { reasonsOf } from './explain/reasons.js'
import { textOf } from './explain/text.js'
import type { Plan } from './ir/plan.js'

export type { Reasons, WaitFor } from './explain/reasons.js'

/**
 * Why a plan is as it is, from the plan alone: for each wait the two operations it orders, and whether for data, for state or for memory; for each use the access it stands for,
 * for each of either that is not there what orders it already; lanes, bound, and what is in memory at the peak. As text; as
 * JSON of the same; as a graph in DOT; or as a timeline for Perfetto, in the plan's own order with guessed durations.
 */
export const explain = (plan: Plan, as: 'text' | 'json' | 'dot' | 'perfetto' = 'text'): string => {
  switch (as) {
    case 'dot':
      return dotOf(plan)
    case 'perfetto':
      return perfettoOf(plan)
    case 'json':
      return `${JSON.stringify(reasonsOf(plan), null, 2)}\n`
    default:
      return textOf(plan, reasonsOf(plan), [])
  }
}
