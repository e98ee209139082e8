// A snapshot and everything made from it agree: the file, PyTorch's form, the text picture and the SVG.

import fc from 'fast-check'
import * as E from 'fp-ts/lib/Either.js'
import { describe, expect, it } from 'vitest'
import { figuresOf, layoutOf } from '../../../runtime/device/snapshot/layout.js'
import { parseSnapshot } from '../../../runtime/device/snapshot/read.js'
import type {
  AllocatorSnapshot,
  BlockState,
  SnapshotRecord,
  SnapshotSegment,
} from '../../../runtime/device/snapshot/snapshot.js'
import { snapshotSvg } from '../../../runtime/device/snapshot/svg.js'
import { snapshotText } from '../../../runtime/device/snapshot/text.js'
import { torchPickle, toTorch } from '../../../runtime/device/snapshot/torch.js'
import { runs } from '../../fixtures/runs.js'
import { modelled, snapshots } from '../../fixtures/snapshots.js'
import { play, unread } from '../../fixtures/torch-viewer.js'
import { unpickle } from '../../fixtures/unpickle.js'
import { parseXml } from '../../fixtures/xml.js'

const law = (name: string, check: (snapshot: AllocatorSnapshot) => void, numRuns = 150) => {
  it(name, () => fc.assert(fc.property(fc.oneof(snapshots, modelled), check), { numRuns: runs(numRuns) }))
}
const bytes = (snapshot: AllocatorSnapshot, states: readonly BlockState[], pinned: boolean) =>
  snapshot.segments
    .filter(segment => segment.pinned === pinned)
    .flatMap(({ blocks }) => blocks)
    .reduce((sum, { size, state }) => sum + (states.includes(state) ? size : 0), 0)

describe('a snapshot file', () => {
  law('is read back as what was written', snapshot => {
    expect(parseSnapshot(JSON.stringify(snapshot))).toEqual(E.right(JSON.parse(JSON.stringify(snapshot))))
  })

  const odd = fc.constantFrom<unknown>(
    null,
    -1,
    0.5,
    2 ** 60,
    '',
    'x',
    true,
    [],
    {},
    [null],
    Number.MAX_VALUE,
    '__proto__',
  )
  it('with any change is read as a snapshot that can be drawn, or as faults with their places', () => {
    const property = fc.property(snapshots, fc.array(fc.nat()), odd, (snapshot, path, value) => {
      const copy = JSON.parse(JSON.stringify(snapshot)) as Record<string, unknown>
      let place: object = copy
      for (const step of path) {
        const keys = Object.keys(place)
        const key = keys[step % keys.length]
        if (key === undefined) break
        const next = (place as Record<string, unknown>)[key]
        if (typeof next !== 'object' || next === null || Object.keys(next).length === 0) {
          ;(place as Record<string, unknown>)[key] = value
          break
        }
        place = next
      }
      const read = parseSnapshot(JSON.stringify(copy))
      if (E.isRight(read)) {
        play(toTorch(read.right))
        parseXml(snapshotSvg(read.right))
        snapshotText(read.right)
      } else
        for (const { at, wanted, found, next } of read.left)
          for (const said of [at, wanted, found, next]) expect(said).not.toBe('')
    })
    fc.assert(property, { numRuns: runs(400) })
  })

  it.each([
    ['', 'BadJson', 'snapshot'],
    ['[]', 'WrongType', 'snapshot'],
    ['{"version":2}', 'BadVersion', 'version'],
    ['{}', 'BadVersion', 'version'],
    ['null', 'WrongType', 'snapshot'],
  ])('%s is none', (text, tag, at) => {
    const read = parseSnapshot(text)
    expect(E.isLeft(read) && read.left[0]).toMatchObject({ _tag: tag, at })
  })

  it.each([
    ['a hole between blocks', (b: Block[]) => void (b[1]!.address += 512), 'segments[0].blocks[1].address'],
    ['blocks that do not fill the segment', (b: Block[]) => void b.pop(), 'segments[0].totalSize'],
    [
      'more asked for than given',
      (b: Block[]) => void (b[0]!.requested = 513),
      'segments[0].blocks[0].requested',
    ],
    ['a lane that is none', (b: Block[]) => void (b[0]!.lane = 7), 'segments[0].blocks[0].lane'],
    ['a site that is none', (b: Block[]) => void (b[0]!.site = 9), 'segments[0].blocks[0].site'],
    [
      'a use of a lane that is none',
      (b: Block[]) => void b[1]!.uses.push({ lane: 7, point: 1 }),
      'segments[0].blocks[1].uses[1].lane',
    ],
    ['a state that is none', (b: Block[]) => void (b[1]!.state = 'gone'), 'segments[0].blocks[1].state'],
  ])('with %s is refused, and says where', (_, change, at) => {
    const copy = JSON.parse(JSON.stringify(small)) as { segments: { blocks: Block[] }[] }
    change(copy.segments[0]!.blocks)
    const read = parseSnapshot(copy)
    expect(E.isLeft(read) ? read.left.map(fault => fault.at) : []).toContain(at)
  })

  it('with two segments at one address is refused', () => {
    const twice = { ...small, segments: [small.segments[0], { ...small.segments[0], counter: 1 }] }
    const read = parseSnapshot(twice)
    expect(E.isLeft(read) && read.left[0]).toMatchObject({ at: 'segments[1].address', found: '1048576' })
  })
})

describe("PyTorch's form", () => {
  law('holds every key that PyTorch reads, of its type', snapshot => {
    expect(unread(toTorch(snapshot))).toEqual([])
  })

  law(
    'holds the same bytes by state, in segments that their blocks tile and that do not overlap',
    snapshot => {
      const torch = toTorch(snapshot)
      for (const pinned of [false, true]) {
        const segments = pinned ? torch.host_segments : torch.segments
        const blocks = segments.flatMap(segment => segment.blocks)
        const sum = (state: string) =>
          blocks.reduce((total, b) => total + (b.state === state ? b.size : 0), 0)
        expect(sum('active_allocated')).toBe(bytes(snapshot, ['live'], pinned))
        expect(sum('active_pending_free')).toBe(bytes(snapshot, ['pending'], pinned))
        expect(sum('inactive')).toBe(bytes(snapshot, ['cached', 'free'], pinned))
        for (const {
          device,
          address,
          total_size,
          allocated_size,
          active_size,
          requested_size,
          blocks,
        } of segments) {
          expect(device).toBe(pinned ? -1 : 1)
          let end = address
          const of = { active_allocated: 0, active_pending_free: 0, inactive: 0 }
          for (const block of blocks) {
            expect(block.address).toBe(end)
            end += block.size
            of[block.state] += block.size
          }
          expect(end - address).toBe(total_size)
          expect([allocated_size, active_size]).toEqual([
            of.active_allocated,
            of.active_allocated + of.active_pending_free,
          ])
          expect(requested_size).toBeLessThanOrEqual(active_size)
        }
        const sorted = [...segments].sort((a, b) => a.address - b.address)
        for (const [i, { address }] of sorted.entries())
          if (i > 0)
            expect(address).toBeGreaterThanOrEqual(sorted[i - 1]!.address + sorted[i - 1]!.total_size)
      }
    },
  )

  law(
    'shows what pending blocks wait for, and keeps what PyTorch has no word for out of its traces',
    snapshot => {
      const torch = toTorch(snapshot)
      const uses = (list: readonly { readonly pending_uses?: readonly object[] }[]) =>
        list.reduce((sum, { pending_uses }) => sum + (pending_uses?.length ?? 0), 0)
      const blocks = snapshot.segments.flatMap(segment => segment.blocks)
      const mapped = blocks.filter(({ state }) => state !== 'unmapped')
      expect(uses([...torch.segments, ...torch.host_segments].flatMap(segment => segment.blocks))).toBe(
        mapped.reduce((sum, block) => sum + block.uses.length, 0),
      )
      const ours = snapshot.history.filter(({ action }) =>
        /^(use_recorded|wait_issued|pages_moved)$/.test(action),
      )
      expect(torch.braid.traces.map(({ action }) => action)).toEqual(ours.map(({ action }) => action))
    },
  )

  law('can be played back by its viewer, whatever the history says', snapshot => play(toTorch(snapshot)), 400)

  law('keeps the newest records, counts the dropped ones, and adds only necessary records', snapshot => {
    const { device_traces, host_traces, braid, segments } = toTorch(snapshot)
    const standard = snapshot.history.filter(
      ({ action }) => !/^(use_recorded|wait_issued|pages_moved)$/.test(action),
    )
    // A segment next to another one may be shown as mapped.
    const key = (action: string, time: number) => `${action.replace('segment_alloc', 'segment_map')} ${time}`
    const given = new Set(standard.map(({ action, timeMicroseconds }) => key(action, timeMicroseconds)))
    const empty = device_traces[1]!.some(({ user_metadata }) =>
      user_metadata.startsWith('no memory of the device'),
    )
    if (empty) expect([segments.length, device_traces[1]!.length]).toEqual([0, 1])
    const traces = [...(empty ? [[], []] : device_traces), host_traces]
    const kept = traces.map(trace => trace.filter(({ action, time_us }) => given.has(key(action, time_us))))
    expect(kept.flat().length + braid.dropped).toBe(standard.length)
    for (const [i, trace] of traces.entries()) {
      const added = trace.filter(record => !kept[i]!.includes(record))
      for (const { action, time_us } of added) {
        expect(action).toBe('free_completed')
        expect(given.has(key('free_requested', time_us))).toBe(true)
      }
    }
    const times = (list: readonly { readonly time_us: number }[]) => list.map(({ time_us }) => time_us)
    const pinned = [false, true].map(side => standard.filter(record => (record.pinned ?? false) === side))
    const newest = (side: readonly (typeof standard)[number][], n: number) =>
      side.slice(side.length - n).map(({ timeMicroseconds }) => timeMicroseconds)
    expect(times(kept[1]!)).toEqual(newest(pinned[0]!, kept[1]!.length))
    expect(times(kept[2]!)).toEqual(newest(pinned[1]!, kept[2]!.length))
  })

  law('gives mapped and unmapped ranges the stream of their segment, whichever lane allocated', snapshot => {
    const torch = toTorch(snapshot)
    for (const { action, addr, stream } of [...torch.device_traces.flat(), ...torch.host_traces]) {
      const inside = snapshot.segments.find(s => addr! >= s.address && addr! < s.address + s.totalSize)
      if (!action.startsWith('segment_') || !inside) continue
      expect(stream).toBe(snapshot.lanes.find(({ id }) => id === inside.lane)?.stream ?? 0)
    }
  })

  law(
    "counts a private pool's blocks where it counts the pool's memory, and keeps whose they were",
    snapshot => {
      const { device_traces, host_traces, braid } = toTorch(snapshot)
      const streamOf = (lane: number | undefined) => snapshot.lanes.find(({ id }) => id === lane)?.stream ?? 0
      const lanes = new Map(snapshot.history.map(({ timeMicroseconds, lane }) => [timeMicroseconds, lane]))
      const plain = [...device_traces.flat(), ...host_traces, ...braid.traces].filter(
        ({ action, time_us }) => !/^(segment_|oom$)/.test(action) && lanes.has(time_us),
      )
      for (const { addr, stream, home_stream, time_us } of plain) {
        const inside = snapshot.segments.find(s => addr! >= s.address && addr! < s.address + s.totalSize)
        if (inside && inside.pool > 0) expect(stream).toBe(streamOf(inside.lane))
        expect(home_stream ?? stream).toBe(streamOf(lanes.get(time_us)))
      }
    },
  )

  it('keeps the whole of a history that led to its segments, wherever it begins', () => {
    const property = fc.property(modelled, snapshot => {
      const { device_traces, braid } = toTorch(snapshot)
      const wanted = snapshot.history.filter(({ action }) => action !== 'use_recorded')
      expect(braid.dropped).toBe(0)
      const empty = snapshot.segments.every(({ mappedSize }) => mappedSize === 0) && wanted.length === 0
      expect(device_traces.map(trace => trace.length)).toEqual([0, empty ? 1 : wanted.length])
    })
    fc.assert(property, { numRuns: runs(300) })
  })
})

describe('a history that contradicts its segments', () => {
  const at = 2 ** 40
  const page = 2 ** 21
  const record = (
    id: number,
    action: SnapshotRecord['action'],
    address: number,
    size = page,
    lane = 0,
  ): SnapshotRecord => ({
    ...{ action, address, size, lane, pool: 0, timeMicroseconds: 1_790_000_000_000_000 + id, site: 0, id },
  })
  const segment = (
    address: number,
    counter: number,
    blocks: SnapshotSegment['blocks'],
    pool = 0,
  ): SnapshotSegment => ({
    ...{
      address,
      totalSize: page,
      mappedSize: blocks[0]!.state === 'unmapped' ? 0 : page,
      lane: 0,
      sizes: 'large',
    },
    ...{ pool, expandable: counter === 0, counter, pinned: false, blocks },
  })

  it('keeps the records before a segment whose neighbouring range came earlier and went later', () => {
    const { device_traces, braid } = toTorch({
      ...small,
      segments: [
        segment(at, 0, [block(at, page, 'unmapped', { lane: -1 })]),
        segment(at + page, 1, [block(at + page, page, 'free')]),
      ],
      history: [
        record(0, 'segment_map', at),
        record(1, 'segment_alloc', at + page),
        record(2, 'segment_unmap', at),
        record(3, 'alloc', at + page, 512),
        record(4, 'free_requested', at + page, 512),
        record(5, 'free_completed', at + page, 512),
      ],
    })
    expect(braid.dropped).toBe(0)
    const ranges = device_traces[0]!
      .map(({ action }) => action)
      .filter(action => action.startsWith('segment_'))
    expect(ranges).toEqual(['segment_map', 'segment_map', 'segment_unmap'])
  })

  it('shows a segment without neighbours as allocated, not as mapped', () => {
    const segments = [segment(at, 1, [block(at, page, 'free')])]
    const { device_traces } = toTorch({ ...small, segments, history: [record(0, 'segment_alloc', at)] })
    expect(device_traces[0]!.map(({ action }) => action)).toEqual(['segment_alloc'])
  })

  it('adds a record for a device without memory, and none otherwise', () => {
    const empty = toTorch({ ...small, segments: [] })
    expect(empty.device_traces[0]!.map(({ action }) => action)).toEqual(['snapshot'])
    expect(toTorch(small).device_traces).toEqual([[]])
  })

  it("gives a block in a private pool its segment's stream, and its own as home_stream", () => {
    const history = [record(0, 'segment_map', at), record(1, 'alloc', at, 512, 1)]
    const traceIn = (pool: number) => {
      const blocks = [block(at, 512, 'live', { lane: 1 }), block(at + 512, page - 512, 'free')]
      return toTorch({ ...small, segments: [segment(at, 0, blocks, pool)], history }).device_traces[0]!
    }
    const streams = (pool: number) =>
      traceIn(pool).map(({ stream, home_stream }) => `${stream} ${home_stream}`)
    expect(streams(3)).toEqual(['0 undefined', '0 9472'])
    expect(streams(0)).toEqual(['0 undefined', '9472 undefined'])
  })
})

describe('the pickle for PyTorch', () => {
  law("is PyTorch's form, value by value", snapshot => {
    // A pickle holds no half of a surrogate pair, and JSON writes tuples as lists.
    const json = JSON.stringify(toTorch(snapshot), (_, value: unknown) =>
      typeof value === 'string' ? value.replace(/\p{Surrogate}/gu, '\uFFFD\uFFFD\uFFFD') : value,
    )
    expect(unpickle(torchPickle(snapshot))).toEqual(JSON.parse(json))
  })
})

describe('the layout of a picture', () => {
  law(
    'draws every block once, in columns that add up, with the same bytes to a column in each bar',
    snapshot => {
      const resolution = { columns: 50, leastColumns: 3, segments: 5 }
      for (const { figures, bars, rest } of layoutOf(snapshot, resolution).memories) {
        expect(bars).toHaveLength(Math.min(5, figures.segments))
        expect(rest === '').toBe(figures.segments <= 5)
        const largest = Math.max(0, ...bars.map(({ segment }) => segment.mappedSize))
        for (const { segment, pieces, enlarged } of bars) {
          const drawn = pieces.flatMap(({ blocks }) => blocks)
          expect(new Set(drawn)).toEqual(new Set(segment.blocks))
          expect(drawn).toHaveLength(segment.blocks.length)
          const exact = segment.mappedSize === 0 ? 0 : (50 * segment.mappedSize) / largest
          const wanted = exact === 0 ? 0 : Math.max(3, Math.round(exact))
          expect(pieces.reduce((sum, { columns }) => sum + columns, 0)).toBe(wanted)
          expect(enlarged).toBeCloseTo(exact > 0 && exact < 3 ? 3 / exact : 1)
          for (const { state, columns } of pieces) expect(columns > 0).toBe(state !== 'unmapped')
        }
      }
    },
  )
})

describe('the figures', () => {
  law('account for every reserved byte', snapshot => {
    for (const pinned of [false, true]) {
      const segments = snapshot.segments.filter(segment => segment.pinned === pinned)
      const { reserved, requested, unusable, longest, holders } = figuresOf(snapshot, segments)
      const reasons = Object.values(unusable)
      expect(Math.min(0, ...reasons)).toBe(0)
      const free = (own: boolean) =>
        segments
          .filter(({ pool }) => (pool === 0) === own)
          .flatMap(({ blocks }) => blocks.filter(({ state }) => state === 'free').map(({ size }) => size))
      expect(unusable.otherPools).toBe(free(false).reduce((sum, n) => sum + n, 0))
      expect(longest).toBe(Math.max(0, ...free(true)))
      expect(requested + reasons.reduce((sum, n) => sum + n, 0) + longest).toBe(reserved)
      expect(reserved).toBe(segments.reduce((sum, { mappedSize }) => sum + mappedSize, 0))
      expect(holders.reduce((sum, holder) => sum + holder.bytes, 0)).toBe(bytes(snapshot, ['live'], pinned))
    }
  })
})

describe('the picture in text', () => {
  law('is the same each time, and contains no control characters', snapshot => {
    const text = snapshotText(snapshot)
    expect(snapshotText(structuredClone(snapshot))).toBe(text)
    expect(text.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u)
  })

  law('has a bar for each segment, as long as it has memory', snapshot => {
    const text = snapshotText(snapshot)
    for (const pinned of [false, true]) {
      const segments = snapshot.segments.filter(segment => segment.pinned === pinned)
      const largest = Math.max(0, ...segments.map(({ mappedSize }) => mappedSize))
      for (const { counter, mappedSize, blocks } of segments) {
        const line = text.split('\n').find(each => each.trimStart().startsWith(`#${counter} `))!
        const bar = line.slice(line.lastIndexOf('[') + 1, -1)
        const marks = bar.replaceAll('/', '')
        expect(marks).toHaveLength(
          mappedSize === 0 ? 0 : Math.max(1, Math.round((60 * mappedSize) / largest)),
        )
        expect(bar.includes('/')).toBe(blocks.some(({ state }) => state === 'unmapped'))
        // The character at a border between two states may show either.
        const each = mappedSize / Math.max(1, marks.length)
        const shown = { live: '#', pending: 'w', cached: '-', free: '.' } as const
        for (const [state, mark] of Object.entries(shown)) {
          const size = blocks.reduce((sum, b) => sum + (b.state === state ? b.size : 0), 0)
          const count = marks.split(mark).length - 1
          expect(Math.abs(count - size / Math.max(1e-9, each))).toBeLessThanOrEqual(blocks.length + 1)
          if (size === 0) expect(count).toBe(0)
        }
      }
    }
  })

  it('looks like this', () => {
    expect(snapshotText(small)).toBe(`cuda:0, NVIDIA H200, 139.81 GiB

device memory: 4.00 KiB reserved in 1 segment
  #  live        512 B  12.5 %  1 block  500 B asked for
  w  pending     512 B  12.5 %  1 block  freed, with uses that its next owner must come after
  -  cached   1.00 KiB  25.0 %  1 block  free, kept by its lane
  .  free     2.00 KiB  50.0 %  1 block  2.00 KiB in one piece
  not to be had by one allocation at once: 1.51 KiB
        12 B  rounding, inside live blocks
       512 B  pending: its uses have to come first
    1.00 KiB  cached: for its own lane's next block of the same size

  #0  copy  large  4.00 KiB  [########wwwwwww/---------------..............................]
  # live   w pending   - cached   . free   / addresses without memory

the most live memory, by where it was allocated:
  512 B  1 block  load (examples/weights.ts:12)

pending memory waits for:
  math  1 use  of 512 B  up to math@4; done up to @3
`)
  })
})

describe('the picture as SVG', () => {
  law('is well formed, the same each time, and no name becomes markup', snapshot => {
    const svg = snapshotSvg(snapshot)
    expect(snapshotSvg(structuredClone(snapshot))).toBe(svg)
    const elements = parseXml(svg)
    const allowed = ['svg', 'title', 'desc', 'style', 'defs', 'pattern', 'path', 'rect', 'text', 'g']
    expect(elements.filter(({ name }) => !allowed.includes(name))).toEqual([])
    expect(
      elements.flatMap(({ attributes }) => [...attributes.keys()]).filter(key => /^on|href/i.test(key)),
    ).toEqual([])
    expect(svg).not.toMatch(/@import|url\((?!#braid-)/)
  })

  law('has a row for each segment, and in it a tooltip for each block that can be seen', snapshot => {
    const elements = parseXml(snapshotSvg(snapshot))
    const rows = elements.filter(({ attributes }) => attributes.get('role') === 'group')
    expect(rows).toHaveLength(snapshot.segments.length)
    for (const { attributes } of rows) expect(attributes.get('aria-label')).toMatch(/^Segment \d+ at 0x/)
    const titles = elements
      .filter(({ name, depth }) => name === 'title' && depth === 3)
      .map(({ text }) => text)
    const counted = titles.reduce((sum, title) => sum + Number(/^(\d+) blocks, /.exec(title)?.[1] ?? 1), 0)
    expect(counted).toBe(snapshot.segments.reduce((sum, { blocks }) => sum + blocks.length, 0))
  })

  law('stays inside its page', snapshot => {
    const elements = parseXml(snapshotSvg(snapshot))
    const height = Number(elements[0]!.attributes.get('height'))
    for (const { name, attributes } of elements.filter(({ name }) => name === 'rect' || name === 'text')) {
      const [x, y, wide, high] = ['x', 'y', 'width', 'height'].map(key => Number(attributes.get(key) ?? 0))
      expect([name, x! >= 0, y! >= 0, x! + wide! <= 1000, y! + high! <= height]).toEqual([
        name,
        true,
        true,
        true,
        true,
      ])
    }
  })
})

interface Block {
  address: number
  requested: number
  lane: number
  site: number
  state: string
  uses: { lane: number; point: number }[]
}

const block = (address: number, size: number, state: BlockState, more: object = {}) => ({
  ...{ address, size, requested: size, state, lane: 0, release: 0, site: 0, uses: [], noted: [] },
  ...more,
})

const small: AllocatorSnapshot = {
  version: 1,
  device: { kind: 'cuda', ordinal: 0, name: 'NVIDIA H200', totalBytes: 150_119_120_896 },
  lanes: [
    { id: 0, name: 'copy', stream: 0, retired: false, done: 5, present: 6 },
    { id: 1, name: 'math', stream: 9472, retired: false, done: 3, present: 5 },
  ],
  segments: [
    {
      ...{
        address: 2 ** 20,
        totalSize: 2 ** 20,
        mappedSize: 4096,
        lane: 0,
        sizes: 'large',
        pool: 0,
        expandable: true,
      },
      ...{ counter: 0, pinned: false },
      blocks: [
        block(2 ** 20, 512, 'live', { requested: 500, site: 1, noted: [1] }),
        block(2 ** 20 + 512, 512, 'pending', { release: 6, uses: [{ lane: 1, point: 4 }] }),
        block(2 ** 20 + 1024, 2 ** 20 - 4096, 'unmapped', { lane: -1 }),
        block(2 ** 21 - 3072, 1024, 'cached', { release: 4 }),
        block(2 ** 21 - 2048, 2048, 'free', { release: 2 }),
      ],
    },
  ],
  history: [],
  sites: [[], [{ filename: 'examples/weights.ts', line: 12, name: 'load' }]],
  stats: {},
  options: {},
}
