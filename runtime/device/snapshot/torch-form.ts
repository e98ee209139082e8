// The form of PyTorch's snapshots, which its viewer (pytorch.org/memory_viz) and `torch.cuda._memory_viz`
// read. Names and types are those of torch/csrc/cuda/Module.cpp (`memorySnapshot`). PyTorch writes and reads
// the state `active_pending_free`; only the comments of torch/cuda call it `active_awaiting_free`.
import type { Tuple } from './pickle.js'
import type { AllocatorSnapshot } from './snapshot.js'

export type TorchFrame = { readonly filename: string; readonly line: number; readonly name: string }

export type TorchBlock = {
  readonly address: number
  readonly size: number
  readonly requested_size: number
  readonly state: 'active_allocated' | 'active_pending_free' | 'inactive'
  readonly frames: readonly TorchFrame[]
  /** Braid's own, where there are any: the points that the block's next owner must come after. */
  readonly pending_uses?: readonly TorchUse[]
  /** Braid's own: the stream that the block was given out on, where that is not the segment's. */
  readonly home_stream?: number
}

export type TorchUse = {
  readonly stream: number
  readonly lane: string
  readonly event_point: number
  readonly done: boolean
}

export type TorchSegment = {
  readonly device: number
  readonly address: number
  readonly total_size: number
  readonly allocated_size: number
  readonly active_size: number
  readonly requested_size: number
  readonly stream: number
  readonly segment_type: 'small' | 'large'
  readonly segment_pool_id: Tuple
  readonly is_expandable: boolean
  readonly registration_counter: number
  readonly frames: readonly TorchFrame[]
  readonly blocks: readonly TorchBlock[]
}

export type TorchRecord = {
  readonly action: string
  /** Missing in `oom`, which has `device_free` instead. */
  readonly addr?: number
  readonly device_free?: number
  readonly size: number
  readonly stream: number
  readonly time_us: number
  readonly compile_context: string
  readonly user_metadata: string
  readonly pool_id: Tuple
  readonly frames: readonly TorchFrame[]
  /** Braid's own: the stream of the record, where `stream` is the segment's. */
  readonly home_stream?: number
}

export type TorchSettings = Readonly<
  Record<string, string | number | boolean | Readonly<Record<string, number>>>
>

export type TorchSnapshot = {
  readonly segments: readonly TorchSegment[]
  /** By ordinal. */
  readonly device_traces: readonly (readonly TorchRecord[])[]
  readonly allocator_settings: TorchSettings
  readonly external_annotations: readonly never[]
  /** Pinned memory; its device is -1. */
  readonly host_segments: readonly TorchSegment[]
  readonly host_traces: readonly TorchRecord[]
  /** Braid's own, which PyTorch's tools ignore. */
  readonly braid: {
    readonly version: number
    readonly device: Readonly<Record<string, string | number>>
    readonly lanes: readonly Readonly<Record<string, string | number | boolean>>[]
    readonly stats: AllocatorSnapshot['stats']
    /** Records of actions that PyTorch has no name for. */
    readonly traces: readonly TorchRecord[]
    /**
     * How many of the oldest records were left out: they contradict the segments, which would stop the
     * viewer.
     */
    readonly dropped: number
  }
}
