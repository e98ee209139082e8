// The public surface of `braid-gpu`, listed by hand. Everything else is internal.

export { isProved } from './compiler/analysis/provenance.js'
export { compile } from './compiler/compile.js'
export { type ExplainOptions, type Explanation, explain } from './explain/explain.js'
export {
  type HostFeeds,
  type HostValues,
  type InterpretOptions,
  type InterpretRanksOptions,
  interpret,
  interpretRanks,
} from './interpret/interpret.js'
export { type Distance, distance, type Meaning, meaning } from './interpret/meaning.js'
export type { Between, InterpretedStates } from './interpret/states.js'
export { BraidError, orThrow } from './ir/braid-error.js'
export type { Fault, FaultPart } from './ir/fault.js'
export type { CompileError, CompileErrorTag, GraphIR, GraphNode, GraphOutput, Place } from './ir/graph.js'
export { jsonParts } from './ir/json.js'
export { type PlanFault, parsePlan, parsePlanParts } from './ir/load.js'
export { render, renderAll } from './ir/messages.js'
export type { Command, Plan, PlanBuffer, PlanLane, PlanNode, Violation } from './ir/plan.js'
export type { BoundSpec, Dim, DType, TensorSpec } from './ir/tensor.js'
export { textOf, toJSON } from './ir/text.js'
export type { Dims, KernelAttrs, KernelScalar, Launch } from './language/bound-kernel.js'
export { type Communicator, communicator } from './language/communicator.js'
export type { CompileOptions } from './language/compile-options.js'
export type { Feed, Lease, PulledFeed, PushedFeed, WhenFull } from './language/feed.js'
export type { AnyFlow, DeviceFlow, Flow, HostFlow } from './language/flow.js'
export { type Gradients, gradients } from './language/gradients/gradients.js'
export {
  type FlowsOf,
  type Graph,
  graph,
  type InputsOf,
  irOf,
  type Outputs,
  type OutputsOf,
} from './language/graph.js'
export type {
  AxesFrom0,
  Broadcast,
  Broadcasts,
  ConvFits,
  Convolved,
  Device as DeviceFlowOf,
  Divided,
  Floats,
  HasNever,
  Indices,
  Invalid,
  Joined,
  Led,
  LedBy,
  LinearFits,
  LinearShape,
  MatmulFits,
  Norm,
  Padded,
  PortsOf,
  ProductShape,
  Reduced,
  ReducedWhole,
  Replaced,
  Resized,
  SameDType,
  SameShape,
  Shape,
  SizeOf,
  Sliced,
  SpatialSizes,
  Unled,
} from './language/inferred.js'
export { type KernelDefinition, kernel } from './language/kernel.js'
export { device, type Lane, type LaneOptions, lane } from './language/lane.js'
export { abs } from './language/operators/abs.js'
export { add } from './language/operators/add.js'
export { after, type When } from './language/operators/after.js'
export { type AllGatherOptions, allGather } from './language/operators/all-gather.js'
export { allReduce } from './language/operators/all-reduce.js'
export { allToAll } from './language/operators/all-to-all.js'
export { append } from './language/operators/append.js'
export { argmax } from './language/operators/argmax.js'
export { argmin } from './language/operators/argmin.js'
export { type AttentionOptions, attention } from './language/operators/attention.js'
export { broadcast } from './language/operators/broadcast.js'
export { cast } from './language/operators/cast.js'
export { type ClampOptions, clamp } from './language/operators/clamp.js'
export { concat } from './language/operators/concat.js'
export { type ConvOptions, conv } from './language/operators/conv.js'
export { cos } from './language/operators/cos.js'
export { crossEntropy } from './language/operators/cross-entropy.js'
export { cumsum } from './language/operators/cumsum.js'
export { delay } from './language/operators/delay.js'
export { div } from './language/operators/div.js'
export { download } from './language/operators/download.js'
export { type DropoutOptions, dropout } from './language/operators/dropout.js'
export { equal } from './language/operators/equal.js'
export { every } from './language/operators/every.js'
export { exp } from './language/operators/exp.js'
export { expand } from './language/operators/expand.js'
export type { Expression } from './language/operators/expression.js'
export { floorDiv } from './language/operators/floor-div.js'
export { embedding, gather } from './language/operators/gather.js'
export type { GatherGradient } from './language/operators/gather-gradient.js'
export { type GeluOptions, gelu } from './language/operators/gelu.js'
export { greater } from './language/operators/greater.js'
export { greaterOrEqual } from './language/operators/greater-or-equal.js'
export { hold } from './language/operators/hold.js'
export { iota } from './language/operators/iota.js'
export { keep } from './language/operators/keep.js'
export { type LayerNormOptions, layerNorm, type NormOptions } from './language/operators/layer-norm.js'
export { less } from './language/operators/less.js'
export { lessOrEqual } from './language/operators/less-or-equal.js'
export { linear } from './language/operators/linear.js'
export { log } from './language/operators/log.js'
export { logSoftmax } from './language/operators/log-softmax.js'
export { logSumExp } from './language/operators/log-sum-exp.js'
export { map } from './language/operators/map.js'
export { type MatmulOptions, matmul } from './language/operators/matmul.js'
export { max } from './language/operators/max.js'
export { mean } from './language/operators/mean.js'
export { min } from './language/operators/min.js'
export { mod } from './language/operators/mod.js'
export { mul } from './language/operators/mul.js'
export { neg } from './language/operators/neg.js'
export { normal } from './language/operators/normal.js'
export { notEqual } from './language/operators/not-equal.js'
export { on } from './language/operators/on.js'
export { type OneHotOptions, oneHot } from './language/operators/one-hot.js'
export { type PadOptions, pad } from './language/operators/pad.js'
export { type Pairs, permute } from './language/operators/permute.js'
export { avgPool, maxPool, type PoolOptions } from './language/operators/pool.js'
export { pow } from './language/operators/pow.js'
export type { RandomOptions } from './language/operators/random.js'
export { recompute } from './language/operators/recompute.js'
export type { Axes, ReduceOptions } from './language/operators/reduce.js'
export type { ReduceOp } from './language/operators/reduce-op.js'
export { reduceScatter } from './language/operators/reduce-scatter.js'
export { relu } from './language/operators/relu.js'
export { repeat } from './language/operators/repeat.js'
export { reshape } from './language/operators/reshape.js'
export { rmsNorm } from './language/operators/rms-norm.js'
export { type RopeOptions, rope } from './language/operators/rope.js'
export { rsqrt } from './language/operators/rsqrt.js'
export { scan } from './language/operators/scan.js'
export { scatterAdd } from './language/operators/scatter-add.js'
export { sigmoid } from './language/operators/sigmoid.js'
export { silu } from './language/operators/silu.js'
export { sin } from './language/operators/sin.js'
export { slice } from './language/operators/slice.js'
export { type SoftmaxOptions, softmax } from './language/operators/softmax.js'
export { type SplitOptions, split } from './language/operators/split.js'
export { sqrt } from './language/operators/sqrt.js'
export {
  type Init,
  type Inits,
  type NextStates,
  type State,
  type StateOptions,
  type States,
  state,
} from './language/operators/state.js'
export { stopGradient } from './language/operators/stop-gradient.js'
export { sub } from './language/operators/sub.js'
export { sum } from './language/operators/sum.js'
export { takeAlong } from './language/operators/take-along.js'
export { tanh } from './language/operators/tanh.js'
export { type TopKOptions, topK } from './language/operators/top-k.js'
export { transpose } from './language/operators/transpose.js'
export { uniform } from './language/operators/uniform.js'
export { type UploadOptions, upload } from './language/operators/upload.js'
export { variance } from './language/operators/variance.js'
export { where } from './language/operators/where.js'
export { window } from './language/operators/window.js'
export {
  type ParamOptions,
  type ParamSpec,
  type ParamValue,
  type ParamValues,
  param,
} from './language/param.js'
export type { Position, PositionMapper } from './language/positions.js'
export {
  type FeedsOf,
  isProgram,
  type Program,
  type ProgramOptions,
  type ProgramSpec,
  program,
} from './language/program.js'
export {
  type AnyTensor,
  type HostArrayOf,
  type HostArrays,
  type OnDevice,
  type Ports,
  type Tensor,
  tensor,
} from './language/tensor.js'
export {
  type AnyTree,
  type ByShape,
  borrowed,
  byShape,
  type GivenAfter,
  type GivenAlways,
  type GivenOf,
  type Keep,
  type NextOf,
  type OwnedOf,
  owned,
  type PlanName,
  ring,
  type StayingOf,
  type StayingValue,
  type Tree,
  type TreeFeeds,
  type TreeValues,
  tree,
  until,
} from './language/tree.js'
export type { HostArray } from './language/values.js'
export { setPositionMapper } from './language/where.js'
export { type MachineFault, machineOf, machines, parseMachine } from './machine/load.js'
export type { Machine } from './machine/machine.js'
export {
  runsOf,
  type SimulateOptions,
  type Simulation,
  simulate,
  type Timeline,
  type TimelineRun,
} from './machine/simulate/simulate.js'
export { verify } from './verify/verify.js'
export { verifyRanks } from './verify/verify-ranks.js'
