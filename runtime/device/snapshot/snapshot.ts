// The memory of one device at one moment, as plain data. `Device.snapshot()` returns it, a snapshot file
// holds it as JSON, and every picture and export is made from it. Addresses, sizes and points are integers
// below 2^53.

/**
 * The id of a lane of the snapshot; -1 where there is no lane, or it is not known (of an event of the
 * caller's).
 */
export type LaneId = number

export interface AllocatorSnapshot {
  readonly version: 1
  readonly device: SnapshotDevice
  readonly lanes: readonly SnapshotLane[]
  /** Each segment once, in order of creation; pinned host memory among them. */
  readonly segments: readonly SnapshotSegment[]
  /** Oldest first; empty where no history was kept. */
  readonly history: readonly SnapshotRecord[]
  /** By site number; site 0, of which nothing is known, is empty. Innermost frame first. */
  readonly sites: readonly (readonly SnapshotFrame[])[]
  readonly stats: Readonly<Record<string, number>>
  readonly options: Readonly<Record<string, string | number | boolean>>
}

export interface SnapshotDevice {
  readonly kind: 'host' | 'cuda'
  readonly ordinal: number
  readonly name: string
  readonly totalBytes: number
}

export interface SnapshotLane {
  readonly id: LaneId
  readonly name: string
  /** The stream's handle; 0 for the default stream. */
  readonly stream: number
  readonly retired: boolean
  /** The last point that is known to have completed, and the point that all queued work is before. */
  readonly done: number
  readonly present: number
}

export interface SnapshotSegment {
  readonly address: number
  /** Bytes of addresses. In a segment that is not expandable all of them have memory. */
  readonly totalSize: number
  /** Bytes that have memory: the sum of the blocks that are not unmapped. */
  readonly mappedSize: number
  /** The lane that it was made for. */
  readonly lane: LaneId
  readonly sizes: 'small' | 'large'
  /** 0 for the device's own pool, else the id of a `MemPool`. */
  readonly pool: number
  readonly expandable: boolean
  /** In order of creation. */
  readonly counter: number
  readonly pinned: boolean
  /** They tile the segment, in order of address. */
  readonly blocks: readonly SnapshotBlock[]
}

/**
 * `live`: owned by the program; `pending`: freed, but its uses have not completed; `cached`: free, kept by
 * its lane; `unmapped`: addresses without memory.
 */
export type BlockState = 'live' | 'pending' | 'cached' | 'free' | 'unmapped'

export const blockStates = [
  'live',
  'pending',
  'cached',
  'free',
  'unmapped',
] as const satisfies readonly BlockState[]

export interface SnapshotBlock {
  readonly address: number
  readonly size: number
  /** Bytes as asked for. Means nothing of a block that is neither live nor pending. */
  readonly requested: number
  readonly state: BlockState
  /** The home lane: the lane that it was last allocated on. */
  readonly lane: LaneId
  /** The point of its home lane when it was freed; 0 where it was not. */
  readonly release: number
  /** Where it was allocated: an index into `sites`. */
  readonly site: number
  /** The points that its next owner must come after. */
  readonly uses: readonly SnapshotUse[]
  /** Lanes whose work by the time of the free will count as a use (`recordStream`). */
  readonly noted: readonly LaneId[]
}

export interface SnapshotUse {
  readonly lane: LaneId
  readonly point: number
}

export const actions = [
  'alloc',
  'free_requested',
  'free_completed',
  'segment_alloc',
  'segment_free',
  'segment_map',
  'segment_unmap',
  'snapshot',
  'oom',
  'use_recorded',
  'wait_issued',
  'pages_moved',
  'annotate',
] as const

/**
 * `pages_moved` says that the `segment_unmap` and the `segment_map` beside it were of the same memory. It
 * changes no range by itself.
 */
export type SnapshotAction = (typeof actions)[number]

export interface SnapshotRecord {
  readonly action: SnapshotAction
  /** `oom`: the bytes that the device had left. */
  readonly address: number
  readonly size: number
  readonly lane: LaneId
  readonly pool: number
  /** Since the epoch. */
  readonly timeMicroseconds: number
  readonly site: number
  /** The number of the allocation; no two allocations share one. */
  readonly id: number
  /** Whether the record is of pinned host memory; missing means false. */
  readonly pinned?: boolean
  /** `annotate`: the text. */
  readonly text?: string
}

export interface SnapshotFrame {
  readonly filename: string
  readonly line: number
  readonly name: string
}
