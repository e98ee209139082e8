import type { Plan } from '../ir/plan.js'
import type { Machine } from '../machine/machine.js'
import { boundsOf, boundsText } from './facts/bounds.js'
import { predicted } from './facts/predicted.js'
import { type Reasons, reasonsOf } from './facts/reasons.js'
import { dotOf } from './render/dot.js'
import { perfettoOf } from './render/perfetto.js'
import { timelineSvg } from './render/svg.js'
import { textOf } from './render/text.js'

export type { Held, HeldPart, Why } from '../memory/held.js'
export type { Bounds, Exposed } from './facts/bounds.js'
export type { Reasons, WaitFor } from './facts/reasons.js'

/** The forms of an explanation. */
export const explanations = ['text', 'json', 'dot', 'perfetto', 'svg'] as const
export type Explanation = (typeof explanations)[number]

export interface ExplainOptions {
  /** The machine for the prediction, by name or description. Default: `h200`. */
  readonly machine?: Machine | string | undefined
}

/** Entries of one list that the JSON holds at most, since a string has a greatest length. */
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
 * Explains a plan from the plan alone: for each wait the two operations that it orders, and whether for data,
 * state or memory; for each use the access that it stands for; for each wait or use that is absent, what
 * orders the two operations already; the lanes and windows; what sets the tick's time on a machine; and which
 * buffers hold the bytes of the peak.
 * The forms: `text`; `json` (of each list at most 100,000 entries, and its length in `counts`); `dot`, a
 * graph for Graphviz; `perfetto`, a predicted timeline in Chrome's trace format; `svg`, the same as a
 * picture. The compiler's choices are explained only for a plan that this process compiled. The plan must be
 * one for which `verify(plan, { safety: true })` finds nothing. Deterministic. Throws a `BraidError` where
 * `machine` is not a machine.
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
      const parts = { ...shortened(reasonsOf(plan)), ...(timing === undefined ? {} : { timing }) }
      return `${JSON.stringify(parts, null, 2)}\n`
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
