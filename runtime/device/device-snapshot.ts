import type { Core } from './core.js'
import {
  type AllocatorSnapshot,
  actions,
  blockStates,
  type SnapshotBlock,
  type SnapshotLane,
  type SnapshotRecord,
  type SnapshotSegment,
  type SnapshotUse,
} from './snapshot/snapshot.js'
import { statsFrom } from './stats.js'

/**
 * A snapshot of a device's allocators, from the rows of numbers that native/bindings/allocator_report.h
 * describes.
 */
export const snapshotOf = (core: Core): AllocatorSnapshot => {
  const { native, options, sites } = core
  const rows = native.snapshot()
  const { kind, ordinal, name, totalBytes } = native.info
  const { divisions, pinned, ...scalar } = options
  return {
    version: 1,
    device: { kind, ordinal, name, totalBytes },
    lanes: lanesOf(rows.lanes, rows.laneNames),
    segments: [...segmentsOf(rows.segments, false), ...segmentsOf(rows.pinnedSegments, true)],
    history: [...recordsOf(rows.history, false), ...recordsOf(rows.pinnedHistory, true)].sort(
      (a, b) => a.timeMicroseconds - b.timeMicroseconds,
    ),
    sites: sites.all(),
    stats: statsFrom(native.stats(0), options.maxSplit, options.policy),
    options: {
      ...finite(scalar),
      divisions: divisions.join(','),
      ...Object.fromEntries(Object.entries(finite(pinned)).map(([key, value]) => [`pinned.${key}`, value])),
    },
  }
}

// JSON has no Infinity: "no bound" is written as a word.
const finite = (options: object): Record<string, string | number | boolean> =>
  Object.fromEntries(
    Object.entries(options).map(([key, value]) => [
      key,
      value === Number.POSITIVE_INFINITY ? 'unlimited' : value,
    ]),
  )

const lanesOf = (row: Float64Array, names: readonly string[]): SnapshotLane[] => {
  const lanes: SnapshotLane[] = []
  for (let i = 0; i < row.length; i += 5) {
    const [id, stream, retired, done, present] = row.subarray(i, i + 5) as unknown as [
      number,
      number,
      number,
      number,
      number,
    ]
    lanes.push({ id, name: names[id] ?? `lane ${id}`, stream, retired: retired === 1, done, present })
  }
  return lanes
}

const segmentsOf = (row: Float64Array, pinned: boolean): SnapshotSegment[] => {
  const segments: SnapshotSegment[] = []
  let at = 0
  const next = (): number => row[at++]!
  const uses = (): SnapshotUse[] => Array.from({ length: next() }, () => ({ lane: next(), point: next() }))
  const block = (): SnapshotBlock => ({
    address: next(),
    size: next(),
    requested: next(),
    state: blockStates[next()]!,
    lane: next(),
    release: next(),
    site: next(),
    uses: uses(),
    noted: Array.from({ length: next() }, next),
  })
  while (at < row.length)
    segments.push({
      address: next(),
      totalSize: next(),
      mappedSize: next(),
      lane: next(),
      sizes: next() === 0 ? 'small' : 'large',
      pool: next(),
      expandable: next() === 1,
      counter: next(),
      pinned,
      blocks: Array.from({ length: next() }, block),
    })
  return segments
}

const recordsOf = (row: Float64Array, pinned: boolean): SnapshotRecord[] => {
  const records: SnapshotRecord[] = []
  for (let i = 0; i < row.length; i += 8)
    records.push({
      action: actions[row[i]!]!,
      address: row[i + 1]!,
      size: row[i + 2]!,
      lane: row[i + 3]!,
      pool: row[i + 4]!,
      timeMicroseconds: row[i + 5]!,
      site: row[i + 6]!,
      id: row[i + 7]!,
      ...(pinned ? { pinned } : {}),
    })
  return records
}
