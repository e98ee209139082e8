// What `runtime` takes from this folder beside the public door and `ir`. Nothing else imports this file.

export { provenanceOf } from './compiler/analysis/provenance.js'
export { explanations } from './explain/explain.js'
export { plural } from './explain/facts/names.js'
export { escaped, short, text } from './explain/render/svg-parts.js'
export { traceJson } from './explain/render/trace-json.js'
export { meaningWithStates } from './interpret/meaning.js'
export { type Repeatable, repeatable } from './interpret/repeatable.js'
export { fittingDim, showDims } from './language/bind.js'
export { checkedLaunch, launchSizes } from './language/bound-kernel.js'
export { initialValue } from './language/initial-value.js'
export { asPath, bySourceMap } from './language/positions.js'
export { lateFunction, lateResult, referenceForm } from './language/reference.js'
export { type TreeFormFault, treeFormFault } from './language/tree.js'
export { hostArray, numbers, writer } from './language/values.js'
export { framesHere, here, hereLater, mappedPosition } from './language/where.js'
export type { Resource } from './machine/cost.js'
export { type Filled, fillingOf } from './machine/filling.js'
export type { HostModel } from './machine/machine.js'
export {
  type Comparison,
  compareWith,
  type MeasuredRun,
  ticksOf,
  timesOf,
} from './machine/simulate/compare.js'
export { laneNames } from './machine/simulate/simulate.js'
export { arenaBytes, ownBytesFrom } from './memory/arenas.js'
export { granule, poolPeakOf } from './memory/pool-peak.js'
export { rounded } from './memory/range-pool.js'
export { bodyOf, isPlaced, type PlanBody, placed, proofOf } from './trees/body.js'
export { type ByteRange, overlap, without } from './trees/byte-ranges.js'
export type { Layout } from './trees/layout.js'
export { mixedShapes, type TreeFault, unknownPlan } from './trees/messages.js'
export { residentPlan } from './trees/resident.js'
export {
  type Instead,
  type LaidOutTree,
  type Lifetime,
  layOutTree,
  type Member,
  type Transition,
  type TreeNode,
} from './trees/tree.js'
export { verifyLoaded } from './verify/verify.js'
