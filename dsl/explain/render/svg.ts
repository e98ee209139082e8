import { laneName, nodeName, placeOf, planName } from '../../ir/names.js'
import type { Plan } from '../../ir/plan.js'
import { type Arrow, arrowsOf } from '../facts/arrows.js'
import { type Bounds, because, boundsOf, paceText } from '../facts/bounds.js'
import { highest, type Level, levelsIn, memoryInUse } from '../facts/memory.js'
import { plural, sizeOf, timeOf } from '../facts/names.js'
import { extentOf, type Span, type Timeline } from '../facts/timeline.js'
import {
  escaped,
  fitted,
  type Kind,
  kinds,
  markers,
  meanings,
  short,
  style,
  text,
  widthOf,
} from './svg-parts.js'

const page = { width: 1000, margin: 24, row: 42, bar: 24, strip: 84 }
/**
 * Narrower bars are merged with their neighbours; a picture with more arrows than this shows only those of
 * the chain that sets the pace.
 */
const narrow = 1.5
const arrows = 400
/** More arrows than this are drawn fainter. */
const crowd = 48

/** A size with a suitable unit, rounded. */
const kibibytes = (bytes: number): string => {
  if (bytes < 2 ** 10 || bytes >= 2 ** 20) return sizeOf(bytes)
  const size = bytes / 2 ** 10
  return `${Number.isInteger(size) ? size : size.toFixed(1)} KiB`
}

interface Frame {
  readonly timeline: Timeline
  readonly bounds: Bounds
  /** Zero of the axis: the first start of the tick shown. */
  readonly zero: number
  readonly from: number
  readonly to: number
  readonly left: number
  readonly right: number
  readonly top: number
  readonly critical: ReadonlySet<Span>
}

const xOf = ({ from, to, left, right }: Frame, us: number): number =>
  left + ((us - from) / (to - from)) * (right - left)
const rowOf = ({ top }: Frame, lane: number): number => top + lane * page.row
const barOf = (frame: Frame, lane: number): number => rowOf(frame, lane) + (page.row - page.bar) / 2

/**
 * One tick in steady state as one self-contained SVG: a row for each lane, a bar for each operation, arrows
 * for waits, the chain that sets the pace outlined, and the device memory in use below. The neighbouring
 * ticks are faded. Follows the viewer's light or dark scheme; no script, no fonts. Equal timelines give equal
 * texts.
 */
export const timelineSvg = (plan: Plan, known: Timeline | undefined): string => {
  const timeline = known ?? { plan, machine: '', tick: 0, tickUs: 0, over: 1, steady: true, spans: [] }
  const { machine, tickUs } = timeline
  const bounds = boundsOf(timeline)
  const extent = extentOf(timeline)
  const names = plan.lanes.map((_, lane) => fitted(laneName(plan, lane), 180, 13))
  const label = Math.max(96, ...names.map(name => widthOf(name, 13))) + 16
  const pad = Math.max(1e-3, (extent.to - extent.from) * 0.012)
  const frame: Frame = {
    timeline,
    bounds,
    zero: extent.from,
    from: extent.from - pad,
    // A tick that the host delays is longer than its operations; the picture includes the delay.
    to: Math.max(extent.to, Math.min(extent.from + tickUs, extent.to + 3 * (extent.to - extent.from))) + pad,
    left: page.margin + label,
    right: page.width - page.margin,
    top: page.margin + 92,
    critical: new Set(bounds.path.spans),
  }
  const lanesEnd = frame.top + plan.lanes.length * page.row
  const strips = plan.bound.device.flatMap((bound, device) => {
    const levels = memoryInUse(plan, timeline.spans, device)
    return highest(levels) > 0 || device === 0 ? [{ bound, device, levels }] : []
  })
  const bottom = lanesEnd + strips.length * (page.strip + 22)
  const height = bottom + 26 + page.margin
  const title =
    known === undefined
      ? `${planName(plan)}: runs nothing`
      : `${planName(plan)}: a tick in ${timeOf(tickUs)} on ${machine}`
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${page.width} ${short(height)}" ` +
      `width="${page.width}" height="${short(height)}" role="img" aria-labelledby="braid-title braid-text">`,
    `<title id="braid-title">${escaped(title)}</title>`,
    `<desc id="braid-text">${escaped(described(frame))}</desc>`,
    style,
    markers,
    `<clipPath id="braid-plot"><rect x="${short(frame.left)}" y="0" ` +
      `width="${short(frame.right - frame.left)}" height="${short(height)}"/></clipPath>`,
    `<rect class="page" width="${page.width}" height="${short(height)}"/>`,
    text(page.margin, page.margin + 16, fitted(title, page.width - 2 * page.margin, 17), 'title'),
    text(
      page.margin,
      page.margin + 36,
      fitted(paceText(timeline, bounds), page.width - 2 * page.margin, 12),
      'note',
    ),
    legend(frame),
    ...plan.lanes.map((_, lane) => rowLabel(frame, lane, names[lane]!)),
    axis(frame, bottom),
    '<g clip-path="url(#braid-plot)">',
    ...plan.lanes.map((_, lane) => bars(frame, lane)),
    waits(frame),
    '</g>',
    ...strips.map(({ bound, device, levels }, i) =>
      strip(
        frame,
        lanesEnd + i * (page.strip + 22) + 22,
        levels,
        bound,
        plan.devices > 1 ? ` of device ${device}` : '',
      ),
    ),
    '</svg>',
    '',
  ].join('\n')
}

const described = ({ timeline, bounds }: Frame): string => {
  const { plan, tickUs } = timeline
  const lanes = bounds.lanes.map(
    ({ name, us }) => `${name} ${Math.round((100 * us) / Math.max(tickUs, 1e-9))} %`,
  )
  const chain = bounds.path.spans.slice(0, 8).map(({ node }) => nodeName(plan, node))
  const more =
    bounds.path.spans.length > chain.length ? ` and ${bounds.path.spans.length - chain.length} more` : ''
  return [
    `${plural(plan.nodes.length, 'operation')} on ${plural(plan.lanes.length, 'lane')}. `,
    `Busy: ${lanes.join(', ')}. What sets the pace: ${chain.join(', ')}${more}. `,
    `Only copies run for ${timeOf(bounds.exposedUs)} a tick.`,
  ].join('')
}

const legend = ({ timeline: { spans } }: Frame): string => {
  const y = page.margin + 62
  let x = page.margin
  const entry = (swatch: (x: number) => string, words: string): string => {
    const made = `${swatch(x)}${text(x + 29, y, words, 'note')}`
    x += 29 + 6.5 * words.length + 20
    return made
  }
  const box = (kind: string, group: string) => (x: number) =>
    `<g class="${group}">` +
    `<rect class="${kind}" x="${short(x)}" y="${y - 11}" width="22" height="13" rx="2"/></g>`
  const used = (Object.keys(meanings) as Kind[]).filter(kind =>
    spans.some(({ resource }) => kinds[resource] === kind),
  )
  return `<g aria-hidden="true">${[
    ...used.map(kind => entry(box(kind, 'bar'), meanings[kind])),
    entry(box('row', 'bar critical'), 'sets the pace'),
    entry(box(used[0] ?? 'host', 'bar faded'), 'another tick'),
    entry(x => `<path class="wait" marker-end="url(#braid-tip)" d="M${short(x)} ${y - 5}h20"/>`, 'waits'),
  ].join('')}</g>`
}

const rowLabel = (frame: Frame, lane: number, name: string): string => {
  const { timeline, bounds, left, right } = frame
  const y = rowOf(frame, lane)
  const busy = bounds.lanes.find(each => each.name === laneName(timeline.plan, lane))?.us ?? 0
  const share = timeline.tickUs > 0 ? Math.round((100 * busy) / timeline.tickUs) : 0
  return [
    `<rect class="row" x="${short(left)}" y="${short(y + 3)}" `,
    `width="${short(right - left)}" height="${page.row - 6}" rx="3"/>`,
    text(page.margin, y + 18, name, 'lane'),
    text(page.margin, y + 33, `${share} % busy`, 'note'),
  ].join('')
}

/** The distance of the axis marks: 1, 2 or 5 times a power of ten, with about eight marks. */
const stepOf = (us: number): number => {
  const raw = us / 8
  const ten = 10 ** Math.floor(Math.log10(raw))
  return ten * (raw / ten <= 1 ? 1 : raw / ten <= 2 ? 2 : raw / ten <= 5 ? 5 : 10)
}

const axis = (frame: Frame, bottom: number): string => {
  const { zero, from, to, top } = frame
  const step = stepOf(to - from)
  const [unit, scale] = to - from >= 2e6 ? ['s', 1e6] : to - from >= 2e3 ? ['ms', 1e3] : ['µs', 1]
  const digits = Math.max(0, -Math.floor(Math.log10(step / scale) + 1e-9))
  const marks: string[] = []
  for (let i = 0; zero + i * step <= to; i++) {
    const x = xOf(frame, zero + i * step)
    marks.push(`<path class="grid" d="M${short(x)} ${short(top)}V${short(bottom + 4)}"/>`)
    marks.push(text(x, bottom + 20, i === 0 ? `0 ${unit}` : ((i * step) / scale).toFixed(digits), 'axis'))
  }
  return marks.join('')
}

interface Piece {
  readonly spans: Span[]
  readonly x: number
  right: number
  readonly group: string
}

/**
 * The bars of one lane. A bar that is too narrow to see is merged with its neighbours of the same kind and
 * tick.
 */
const piecesOf = (frame: Frame, lane: number): readonly Piece[] => {
  const { timeline, from, to, critical } = frame
  const pieces: Piece[] = []
  const seen = timeline.spans.filter(span => span.lane === lane && span.end > from && span.start < to)
  for (const span of seen.sort((a, b) => a.start - b.start || a.index - b.index)) {
    const x = xOf(frame, span.start)
    const right = xOf(frame, span.end)
    const on = critical.has(span)
    const group = `bar${on ? ' critical' : ''}${span.tick === timeline.tick || on ? '' : ' faded'}`
    const last = pieces[pieces.length - 1]
    const alike =
      last !== undefined && last.group === group && kinds[last.spans[0]!.resource] === kinds[span.resource]
    if (alike && (last.right - last.x < narrow || right - x < narrow) && x - last.right < narrow) {
      last.spans.push(span)
      last.right = Math.max(last.right, right)
    } else pieces.push({ spans: [span], x, right, group })
  }
  return pieces
}

const bars = (frame: Frame, lane: number): string => {
  const y = barOf(frame, lane)
  return piecesOf(frame, lane)
    .map(({ spans, x, right, group }) => {
      const [span] = spans as [Span]
      // An inset keeps the outlines of neighbours apart.
      const inset = group.includes('critical') && right - x > 5 ? 1 : 0
      const left = Math.max(frame.left, x + inset)
      const end = Math.min(frame.right, Math.max(right - inset, x + 0.75))
      const said = spans.length === 1 ? nodeName(frame.timeline.plan, span.node) : `${spans.length}`
      const name = fitted(said, end - left - 8, 11)
      return [
        `<g class="${group}"><title>${escaped(tooltip(frame, spans))}</title>`,
        `<rect class="${kinds[span.resource]}" x="${short(x + inset)}" y="${short(y)}" `,
        `width="${short(Math.max(0.75, right - x - 2 * inset))}" height="${page.bar}" rx="2"/>`,
        name === '' ? '' : text(left + 5, y + 16, name, 'name'),
        '</g>',
      ].join('')
    })
    .join('\n')
}

const tooltip = ({ timeline, zero }: Frame, spans: readonly Span[]): string => {
  const { plan } = timeline
  const [first] = spans as [Span]
  const last = spans[spans.length - 1]!
  const from = `${first.start < zero ? '−' : ''}${timeOf(Math.abs(first.start - zero))}`
  if (spans.length > 1) {
    const names = `${nodeName(plan, first.node)} … ${nodeName(plan, last.node)}`
    return `${names}: ${spans.length} operations, ${timeOf(last.end - first.start)} from ${from} on`
  }
  const ticks = first.tick - timeline.tick
  const tick = ticks === 0 ? '' : ticks < 0 ? ', of the tick before' : ', of the next tick'
  const place = placeOf(plan.nodes[first.node])
  return [
    `${nodeName(plan, first.node)} on ${laneName(plan, first.lane)}${tick}`,
    `${timeOf(first.end - first.start)} from ${from} on`,
    because(first, timeline),
    ...(place === '' ? [] : [place]),
  ].join('\n')
}

const waits = (frame: Frame): string => {
  const { timeline } = frame
  const { plan, spans, tick } = timeline
  const perTick = spans.filter(span => span.tick === tick).length
  const found = arrowsOf(plan).flatMap((arrow: Arrow) => {
    const to = spans[tick * perTick + arrow.to]
    const from = spans[(tick - arrow.ticks) * perTick + arrow.from]
    return from === undefined || to === undefined || from.lane === to.lane ? [] : [{ from, to }]
  })
  const binds = ({ from, to }: { from: Span; to: Span }): boolean =>
    frame.critical.has(to) && to.after === from.index
  // The chain may include waits of earlier ticks, and waits for a copy engine, which are no events.
  const chain = [...frame.critical].flatMap(to => {
    const from = to.after === undefined ? undefined : spans[to.after]
    const shown = from !== undefined && frame.critical.has(from) && from.lane !== to.lane
    return shown && (to.cause === 'wait' || to.cause === 'engine') ? [{ from, to }] : []
  })
  const plain = found.filter(each => !binds(each))
  const drawn = plain.length > arrows ? [] : plain
  return [
    `<g class="${drawn.length > crowd ? 'crowd' : 'waits'}">`,
    ...drawn.map(({ from, to }) => arrow(frame, from, to, 'wait', 'braid-tip')),
    '</g>',
    ...chain.map(({ from, to }) => arrow(frame, from, to, 'way', 'braid-waytip')),
  ].join('\n')
}

/** A curve from the end of one bar to the start of another, through the space between their rows. */
const arrow = (frame: Frame, from: Span, to: Span, kind: string, marker: string): string => {
  const { plan } = frame.timeline
  const down = to.lane > from.lane
  const [x1, x2] = [xOf(frame, from.end), xOf(frame, to.start)]
  const y1 = barOf(frame, from.lane) + (down ? page.bar : 0)
  const y2 = barOf(frame, to.lane) + (down ? 0 : page.bar)
  const bend = (y2 - y1) / 2
  const tick = from.tick === to.tick ? '' : ' of the tick before'
  const says = `${nodeName(plan, to.node)} waits for ${nodeName(plan, from.node)}${tick}`
  const points = [
    `${short(x1)} ${short(y1 + bend)}`,
    `${short(x2)} ${short(y2 - bend)}`,
    `${short(x2)} ${short(y2)}`,
  ]
  return [
    `<path class="${kind}" marker-end="url(#${marker})" d="M${short(x1)} ${short(y1)}C${points.join(' ')}">`,
    `<title>${escaped(says)}</title></path>`,
  ].join('')
}

const strip = (frame: Frame, y: number, levels: readonly Level[], bound: number, of: string): string => {
  const { from, to, left, right } = frame
  const shown = levelsIn(levels, from, to)
  const most = highest(shown)
  const top = Math.max(1, bound, most)
  const base = y + page.strip
  const yOf = (bytes: number): number => base - (bytes / top) * (page.strip - 16)
  const points: string[] = []
  let last = Number.NaN
  for (const { us, bytes } of shown) {
    const x = short(xOf(frame, us))
    if (points.length === 0) points.push(`M${x} ${short(yOf(bytes))}`)
    else if (bytes !== last) points.push(`H${x}V${short(yOf(bytes))}`)
    last = bytes
  }
  const line = `${points.join('')}H${short(right)}`
  const limit = yOf(bound)
  const title = `device memory in use${of}: at most ${kibibytes(most)}`
  return [
    text(page.margin, y + 32, 'memory', 'lane'),
    text(page.margin, y + 48, `${kibibytes(most)} at most`, 'note'),
    ...(of === '' ? [] : [text(page.margin, y + 62, of.trim(), 'note')]),
    `<path class="memory" d="${line}V${short(base)}H${short(left)}Z"><title>${escaped(title)}</title></path>`,
    `<path class="level" d="${line}"/>`,
    `<path class="bound" d="M${short(left)} ${short(limit)}H${short(right)}"/>`,
    text(left + 2, limit - 5, `bound ${kibibytes(bound)}`, 'over'),
  ].join('')
}
