import * as E from 'fp-ts/lib/Either.js'
import type { ReadonlyNonEmptyArray } from 'fp-ts/lib/ReadonlyNonEmptyArray.js'
import { Enough, type PlanFault, Reader, show } from '../../../dsl/ir/reader.js'
import {
  type AllocatorSnapshot,
  actions,
  blockStates,
  type SnapshotBlock,
  type SnapshotDevice,
  type SnapshotFrame,
  type SnapshotLane,
  type SnapshotRecord,
  type SnapshotSegment,
} from './snapshot.js'

/** An error in a snapshot, with the place. */
export type SnapshotFault = PlanFault

const most = {
  lanes: 65_536,
  segments: 1_000_000,
  blocks: 10_000_000, // of one segment
  records: 50_000_000,
  sites: 10_000_000,
  frames: 4_096,
  uses: 65_536,
  fields: 100_000,
  text: 1_000_000,
  number: Number.MAX_SAFE_INTEGER,
}

/**
 * Reads a snapshot from the text of a file, or from any value. Returns every fault (up to a hundred), or a
 * snapshot that is built anew, field by field; fields that the format does not have are dropped. Checks that
 * every id names something, that the blocks of a segment tile it, and that no two segments share an address.
 * Never throws.
 */
export const parseSnapshot = (
  input: string | unknown,
): E.Either<ReadonlyNonEmptyArray<SnapshotFault>, AllocatorSnapshot> => {
  const r = new SnapshotReader()
  try {
    const snapshot = readSnapshot(r, typeof input === 'string' ? JSON.parse(input) : input)
    if (r.faults.length === 0) return E.right(snapshot)
  } catch (error) {
    if (!(error instanceof Enough)) {
      const found = error instanceof Error ? String(error.message).slice(0, 200) : show(error)
      r.faults.push({
        _tag: 'BadJson',
        at: 'snapshot',
        subject: 'snapshot',
        wanted: 'a snapshot as JSON',
        found,
        next: 'write one with: JSON.stringify(device.snapshot())',
      })
    }
  }
  return E.left(r.faults as readonly SnapshotFault[] as ReadonlyNonEmptyArray<SnapshotFault>)
}

class SnapshotReader extends Reader {
  lanes: ReadonlySet<number> = new Set([-1])
  sites = 0

  override list(value: unknown, at: string, limit: number): readonly unknown[] {
    if (!Array.isArray(value) || value.length <= limit) return super.list(value, at, limit)
    const next = 'keep less history, or fewer allocations'
    this.fault('TooMany', at, at, `at most ${limit} entries`, `${value.length}`, next)
    return []
  }

  natural(value: unknown, at: string): number {
    return this.integer(value, at, 0, most.number)
  }

  lane(value: unknown, at: string): number {
    const id = this.integer(value, at, -1, most.number)
    if (!this.lanes.has(id)) this.unknown(at, `lane ${id}`, 'the id of a lane of the snapshot, or -1')
    return id
  }

  site(value: unknown, at: string): number {
    const site = this.natural(value, at)
    if (site < this.sites || site === 0) return site
    this.unknown(at, `site ${site}`, `a site below ${this.sites}`)
    return 0
  }

  /** A block or segment that overlaps another one, or leaves a gap. */
  place(at: string, wanted: string, found: string): void {
    this.fault('Extent', at, at, wanted, found, 'take the snapshot again: it was changed, or cut off')
  }

  private unknown(at: string, found: string, wanted: string): void {
    this.fault('UnknownId', at, found, wanted, found, 'take the snapshot again: it was changed, or cut off')
  }
}

const readSnapshot = (r: SnapshotReader, value: unknown): AllocatorSnapshot => {
  const top = r.object(value, 'snapshot')
  const get = (key: string) => r.field(top, key)
  const version = get('version')
  if (version !== 1) {
    const found = version === undefined ? 'nothing' : show(version)
    const next = 'give what device.snapshot() of this version of Braid gives, as JSON'
    r.fault('BadVersion', 'version', 'version', 'format 1', found, next)
    throw new Enough()
  }
  const device = readDevice(r, get('device'))
  const lanes = r.list(get('lanes'), 'lanes', most.lanes).map((lane, i) => readLane(r, lane, `lanes[${i}]`))
  r.lanes = new Set([-1, ...lanes.map(({ id }) => id)])
  if (r.lanes.size <= lanes.length)
    r.fault(
      'UnknownId',
      'lanes',
      'id',
      'an id of its own for each lane',
      'one twice',
      'number the lanes anew',
    )
  const sites = r
    .list(get('sites'), 'sites', most.sites)
    .map((site, i) =>
      r.list(site, `sites[${i}]`, most.frames).map((f, j) => readFrame(r, f, `sites[${i}][${j}]`)),
    )
  r.sites = sites.length
  const segments = r
    .list(get('segments'), 'segments', most.segments)
    .map((segment, i) => readSegment(r, segment, `segments[${i}]`))
  const history = r
    .list(get('history'), 'history', most.records)
    .map((record, i) => readRecord(r, record, `history[${i}]`))
  const stats = readMap(r, get('stats'), 'stats', (v, at) => r.finite(v, at, -Number.MAX_VALUE))
  const options = readMap(r, get('options'), 'options', (v, at) => readOption(r, v, at))
  apart(r, segments)
  return { version: 1, device, lanes, segments, history, sites, stats, options }
}

const readDevice = (r: SnapshotReader, value: unknown): SnapshotDevice => {
  const device = r.object(value, 'device')
  return {
    kind: r.oneOf(r.field(device, 'kind'), 'device.kind', ['host', 'cuda']),
    ordinal: r.integer(r.field(device, 'ordinal'), 'device.ordinal', 0, 65_535),
    name: r.string(r.field(device, 'name'), 'device.name', most.text),
    totalBytes: r.natural(r.field(device, 'totalBytes'), 'device.totalBytes'),
  }
}

const readLane = (r: SnapshotReader, value: unknown, at: string): SnapshotLane => {
  const lane = r.object(value, at)
  return {
    id: r.natural(r.field(lane, 'id'), `${at}.id`),
    name: r.string(r.field(lane, 'name'), `${at}.name`, most.text),
    stream: r.natural(r.field(lane, 'stream'), `${at}.stream`),
    retired: r.boolean(r.field(lane, 'retired'), `${at}.retired`),
    done: r.natural(r.field(lane, 'done'), `${at}.done`),
    present: r.natural(r.field(lane, 'present'), `${at}.present`),
  }
}

const readFrame = (r: SnapshotReader, value: unknown, at: string): SnapshotFrame => {
  const frame = r.object(value, at)
  return {
    filename: r.string(r.field(frame, 'filename'), `${at}.filename`, most.text),
    line: r.natural(r.field(frame, 'line'), `${at}.line`),
    name: r.string(r.field(frame, 'name'), `${at}.name`, most.text),
  }
}

const readSegment = (r: SnapshotReader, value: unknown, at: string): SnapshotSegment => {
  const segment = r.object(value, at)
  const get = (key: string) => r.field(segment, key)
  const read: SnapshotSegment = {
    address: r.natural(get('address'), `${at}.address`),
    totalSize: r.natural(get('totalSize'), `${at}.totalSize`),
    mappedSize: r.natural(get('mappedSize'), `${at}.mappedSize`),
    lane: r.lane(get('lane'), `${at}.lane`),
    sizes: r.oneOf(get('sizes'), `${at}.sizes`, ['small', 'large']),
    pool: r.natural(get('pool'), `${at}.pool`),
    expandable: r.boolean(get('expandable'), `${at}.expandable`),
    counter: r.natural(get('counter'), `${at}.counter`),
    pinned: r.boolean(get('pinned'), `${at}.pinned`),
    blocks: r
      .list(get('blocks'), `${at}.blocks`, most.blocks)
      .map((block, i) => readBlock(r, block, `${at}.blocks[${i}]`)),
  }
  let end = read.address
  let mapped = 0
  for (const [i, { address, size, state }] of read.blocks.entries()) {
    if (address !== end)
      r.place(`${at}.blocks[${i}].address`, `${end}, where the block before it ends`, `${address}`)
    end = address + size
    if (state !== 'unmapped') mapped += size
  }
  const last = read.address + read.totalSize
  if (end !== last)
    r.place(`${at}.totalSize`, `${end - read.address}, the sum of its blocks`, `${read.totalSize}`)
  if (mapped !== read.mappedSize)
    r.place(
      `${at}.mappedSize`,
      `${mapped}, the sum of its blocks that are not unmapped`,
      `${read.mappedSize}`,
    )
  if (!Number.isSafeInteger(last)) r.place(`${at}.address`, 'a segment that ends below 2^53', `${last}`)
  return read
}

const readBlock = (r: SnapshotReader, value: unknown, at: string): SnapshotBlock => {
  const block = r.object(value, at)
  const get = (key: string) => r.field(block, key)
  const size = r.integer(get('size'), `${at}.size`, 1, most.number)
  const state = r.oneOf(get('state'), `${at}.state`, blockStates)
  const owned = state === 'live' || state === 'pending'
  return {
    address: r.natural(get('address'), `${at}.address`),
    size,
    requested: r.integer(get('requested'), `${at}.requested`, 0, owned ? size : most.number),
    state,
    lane: r.lane(get('lane'), `${at}.lane`),
    release: r.natural(get('release'), `${at}.release`),
    site: r.site(get('site'), `${at}.site`),
    uses: r.list(get('uses'), `${at}.uses`, most.uses).map((value, i) => {
      const use = r.object(value, `${at}.uses[${i}]`)
      const lane = r.lane(r.field(use, 'lane'), `${at}.uses[${i}].lane`)
      return { lane, point: r.natural(r.field(use, 'point'), `${at}.uses[${i}].point`) }
    }),
    noted: r
      .list(get('noted'), `${at}.noted`, most.lanes)
      .map((lane, i) => r.lane(lane, `${at}.noted[${i}]`)),
  }
}

const readRecord = (r: SnapshotReader, value: unknown, at: string): SnapshotRecord => {
  const record = r.object(value, at)
  const get = (key: string) => r.field(record, key)
  const pinned = get('pinned')
  const text = get('text')
  return {
    action: r.oneOf(get('action'), `${at}.action`, actions),
    address: r.natural(get('address'), `${at}.address`),
    size: r.natural(get('size'), `${at}.size`),
    lane: r.lane(get('lane'), `${at}.lane`),
    pool: r.natural(get('pool'), `${at}.pool`),
    timeMicroseconds: r.natural(get('timeMicroseconds'), `${at}.timeMicroseconds`),
    site: r.site(get('site'), `${at}.site`),
    id: r.natural(get('id'), `${at}.id`),
    ...(pinned === undefined ? {} : { pinned: r.boolean(pinned, `${at}.pinned`) }),
    ...(text === undefined ? {} : { text: r.string(text, `${at}.text`, most.text) }),
  }
}

const readMap = <A>(
  r: SnapshotReader,
  value: unknown,
  at: string,
  read: (value: unknown, at: string) => A,
) => {
  const entries = Object.entries(r.object(value, at))
  if (entries.length > most.fields)
    r.fault('TooMany', at, at, `at most ${most.fields}`, `${entries.length}`, 'name fewer')
  return Object.fromEntries(
    entries.slice(0, most.fields).map(([key, entry]) => [key, read(entry, `${at}.${key}`)]),
  )
}

const readOption = (r: SnapshotReader, value: unknown, at: string): string | number | boolean => {
  if (typeof value === 'boolean' || (typeof value === 'number' && Number.isFinite(value))) return value
  if (typeof value === 'string') return r.string(value, at, most.text)
  r.wrong(at, 'a string, a number, true or false', value)
  return false
}

const apart = (r: SnapshotReader, segments: readonly SnapshotSegment[]): void => {
  const byAddress = segments
    .map((segment, i) => ({ segment, i }))
    .sort((a, b) => a.segment.address - b.segment.address)
  for (let n = 1; n < byAddress.length; n++) {
    const before = byAddress[n - 1]!
    const { segment, i } = byAddress[n]!
    const end = before.segment.address + before.segment.totalSize
    if (segment.address >= end) continue
    r.place(
      `segments[${i}].address`,
      `one from ${end} on, where segments[${before.i}] ends`,
      `${segment.address}`,
    )
  }
}
