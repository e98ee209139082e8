import * as E from 'fp-ts/lib/Either.js'
import type { Plan } from '../../ir/plan.js'
import { fullest } from '../analysis/device-of.js'
import type { Checked } from '../analysis/ir.js'
import type { Settings } from '../analysis/options.js'
import { type Passed, pass } from '../analysis/pass.js'
import { worth } from '../analysis/predict.js'
import { type Fusion, provenanceOf, recordProvenance } from '../analysis/provenance.js'
import { storedWithout } from '../passes/fuse/edges.js'
import type { Effort } from '../passes/fuse/regions.js'
import { type Fused, fuse as fuseKernels } from '../passes/fuse.js'
import { latencyOf, mostSimulated, tickOf } from './choose-arenas.js'

const explained = (plan: Plan, fusion: Fusion, ir: Checked): Plan => {
  const { memory } = ir.settings
  const provenance = provenanceOf(plan)!
  recordProvenance(plan, { ...provenance, decisions: { ...provenance.decisions, memory, fusion } })
  return plan
}

/**
 * Operations of a graph up to which `compile` fuses unless the user says otherwise: for that it plans a graph
 * twice, which takes too long of larger ones.
 */
const mostByDefault = 2 ** 18

const isLarge = ({ nodes }: Checked): boolean => nodes.length > mostSimulated

/**
 * Operations of a graph up to which fusing is tried in each mode, with many sets of regions, and whole plans
 * are simulated to compare them: of more, each of these takes longer than what it may find is worth.
 */
export const mostCompared = 2 ** 11

const triesFew = (ir: Checked): boolean =>
  isLarge(ir) || (ir.settings.mode === 'graph' && ir.nodes.length > mostCompared)

/**
 * Predictions of a plan; of a graph of many operations, those that were made of the order that was chosen for
 * it.
 */
const predicted = (what: 'tick' | 'latency', plan: Plan, { nodes, settings }: Checked): number => {
  if (nodes.length > mostCompared) return provenanceOf(plan)!.decisions.choice!.chosen[what]
  return what === 'tick' ? tickOf(plan, settings) : latencyOf(plan, settings)
}

/**
 * What is worse about a plan than about the plan that fuses nothing; undefined where nothing is. Within bytes
 * that the user gave a plan may hold more than another one.
 */
const worse = (plan: Plan, plain: Plan, ir: Checked): string | undefined => {
  const { settings } = ir
  const { device, pinned } = plan.bound
  const isGiven = typeof settings.memory === 'number'
  const grown = isGiven ? -1 : device.findIndex((bytes, d) => bytes > plain.bound.device[d]!)
  if (grown >= 0) return `it holds at least ${device[grown]! - plain.bound.device[grown]!} bytes more`
  if (pinned > plain.bound.pinned)
    return `it holds ${pinned - plain.bound.pinned} bytes of pinned memory more`
  if (ir.nodes.length > mostCompared && plan.boundKind === 'enforced' && plain.boundKind !== 'enforced')
    return 'its ticks would follow one another to keep the bound'
  if (isLarge(ir)) return undefined
  const [tick, before] = [predicted('tick', plan, ir), predicted('tick', plain, ir)]
  const shown = (nanoseconds: number): string => `${(nanoseconds / 1000).toFixed(2)} µs`
  if (tick > before * (1 + worth)) return `a tick of ${shown(tick)} instead of ${shown(before)}`
  const [latency, earlier] = [predicted('latency', plan, ir), predicted('latency', plain, ir)]
  return latency > earlier * (1 + worth)
    ? `a tick alone ends after ${shown(latency)} instead of ${shown(earlier)}`
    : undefined
}

/**
 * Plans a fused graph. A plan that holds more than the one that fuses nothing may do so because of another
 * order or more lanes: unless the graph is large it is planned anew within the bytes of that one. The replay of a pool ends where it takes more than the plan that fuses nothing holds: in
 * the first tick, and in a later one where that plan's bound is enforced too, or the graph is large.
 */
const noLarger =
  (planned: (ir: Checked) => Passed<Plan>, isLarge: boolean) =>
  (fused: Checked, plain: Passed<Plan>): Passed<Plan> => {
    if (E.isLeft(plain) || fused.settings.memory !== 'fast') return planned(fused)
    const { bound, boundKind: kind } = plain.right
    const { device, pinned } = bound
    const inTick = isLarge || kind === 'enforced' ? 'any tick' : 'first tick'
    const within = (bytes: readonly number[], memory: Settings['memory']): Checked => ({
      ...fused,
      settings: { ...fused.settings, memory, enough: { bytes, in: inTick } },
    })
    const plan = planned(within([...device, pinned], 'fast'))
    if (isLarge || E.isLeft(plan) || plan.right.bound.device.every((bytes, d) => bytes <= device[d]!))
      return plan
    const memory = fullest(bound)
    const less = planned(within([...device.map(() => memory), Number.POSITIVE_INFINITY], memory))
    return E.isRight(less) ? less : plan
  }

const fusing = pass('fuse', ({ ir, effort }: { readonly ir: Checked; readonly effort: Effort }) =>
  fuseKernels(effort)(ir),
)

type Fuse = (ir: Checked, effort: Effort) => Fused

/**
 * Fuses one graph for all modes and limits of memory, which change no kernel: each effort is made once, unless
 * the graph is so large that no form of it is kept.
 */
const fusedOnce = (): Fuse => {
  const known = new Map<Effort, { readonly from: Checked; readonly fused: Fused }>()
  return (ir, effort) => {
    if (isLarge(ir)) return fusing({ ir, effort })
    const { from, fused } = known.get(effort) ?? { from: ir, fused: fusing({ ir, effort }) }
    known.set(effort, { from, fused })
    return { ...fused, ir: fused.ir === from ? ir : { ...fused.ir, settings: ir.settings } }
  }
}

/** Operations of a graph up to which more than one way to fuse it is tried: each one costs a plan. */
const mostRetried = 2 ** 16

/**
 * The graph with fused kernels, with less and less effort, each of which finds something else; of a large
 * graph the most and the least, or the most alone.
 */
function* attempts(ir: Checked, fuse: Fuse): Generator<Fused> {
  const few = triesFew(ir)
  let differs: Fused['differs'] = { several: !few, free: !few }
  for (const effort of ['wide', 'several', 'free', 'lean'] as const) {
    if (effort !== 'wide' && ir.nodes.length > mostRetried) return
    if (effort !== 'wide' && effort !== 'lean' && !differs[effort]) continue
    const fused = fuse(ir, effort)
    if (!few) differs = fused.differs
    yield fused
  }
}

/** The bytes that a plan holds; of one that does not fit, those that would do; of other errors, infinite. */
export const leastOf = (plan: Passed<Plan>): number => {
  if (E.isRight(plan)) return fullest(plan.right.bound)
  const [{ _tag, parts = [] }] = plan.left
  return _tag === 'OverBudget' ? parts.reduce((sum, { bytes }) => sum + bytes, 0) : Number.POSITIVE_INFINITY
}

type Chosen = {
  readonly plan: Passed<Plan>
  /** The graph that was planned. */
  readonly of: Checked
}

/** The plan that is taken of the graph as it is and of those with fused kernels. */
const chosen = (planned: (ir: Checked) => Passed<Plan>, fuse: Fuse, ir: Checked): Chosen => {
  const plain = planned(ir)
  const rejected: string[] = []
  const isSmall = ir.settings.memory === 'small'
  const again = noLarger(planned, isLarge(ir))
  let least: Chosen & { readonly fusion?: Fused['fusion'] } = { plan: plain, of: ir }
  let last: Fused['fusion'] | undefined
  for (const { ir: fused, fusion } of attempts(ir, fuse)) {
    last = fusion
    const plan = fused === ir ? plain : again(fused, plain)
    const bytes = leastOf(plan)
    const isSame = Number.isFinite(bytes) && bytes === leastOf(plain) && least.fusion === undefined
    const against = E.isLeft(plan) || E.isLeft(plain) ? undefined : worse(plan.right, plain.right, ir)
    const isTaken = E.isRight(plan) && against === undefined && !isSmall
    if (isTaken) return { plan: E.right(explained(plan.right, { ...fusion, rejected }, ir)), of: fused }
    const isLeast = bytes < leastOf(least.plan) || (isSame && against === undefined)
    if (isLeast) least = { plan, of: fused, fusion }
    if (against !== undefined && !(isLeast && isSmall) && !rejected.includes(against)) rejected.push(against)
  }
  const { plan, of, fusion } = isSmall || E.isLeft(plain) ? least : { plan: plain, of: ir }
  const without = () =>
    ({ effort: 'none', kernels: 0, regions: [], apart: storedWithout(ir, last!) }) as const
  const taken = E.map((taken: Plan) => explained(taken, { ...(fusion ?? without()), rejected }, ir))(plan)
  return { plan: taken, of }
}

/**
 * Unless `fuse` is false the graph is planned as it is and with fused kernels. The fused plan is taken where
 * it holds no more memory, or no more than the user gave, and its predicted tick is no longer; else the same
 * is tried without siblings in one kernel, then without kernels of several results, then what surely costs
 * neither, and if that is worse too, nothing is fused. With `memory: 'small'` the plan that holds least is
 * taken. Where none fits, `memory: 'small'` only chooses the graph: that graph is planned again with the
 * user's `memory`, and its error is returned. The function that it returns is for one graph, in all modes.
 */
export const chooseFusion = (planned: (ir: Checked) => Passed<Plan>): ((ir: Checked) => Passed<Plan>) => {
  const fused = fusedOnce()
  return ir => {
    const { settings } = ir
    const { fuse = ir.nodes.length <= mostByDefault } = settings
    if (!fuse) return planned(ir)
    const { plan } = chosen(planned, fused, ir)
    if (E.isRight(plan) || plan.left[0]._tag !== 'OverBudget') return plan
    const smallest = chosen(planned, fused, { ...ir, settings: { ...settings, memory: 'small' } })
    return planned({ ...smallest.of, settings })
  }
}
