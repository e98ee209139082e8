// A snapshot of PyTorch's allocator (`torch.cuda.memory._dump_snapshot`) as one of ours, so that it can be drawn. Its streams
// become lanes; what its pending blocks wait for PyTorch does not say.
import * as E from 'fp-ts/lib/Either.js'
import type { ReadonlyNonEmptyArray } from 'fp-ts/lib/ReadonlyNonEmptyArray.js'
import { PickleError, type Unpickled, unpickle } from './pickle-read.js'
import { type AllocatorSnapshot, actions } from './snapshot-data.js'
import { parseSnapshot, type SnapshotFault } from './snapshot-read.js'

type Dict = { readonly [key: string]: Unpickled }

const fault = (
  _tag: SnapshotFault['_tag'],
  at: string,
  wanted: string,
  found: string,
  next: string,
): SnapshotFault => ({
  ...{ _tag, at, subject: 'snapshot', wanted, found, next },
})

/**
 * A snapshot from PyTorch's pickle, of one of the devices in it: `device`, or the one with the most memory. All faults at once;
 * never throws, and runs nothing that the file names.
 */
export const fromTorch = (
  bytes: Uint8Array,
  device?: number,
): E.Either<ReadonlyNonEmptyArray<SnapshotFault>, AllocatorSnapshot> => {
  try {
    const read = unpickle(bytes)
    // Before there were traces a snapshot was the list of segments.
    const data: Dict = Array.isArray(read) ? { segments: read } : dict(read)
    if (!Array.isArray(data['segments'])) {
      const next = 'write one with: torch.cuda.memory._dump_snapshot(path)'
      return E.left([fault('Missing', 'segments', "the segments of PyTorch's snapshot", 'none', next)])
    }
    const held = listOf(data['segments']).map(dict)
    const ordinals = new Set(held.map(({ device }) => numberOf(device)))
    listOf(data['device_traces']).forEach((trace, i) => void (listOf(trace).length > 0 && ordinals.add(i)))
    const ordinal = device ?? mostHeld(held) ?? [...ordinals][0] ?? 0
    if (device !== undefined && !ordinals.has(device)) {
      const known = [...ordinals].sort((a, b) => a - b).join(', ')
      const found = known === '' ? 'no device' : `devices ${known}`
      return E.left([
        fault('UnknownId', 'segments', `device ${device}`, found, 'name a device that is there'),
      ])
    }
    return parseSnapshot(new Conversion().snapshot(data, ordinal))
  } catch (error) {
    const at = error instanceof PickleError ? `byte ${error.offset}` : 'pickle'
    const found = error instanceof PickleError ? error.found : (error as Error).message
    const next = 'write one with: torch.cuda.memory._dump_snapshot(path)'
    return E.left([fault('BadJson', at, "PyTorch's snapshot, of plain data alone", found, next)])
  }
}

const dict = (value: Unpickled | undefined): Dict =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array)
    ? (value as Dict)
    : {}
const listOf = (value: Unpickled | undefined): readonly Unpickled[] => (Array.isArray(value) ? value : [])
const numberOf = (value: Unpickled | undefined): number => (typeof value === 'number' ? value : -1)

const mostHeld = (segments: readonly Dict[]): number | undefined => {
  const bytes = new Map<number, number>()
  for (const { device, total_size } of segments)
    bytes.set(numberOf(device), (bytes.get(numberOf(device)) ?? 0) + Math.max(0, numberOf(total_size)))
  return [...bytes].sort(([a, m], [b, n]) => n - m || a - b)[0]?.[0]
}

const states: Readonly<Record<string, string>> = {
  active_allocated: 'live',
  active_pending_free: 'pending',
  active_awaiting_free: 'pending',
  inactive: 'free',
}

// What is of the wrong type is handed on as it is: the reader of snapshots says what is wrong with it, and where.
class Conversion {
  private readonly lanes = new Map<Unpickled | undefined, number>()
  private readonly sites: Unpickled[] = [[]]
  private readonly siteOf = new Map<Unpickled, number>()
  private entries = 0

  snapshot(data: Dict, ordinal: number): object {
    const of = (list: Unpickled | undefined, pinned: boolean) =>
      listOf(list)
        .map(dict)
        .filter(({ device }) => pinned || device === ordinal || device === undefined)
        .map((segment, i) => this.segment(segment, i, pinned))
    const segments = [...of(data['segments'], false), ...of(data['host_segments'], true)]
    const history = [
      ...this.records(listOf(data['device_traces'])[ordinal], false),
      ...this.records(data['host_traces'], true),
    ]
    const lanes = [...this.lanes].map(([stream, id]) => ({
      ...{ id, name: stream === 0 ? 'default stream' : `stream ${hex(stream)}`, stream },
      ...{ retired: false, done: 0, present: 0 },
    }))
    const settings = Object.entries(dict(data['allocator_settings']))
    const options = Object.fromEntries(
      settings.filter(([, value]) => ['boolean', 'number', 'string'].includes(typeof value)),
    )
    const device = { kind: 'cuda', ordinal, name: "PyTorch's allocator", totalBytes: 0 }
    return { version: 1, device, lanes, segments, history, sites: this.sites, stats: {}, options }
  }

  private segment(segment: Dict, i: number, pinned: boolean): object {
    const { address, total_size, stream, segment_type, segment_pool_id, registration_counter } = segment
    let end = address
    const blocks = listOf(segment['blocks']).map(value => {
      const block = dict(value)
      const at = end
      if (typeof end === 'number' && typeof block['size'] === 'number') end += block['size']
      return this.block(block, at, stream)
    })
    return {
      ...{ address, totalSize: total_size, mappedSize: total_size, lane: this.lane(stream), pinned, blocks },
      ...{
        sizes: segment_type,
        pool: this.pool(segment_pool_id),
        expandable: segment['is_expandable'] === true,
      },
      counter: registration_counter ?? i,
    }
  }

  private block(block: Dict, at: Unpickled | undefined, stream: Unpickled | undefined): object {
    this.count()
    const { size, requested_size, address, state, frames, home_stream } = block
    const uses = listOf(block['pending_uses']).map(value => {
      const use = dict(value)
      return { lane: this.lane(use['stream']), point: use['event_point'] }
    })
    return {
      ...{
        address: address ?? at,
        size,
        requested: requested_size ?? size,
        lane: this.lane(home_stream ?? stream),
      },
      state: typeof state === 'string' && Object.hasOwn(states, state) ? states[state] : state,
      ...{ release: 0, site: this.site(frames), uses, noted: [] },
    }
  }

  private records(trace: Unpickled | undefined, pinned: boolean): readonly object[] {
    return listOf(trace)
      .map(dict)
      .filter(({ action }) => (actions as readonly unknown[]).includes(action))
      .map((record, id) => {
        this.count()
        const { action, addr, device_free, size, time_us, frames, user_metadata, pool_id } = record
        const stream = record['home_stream'] ?? record['stream']
        return {
          ...{
            action,
            address: action === 'oom' ? device_free : addr,
            size,
            lane: this.lane(stream),
            pinned,
            id,
          },
          ...{ pool: this.pool(pool_id), timeMicroseconds: time_us ?? 0, site: this.site(frames) },
          ...(typeof user_metadata === 'string' && user_metadata !== '' ? { text: user_metadata } : {}),
        }
      })
  }

  private lane(stream: Unpickled | undefined): number {
    const id = this.lanes.get(stream) ?? this.lanes.size
    this.lanes.set(stream, id)
    return id
  }

  // A pool of the user's is (0, n) and keeps its number; one of graphs, (n, 0), gets one that no other has.
  private pool(id: Unpickled | undefined): number {
    const [ofGraphs, ofUsers] = listOf(id).map(numberOf)
    return (ofGraphs ?? 0) > 0 ? 1_000_000 + ofGraphs! : Math.max(0, ofUsers ?? 0)
  }

  private site(frames: Unpickled | undefined): number {
    if (!Array.isArray(frames) || frames.length === 0) return 0
    const known = this.siteOf.get(frames)
    if (known !== undefined) return known
    this.sites.push(frames)
    this.siteOf.set(frames, this.sites.length - 1)
    return this.sites.length - 1
  }

  // A small pickle may name the same list many times over.
  private count(): void {
    if (++this.entries > 20_000_000) throw new RangeError('more than 20 million blocks and records')
  }
}

const hex = (value: Unpickled | undefined): string =>
  typeof value === 'number' || typeof value === 'bigint' ? `0x${value.toString(16)}` : 'of no number'
