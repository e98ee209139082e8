// A snapshot in PyTorch's own form, so that its tools show it.
import { pickle, Tuple } from './pickle.js'
import type {
  AllocatorSnapshot,
  LaneId,
  SnapshotBlock,
  SnapshotFrame,
  SnapshotLane,
  SnapshotRecord,
  SnapshotSegment,
} from './snapshot.js'
import type {
  TorchBlock,
  TorchFrame,
  TorchRecord,
  TorchSegment,
  TorchSettings,
  TorchSnapshot,
  TorchUse,
} from './torch-form.js'
import { consistent } from './torch-trace.js'

// Actions that PyTorch has no name for.
const own: ReadonlySet<string> = new Set(['use_recorded', 'wait_issued', 'pages_moved'])

/**
 * A snapshot as PyTorch's `torch.cuda.memory._snapshot()` gives it. Facts that PyTorch has no field for stand
 * in fields of Braid's own.
 */
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
  // The viewer offers only devices that have segments or records, and stops with an exception where it can
  // offer none.
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

/**
 * Sites and lanes as PyTorch names them. All uses of a site share one list of frames, so that a pickle holds
 * the list once.
 */
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

  // All uses of a pool share one tuple.
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
    // The viewer takes a block's stream for its segment's: it joins ranges whose streams agree, and counts
    // the blocks of a private pool against the memory that the pool has for their stream. In Braid memory
    // passes from lane to lane.
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

  /** The record by which PyTorch marks the moment of a snapshot. */
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

/** PyTorch's settings, filled from the device's options, after all options under Braid's own names. */
const torchSettings = (options: AllocatorSnapshot['options']): TorchSettings => {
  const { conf, maxSplit, collectAbove, expandable, divisions } = options
  const steps = String(divisions ?? '')
    .split(',')
    .map(Number)
  return {
    ...options,
    PYTORCH_CUDA_ALLOC_CONF: typeof conf === 'string' ? conf : '',
    // PyTorch writes -1 for "no bound"; Braid's options write a word.
    max_split_size: typeof maxSplit === 'number' ? maxSplit : -1,
    garbage_collection_threshold: typeof collectAbove === 'number' ? collectAbove : 0,
    expandable_segments: expandable === true,
    pinned_num_register_threads: 1,
    release_lock_on_cudamalloc: false,
    pinned_use_cuda_host_register: false,
    graph_capture_record_stream_reuse: false,
    roundup_power2_divisions: Object.fromEntries(
      Array.from({ length: 16 }, (_, i) => [String(2 ** i), steps[i] || 0]),
    ),
  }
}
