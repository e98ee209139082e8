// The parts of an SVG picture: escaped text, rounded lengths, colours of both schemes.
import type { Resource } from '../../machine/cost.js'

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

/** Characters that XML 1.0 does not allow become a replacement character. */
export const escaped = (words: string): string =>
  words
    .replace(/[^\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]/gu, '\uFFFD')
    .replace(/[&<>"']/g, character => escapes[character]!)

export const short = (length: number): string => String(Math.round(length * 100) / 100 + 0)

export const text = (x: number, y: number, words: string, kind: string): string =>
  `<text class="${kind}" x="${short(x)}" y="${short(y)}">${escaped(words)}</text>`

/** An upper estimate of the width of a text of `size` pixels, since each viewer has its own fonts. */
export const widthOf = (words: string, size: number): number => words.length * size * 0.6

/** The name, shortened to the width; empty where fewer than four characters fit. */
export const fitted = (name: string, width: number, size: number): string => {
  const most = Math.floor(width / (size * 0.6))
  if (name.length <= most) return name
  return most < 4 ? '' : `${name.slice(0, most - 1)}…`
}

export type Kind = 'copy-in' | 'copy-out' | 'compute' | 'moving' | 'link' | 'host'

export const kinds: Readonly<Record<Resource, Kind>> = {
  h2d: 'copy-in',
  d2h: 'copy-out',
  tensor: 'compute',
  bandwidth: 'moving',
  peer: 'link',
  link: 'link',
  host: 'host',
}

export const meanings: Readonly<Record<Kind, string>> = {
  'copy-in': 'copy in',
  'copy-out': 'copy out',
  compute: 'arithmetic',
  moving: 'bound by memory',
  link: 'between devices',
  host: 'on the host',
}

const light = {
  page: '#ffffff',
  ink: '#1f2328',
  quiet: '#59636e',
  grid: '#d9dfe5',
  row: '#f4f6f8',
  critical: '#b42318',
  wait: '#7b8794',
  memory: '#c9d6ea',
  edge: '#5677a8',
  ...{
    'copy-in': '#ffcf87',
    'copy-out': '#f6b39d',
    compute: '#9cc3fb',
    moving: '#a3d9cd',
    link: '#cfbdfb',
    host: '#d3d9df',
  },
}
const dark: typeof light = {
  page: '#14181d',
  ink: '#e8edf2',
  quiet: '#9aa5b1',
  grid: '#2b333c',
  row: '#1a2027',
  critical: '#ff8a7a',
  wait: '#7f8b98',
  memory: '#26374f',
  edge: '#7ea3da',
  ...{
    'copy-in': '#7d520f',
    'copy-out': '#84402c',
    compute: '#1f4f97',
    moving: '#1d6256',
    link: '#563f9e',
    host: '#47515c',
  },
}

const colours = (of: typeof light): string =>
  [
    `text { fill: ${of.ink}; } .note, .size, .axis { fill: ${of.quiet}; } .page { fill: ${of.page}; }`,
    `.row { fill: ${of.row}; } .grid { stroke: ${of.grid}; }`,
    ...(Object.keys(meanings) as Kind[]).map(kind => `.${kind} { fill: ${of[kind]}; }`),
    `.bar rect { stroke: ${of.page}; } .bar:hover rect { stroke: ${of.ink}; } \
.critical rect { stroke: ${of.critical}; }`,
    `.wait { stroke: ${of.wait}; } .tip { fill: ${of.wait}; } \
.way { stroke: ${of.critical}; } .waytip { fill: ${of.critical}; }`,
    `.memory { fill: ${of.memory}; } .level { stroke: ${of.edge}; } \
.bound { stroke: ${of.critical}; } .over { fill: ${of.critical}; }`,
  ].join('\n')

/**
 * Every colour is written in both schemes: viewers without custom properties or schemes show the light one.
 */
export const style = `<style>
text { font-family: ui-sans-serif, system-ui, sans-serif; font-size: 12px; }
.title { font-size: 17px; font-weight: 600; } .lane { font-size: 13px; font-weight: 600; } \
.note, .axis, .name, .over { font-size: 11px; }
.size { font-size: 11px; text-anchor: end; } .name { pointer-events: none; } \
.axis { text-anchor: middle; font-variant-numeric: tabular-nums; }
.bar rect { stroke-width: 0.75; } .bar:hover rect { stroke-width: 2; } \
.critical rect { stroke-width: 1.75; } .faded { opacity: 0.4; } .crowd { opacity: 0.55; }
.grid { stroke-width: 1; } .wait, .way { fill: none; } \
.wait { stroke-width: 1; opacity: 0.75; } .way { stroke-width: 1.75; }
.level { fill: none; stroke-width: 1.25; } .bound { stroke-width: 1.25; stroke-dasharray: 5 4; }
${colours(light)}
@media (prefers-color-scheme: dark) {
${colours(dark)}
}
</style>`

export const markers = `<defs>
<marker id="braid-tip" viewBox="0 0 6 6" refX="5.4" refY="3" markerWidth="5" markerHeight="5" \
orient="auto"><path class="tip" d="M0 0.4L6 3L0 5.6Z"/></marker>
<marker id="braid-waytip" viewBox="0 0 6 6" refX="5.4" refY="3" markerWidth="4" markerHeight="4" \
orient="auto"><path class="waytip" d="M0 0.4L6 3L0 5.6Z"/></marker>
</defs>`
