import { escaped, plural, short, text } from '../../../dsl/internal.js'
import {
  type Bar,
  type Figures,
  layoutOf,
  type MemoryLayout,
  Names,
  type Piece,
  shown,
  sizeOf,
} from './layout.js'
import { type AllocatorSnapshot, type BlockState, blockStates, type SnapshotBlock } from './snapshot.js'

const page = { width: 1000, margin: 24, label: 230, row: 30, bar: 18 }
const barStart = page.margin + page.label
const barWidth = page.width - page.margin - barStart
// Three quarters of the width are for memory, in columns of two units, and a fifth for gaps between mapped
// stretches.
const column = 2
const gapsWidth = 0.2 * barWidth
const resolution = {
  columns: Math.floor((0.75 * barWidth) / column),
  leastColumns: 40 / column,
  segments: 300,
}

const meanings: Readonly<Record<BlockState, string>> = {
  live: 'live',
  pending: 'pending: freed, with uses to come',
  cached: 'cached by its lane',
  free: 'free',
  unmapped: 'addresses without memory',
}

/**
 * A snapshot as one self-contained SVG: a row for each segment (of the 300 largest), as wide as it has memory
 * (very small ones enlarged, and saying so), its blocks by state, each with a tooltip. States differ in
 * pattern as well as in colour. Follows the reader's light or dark scheme. The same snapshot gives the same
 * text.
 */
export const snapshotSvg = (snapshot: AllocatorSnapshot): string => {
  const names = new Names(snapshot)
  const { title, memories } = layoutOf(snapshot, resolution)
  const sentences = memories.map(({ name, figures }) => `${capitalised(name)}: ${totals(figures)}.`)
  let y = page.margin + 22
  const body: string[] = [text(page.margin, y, title, 'title')]
  y += 26
  body.push(legend(y))
  for (const memory of memories) {
    y += 44
    body.push(
      text(page.margin, y, capitalised(memory.name), 'head'),
      text(page.margin, y + 20, totals(memory.figures), 'note'),
    )
    y += 34
    const rows = rowsOf(memory, y, names)
    body.push(...rows)
    y += rows.length * page.row
  }
  const height = y + page.margin
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${page.width} ${height}"`,
    ` width="${page.width}" height="${height}" role="img" aria-labelledby="braid-title braid-text">`,
    `<title id="braid-title">${escaped(`Memory of ${title}`)}</title>`,
    `<desc id="braid-text">${escaped(sentences.join(' '))}</desc>`,
    style,
    patterns,
    `<rect class="page" width="${page.width}" height="${height}"/>`,
    ...body,
    '</svg>',
    '',
  ].join('\n')
}

const capitalised = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1)

const totals = ({ states, reserved, segments, longest }: Figures): string => {
  const parts = (['live', 'pending', 'cached', 'free'] as const).map(
    state => `${sizeOf(states[state].bytes)} ${state}`,
  )
  const held = `${sizeOf(reserved)} reserved in ${plural(segments, 'segment')}`
  return `${held}: ${parts.join(', ')}; ${sizeOf(longest)} free in one piece`
}

const legend = (y: number): string => {
  let x = page.margin
  const entries = blockStates.map(state => {
    const entry = `${rect(x, y - 11, 22, 13, state)}${text(x + 29, y, meanings[state], 'note')}`
    x += 29 + 6.6 * meanings[state].length + 24
    return entry
  })
  return `<g aria-hidden="true">${entries.join('')}</g>`
}

const rowsOf = ({ bars, rest }: MemoryLayout, top: number, names: Names): readonly string[] => {
  const rows = bars.map((bar, i) => rowOf(bar, top + i * page.row, names))
  if (rest !== '') rows.push(text(page.margin, top + rows.length * page.row + 14, rest, 'note'))
  return rows
}

const rowOf = ({ segment, pieces, enlarged }: Bar, y: number, names: Names): string => {
  const pool = segment.pool === 0 ? '' : ` · pool ${segment.pool}`
  const lane = names.lane(segment.lane)
  const kind = segment.expandable
    ? `expandable, ${sizeOf(segment.mappedSize)} of ${sizeOf(segment.totalSize)} of addresses`
    : sizeOf(segment.totalSize)
  const place = `Segment ${segment.counter} at 0x${segment.address.toString(16)}`
  const about = `${place}: ${kind}, of ${lane}, for ${segment.sizes} blocks${pool}`
  const gaps = pieces.filter(({ state }) => state === 'unmapped').length
  const gap = Math.min(14, gapsWidth / Math.max(1, gaps))
  let x = barStart
  const drawn = pieces.map(piece => {
    const width = piece.state === 'unmapped' ? gap : piece.columns * column
    x += width
    return rect(
      x - width,
      y,
      width,
      page.bar,
      piece.state,
      `<title>${escaped(tooltip(piece, names))}</title>`,
    )
  })
  return [
    `<g role="group" aria-label="${escaped(about)}"><title>${escaped(about)}</title>`,
    text(page.margin, y + 13, shown(`#${segment.counter} ${lane} · ${segment.sizes}${pool}`, 26), 'label'),
    text(barStart - 12, y + 13, sizeOf(segment.mappedSize), 'size'),
    ...drawn,
    ...(enlarged > 1 ? [text(x + 8, y + 13, `enlarged ×${Math.round(enlarged)}`, 'note')] : []),
    '</g>',
  ].join('\n')
}

const tooltip = ({ blocks }: Piece, names: Names): string => {
  const [block] = blocks as readonly [SnapshotBlock]
  if (blocks.length > 1) {
    const bytes = blocks.reduce((total, { size }) => total + size, 0)
    const counts = blockStates.flatMap(state => {
      const count = blocks.filter(each => each.state === state).length
      return count > 0 ? [`${count} ${state}`] : []
    })
    return `${blocks.length} blocks, ${sizeOf(bytes)}: ${counts.join(', ')}`
  }
  const lines = [
    `${block.state}: ${sizeOf(block.size)} (${block.size} bytes) at 0x${block.address.toString(16)}`,
  ]
  if (block.state === 'unmapped') return lines[0]!
  const owned = block.state === 'live' || block.state === 'pending'
  if (owned) lines.push(`asked for: ${block.requested} bytes`, `from: ${names.site(block.site, 120)}`)
  lines.push(`home lane: ${names.lane(block.lane)}`)
  if (block.state !== 'live' && block.release > 0)
    lines.push(`freed at: ${names.point(block.lane, block.release)}`)
  if (block.uses.length > 0)
    lines.push(`used up to: ${block.uses.map(({ lane, point }) => names.point(lane, point)).join(', ')}`)
  if (block.noted.length > 0)
    lines.push(`will count at the free: ${block.noted.map(lane => names.lane(lane)).join(', ')}`)
  return lines.join('\n')
}

const rect = (x: number, y: number, width: number, height: number, state: BlockState, inner = ''): string => {
  const box = `x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${height}"`
  const over =
    state === 'pending' || state === 'unmapped'
      ? `<rect class="over" ${box} fill="url(#braid-${state})"/>`
      : ''
  return `<g class="block">${inner}<rect class="${state}" ${box}/>${over}</g>`
}

interface Colours extends Readonly<Record<BlockState, string>> {
  readonly page: string
  readonly ink: string
  readonly quiet: string
  readonly stripe: string
  readonly hatch: string
}
const light: Colours = {
  page: '#ffffff',
  ink: '#1f2328',
  quiet: '#59636e',
  live: '#2f6fde',
  pending: '#d9822b',
  stripe: '#8a4b0c',
  cached: '#86b6a3',
  free: '#dfe5ea',
  unmapped: '#ffffff',
  hatch: '#aeb6be',
}
const dark: Colours = {
  page: '#14181d',
  ink: '#e8edf2',
  quiet: '#9aa5b1',
  live: '#5b93f5',
  pending: '#e39a4a',
  stripe: '#6b3c0a',
  cached: '#4d8571',
  free: '#39424c',
  unmapped: '#14181d',
  hatch: '#56616d',
}

// Written out for each scheme: a reader of SVG without custom properties, or without schemes, shows the light
// one.
const colours = (of: Colours): string =>
  [
    `text { fill: ${of.ink}; } .note, .size { fill: ${of.quiet}; } .page { fill: ${of.page}; }`,
    `.block rect { stroke: ${of.page}; } .block:hover rect { stroke: ${of.ink}; }`,
    ...blockStates.map(state => `.${state} { fill: ${of[state]}; }`),
    `.stripe { stroke: ${of.stripe}; } .hatch { stroke: ${of.hatch}; }`,
  ].join('\n')

const style = `<style>
text { font-family: ui-sans-serif, system-ui, sans-serif; font-size: 12px; }
.title { font-size: 17px; font-weight: 600; } .head { font-size: 14px; font-weight: 600; }
.size { text-anchor: end; font-variant-numeric: tabular-nums; }
.block rect { stroke-width: 0.5; } .block:hover rect { stroke-width: 1.5; } .over { pointer-events: none; }
.stripe { stroke-width: 2; } .hatch { stroke-width: 1; }
${colours(light)}
@media (prefers-color-scheme: dark) {
${colours(dark)}
}
</style>`

const stripes = (state: BlockState, spacing: number, angle: number, kind: string): string => {
  const box = `width="${spacing}" height="${spacing}" patternUnits="userSpaceOnUse"`
  const line = `<path class="${kind}" d="M0 0V${spacing}"/>`
  return `<pattern id="braid-${state}" ${box} patternTransform="rotate(${angle})">${line}</pattern>`
}

const patterns = `<defs>
${stripes('pending', 6, 45, 'stripe')}
${stripes('unmapped', 4, -45, 'hatch')}
</defs>`
