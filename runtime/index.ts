// The public surface of `braid-gpu/runtime`, listed by hand. Everything else is internal.

export type { Feed, Lease, PulledFeed, PushedFeed, WhenFull } from '../dsl/index.js'
export type { HostOptions } from './addon.js'
export { AllocatorError, type AllocatorErrorTag } from './device/allocator-error.js'
export { Arena } from './device/arena.js'
export { Block, type Span } from './device/block.js'
export { Device, type SiteOptions } from './device/device.js'
export type { DeviceOptions } from './device/device-options.js'
export { type DeviceName, type DeviceSummary, devices } from './device/devices.js'
export { Event } from './device/event.js'
export type { FillOptions } from './device/fill.js'
export { GraphEvent } from './device/graph-event.js'
export type { History, HistoryOptions } from './device/history.js'
export {
  type DeviceKernelDefinition,
  Kernel,
  type KernelLaunch,
  type Operands,
  type Scalars,
} from './device/kernel.js'
export { type AllocateOptions, Lane, type LaneOptions } from './device/lane.js'
export {
  type CallbackAllocator,
  type LibraryAllocator,
  MemPool,
  type MemPoolOptions,
} from './device/mem-pool.js'
export { type Holder, OutOfMemoryError, type Shortage } from './device/out-of-memory.js'
export {
  type AllocConf,
  type AllocConfFault,
  type AllocConfNote,
  allocConfFromEnvironment,
  allocConfVariables,
  type EnvironmentAllocConf,
  parseAllocConf,
} from './device/settings/conf.js'
export {
  type AllocatorFault,
  type AllocatorOptions,
  type AllocatorPolicy,
  allocatorOptions,
  limitOn,
  type PinnedOptions,
  type ResolvedAllocatorOptions,
  type SizeDivision,
} from './device/settings/options.js'
export { parseSnapshot, type SnapshotFault } from './device/snapshot/read.js'
export type {
  AllocatorSnapshot,
  BlockState,
  SnapshotBlock,
  SnapshotDevice,
  SnapshotFrame,
  SnapshotLane,
  SnapshotRecord,
  SnapshotSegment,
  SnapshotUse,
} from './device/snapshot/snapshot.js'
export { snapshotSvg } from './device/snapshot/svg.js'
export { snapshotText } from './device/snapshot/text.js'
export { torchPickle, toTorch } from './device/snapshot/torch.js'
export type { TorchSnapshot } from './device/snapshot/torch-form.js'
export type { AllocatorStats } from './device/stats.js'
export type { CallbackFunction, CallbackOptions, LibraryFunction } from './device/work.js'
export {
  AddonError,
  type DeviceError,
  type DeviceErrorTag,
  DisposedError,
  errorsOf,
  RunError,
  type RunErrorTag,
} from './errors.js'
export {
  type Safetensors,
  SafetensorsError,
  type SafetensorsFault,
  type StoredTensor,
  safetensors,
  type TensorToWrite,
  writeSafetensors,
} from './files/safetensors.js'
export { GraphBuilder } from './graphs/builder.js'
export type { CaptureMode } from './graphs/capture.js'
export type { GraphCondition } from './graphs/conditions.js'
export { type After, GraphDefinition } from './graphs/definition.js'
export { ExecutableGraph, type InstantiateOptions } from './graphs/executable.js'
export type { Neighbours } from './graphs/neighbours.js'
export { type ConditionalNode, GraphNode } from './graphs/node.js'
export type { CallbackParams, CopyParams, FillParams, KernelParams, NodeKind } from './graphs/node-params.js'
export type { Memory, RawMemory } from './graphs/operands.js'
export { pulled, pushed } from './session/feeds.js'
export type { ParamFile } from './session/file-options.js'
export type { SessionParams, SessionState } from './session/kept.js'
export { open } from './session/open.js'
export type { DeviceChoice, OpenOptions, OpenProgress } from './session/options.js'
export type { ParamSource, ParamSources, ParamSpec } from './session/params.js'
export type { Reference, References } from './session/references.js'
export type { Leases, RunOptions, Session, ValuesOf } from './session/session.js'
export { params, SharedParams } from './session/shared-params.js'
export type { StateSources } from './session/state.js'
export type { DeviceStats, SessionStats, Summary } from './session/stats.js'
export { SwapError, type SwapOptions } from './session/swap.js'
export { pulledTogether } from './session/together.js'
export type { AwaitableTask } from './task.js'
export { chromeTrace, perfettoTrace, type TraceRecord, traceChunks, traceFile } from './trace/trace.js'
export { Handle } from './trees/handle.js'
export { StaleHandleError, TreeError, type TreeErrorTag } from './trees/messages.js'
export type { TreeOptions } from './trees/options.js'
export {
  type Decided,
  type Decision,
  drive,
  type HandleOf,
  type Launched,
  PlanTree,
  planTree,
  type TreeLayout,
  type TreeStats,
} from './trees/plan-tree.js'
