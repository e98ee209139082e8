import { figuresOf, mapped } from './picture-figures.js'
import { Called, deviceOf, nameOf, plural, sizeOf } from './picture-words.js'
import type { AllocatorSnapshot, BlockState, SnapshotBlock, SnapshotSegment } from './snapshot-data.js'

const page = { width: 1000, margin: 24, label: 230, row: 30, bar: 18, rows: 300 }
const room = page.width - 2 * page.margin - page.label
const least = 40 // a bar that would be narrower is drawn this wide, and says how many times it is enlarged
const states = ['live', 'pending', 'cached', 'free', 'unmapped'] as const
const meanings: Readonly<Record<BlockState, string>> = {
  live: 'live',
  pending: 'pending: freed, with uses to come',
  cached: 'cached by its lane',
  free: 'free',
  unmapped: 'addresses without memory',
}

/**
 * A snapshot as one self-contained SVG: a row for each segment (of the 300 largest), as wide as it has memory (very small
 * ones enlarged, and saying so), its blocks by state, each with a tooltip. States differ in pattern as well as in colour. Follows the reader's light or dark scheme. The same
 * snapshot gives the same text.
 */
export const snapshotSvg = (snapshot: AllocatorSnapshot): string => {
  const called = new Called(snapshot)
  const { device } = snapshot
  const title = deviceOf(device)
  const kinds = [
    { name: 'Device memory', segments: snapshot.segments.filter(({ pinned }) => !pinned) },
    { name: 'Pinned host memory', segments: snapshot.segments.filter(({ pinned }) => pinned) },
  ].filter(({ segments }, i) => i === 0 || segments.length > 0)
  const sentences = kinds.map(({ name, segments }) => `${name}: ${totals(snapshot, segments)}.`)
  let y = page.margin + 22
  const body: string[] = [text(page.margin, y, title, 'title')]
  y += 26
  body.push(legend(y))
  for (const { name, segments } of kinds) {
    y += 44
    body.push(text(page.margin, y, name, 'head'))
    body.push(text(page.margin, y + 20, totals(snapshot, segments), 'note'))
    y += 34
    const drawn = rowsOf(segments, y, called)
    body.push(drawn.svg)
    y = drawn.end
  }
  const height = y + page.margin
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${page.width} ${height}" width="${page.width}" height="${height}" role="img" aria-labelledby="braid-title braid-text">`,
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

const totals = (snapshot: AllocatorSnapshot, segments: readonly SnapshotSegment[]): string => {
  const figures = figuresOf(snapshot, segments)
  const parts = (['live', 'pending', 'cached', 'free'] as const).map(
    state => `${sizeOf(figures.states[state].bytes)} ${state}`,
  )
  return `${sizeOf(figures.reserved)} reserved in ${plural(segments.length, 'segment')}: ${parts.join(', ')}; ${sizeOf(figures.longest)} free in one piece`
}

const legend = (y: number): string => {
  let x = page.margin
  const entries = states.map(state => {
    const entry = `${rect(x, y - 11, 22, 13, state)}${text(x + 29, y, meanings[state], 'note')}`
    x += 29 + 6.6 * meanings[state].length + 24
    return entry
  })
  return `<g aria-hidden="true">${entries.join('')}</g>`
}

const rowsOf = (segments: readonly SnapshotSegment[], top: number, called: Called) => {
  const bySize = [...segments].sort((a, b) => b.mappedSize - a.mappedSize || a.counter - b.counter)
  const shown = new Set(bySize.slice(0, page.rows))
  const largest = bySize[0]?.mappedSize ?? 0
  let y = top
  const drawn = segments
    .filter(segment => shown.has(segment))
    .map(segment => {
      const row = rowOf(segment, y, largest, called)
      y += page.row
      return row
    })
  const rest = bySize.slice(page.rows)
  if (rest.length > 0) {
    const bytes = rest.reduce((total, { mappedSize }) => total + mappedSize, 0)
    drawn.push(
      text(page.margin, y + 14, `and ${plural(rest.length, 'smaller segment')}: ${sizeOf(bytes)}`, 'note'),
    )
    y += page.row
  }
  return { svg: drawn.join('\n'), end: y }
}

const rowOf = (segment: SnapshotSegment, y: number, largest: number, called: Called): string => {
  const pool = segment.pool === 0 ? '' : ` · pool ${segment.pool}`
  const label = `#${segment.counter} ${called.lane(segment.lane)} · ${segment.sizes}${pool}`
  const kind = segment.expandable
    ? `expandable, ${sizeOf(segment.mappedSize)} of ${sizeOf(segment.totalSize)} of addresses`
    : sizeOf(segment.totalSize)
  const wide = largest === 0 ? 0 : (room * 0.75 * segment.mappedSize) / largest
  const enlarged = wide > 0 && wide < least
  const pieces = piecesOf(segment, (enlarged ? least : wide) / Math.max(1, segment.mappedSize))
  const end = pieces.reduce((last, { x, width }) => Math.max(last, x + width), 0)
  const times = enlarged ? `enlarged ×${Math.round(least / wide)}` : ''
  const about = `Segment ${segment.counter} at 0x${segment.address.toString(16)}: ${kind}, of ${called.lane(segment.lane)}, for ${segment.sizes} blocks${pool}`
  return [
    `<g role="group" aria-label="${escaped(about)}"><title>${escaped(about)}</title>`,
    text(page.margin, y + 13, nameOf(label, 26), 'label'),
    text(page.margin + page.label - 12, y + 13, sizeOf(segment.mappedSize), 'size'),
    ...pieces.map(piece => {
      const x = page.margin + page.label + piece.x
      const inner = `<title>${escaped(tooltip(piece.blocks, called))}</title>`
      return rect(x, y, piece.width, page.bar, piece.state, inner)
    }),
    ...(times === '' ? [] : [text(page.margin + page.label + end + 8, y + 13, times, 'note')]),
    '</g>',
  ].join('\n')
}

interface Piece {
  readonly x: number
  readonly width: number
  readonly state: BlockState
  readonly blocks: readonly SnapshotBlock[]
}

// A stretch without memory may be a thousand times as long as all memory: it is as wide as it takes to see it. Blocks that
// would be too narrow to see share one piece, in the colour of most of their bytes.
const piecesOf = (segment: SnapshotSegment, scale: number): readonly Piece[] => {
  const gaps = segment.blocks.filter(block => !mapped(block)).length
  const gap = gaps === 0 ? 0 : Math.min(14, (room * 0.2) / gaps)
  const pieces: Piece[] = []
  let x = 0
  let few: SnapshotBlock[] = []
  let wide = 0
  const put = (blocks: readonly SnapshotBlock[], width: number) => {
    if (blocks.length === 0) return
    pieces.push({ x, width, state: mostOf(blocks), blocks })
    x += width
  }
  const flush = () => {
    put(few, wide)
    few = []
    wide = 0
  }
  for (const block of segment.blocks) {
    const width = mapped(block) ? block.size * scale : gap
    if (!mapped(block) || width >= 2) {
      flush()
      put([block], width)
      continue
    }
    few.push(block)
    wide += width
    if (wide >= 2) flush()
  }
  flush()
  return pieces
}

const mostOf = (blocks: readonly SnapshotBlock[]): BlockState => {
  const bytes = { live: 0, pending: 0, cached: 0, free: 0, unmapped: 0 }
  for (const { state, size } of blocks) bytes[state] += size
  return states.reduce((most, state) => (bytes[state] > bytes[most] ? state : most), 'live' as BlockState)
}

const tooltip = (blocks: readonly SnapshotBlock[], called: Called): string => {
  const [block] = blocks as readonly [SnapshotBlock]
  if (blocks.length > 1) {
    const bytes = blocks.reduce((total, { size }) => total + size, 0)
    const counts = states
      .map(state => ({ state, count: blocks.filter(each => each.state === state).length }))
      .filter(({ count }) => count > 0)
    return `${blocks.length} blocks, ${sizeOf(bytes)}: ${counts.map(({ state, count }) => `${count} ${state}`).join(', ')}`
  }
  const lines = [
    `${block.state}: ${sizeOf(block.size)} (${block.size} bytes) at 0x${block.address.toString(16)}`,
  ]
  if (block.state === 'unmapped') return lines[0]!
  const owned = block.state === 'live' || block.state === 'pending'
  if (owned) lines.push(`asked for: ${block.requested} bytes`, `from: ${called.site(block.site, 120)}`)
  lines.push(`home lane: ${called.lane(block.lane)}`)
  if (block.state !== 'live' && block.release > 0)
    lines.push(`freed at: ${called.point(block.lane, block.release)}`)
  if (block.uses.length > 0)
    lines.push(`used up to: ${block.uses.map(({ lane, point }) => called.point(lane, point)).join(', ')}`)
  if (block.noted.length > 0)
    lines.push(`will count at the free: ${block.noted.map(lane => called.lane(lane)).join(', ')}`)
  return lines.join('\n')
}

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

// What XML 1.0 has no place for becomes a replacement character.
const escaped = (words: string): string =>
  words
    .replace(/[^\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]/gu, '\uFFFD')
    .replace(/[&<>"']/g, character => escapes[character]!)

const text = (x: number, y: number, words: string, kind: string): string =>
  `<text class="${kind}" x="${x}" y="${y}">${escaped(words)}</text>`

const rect = (x: number, y: number, width: number, height: number, state: BlockState, inner = ''): string => {
  const box = `x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${height}"`
  const over =
    state === 'pending' || state === 'unmapped'
      ? `<rect class="over" ${box} fill="url(#braid-${state})"/>`
      : ''
  return `<g class="block">${inner}<rect class="${state}" ${box}/>${over}</g>`
}

const short = (length: number): string => String(Math.round(length * 100) / 100)

// Every colour is written out in both schemes: readers of SVG without custom properties, or without schemes, show the light one.
const light = {
  ...{
    page: '#ffffff',
    ink: '#1f2328',
    quiet: '#59636e',
    live: '#2f6fde',
    pending: '#d9822b',
    stripe: '#8a4b0c',
  },
  ...{ cached: '#86b6a3', free: '#dfe5ea', unmapped: '#ffffff', hatch: '#aeb6be' },
}
const dark: typeof light = {
  ...{
    page: '#14181d',
    ink: '#e8edf2',
    quiet: '#9aa5b1',
    live: '#5b93f5',
    pending: '#e39a4a',
    stripe: '#6b3c0a',
  },
  ...{ cached: '#4d8571', free: '#39424c', unmapped: '#14181d', hatch: '#56616d' },
}

const colours = (of: typeof light): string =>
  [
    `text { fill: ${of.ink}; } .note, .size { fill: ${of.quiet}; } .page { fill: ${of.page}; }`,
    `.block rect { stroke: ${of.page}; } .block:hover rect { stroke: ${of.ink}; }`,
    ...states.map(state => `.${state} { fill: ${of[state]}; }`),
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

const patterns = `<defs>
<pattern id="braid-pending" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path class="stripe" d="M0 0V6"/></pattern>
<pattern id="braid-unmapped" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><path class="hatch" d="M0 0V4"/></pattern>
</defs>`
