import type { Plan } from '../ir/plan.js'
import type { Machine } from '../machine/machine.js'
import { boundsOf, boundsText } from './bounds.js'
import { predicted } from './predicted.js'
import { type Reasons, reasonsOf } from './reasons.js'
import { dotOf } from './render/dot.js'
import { perfettoOf } from './render/perfetto.js'
import { timelineSvg } from './render/svg.js'
import { textOf } from './render/text.js'

export type { Held, HeldPart, Why } from '../memory/held.js'
export type { Bounds, Exposed } from './bounds.js'
export type { Reasons, WaitFor } from './reasons.js'

/** The forms of an explanation, in the order in which they are offered. */
export const explanations = ['text', 'json', 'dot', 'perfetto', 'svg'] as const
export type Explanation = (typeof explanations)[number]

export interface ExplainOptions {
  /** What is predicted to run the plan: a machine by name or description. Default: `h200`. */
  readonly machine?: Machine | string | undefined
}

/** Entries of one list that are written: those of a plan of a million commands are more than one string can hold. */
const entries = 100_000

const shortened = (reasons: Reasons): object => {
  const { waits, uses, elidedWaits, elidedUses, takeovers } = reasons
  const lists = { waits, uses, elidedWaits, elidedUses, takeovers }
  const counts = Object.fromEntries(Object.entries(lists).map(([name, list]) => [name, list.length]))
  return {
    ...reasons,
    counts,
    ...Object.fromEntries(Object.entries(lists).map(([name, list]) => [name, list.slice(0, entries)])),
  }
}

/**
 * Why a plan is as it is, from the plan alone: for each wait the two operations it orders, and whether for data, for state or for memory; for each use the access it stands for,
 * for each of either that is not there what orders it already; the lanes and windows; what sets a tick's time on a machine; and whose each byte is at the peak.
 * As `text`; as `json` of the same (of each list 100,000 entries at most, and how many there are in `counts`); as a graph in DOT; as a timeline for Perfetto (Chrome's trace format) or as an SVG for documents, both as `simulate` predicts it. Of a
 * plan that this process did not compile it says what can be known; it is to be one for which `verify(plan, { safety: true })` finds nothing. Deterministic. Throws a
 * `BraidError` for what is no machine.
 */
export const explain = (plan: Plan, as: Explanation = 'text', options: ExplainOptions = {}): string => {
  const { machine = 'h200' } = options
  switch (as) {
    case 'dot':
      return dotOf(plan)
    case 'perfetto':
      return perfettoOf(plan, predicted(plan, machine))
    case 'svg':
      return timelineSvg(plan, predicted(plan, machine))
    case 'json': {
      const timeline = predicted(plan, machine)
      const timing = timeline && boundsOf(timeline)
      return `${JSON.stringify({ ...shortened(reasonsOf(plan)), ...(timing === undefined ? {} : { timing }) }, null, 2)}\n`
    }
    case 'text': {
      const timeline = predicted(plan, machine)
      return textOf(
        plan,
        reasonsOf(plan),
        timeline === undefined ? [] : boundsText(timeline, boundsOf(timeline)),
      )
    }
  }
}
