import { type Figures, figuresOf, mapped } from './picture-figures.js'
import { Called, deviceOf, plural, sizeOf } from './picture-words.js'
import type { AllocatorSnapshot, BlockState, SnapshotSegment } from './snapshot-data.js'

export { snapshotSvg } from './picture-svg.js'

// Told apart without colour. One mark stands for a whole stretch of addresses without memory, however long.
const marks: Readonly<Record<BlockState, string>> = {
  live: '#',
  pending: 'w',
  cached: '-',
  free: '.',
  unmapped: '/',
}
const width = 60
const rows = 40
const holders = 10

/**
 * A snapshot for a terminal, in plain characters: what is live, pending, cached and free, a bar for each of the largest segments
 * with as many characters as it has memory, who holds the most, and which lanes freed memory waits for.
 */
export const snapshotText = (snapshot: AllocatorSnapshot): string => {
  const called = new Called(snapshot)
  const lines = [deviceOf(snapshot.device)]
  const own = snapshot.segments.filter(({ pinned }) => !pinned)
  const pinned = snapshot.segments.filter(segment => segment.pinned)
  lines.push('', ...memoryText('device memory', snapshot, own, called))
  if (pinned.length > 0) lines.push('', ...memoryText('pinned host memory', snapshot, pinned, called))
  return `${lines.join('\n')}\n`
}

const memoryText = (
  title: string,
  snapshot: AllocatorSnapshot,
  segments: readonly SnapshotSegment[],
  called: Called,
): readonly string[] => {
  const figures = figuresOf(snapshot, segments)
  if (segments.length === 0) return [`${title}: none`]
  return [
    `${title}: ${sizeOf(figures.reserved)} reserved in ${plural(segments.length, 'segment')}`,
    ...totalsText(figures),
    '',
    ...segmentsText(segments, called),
    ...holdersText(figures, called),
    ...waitsText(figures, snapshot, called),
  ]
}

const totalsText = ({ states, requested, unusable, longest, reserved }: Figures): readonly string[] => {
  const { live, pending, cached, free } = states
  const row = (state: BlockState, note: string) => {
    const { bytes, blocks } = states[state]
    const share = reserved === 0 ? '' : `${((100 * bytes) / reserved).toFixed(1)} %`
    return [marks[state], state, sizeOf(bytes), share, plural(blocks, 'block'), note] as const
  }
  const reasons: readonly (readonly [number, string])[] = [
    [unusable.rounding, 'rounding, inside live blocks'],
    [unusable.pending, 'pending: its uses have to come first'],
    [unusable.cached, "cached: for its own lane's next block of the same size"],
    [unusable.otherPools, 'free in pools of their own'],
    [unusable.pieces, 'free in other pieces than the longest'],
  ]
  const sum = reasons.reduce((total, [bytes]) => total + bytes, 0)
  return [
    ...columns([
      row('live', live.blocks === 0 ? '' : `${sizeOf(requested)} asked for`),
      row('pending', pending.blocks === 0 ? '' : 'freed, with uses that its next owner must come after'),
      row('cached', cached.blocks === 0 ? '' : 'free, kept by its lane'),
      row('free', free.blocks === 0 ? '' : `${sizeOf(longest)} in one piece`),
    ]),
    `  not to be had by one allocation at once: ${sizeOf(sum)}`,
    ...columns(reasons.filter(([bytes]) => bytes > 0).map(([bytes, reason]) => ['', sizeOf(bytes), reason])),
  ]
}

const segmentsText = (segments: readonly SnapshotSegment[], called: Called): readonly string[] => {
  const largest = segments.reduce((most, { mappedSize }) => Math.max(most, mappedSize), 0)
  const bySize = [...segments].sort((a, b) => b.mappedSize - a.mappedSize || a.counter - b.counter)
  const shown = new Set(bySize.slice(0, rows))
  const lines = columns(
    segments
      .filter(segment => shown.has(segment))
      .map(segment => [
        `#${segment.counter}`,
        called.lane(segment.lane),
        segment.pool === 0 ? segment.sizes : `${segment.sizes}, pool ${segment.pool}`,
        sizeOf(segment.mappedSize),
        `[${bar(segment, largest)}]`,
      ]),
  )
  const rest = bySize.slice(rows)
  const bytes = rest.reduce((total, { mappedSize }) => total + mappedSize, 0)
  const more = rest.length === 0 ? [] : [`  and ${plural(rest.length, 'smaller segment')}: ${sizeOf(bytes)}`]
  const gaps = segments.some(({ blocks }) => blocks.some(block => !mapped(block)))
  const key = (['live', 'pending', 'cached', 'free'] as const).map(state => `${marks[state]} ${state}`)
  return [
    ...lines,
    ...more,
    `  ${[...key, ...(gaps ? [`${marks.unmapped} addresses without memory`] : [])].join('   ')}`,
  ]
}

// Each character stands for the same number of bytes, in every bar, and shows the state that most of them have.
const bar = (segment: SnapshotSegment, largest: number): string => {
  const characters =
    segment.mappedSize === 0 ? 0 : Math.max(1, Math.round((width * segment.mappedSize) / largest))
  const each = segment.mappedSize / characters
  let drawn = ''
  let cell: Partial<Record<BlockState, number>> = {}
  let filled = 0 // bytes before the present point
  let cells = 0
  const close = () => {
    let most: BlockState = 'free'
    for (const [state, bytes] of Object.entries(cell) as [BlockState, number][])
      if (bytes > (cell[most] ?? 0)) most = state
    drawn += marks[most]
    cell = {}
    cells++
  }
  for (const block of segment.blocks) {
    if (!mapped(block)) {
      if (!drawn.endsWith(marks.unmapped)) drawn += marks.unmapped
      continue
    }
    let left = block.size
    while (left > 0) {
      const end = cells + 1 < characters ? (cells + 1) * each : Number.POSITIVE_INFINITY
      const part = Math.min(left, end - filled)
      cell[block.state] = (cell[block.state] ?? 0) + part
      filled += part
      left -= part
      if (filled < end) break
      close()
    }
  }
  if (cells < characters) close()
  return drawn
}

const holdersText = (figures: Figures, called: Called): readonly string[] => {
  if (figures.holders.length === 0) return []
  const lines = columns(
    figures.holders
      .slice(0, holders)
      .map(({ site, bytes, blocks }) => [sizeOf(bytes), plural(blocks, 'block'), called.site(site, 80)]),
  )
  const rest = figures.holders.slice(holders)
  const bytes = rest.reduce((total, holder) => total + holder.bytes, 0)
  const more = rest.length === 0 ? [] : [`  and ${plural(rest.length, 'site')} more: ${sizeOf(bytes)}`]
  return ['', 'the most live memory, by where it was allocated:', ...lines, ...more]
}

const waitsText = (figures: Figures, snapshot: AllocatorSnapshot, called: Called): readonly string[] => {
  if (figures.waits.length === 0) return []
  const done = new Map(snapshot.lanes.map(lane => [lane.id, lane.done]))
  const lines = figures.waits.map(wait => [
    wait.lane < 0 ? called.point(-1, 0) : called.lane(wait.lane),
    plural(wait.uses, 'use'),
    `of ${sizeOf(wait.bytes)}`,
    wait.lane < 0
      ? ''
      : `up to ${called.point(wait.lane, wait.point)}; done up to @${done.get(wait.lane) ?? 0}`,
    wait.done > 0 ? `${wait.done} completed already` : '',
  ])
  return ['', 'pending memory waits for:', ...columns(lines)]
}

/** Rows in columns; those whose first row is a size stand on the right. */
const columns = (table: readonly (readonly string[])[]): readonly string[] => {
  const count = table.reduce((most, row) => Math.max(most, row.length), 0)
  const widths = Array.from({ length: count }, (_, c) =>
    table.reduce((most, row) => Math.max(most, Array.from(row[c] ?? '').length), 0),
  )
  const right = widths.map((_, c) => /^\d[\d.]* (%|[KMGTP]?i?B)$/.test(table[0]?.[c] ?? ''))
  return table.map(row =>
    `  ${row
      .map((cell, c) => {
        const room = ' '.repeat(widths[c]! - Array.from(cell).length)
        return right[c] ? room + cell : cell + room
      })
      .join('  ')}`.trimEnd(),
  )
}
