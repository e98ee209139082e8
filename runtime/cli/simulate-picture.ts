import type { Simulation } from '../../dsl/index.js'
import { laneNames, type Resource } from '../../dsl/internal.js'
import type { Plan } from '../../dsl/ir/plan.js'

const columns = 72
const marks: Readonly<Record<Resource, string>> = {
  tensor: '#',
  bandwidth: '+',
  h2d: '>',
  d2h: '<',
  peer: '~',
  link: '=',
  host: 'h',
}

/**
 * One steady tick, a row a lane: a column shows the kind of work that takes at least half of its time, `:`
 * for less, and a dot for no work.
 */
export const picture = (plan: Plan, { timeline, tickMs }: Simulation): string => {
  const to = timeline.ended[Math.max(0, timeline.ticks - 1 - plan.inFlight)] ?? 0
  const from = to - tickMs * 1e6
  if (!(to > from)) return ''
  const width = (to - from) / columns
  const kinds = Object.keys(marks) as readonly Resource[]
  const time = plan.lanes.map(() => kinds.map(() => new Float64Array(columns)))
  for (let i = 0; i < timeline.runs; i++) {
    const start = Math.max(from, timeline.start[i]!) - from
    const end = Math.min(to, timeline.end[i]!) - from
    if (end <= start) continue
    const times = time[timeline.lane[i]!]![kinds.indexOf(timeline.resource[i]!)]!
    const last = Math.min(columns - 1, Math.floor(end / width))
    for (let c = Math.floor(start / width); c <= last; c++)
      times[c]! += Math.max(0, Math.min(end, (c + 1) * width) - Math.max(start, c * width))
  }
  const names = laneNames(plan)
  const nameWidth = names.reduce((most, name) => Math.max(most, name.length), 0)
  const rows = time.map((lane, l) => {
    const columnsOfLane = Array.from({ length: columns }, (_, c) => {
      let best = -1
      let busy = 0
      for (const [k, kind] of lane.entries()) {
        busy += kind[c]!
        if (kind[c]! > 0 && (best < 0 || kind[c]! > lane[best]![c]!)) best = k
      }
      if (best < 0) return '.'
      return busy >= width / 2 ? marks[kinds[best]!] : ':'
    })
    return `${names[l]!.padEnd(nameWidth)} |${columnsOfLane.join('')}|`
  })
  const end = `${tickMs.toPrecision(4)} ms`
  const scale = `${' '.repeat(nameWidth + 2)}0${end.padStart(columns - 1)}`
  const legend = kinds.filter((_, k) => time.some(lane => lane[k]!.some(cell => cell > 0)))
  const words = legend.map(kind => `${marks[kind]} ${kind}`)
  return [scale, ...rows, [...words, ': any of them for less than half of a column'].join('   ')].join('\n')
}
