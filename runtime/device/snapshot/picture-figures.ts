// What both pictures of a snapshot say in numbers. Unmapped bytes count nowhere: there is no memory beneath them.
import type {
  AllocatorSnapshot,
  BlockState,
  LaneId,
  SnapshotBlock,
  SnapshotSegment,
} from './snapshot-data.js'

export interface Figures {
  /** Bytes and blocks by state. */
  readonly states: Readonly<Record<BlockState, { readonly bytes: number; readonly blocks: number }>>
  /** As asked for, of the live bytes. */
  readonly requested: number
  readonly reserved: number
  /** Why reserved bytes that hold nothing cannot serve one allocation of the device's own pool at once. */
  readonly unusable: {
    readonly rounding: number
    readonly pending: number
    readonly cached: number
    readonly otherPools: number
    readonly pieces: number
  }
  /** The longest free block of the device's own pool: what one allocation can have at once. */
  readonly longest: number
  /** The sites of live bytes, most bytes first. */
  readonly holders: readonly { readonly site: number; readonly bytes: number; readonly blocks: number }[]
  /** What pending blocks wait for, by lane. */
  readonly waits: readonly {
    readonly lane: LaneId
    readonly uses: number
    readonly bytes: number
    /** The last point that a block waits for, and how many of the uses have completed already. */
    readonly point: number
    readonly done: number
  }[]
}

export const mapped = ({ state }: SnapshotBlock): boolean => state !== 'unmapped'

/** Of the device's memory, or of its pinned host memory: the two have nothing to do with each other. */
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
