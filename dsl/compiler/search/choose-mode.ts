import * as E from 'fp-ts/lib/Either.js'
import type { Plan } from '../../ir/plan.js'
import { workloadOf } from '../../machine/simulate/plan-workload.js'
import { playUntilSteady } from '../../machine/simulate/steady-state.js'
import { fullest } from '../analysis/device-of.js'
import type { Lowered } from '../analysis/ir.js'
import type { Settings } from '../analysis/options.js'
import type { Passed } from '../analysis/pass.js'
import { provenanceOf, recordProvenance } from '../analysis/provenance.js'

/** Runs of all simulated ticks, at most. */
const played = 2 ** 15
/** Up to so many operations ticks are predicted; a longer plan is issued eagerly. */
const mostPredicted = 2 ** 13
/** Predictions do not tell ticks apart that differ by less than this part. */
const worth = 0.01

/** Predicted nanoseconds from tick to tick, the program's own thread included. */
const tickOf = (plan: Plan, { machine, profile }: Settings): number => {
  const workload = workloadOf(plan, machine, profile)
  if (workload.runs === 0) return 0
  const most = Math.max(4, Math.floor(played / workload.runs) - plan.inFlight)
  return Math.max(playUntilSteady(workload, Math.min(64, most)).pace.tick, workload.usage.power)
}

/**
 * Under `mode: 'auto'` the graph is planned eagerly and as an executable graph, and the plan with the shorter
 * predicted tick is taken; the eager one where no prediction tells them apart. With `memory: 'small'` the one
 * that holds less is taken. Where one of them does not fit, the other one is.
 */
export const chooseMode =
  (planned: (ir: Lowered) => Passed<Plan>) =>
  (ir: Lowered): Passed<Plan> => {
    const { settings } = ir
    if (settings.mode !== 'auto') return planned(ir)
    const eager = planned({ ...ir, settings: { ...settings, mode: 'eager' } })
    if (ir.operations.length > mostPredicted) return eager
    const graph = planned({ ...ir, settings: { ...settings, mode: 'graph', storage: 'planned' } })
    if (E.isLeft(eager) || E.isLeft(graph)) return E.isRight(graph) ? graph : eager
    const modes = { eager: tickOf(eager.right, settings), graph: tickOf(graph.right, settings) }
    const bytes = fullest(graph.right.bound) - fullest(eager.right.bound)
    const isLess = settings.memory === 'small' && bytes !== 0 ? bytes < 0 : undefined
    const chosen = (isLess ?? modes.graph < modes.eager * (1 - worth)) ? graph.right : eager.right
    const provenance = provenanceOf(chosen)!
    recordProvenance(chosen, { ...provenance, decisions: { ...provenance.decisions, modes } })
    return E.right(chosen)
  }
