import * as E from 'fp-ts/lib/Either.js'
import type { Plan } from '../../ir/plan.js'
import { fullest } from '../analysis/device-of.js'
import type { Checked } from '../analysis/ir.js'
import { type Passed, pass } from '../analysis/pass.js'
import { type Fusion, provenanceOf, recordProvenance } from '../analysis/provenance.js'
import type { Effort } from '../passes/fuse/regions.js'
import { type Fused, fuse } from '../passes/fuse.js'
import { mostPredicted, tickOf, worth } from './choose-arenas.js'

const explained = (plan: Plan, fusion: Fusion, { settings: { memory } }: Checked): Plan => {
  const provenance = provenanceOf(plan)!
  recordProvenance(plan, { ...provenance, decisions: { ...provenance.decisions, memory, fusion } })
  return plan
}

/** What is worse about a plan than about the plan that fuses nothing; undefined where nothing is. */
const worse = (plan: Plan, plain: Plan, { settings }: Checked): string | undefined => {
  const { device, pinned } = plan.bound
  const grown = device.findIndex((bytes, d) => bytes > plain.bound.device[d]!)
  if (grown >= 0) return `it holds ${device[grown]! - plain.bound.device[grown]!} bytes more`
  if (pinned > plain.bound.pinned)
    return `it holds ${pinned - plain.bound.pinned} bytes of pinned memory more`
  if (plain.nodes.length > mostPredicted) return undefined
  const [tick, before] = [tickOf(plan, settings), tickOf(plain, settings)]
  return tick > before * (1 + worth) ? `a tick of ${tick} ns instead of ${before}` : undefined
}

/** The graph, to be planned within as many bytes. */
const within = (ir: Checked, bytes: number): Checked => {
  const { memory } = ir.settings
  return {
    ...ir,
    settings: { ...ir.settings, memory: typeof memory === 'number' ? Math.min(memory, bytes) : bytes },
  }
}

/**
 * Plans a fused graph. A plan that holds more than the one that fuses nothing may do so because of another order or
 * more lanes: it is planned anew within the bytes of that one.
 */
const noLarger =
  (planned: (ir: Checked) => Passed<Plan>) =>
  (fused: Checked, plain: Passed<Plan>): Passed<Plan> => {
    const plan = planned(fused)
    if (E.isLeft(plan) || E.isLeft(plain) || fused.settings.memory === 'small') return plan
    const isLarger = plan.right.bound.device.some((bytes, d) => bytes > plain.right.bound.device[d]!)
    const less = isLarger ? planned(within(fused, fullest(plain.right.bound))) : plan
    return E.isRight(less) ? less : plan
  }

const fusing = pass('fuse', ({ ir, effort }: { readonly ir: Checked; readonly effort: Effort }) =>
  fuse(effort)(ir),
)

/**
 * With `fuse: true` the graph is planned as it is and with fused kernels. The fused plan is taken where it
 * holds no more memory and its predicted tick is no longer; else the same is tried without siblings in one
 * kernel, then without kernels of several results, then what surely costs neither, and if that is worse too,
 * nothing is fused.
 */
export const chooseFusion =
  (planned: (ir: Checked) => Passed<Plan>) =>
  (ir: Checked): Passed<Plan> => {
    if (!ir.settings.fuse) return planned(ir)
    const plain = planned(ir)
    const rejected: string[] = []
    let last: Omit<Fusion, 'rejected'> | undefined
    let differs: Fused['differs'] = { several: true, free: true }
    for (const effort of ['wide', 'several', 'free', 'lean'] as const) {
      if (effort !== 'wide' && effort !== 'lean' && !differs[effort]) continue
      const fused = fusing({ ir, effort })
      differs = fused.differs
      last = fused.fusion
      const plan = fused.ir === ir ? plain : noLarger(planned)(fused.ir, plain)
      if (E.isLeft(plan)) continue
      const against = E.isLeft(plain) ? undefined : worse(plan.right, plain.right, ir)
      if (against === undefined) return E.right(explained(plan.right, { ...last, rejected }, ir))
      rejected.push(against)
    }
    if (E.isLeft(plain) || last === undefined) return plain
    const none = { ...last, effort: 'none' as const, kernels: 0, regions: [], rejected }
    return E.right(explained(plain.right, none, ir))
  }
