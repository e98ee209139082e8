// What a picture of a snapshot shows, whether it is drawn as text or as SVG: sums, names, and a bar of equal
// columns for each segment.
import { plural } from '../../../dsl/internal.js'
import { shown as escaped } from '../../../dsl/ir/show.js'
import type {
  AllocatorSnapshot,
  BlockState,
  LaneId,
  SnapshotBlock,
  SnapshotDevice,
  SnapshotSegment,
} from './snapshot.js'

/** How fine a picture is. */
export interface Resolution {
  /** Columns of the bar of the largest segment. Every column stands for the same number of bytes. */
  readonly columns: number
  /** The shortest bar of a segment that has memory: a smaller segment's columns stand for fewer bytes. */
  readonly leastColumns: number
  /** How many segments are drawn, the largest ones. */
  readonly segments: number
}

export interface Layout {
  /** `cuda:0, NVIDIA H200, 139.81 GiB` */
  readonly title: string
  /** Device memory, and pinned host memory where there is some. */
  readonly memories: readonly MemoryLayout[]
}

export interface MemoryLayout {
  readonly name: 'device memory' | 'pinned host memory'
  readonly figures: Figures
  readonly bars: readonly Bar[]
  /** `and 3 smaller segments: 6.00 MiB`; empty where every segment is drawn. */
  readonly rest: string
}

export interface Bar {
  readonly segment: SnapshotSegment
  readonly pieces: readonly Piece[]
  /** How many times as long the bar is drawn as its bytes are worth; 1 for most. */
  readonly enlarged: number
}

/** A stretch of a bar: blocks that share columns. It shows the state that most of its bytes have. */
export interface Piece {
  readonly state: BlockState
  /** 0 of unmapped addresses, which have no memory and may be a thousand times as long as all memory. */
  readonly columns: number
  readonly blocks: readonly SnapshotBlock[]
}

export interface Figures {
  readonly segments: number
  /** Bytes and blocks by state. */
  readonly states: Readonly<Record<BlockState, { readonly bytes: number; readonly blocks: number }>>
  /** Bytes as asked for, of live blocks. */
  readonly requested: number
  /** Bytes of memory that are held. Unmapped bytes do not count: there is no memory beneath them. */
  readonly reserved: number
  /** Why reserved bytes that hold nothing cannot serve one allocation from the device's own pool at once. */
  readonly unusable: {
    readonly rounding: number
    readonly pending: number
    readonly cached: number
    readonly otherPools: number
    readonly pieces: number
  }
  /** The longest free block of the device's own pool: the largest allocation that needs no new memory. */
  readonly longest: number
  /** The sites of live bytes, most bytes first. */
  readonly holders: readonly { readonly site: number; readonly bytes: number; readonly blocks: number }[]
  /** The uses that pending blocks wait for, by lane. */
  readonly waits: readonly {
    readonly lane: LaneId
    readonly uses: number
    readonly bytes: number
    /** The last point that a block waits for, and how many of the uses have completed already. */
    readonly point: number
    readonly done: number
  }[]
}

export const layoutOf = (snapshot: AllocatorSnapshot, resolution: Resolution): Layout => {
  const memory = (name: MemoryLayout['name'], segments: readonly SnapshotSegment[]): MemoryLayout => ({
    name,
    figures: figuresOf(snapshot, segments),
    ...barsOf(segments, resolution),
  })
  const pinned = snapshot.segments.filter(segment => segment.pinned)
  return {
    title: deviceOf(snapshot.device),
    memories: [
      memory(
        'device memory',
        snapshot.segments.filter(segment => !segment.pinned),
      ),
      ...(pinned.length > 0 ? [memory('pinned host memory', pinned)] : []),
    ],
  }
}

/** The sums over segments: of device memory, or of pinned memory. */
export const figuresOf = (snapshot: AllocatorSnapshot, segments: readonly SnapshotSegment[]): Figures => {
  const none = () => ({ bytes: 0, blocks: 0 })
  const states = { live: none(), pending: none(), cached: none(), free: none(), unmapped: none() }
  const holders = new Map<number, { site: number; bytes: number; blocks: number }>()
  const waits = new Map<LaneId, { lane: LaneId; uses: number; bytes: number; point: number; done: number }>()
  const lanes = new Map(snapshot.lanes.map(lane => [lane.id, lane]))
  let [requested, otherPools, longest] = [0, 0, 0]
  for (const segment of segments)
    for (const block of segment.blocks) {
      const { size, state, site } = block
      states[state].bytes += size
      states[state].blocks++
      if (state === 'live') {
        requested += block.requested
        const holder = holders.get(site) ?? { site, bytes: 0, blocks: 0 }
        holder.bytes += size
        holder.blocks++
        holders.set(site, holder)
      } else if (state === 'free' && segment.pool !== 0) otherPools += size
      else if (state === 'free') longest = Math.max(longest, size)
      if (state !== 'pending') continue
      for (const { lane, point } of block.uses) {
        const wait = waits.get(lane) ?? { lane, uses: 0, bytes: 0, point: 0, done: 0 }
        wait.uses++
        wait.bytes += size
        wait.point = Math.max(wait.point, point)
        if ((lanes.get(lane)?.done ?? -1) >= point) wait.done++
        waits.set(lane, wait)
      }
    }
  const { live, pending, cached, free } = states
  return {
    segments: segments.length,
    states,
    requested,
    reserved: live.bytes + pending.bytes + cached.bytes + free.bytes,
    unusable: {
      rounding: live.bytes - requested,
      pending: pending.bytes,
      cached: cached.bytes,
      otherPools,
      pieces: free.bytes - otherPools - longest,
    },
    longest,
    holders: [...holders.values()].sort((a, b) => b.bytes - a.bytes || a.site - b.site),
    waits: [...waits.values()].sort((a, b) => a.lane - b.lane),
  }
}

const barsOf = (segments: readonly SnapshotSegment[], resolution: Resolution) => {
  const bySize = [...segments].sort((a, b) => b.mappedSize - a.mappedSize || a.counter - b.counter)
  const drawn = new Set(bySize.slice(0, resolution.segments))
  const largest = bySize[0]?.mappedSize ?? 0
  const others = bySize.slice(resolution.segments)
  const bytes = others.reduce((total, { mappedSize }) => total + mappedSize, 0)
  return {
    bars: segments.filter(segment => drawn.has(segment)).map(segment => barOf(segment, largest, resolution)),
    rest: others.length === 0 ? '' : `and ${plural(others.length, 'smaller segment')}: ${sizeOf(bytes)}`,
  }
}

const barOf = (segment: SnapshotSegment, largest: number, { columns, leastColumns }: Resolution): Bar => {
  if (segment.mappedSize === 0) return { segment, pieces: piecesOf(segment, 0), enlarged: 1 }
  const exact = (columns * segment.mappedSize) / largest
  const drawn = Math.max(leastColumns, Math.round(exact))
  return { segment, pieces: piecesOf(segment, drawn), enlarged: exact < leastColumns ? drawn / exact : 1 }
}

// A block's piece ends at the column nearest to the block's end. Blocks that are too small for a column of
// their own share one.
const piecesOf = (segment: SnapshotSegment, columns: number): readonly Piece[] => {
  const pieces: { state: BlockState; columns: number; blocks: SnapshotBlock[] }[] = []
  const bytesPerColumn = segment.mappedSize / columns
  let small: SnapshotBlock[] = []
  let [bytes, column] = [0, 0]
  const close = (end: number) => {
    pieces.push({ state: mostOf(small), columns: end - column, blocks: small })
    small = []
    column = end
  }
  for (const block of segment.blocks) {
    if (block.state === 'unmapped') {
      const last = pieces.at(-1)
      if (last?.state === 'unmapped') last.blocks.push(block)
      else pieces.push({ state: 'unmapped', columns: 0, blocks: [block] })
      continue
    }
    bytes += block.size
    const end = Math.round(bytes / bytesPerColumn)
    if (small.length > 0 && end > column + 1) close(column + 1)
    small.push(block)
    if (end > column) close(end)
  }
  const last = pieces.findLast(({ columns }) => columns > 0)
  for (const block of small) last?.blocks.push(block)
  return pieces
}

const mostOf = (blocks: readonly SnapshotBlock[]): BlockState => {
  const bytes = new Map<BlockState, number>()
  for (const { state, size } of blocks) bytes.set(state, (bytes.get(state) ?? 0) + size)
  return [...bytes].reduce((most, each) => (each[1] > most[1] ? each : most))[0]
}

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']

/** `1.50 MiB`; whole bytes below 1 KiB: unlike in explanations, sizes stand below one another. */
export const sizeOf = (bytes: number): string => {
  let unit = 0
  while (unit < units.length - 1 && bytes >= 2 ** (10 * (unit + 1))) unit++
  return unit === 0 ? `${bytes} B` : `${(bytes / 2 ** (10 * unit)).toFixed(2)} ${units[unit]}`
}

/**
 * A name on one line and not too long. Names come from users and files: control characters and those that
 * turn the direction of writing are spelt out, so that no name steers a terminal.
 */
export const shown = (name: string, most = 60): string => {
  const visible = escaped(name)
  const characters = Array.from(visible)
  return characters.length <= most ? visible : `${characters.slice(0, most - 1).join('')}…`
}

const deviceOf = ({ kind, ordinal, name, totalBytes }: SnapshotDevice): string =>
  [kind === 'cuda' ? `cuda:${ordinal}` : 'host', shown(name), totalBytes > 0 ? sizeOf(totalBytes) : '']
    .filter(part => part !== '')
    .join(', ')

/** The names of a snapshot's lanes and sites, as pictures write them. */
export class Names {
  private readonly lanes: ReadonlyMap<LaneId, string>
  constructor(private readonly snapshot: AllocatorSnapshot) {
    this.lanes = new Map(snapshot.lanes.map(({ id, name }) => [id, name]))
  }

  lane(id: LaneId): string {
    if (id < 0) return 'no lane'
    const name = this.lanes.get(id) ?? ''
    return name === '' ? `lane ${id}` : shown(name, 32)
  }

  /** `copy@41`: a point of a lane. Of the caller's own events the point is not known. */
  point(id: LaneId, point: number): string {
    return id < 0 ? "an event of the caller's" : `${this.lane(id)}@${point}`
  }

  /** The innermost frame. */
  site(site: number, most = 60): string {
    const frame = this.snapshot.sites[site]?.[0]
    if (!frame) return 'site not known'
    const where = frame.line > 0 ? `${frame.filename}:${frame.line}` : frame.filename
    const parts = [frame.name, frame.name !== '' && where !== '' ? `(${where})` : where].filter(
      part => part !== '',
    )
    return parts.length === 0 ? 'site not known' : shown(parts.join(' '), most)
  }
}
