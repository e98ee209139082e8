import * as E from 'fp-ts/lib/Either.js'
import type { Plan } from '../../ir/plan.js'
import { fullest } from '../analysis/device-of.js'
import type { Lowered } from '../analysis/ir.js'
import type { Passed } from '../analysis/pass.js'
import { provenanceOf, recordProvenance } from '../analysis/provenance.js'
import { chooseArenas, mostPredicted, tickOf, worth } from './choose-arenas.js'

/**
 * Under `mode: 'auto'` the graph is planned eagerly and as an executable graph, and the plan with the shorter
 * predicted tick is taken; the eager one where no prediction tells them apart. With `memory: 'small'` the one
 * that holds less is taken. Where one of them does not fit, the other one is. A plan in graph mode has one
 * arena or several: see `chooseArenas`.
 */
export const chooseMode =
  (planned: (ir: Lowered) => Passed<Plan>) =>
  (ir: Lowered): Passed<Plan> => {
    const { settings } = ir
    const inGraphs = chooseArenas(planned)
    if (settings.mode === 'eager') return planned(ir)
    if (settings.mode === 'graph') return inGraphs(ir)
    const eager = planned({ ...ir, settings: { ...settings, mode: 'eager' } })
    if (ir.operations.length > mostPredicted) return eager
    const graph = inGraphs(ir)
    if (E.isLeft(eager) || E.isLeft(graph)) return E.isRight(graph) ? graph : eager
    const modes = { eager: tickOf(eager.right, settings), graph: tickOf(graph.right, settings) }
    const bytes = fullest(graph.right.bound) - fullest(eager.right.bound)
    const isLess = settings.memory === 'small' && bytes !== 0 ? bytes < 0 : undefined
    const chosen = (isLess ?? modes.graph < modes.eager * (1 - worth)) ? graph.right : eager.right
    const provenance = provenanceOf(chosen)!
    recordProvenance(chosen, { ...provenance, decisions: { ...provenance.decisions, modes } })
    return E.right(chosen)
  }
