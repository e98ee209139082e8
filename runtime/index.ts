// The public surface of `braid-gpu/runtime`, by hand: what is not listed here is not public.
export type { Feed, Lease, PulledFeed, PushedFeed, WhenFull } from '../dsl/feed.js'
export { Arena } from './allocator/arena.js'
export { Block } from './allocator/block.js'
export { Device, type SiteOptions } from './allocator/device.js'
export type { DeviceOptions } from './allocator/device-options.js'
export { Event } from './allocator/event.js'
export { AllocatorError, type AllocatorErrorTag } from './allocator/failure.js'
export type { History, HistoryOptions } from './allocator/history.js'
export { type AllocateOptions, Lane, type LaneOptions } from './allocator/lane.js'
export {
  type CallbackAllocator,
  type LibraryAllocator,
  MemPool,
  type MemPoolOptions,
} from './allocator/mem-pool.js'
export { type Holder, OutOfMemoryError, type Shortage } from './allocator/out-of-memory.js'
export {
  type AllocConf,
  type AllocConfFault,
  type AllocConfNote,
  allocConfFromEnvironment,
  allocConfVariables,
  type EnvironmentAllocConf,
  parseAllocConf,
} from './allocator/settings/conf.js'
export {
  type AllocatorFault,
  type AllocatorOptions,
  type AllocatorPolicy,
  allocatorOptions,
  limitOn,
  type PinnedOptions,
  type ResolvedAllocatorOptions,
  type SizeDivision,
} from './allocator/settings/options.js'
export { snapshotSvg, snapshotText } from './allocator/snapshot/picture.js'
export { type TorchSnapshot, torchPickle, toTorch } from './allocator/snapshot/snapshot.js'
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
} from './allocator/snapshot/snapshot-data.js'
export { parseSnapshot, type SnapshotFault } from './allocator/snapshot/snapshot-read.js'
export { fromTorch } from './allocator/snapshot/snapshot-torch.js'
export type { Span } from './allocator/span.js'
export type { AllocatorStats } from './allocator/stats.js'
export type { Summary } from './clock.js'
export { type DeviceName, type DeviceSummary, devices } from './devices.js'
export { type DeviceError, type DeviceErrorTag, DisposedError, errorsOf, RunError, type RunErrorTag } from './errors.js'
export { pulled, pushed } from './feeds.js'
export type { HostOptions } from './native.js'
export { type OpenOptions, open } from './open.js'
export type { ParamSource, ParamSources, ParamSpec } from './params.js'
export type { Reference, References } from './references.js'
export {
  type Safetensors,
  SafetensorsError,
  type SafetensorsFault,
  type StoredTensor,
  safetensors,
  type TensorToWrite,
  writeSafetensors,
} from './safetensors.js'
export type { Leases, RunOptions, Session, ValuesOf } from './session.js'
export type { DeviceStats, SessionStats } from './stats.js'
export { chromeTrace, perfettoTrace, type TraceRecord, traceFile } from './trace.js'
