// Snapshots for property tests: any that the format allows, and those that a small model of an allocator arrives at, whose
// history and segments agree.
import fc from 'fast-check'
import {
  type AllocatorSnapshot,
  actions,
  type BlockState,
  blockStates,
  type SnapshotBlock,
  type SnapshotRecord,
  type SnapshotSegment,
} from '../../runtime/allocator/snapshot/snapshot-data.js'

/** Names as users, files and enemies write them. */
export const names = fc.oneof(
  fc.string({ maxLength: 12 }),
  fc.string({ unit: 'binary', maxLength: 12 }),
  fc.constantFrom(
    '</title><script>alert(1)</script>',
    '"><img src=x onerror=alert(1)>',
    ']]><!ENTITY x SYSTEM "file:///etc/passwd">',
    '\u001b[2J\u001b]0;owned\u0007',
    'a\r\nb\tc\u0000\u009b31m',
    '\u202Egnp.exe\u2066',
    '\uD800 lone \uDFFF\uFFFE\uFFFF',
    '&amp;lt;&#0;`',
    '__proto__',
    'constructor',
  ),
)

const base: Omit<AllocatorSnapshot, 'lanes' | 'segments' | 'history' | 'sites'> = {
  version: 1,
  device: { kind: 'cuda', ordinal: 1, name: 'NVIDIA H200', totalBytes: 150_000_000_000 },
  stats: { 'allocation.all.current': 3 },
  options: { expandable_segments: true, garbage_collection_threshold: 0.5, conf: 'expandable_segments:True' },
}

export const lanes = ['copy', 'math', 'comm'].map((name, id) => ({
  id,
  name,
  stream: id === 0 ? 0 : 94_000_000_000_000 + id * 16,
  retired: id === 2,
  done: 3 * id,
  present: 10,
}))

const laneId = fc.integer({ min: -1, max: lanes.length - 1 })
const use = fc.record({ lane: laneId, point: fc.nat(20) })
const wanted = fc.record({
  state: fc.constantFrom<BlockState>(...blockStates),
  size: fc.oneof(fc.constantFrom(1, 512, 2 ** 20, 2 ** 31, 2 ** 36), fc.integer({ min: 1, max: 2 ** 24 })),
  asked: fc.double({ min: 0, max: 1, noNaN: true }),
  lane: laneId,
  site: fc.nat(3),
  uses: fc.array(use, { maxLength: 3 }),
  noted: fc.array(laneId, { maxLength: 2 }),
  release: fc.nat(20),
})

const segments = fc
  .array(
    fc.record({
      gap: fc.nat(2 ** 20),
      lane: laneId,
      sizes: fc.constantFrom('small' as const, 'large' as const),
      pool: fc.nat(2),
      expandable: fc.boolean(),
      pinned: fc.boolean(),
      blocks: fc.array(wanted, { maxLength: 12 }),
    }),
    { maxLength: 8 },
  )
  .map(list => {
    let end = 2 ** 40
    return list.map(({ gap, blocks, ...rest }, counter): SnapshotSegment => {
      const address = end + gap
      end = address
      const tiles = blocks.map(({ asked, size, state, ...block }): SnapshotBlock => {
        const tile = { address: end, size, state, requested: Math.floor(asked * size), ...block }
        end += size
        return state === 'unmapped' && !rest.expandable ? { ...tile, state: 'free' } : tile
      })
      const mappedSize = tiles.reduce((sum, { state, size }) => (state === 'unmapped' ? sum : sum + size), 0)
      return { address, totalSize: end - address, mappedSize, counter, blocks: tiles, ...rest }
    })
  })

const frame = fc.record({ filename: names, line: fc.nat(9999), name: names })

/** Any snapshot, its history such as no allocator would write it. */
export const snapshots: fc.Arbitrary<AllocatorSnapshot> = fc
  .record({
    segments,
    laneNames: fc.array(names, { minLength: 3, maxLength: 3 }),
    device: names,
    sites: fc.tuple(...Array.from({ length: 3 }, () => fc.array(frame, { maxLength: 3 }))),
    history: fc.array(
      fc.record({
        action: fc.constantFrom(...actions),
        where: fc.nat(200),
        size: fc.oneof(fc.nat(2 ** 20), fc.constantFrom(0, 512)),
        lane: laneId,
        pool: fc.nat(2),
        site: fc.nat(3),
        pinned: fc.boolean(),
        text: fc.option(names, { nil: undefined }),
      }),
      { maxLength: 30 },
    ),
  })
  .map(({ segments, laneNames, device, sites, history }) => {
    const places = [0, 512, ...segments.flatMap(s => [s.address, ...s.blocks.map(({ address }) => address)])]
    const records = history.map(({ where, text, ...record }, id): SnapshotRecord => {
      const address = places[where % places.length]!
      return {
        ...record,
        address,
        id,
        timeMicroseconds: 1_700_000_000_000_000 + id,
        ...(text === undefined ? {} : { text }),
      }
    })
    return {
      ...base,
      device: { ...base.device, name: device },
      lanes: lanes.map((lane, i) => ({ ...lane, name: laneNames[i]! })),
      segments,
      history: records,
      sites: [[], ...sites],
    }
  })

const page = 1024
const slot = 256

/** Snapshots whose history led to their segments: what is left of it may begin anywhere. */
export const modelled: fc.Arbitrary<AllocatorSnapshot> = fc
  .record({
    kinds: fc.array(fc.record({ expandable: fc.boolean(), lane: fc.nat(2), pool: fc.nat(1) }), {
      minLength: 1,
      maxLength: 4,
    }),
    // Mostly the first slot of a page, so that pages are often free as a whole and go.
    steps: fc.array(
      fc.record({
        segment: fc.nat(3),
        slot: fc.oneof(fc.constantFrom(0, 4, 8, 12), fc.constantFrom(0, 4, 8, 12), fc.nat(15)),
        does: fc.constantFrom(0, 0, 0, 1, 2, 3, 4, 5),
        lane: fc.nat(2),
      }),
      { maxLength: 150, size: 'max' },
    ),
    forgotten: fc.oneof(fc.constant(0), fc.nat(60)),
  })
  .map(({ kinds, steps, forgotten }) => {
    const history: SnapshotRecord[] = []
    const memory = kinds.map(({ expandable, lane, pool }, i) => ({
      ...{ expandable, lane, pool, address: 2 ** 42 + i * 4 * page },
      pages: [false, false, false, false],
      slots: Array.from({ length: 16 }, () => ({ state: 'free' as BlockState, lane })),
    }))
    type Segment = (typeof memory)[number]
    const log = (action: SnapshotRecord['action'], address: number, size: number, lane: number, pool: number) =>
      history.push({
        action,
        address,
        size,
        lane,
        pool,
        timeMicroseconds: history.length,
        site: 0,
        id: history.length,
      })
    // A plain segment has memory as a whole; an expandable one page by page.
    const span = (segment: Segment, at: number) => (segment.expandable ? [at] : [0, 1, 2, 3])
    const settle = (segment: Segment, lane: number, at: number, on: boolean) => {
      const pages = span(segment, at)
      const inUse = pages.some(p => segment.slots.slice(4 * p, 4 * p + 4).some(({ state }) => state !== 'free'))
      if (inUse || pages.every(p => segment.pages[p] === on)) return
      for (const p of pages) segment.pages[p] = on
      const action = `segment_${segment.expandable ? (on ? 'map' : 'unmap') : on ? 'alloc' : 'free'}` as const
      log(action, segment.address + pages[0]! * page, pages.length * page, lane, segment.pool)
    }
    for (const { segment: index, slot: s, does, lane } of steps) {
      const segment = memory[index % memory.length]!
      const block = segment.slots[s]!
      const address = segment.address + s * slot
      const at = s >> 2
      if (does === 0) settle(segment, lane, at, false)
      else if (!segment.pages[at]) settle(segment, lane, at, true)
      else if (block.state === 'free') {
        segment.slots[s] = { state: 'live', lane }
        log('alloc', address, slot, lane, segment.pool)
      } else if (block.state === 'live') {
        if (does === 5) log('use_recorded', address, slot, lane, segment.pool)
        log('free_requested', address, slot, block.lane, segment.pool)
        segment.slots[s] = { state: does > 2 ? 'pending' : 'free', lane: block.lane }
        if (does <= 2) log('free_completed', address, slot, block.lane, segment.pool)
      } else {
        segment.slots[s] = { state: 'free', lane: block.lane }
        log('free_completed', address, slot, block.lane, segment.pool)
      }
    }
    const segments = memory
      .filter(({ expandable, pages }) => expandable || pages[0])
      .map(({ address, lane, pool, expandable, pages, slots }, counter): SnapshotSegment => {
        const blocks = slots.map((block, i): SnapshotBlock => {
          const state = pages[i >> 2] ? block.state : 'unmapped'
          const uses = state === 'pending' ? [{ lane: 1, point: 2 }] : []
          return {
            ...{ address: address + i * slot, size: slot, requested: 200, state, lane: block.lane },
            ...{ release: 0, site: 0, uses, noted: [] },
          }
        })
        const mappedSize = pages.filter(Boolean).length * page
        return {
          ...{ address, totalSize: 4 * page, mappedSize, lane, sizes: 'small', pool, expandable },
          ...{ counter, pinned: false, blocks },
        }
      })
    return { ...base, lanes, segments, history: history.slice(Math.min(forgotten, history.length)), sites: [[]] }
  })
