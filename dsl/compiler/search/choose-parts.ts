import * as E from 'fp-ts/lib/Either.js'
import type { Plan } from '../../ir/plan.js'
import { fullest } from '../analysis/device-of.js'
import type { Checked } from '../analysis/ir.js'
import type { Passed } from '../analysis/pass.js'
import { worth } from '../analysis/predict.js'
import { provenanceOf, recordProvenance } from '../analysis/provenance.js'
import { type LongLines, longLinesOf, split } from '../passes/split.js'
import { tickOf } from './choose-arenas.js'
import { leastOf, mostCompared } from './choose-fusion.js'

/** Lines that are listed for `explain`, at most. */
const mostListed = 4096

type Ticks = { readonly parts: number; readonly whole: number }

const explained = (plan: Plan, { nodes }: Checked, lines: LongLines, ticks?: Ticks): Plan => {
  const provenance = provenanceOf(plan)!
  const listed = [...lines].slice(0, mostListed).map(([id, parts]) => {
    const { name, at } = nodes[id]!
    return { name, parts, at }
  })
  const parts = { lines: listed, ...(ticks === undefined ? {} : { ticks }) }
  recordProvenance(plan, { ...provenance, decisions: { ...provenance.decisions, parts } })
  return plan
}

/**
 * Plans the graph with its long lines in parts, and as wholes, and takes the plan with the shorter predicted
 * tick: a row that one kernel reads, normalises and writes may be done sooner by the few blocks of threads
 * that have a row each. Where no prediction tells the two apart that is the one with parts; with `memory:
 * 'small'` the one that holds less. A large graph is planned in parts alone.
 */
export const chooseParts =
  (planned: (ir: Checked) => Passed<Plan>) =>
  (ir: Checked): Passed<Plan> => {
    const lines = longLinesOf(ir)
    if (lines.size === 0) return planned(ir)
    const parts = planned(split({ ir, lines }))
    if (ir.nodes.length > mostCompared) return E.map((plan: Plan) => explained(plan, ir, lines))(parts)
    const whole = planned(ir)
    if (E.isLeft(parts)) return E.isRight(whole) || leastOf(whole) < leastOf(parts) ? whole : parts
    if (E.isLeft(whole)) return E.right(explained(parts.right, ir, lines))
    const { settings } = ir
    const [less, more] = [fullest(whole.right.bound), fullest(parts.right.bound)]
    if (settings.memory === 'small' && less !== more)
      return less < more ? whole : E.right(explained(parts.right, ir, lines))
    const ticks = { parts: tickOf(parts.right, settings), whole: tickOf(whole.right, settings) }
    return ticks.parts > ticks.whole * (1 + worth) ? whole : E.right(explained(parts.right, ir, lines, ticks))
  }
