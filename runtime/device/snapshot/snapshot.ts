// The snapshot in PyTorch's own form, so that its viewer (pytorch.org/memory_viz) and `torch.cuda._memory_viz` show it. Names
// and types are those of torch/csrc/cuda/Module.cpp (`memorySnapshot`). Note that PyTorch writes and reads the state
// `active_pending_free`; only the comments of torch/cuda call it `active_awaiting_free`.
import { pickle, Tuple } from './pickle.js'
import type {
  AllocatorSnapshot,
  LaneId,
  SnapshotBlock,
  SnapshotFrame,
  SnapshotLane,
  SnapshotRecord,
  SnapshotSegment,
} from './snapshot-data.js'
import { type TorchSettings, torchSettings } from './snapshot-settings.js'
import { consistent } from './snapshot-trace.js'

export type TorchFrame = { readonly filename: string; readonly line: number; readonly name: string }

export type TorchBlock = {
  readonly address: number
  readonly size: number
  readonly requested_size: number
  readonly state: 'active_allocated' | 'active_pending_free' | 'inactive'
  readonly frames: readonly TorchFrame[]
  /** Braid's own: the points that its next owner must come after, where there are any. */
  readonly pending_uses?: readonly TorchUse[]
  /** Braid's own: the stream that it was given out on, where it is not the segment's. */
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
  /** Of every action but `oom`, which has `device_free`. */
  readonly addr?: number
  readonly device_free?: number
  readonly size: number
  readonly stream: number
  readonly time_us: number
  readonly compile_context: string
  readonly user_metadata: string
  readonly pool_id: Tuple
  readonly frames: readonly TorchFrame[]
  /** Braid's own: the stream that it was of, where `stream` is the segment's. */
  readonly home_stream?: number
}

export type TorchSnapshot = {
  readonly segments: readonly TorchSegment[]
  /** By ordinal. */
  readonly device_traces: readonly (readonly TorchRecord[])[]
  readonly allocator_settings: TorchSettings
  readonly external_annotations: readonly never[]
  /** Pinned memory; its device is -1. */
  readonly host_segments: readonly TorchSegment[]
  readonly host_traces: readonly TorchRecord[]
  /** Braid's own, all of which PyTorch's tools pass over. */
  readonly braid: {
    readonly version: number
    readonly device: Readonly<Record<string, string | number>>
    readonly lanes: readonly Readonly<Record<string, string | number | boolean>>[]
    readonly stats: AllocatorSnapshot['stats']
    /** Actions that PyTorch has no name for. */
    readonly traces: readonly TorchRecord[]
    /** Records, oldest first, that contradict the segments and would stop the viewer. */
    readonly dropped: number
  }
}

const own: ReadonlySet<string> = new Set(['use_recorded', 'wait_issued', 'pages_moved'])

/** A snapshot as PyTorch's `torch.cuda.memory._snapshot()` gives it, with what PyTorch cannot say in fields of its own. */
export const toTorch = (snapshot: AllocatorSnapshot): TorchSnapshot => {
  const names = new Names(snapshot)
  const { ordinal } = snapshot.device
  const of = (pinned: boolean) =>
    snapshot.segments
      .filter(s => s.pinned === pinned)
      .flatMap(s => torchSegments(s, names, pinned ? -1 : ordinal))
  const [segments, hostSegments] = [of(false), of(true)]
  const records = snapshot.history.filter(({ action }) => !own.has(action))
  const traceOf = (pinned: boolean) =>
    records.filter(record => (record.pinned ?? false) === pinned).map(record => names.record(record))
  const device = consistent(traceOf(false), segments)
  const host = consistent(traceOf(true), hostSegments)
  // The viewer offers devices with segments or records alone, and stops with an exception where there is none to offer.
  const empty = device.trace.length === 0 && segments.length === 0
  const trace = empty ? [names.mark('no memory of the device is held, and no record is kept')] : device.trace
  return {
    segments,
    device_traces: [...Array.from({ length: ordinal }, () => []), trace],
    allocator_settings: torchSettings(snapshot.options),
    external_annotations: [],
    host_segments: hostSegments,
    host_traces: host.trace,
    braid: {
      version: snapshot.version,
      device: { ...snapshot.device },
      lanes: snapshot.lanes.map(lane => ({ ...lane })),
      stats: snapshot.stats,
      traces: snapshot.history.filter(({ action }) => own.has(action)).map(record => names.record(record)),
      dropped: device.dropped + host.dropped,
    },
  }
}

/** The bytes of a file that PyTorch's viewer opens. */
export const torchPickle = (snapshot: AllocatorSnapshot): Uint8Array => pickle(toTorch(snapshot))

/** Sites and lanes as PyTorch names them. The frames of a site are one list, wherever they stand: a pickle holds them once. */
class Names {
  private readonly lanes: ReadonlyMap<LaneId, SnapshotLane>
  private readonly segments: readonly SnapshotSegment[]
  private readonly frames: readonly (readonly TorchFrame[])[]
  private readonly none: readonly TorchFrame[] = []
  private readonly pools = new Map<number, Tuple>()

  constructor(snapshot: AllocatorSnapshot) {
    this.lanes = new Map(snapshot.lanes.map(lane => [lane.id, lane]))
    this.segments = [...snapshot.segments].sort((a, b) => a.address - b.address)
    const frame = ({ filename, line, name }: SnapshotFrame): TorchFrame => ({ filename, line, name })
    this.frames = snapshot.sites.map(site => site.map(frame))
  }

  stream(lane: LaneId): number {
    return this.lanes.get(lane)?.stream ?? 0
  }

  site(site: number): readonly TorchFrame[] {
    return this.frames[site] ?? this.none
  }

  // One tuple a pool, wherever it stands.
  pool(pool: number): Tuple {
    const known = this.pools.get(pool) ?? new Tuple(0, pool)
    this.pools.set(pool, known)
    return known
  }

  uses({ uses }: SnapshotBlock): readonly TorchUse[] {
    return uses.map(({ lane, point }) => {
      const known = this.lanes.get(lane)
      return {
        stream: known?.stream ?? 0,
        lane: known?.name ?? '',
        event_point: point,
        done: known !== undefined && known.done >= point,
      }
    })
  }

  record(record: SnapshotRecord): TorchRecord {
    const { action, address, size, lane, pool, timeMicroseconds, site, text } = record
    // The viewer joins ranges where their streams agree, and counts the blocks of a private pool against the memory that the
    // pool has for their stream: it takes a block's stream for its segment's. Here memory goes from lane to lane.
    const segment = action === 'oom' ? undefined : this.segmentAt(address)
    const ofRange = action.startsWith('segment_')
    const stream = this.stream((ofRange || (segment?.pool ?? 0) > 0 ? segment?.lane : undefined) ?? lane)
    const home = this.stream(lane)
    return {
      action,
      ...(action === 'oom' ? { device_free: address } : { addr: address }),
      size,
      stream,
      ...(ofRange || home === stream ? {} : { home_stream: home }),
      time_us: timeMicroseconds,
      compile_context: 'N/A',
      user_metadata: text ?? '',
      pool_id: this.pool(pool),
      frames: this.site(site),
    }
  }

  /** PyTorch's own mark of the moment of a snapshot. */
  mark(text: string): TorchRecord {
    const nowhere = { address: 0, size: 0, lane: -1, pool: 0, timeMicroseconds: 0, site: 0, id: 0 }
    return this.record({ action: 'snapshot', ...nowhere, text })
  }

  private segmentAt(address: number): SnapshotSegment | undefined {
    let low = 0
    let high = this.segments.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.segments[middle]!.address <= address) low = middle + 1
      else high = middle
    }
    const segment = this.segments[low - 1]
    return segment && address < segment.address + segment.totalSize ? segment : undefined
  }
}

// PyTorch has no blocks without memory: each stretch of mapped blocks is a segment of its own.
const torchSegments = (segment: SnapshotSegment, names: Names, device: number): readonly TorchSegment[] => {
  const runs: SnapshotBlock[][] = []
  let previous: SnapshotBlock | undefined
  for (const block of segment.blocks) {
    if (block.state !== 'unmapped') {
      if (previous === undefined || previous.state === 'unmapped') runs.push([])
      runs.at(-1)!.push(block)
    }
    previous = block
  }
  return runs.map(run => {
    const sum = (count: (block: SnapshotBlock) => number) =>
      run.reduce((total, block) => total + count(block), 0)
    const active = ({ state }: SnapshotBlock) => state === 'live' || state === 'pending'
    return {
      device,
      address: run[0]!.address,
      total_size: sum(({ size }) => size),
      allocated_size: sum(({ state, size }) => (state === 'live' ? size : 0)),
      active_size: sum(block => (active(block) ? block.size : 0)),
      requested_size: sum(block => (active(block) ? block.requested : 0)),
      stream: names.stream(segment.lane),
      segment_type: segment.sizes,
      segment_pool_id: names.pool(segment.pool),
      is_expandable: segment.expandable,
      registration_counter: segment.counter,
      frames: names.site(0),
      blocks: run.map(block => torchBlock(block, segment, names)),
    }
  })
}

const torchBlock = (block: SnapshotBlock, segment: SnapshotSegment, names: Names): TorchBlock => {
  const { address, size, requested, state, lane, site } = block
  const taken = state === 'live' || state === 'pending'
  const home = names.stream(lane)
  return {
    address,
    size,
    requested_size: taken ? requested : 0,
    state: state === 'live' ? 'active_allocated' : state === 'pending' ? 'active_pending_free' : 'inactive',
    frames: taken ? names.site(site) : names.site(0),
    ...(block.uses.length > 0 ? { pending_uses: names.uses(block) } : {}),
    ...(taken && home !== names.stream(segment.lane) ? { home_stream: home } : {}),
  }
}
