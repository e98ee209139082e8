import { bufferName, collectiveName, communicatorName, laneName, nodeName, planName } from './names.js'
import type { Command, Plan } from './plan.js'

export { toJSON } from './json.js'

/**
 * A plan as text, for golden files and for reading: a header, then one command a line, with names and with
 * the reason where a command has one. The first column is the lane: for alloc, use and free the home of the
 * buffer, whose order they concern.
 *
 *     math   wait e3           #after upload w[3] on copy
 *     math   run matmul[3]     x[3], w[3] -> y[3]
 *     copy   use w[3]          #after matmul[3] on math, its last reader
 */
export const textOf = (plan: Plan): string => {
  const width = Math.max(4, ...plan.lanes.map(({ id }) => laneName(plan, id).length)) + 2
  const marks = marksOf(plan)
  const edges = edgesOf(plan)
  const rows = plan.commands.map((command, c) => {
    const row = rowOf(plan, marks, command)
    const edge = edges.get(c)
    return edge === undefined ? row : { ...row, more: `${row.more} ${edge}`.trim() }
  })
  const middle =
    Math.min(
      40,
      rows.reduce((most, row) => Math.max(most, row.what.length), 0),
    ) + 2
  const body = rows.map(row => `${row.lane.padEnd(width)} ${row.what.padEnd(middle)} ${row.more}`.trimEnd())
  return `${[...header(plan), '', ...body].join('\n')}\n`
}

const header = (plan: Plan): string[] => {
  const sizes = plan.bound.device.map((bytes, device) => `device ${device}: ${bytes}`)
  const kind = plan.boundKind === undefined ? '' : ` (${plan.boundKind})`
  const lasting = plan.buffers.filter(
    buffer => buffer.life !== 'tick' || buffer.alias !== undefined || plan.storage === 'planned',
  )
  return [
    `plan ${planName(plan)}: ${plan.storage}, ${plan.inFlight} in flight`,
    `bound, bytes: ${[...sizes, `pinned: ${plan.bound.pinned}`].join(', ')}${kind}`,
    ...(plan.arena === undefined ? [] : [`arena, bytes: ${plan.arena.join(', ')}${arenasText(plan)}`]),
    ...(plan.communicators ?? []).map(({ id, groups, size }) => {
      const all = size === undefined ? 'all ranks' : `all ${size} ranks`
      const whom = groups === undefined ? all : groups.map(group => `[${group.join(', ')}]`).join(' ')
      return `communicator ${communicatorName(plan, id)}: ${whom}`
    }),
    `lanes: ${plan.lanes.map(lane => laneOf(plan, lane)).join(', ')}`,
    ...lasting.map(buffer => {
      const view =
        buffer.alias === undefined
          ? ''
          : ` view of ${bufferName(plan, buffer.alias)} at ${buffer.aliasOffset ?? 0}`
      const place = buffer.offset === undefined ? '' : ` at ${buffer.offset}`
      const rate = buffer.rate === undefined ? '' : `, ${buffer.rate} a tick`
      const where = `${spaceOf(plan, buffer)}${rate}${place}${view}`
      return `${buffer.life} ${bufferName(plan, buffer.id)}: ${buffer.bytes} bytes, ${where}`
    }),
    ...(plan.graphs ?? []).map(({ from, to, edges }, g) => {
      const runs = plan.commands.slice(from, to).filter(([op]) => op === 'run').length
      return `graph ${g}: commands ${from} to ${to - 1}, ${runs} nodes, ${edges.length} edges`
    }),
  ]
}

const arenasText = ({ arenas = 1 }: Plan): string =>
  arenas === 1 ? '' : `; one for each of ${arenas} ticks in flight`

const laneOf = (plan: Plan, { id, priority, device }: Plan['lanes'][number]): string => {
  const name = laneName(plan, id)
  const parts = [
    ...(priority === 0 ? [] : [`priority ${priority}`]),
    ...(plan.devices === 1 ? [] : [`device ${device}`]),
  ]
  return parts.length === 0 ? name : `${name} (${parts.join(', ')})`
}

const spaceOf = ({ devices }: Plan, { space, device }: Plan['buffers'][number]): string =>
  space === 'device' && devices > 1 ? `device ${device}` : space

interface Row {
  readonly lane: string
  readonly what: string
  readonly more: string
}

const rowOf = (plan: Plan, marks: Marks, command: Command): Row => {
  const lane = (id: number) => laneName(plan, id)
  const buffer = (id: number) => bufferName(plan, id)
  const home = (id: number) => lane(plan.buffers[id]?.home ?? -1)
  const names = (ids: readonly number[]) => ids.map(buffer).join(', ')
  switch (command[0]) {
    case 'alloc':
      return {
        lane: lane(command[2]),
        what: `alloc ${buffer(command[1])}`,
        more: `${plan.buffers[command[1]]?.bytes ?? 0} bytes`,
      }
    case 'free':
      return { lane: home(command[1]), what: `free ${buffer(command[1])}`, more: '' }
    case 'run':
      return {
        lane: lane(command[2]),
        what: `run ${nodeName(plan, command[1])}`,
        more: `${names(command[3])} -> ${names(command[4])}${kindText(plan, command[1])}`.trim(),
      }
    case 'record':
      return { lane: lane(command[2]), what: `record e${command[1]}`, more: '' }
    case 'wait': {
      const mark = marks.get(command[1])
      const ago = command[3] === -1 ? ', of the tick before' : ''
      const more = mark === undefined ? '#never recorded' : `#after ${markText(plan, mark)}${ago}`
      return { lane: lane(command[2]), what: `wait e${command[1]}`, more }
    }
    case 'use': {
      const mark = marks.get(command[3])
      const more = mark?.of === 'end' ? `#after ${markText(plan, mark)}, its last reader` : `#e${command[3]}`
      return { lane: home(command[1]), what: `use ${buffer(command[1])}`, more }
    }
  }
}

/** By run that is a node of a graph, the runs whose edges lead to it. */
const edgesOf = (plan: Plan): ReadonlyMap<number, string> => {
  const texts = new Map<number, string>()
  for (const [g, { from, to, edges }] of (plan.graphs ?? []).entries()) {
    const before = new Map<number, string[]>()
    for (let c = from; c < to; c++) if (plan.commands[c]?.[0] === 'run') before.set(c, [])
    for (const [earlier, later] of edges)
      before.get(later)?.push(nodeName(plan, plan.commands[earlier]?.[1] ?? -1))
    for (const [c, names] of before)
      texts.set(c, `#graph ${g}${names.length === 0 ? '' : ` after ${names.join(', ')}`}`)
  }
  return texts
}

/** Of a collective its name, of several operations that are one kernel that they are. */
const kindText = (plan: Plan, node: number): string => {
  const { op, collective } = plan.nodes[node] ?? {}
  if (collective !== undefined) return ` #${collectiveName(plan, collective)}`
  return op === 'fused' ? ' #fused' : ''
}

/**
 * The point that an event marks: the end of the last run that its lane issued, or the start of the lane's
 * next command.
 */
interface Mark {
  readonly lane: number
  of: 'end' | 'start'
  /** Undefined: there is no such run in the tick. */
  node: number | undefined
}

type Marks = ReadonlyMap<number, Mark>

/**
 * By event, the mark of its first record. A record that follows a wait of its lane marks the start of the
 * lane's next run.
 */
const marksOf = (plan: Plan): Marks => {
  const marks = new Map<number, Mark>()
  const lastRun = new Map<number, number>()
  /** By lane that has waited since its last run: the marks recorded since. */
  const waiting = new Map<number, Mark[]>()
  for (const command of plan.commands) {
    const lane = command[2] as number
    switch (command[0]) {
      case 'run':
        for (const mark of waiting.get(lane) ?? []) {
          mark.of = 'start'
          mark.node = command[1]
        }
        waiting.delete(lane)
        lastRun.set(lane, command[1])
        break
      case 'wait':
        if (!waiting.has(lane)) waiting.set(lane, [])
        break
      case 'record': {
        const node = lastRun.get(lane)
        const mark: Mark = { lane, of: node === undefined ? 'start' : 'end', node }
        if (!marks.has(command[1])) marks.set(command[1], mark)
        waiting.get(lane)?.push(mark)
        break
      }
    }
  }
  return marks
}

const markText = (plan: Plan, { lane, of, node }: Mark): string => {
  const what =
    node === undefined ? laneName(plan, lane) : `${nodeName(plan, node)} on ${laneName(plan, lane)}`
  return of === 'end' ? what : `the start of ${what}`
}
