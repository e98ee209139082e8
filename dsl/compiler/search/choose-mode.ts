import * as E from 'fp-ts/lib/Either.js'
import { pipe } from 'fp-ts/lib/function.js'
import type { Plan } from '../../ir/plan.js'
import { workOf } from '../../machine/simulate/plan-workload.js'
import { fullest } from '../analysis/device-of.js'
import type { Checked } from '../analysis/ir.js'
import type { Settings } from '../analysis/options.js'
import type { Passed } from '../analysis/pass.js'
import { worth } from '../analysis/predict.js'
import { type Modes, provenanceOf, recordProvenance } from '../analysis/provenance.js'
import { cheap, mostSimulated, tickOf } from './choose-arenas.js'
import { chooseFusion, leastOf } from './choose-fusion.js'

/**
 * Where the program does not say `memory`, graph mode may hold so many bytes more than eager mode, if they
 * are more than `cheap` allows: as many as a library's product takes as its workspace.
 */
const few = 2 ** 25

/** Bytes that a plan in graph mode may hold where an eager one holds so many. */
const allowed = (bytes: number, { memoryIsGiven }: Settings): number =>
  memoryIsGiven ? Number.POSITIVE_INFINITY : Math.floor(Math.max(cheap * bytes, bytes + few))

/** The same of each device: never more than a device of the machine has, where the eager plan fits it. */
const allowedOnDevice = (bytes: number, settings: Settings): number => {
  const { memory } = settings.machine.device
  return Math.min(allowed(bytes, settings), bytes > memory ? Number.POSITIVE_INFINITY : memory)
}

/** Whether a launch stands for more than one call, in a tick that is more than one. */
const savesCalls = ({ graphs = [], commands }: Plan): boolean => {
  const runsIn = (from: number, to: number): number =>
    commands.slice(from, to).filter(([op]) => op === 'run').length
  const inside = graphs.reduce((sum, { from, to }) => sum + runsIn(from, to), 0)
  return inside > graphs.length || (inside === 1 && runsIn(0, commands.length) === 1)
}

/**
 * Whether ticks in flight copy in one direction more than once each, on lanes of their own: which copy comes
 * next is then up to the device, and ticks may end together where one after the other would keep the link
 * busy.
 */
const competesForLink = (plan: Plan): boolean => {
  if ((plan.arenas ?? 1) === 1) return false
  const count = { upload: 0, download: 0 }
  for (const [op, subject, , reads, writes] of plan.commands) {
    if (op !== 'run') continue
    const { kind } = workOf(plan, plan.nodes[subject]!, reads, writes)
    if (kind === 'upload' || kind === 'download') count[kind]++
  }
  return Math.max(count.upload, count.download) > 1
}

/** Why graph mode is not taken; empty where it is. */
const againstGraph = (
  eager: Plan,
  graph: Plan,
  { settings, ticks }: { readonly settings: Settings; readonly ticks: Pick<Modes, 'eager' | 'graph'> },
): string => {
  const [less, more] = [fullest(eager.bound), fullest(graph.bound)]
  if (settings.memory === 'small' && less !== more) return more < less ? '' : `it holds ${more} bytes`
  if (graph.nodes.some(({ collective }) => collective !== undefined))
    return 'it has collectives, beside which no graph was measured'
  if (!savesCalls(graph)) return 'no launch of a graph would take the place of several calls'
  const most = allowedOnDevice(less, settings)
  if (more > settings.machine.device.memory && more > most)
    return `it holds ${more} bytes, of ${settings.machine.device.memory} that a device of the machine has`
  if (more > most) return `it holds ${more} bytes, of at most ${most} where memory is not given`
  const mostPinned = allowed(eager.bound.pinned, settings)
  if (graph.bound.pinned > mostPinned)
    return `it holds ${graph.bound.pinned} bytes of pinned memory, of at most ${mostPinned} where memory is not given`
  if (ticks.graph < ticks.eager * (1 - worth)) return ''
  if (ticks.graph > ticks.eager * (1 + worth)) return 'its tick is longer'
  // A launch costs less than the machine's figures say of the calls that it replaces, by some microseconds a
  // tick.
  if (more > cheap * less) return `its tick is as long, and it holds ${more} bytes`
  return competesForLink(graph) ? 'its tick is as long, and ticks would compete for the link' : ''
}

const explained = (plan: Plan, modes: Modes, { memory }: Settings): Plan => {
  const provenance = provenanceOf(plan)!
  recordProvenance(plan, { ...provenance, decisions: { ...provenance.decisions, memory, modes } })
  return plan
}

/**
 * Under `mode: 'auto'` the graph is planned eagerly and as an executable graph, and the plan with the shorter
 * predicted tick is taken. Where no prediction tells them apart that is the one in graph mode, if it costs
 * few bytes: see `againstGraph`. Where the program does not say `memory`, the plan in graph mode holds little
 * more than the eager one. With `memory: 'small'` the one that holds less is taken. Where one of them does
 * not fit, the other one is; where neither does, the error is that of the smaller one. Of so many operations
 * that nothing is predicted, the eager plan alone is made.
 */
export const chooseMode =
  (lowered: (ir: Checked) => Passed<Plan>) =>
  (ir: Checked): Passed<Plan> => {
    const { settings } = ir
    const planned = chooseFusion(lowered)
    if (settings.mode !== 'auto') return planned(ir)
    const eager = planned({ ...ir, settings: { ...settings, mode: 'eager' } })
    if (ir.nodes.length > mostSimulated) return eager
    const inGraphs = (memory: Settings['memory']): Passed<Plan> =>
      planned({ ...ir, settings: { ...settings, mode: 'graph', storage: 'planned', memory } })
    const graph = inGraphs(settings.memory)
    if (E.isLeft(eager) && E.isLeft(graph)) return leastOf(graph) < leastOf(eager) ? graph : eager
    if (E.isLeft(eager) || E.isLeft(graph)) return E.isLeft(eager) ? graph : eager
    const compared = (other: Plan): { readonly taken: Plan; readonly modes: Modes } => {
      const ticks = { eager: tickOf(eager.right, settings), graph: tickOf(other, settings) }
      const against = againstGraph(eager.right, other, { settings, ticks })
      return { taken: against === '' ? other : eager.right, modes: { ...ticks, against } }
    }
    let found = compared(graph.right)
    const most = allowedOnDevice(fullest(eager.right.bound), settings)
    const isShorter = found.modes.graph < found.modes.eager * (1 - worth)
    // Fewer arenas or lanes may do in the bytes that there are.
    if (fullest(graph.right.bound) > most && isShorter)
      found = pipe(
        inGraphs(most),
        E.map(compared),
        E.getOrElse(() => found),
      )
    return E.right(explained(found.taken, found.modes, settings))
  }
