import { plural } from '../../../dsl/internal.js'
import { type Bar, type Figures, layoutOf, type MemoryLayout, Names, sizeOf } from './layout.js'
import type { AllocatorSnapshot, BlockState } from './snapshot.js'

// Readable without colour. One mark stands for a whole stretch of addresses without memory, however long.
const marks: Readonly<Record<BlockState, string>> = {
  live: '#',
  pending: 'w',
  cached: '-',
  free: '.',
  unmapped: '/',
}
const resolution = { columns: 60, leastColumns: 1, segments: 40 }
const mostHolders = 10

/**
 * A snapshot for a terminal, in plain characters: how much is live, pending, cached and free, a bar for each
 * of the largest segments, the sites that hold the most, and the lanes whose work freed memory waits for.
 */
export const snapshotText = (snapshot: AllocatorSnapshot): string => {
  const names = new Names(snapshot)
  const { title, memories } = layoutOf(snapshot, resolution)
  const lines = memories.flatMap(memory => ['', ...memoryText(memory, snapshot, names)])
  return `${[title, ...lines].join('\n')}\n`
}

const memoryText = (
  { name, figures, bars, rest }: MemoryLayout,
  snapshot: AllocatorSnapshot,
  names: Names,
): readonly string[] => {
  if (figures.segments === 0) return [`${name}: none`]
  return [
    `${name}: ${sizeOf(figures.reserved)} reserved in ${plural(figures.segments, 'segment')}`,
    ...totalsText(figures),
    '',
    ...barsText(bars, names),
    ...(rest === '' ? [] : [`  ${rest}`]),
    `  ${keyOf(figures)}`,
    ...holdersText(figures, names),
    ...waitsText(figures, snapshot, names),
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

const barsText = (bars: readonly Bar[], names: Names): readonly string[] =>
  columns(
    bars.map(({ segment, pieces }) => {
      const drawn = pieces.map(({ state, columns }) =>
        marks[state].repeat(state === 'unmapped' ? 1 : columns),
      )
      return [
        `#${segment.counter}`,
        names.lane(segment.lane),
        segment.pool === 0 ? segment.sizes : `${segment.sizes}, pool ${segment.pool}`,
        sizeOf(segment.mappedSize),
        `[${drawn.join('')}]`,
      ]
    }),
  )

const keyOf = ({ states }: Figures): string => {
  const key = (['live', 'pending', 'cached', 'free'] as const).map(state => `${marks[state]} ${state}`)
  const gaps = states.unmapped.blocks > 0 ? [`${marks.unmapped} addresses without memory`] : []
  return [...key, ...gaps].join('   ')
}

const holdersText = (figures: Figures, names: Names): readonly string[] => {
  if (figures.holders.length === 0) return []
  const lines = columns(
    figures.holders
      .slice(0, mostHolders)
      .map(({ site, bytes, blocks }) => [sizeOf(bytes), plural(blocks, 'block'), names.site(site, 80)]),
  )
  const others = figures.holders.slice(mostHolders)
  const bytes = others.reduce((total, holder) => total + holder.bytes, 0)
  const more = others.length === 0 ? [] : [`  and ${plural(others.length, 'site')} more: ${sizeOf(bytes)}`]
  return ['', 'the most live memory, by where it was allocated:', ...lines, ...more]
}

const waitsText = (figures: Figures, snapshot: AllocatorSnapshot, names: Names): readonly string[] => {
  if (figures.waits.length === 0) return []
  const done = new Map(snapshot.lanes.map(lane => [lane.id, lane.done]))
  const lines = figures.waits.map(wait => [
    wait.lane < 0 ? names.point(-1, 0) : names.lane(wait.lane),
    plural(wait.uses, 'use'),
    `of ${sizeOf(wait.bytes)}`,
    wait.lane < 0
      ? ''
      : `up to ${names.point(wait.lane, wait.point)}; done up to @${done.get(wait.lane) ?? 0}`,
    wait.done > 0 ? `${wait.done} completed already` : '',
  ])
  return ['', 'pending memory waits for:', ...columns(lines)]
}

/** Rows with their cells aligned; a column whose first cell is a size or a share is aligned on the right. */
const columns = (table: readonly (readonly string[])[]): readonly string[] => {
  const count = table.reduce((most, row) => Math.max(most, row.length), 0)
  const widths = Array.from({ length: count }, (_, c) =>
    table.reduce((most, row) => Math.max(most, Array.from(row[c] ?? '').length), 0),
  )
  const right = widths.map((_, c) => /^\d[\d.]* (%|[KMGTP]?i?B)$/.test(table[0]?.[c] ?? ''))
  return table.map(row =>
    `  ${row
      .map((cell, c) => {
        const space = ' '.repeat(widths[c]! - Array.from(cell).length)
        return right[c] ? space + cell : cell + space
      })
      .join('  ')}`.trimEnd(),
  )
}
