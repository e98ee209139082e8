import { eventOfUse, Op, type Tables, tablesOf } from '../order/tables.js'
import { collectiveName } from '../verify/report.js'
import type { Plan } from './plan.js'

export { toJSON } from './json.js'

/**
 * A plan as text, for golden files and for reading: a header, then one command a line, with names and with the reason where
 * a command has one. The first column is the lane: for alloc, use and free the home of the buffer, whose order they concern.
 *
 *     math   wait e3           #after upload w[3] on copy
 *     math   run matmul[3]     x[3], w[3] -> y[3]
 *     copy   use w[3]          #after matmul[3] on math, its last reader
 */
export const textOf = (plan: Plan): string => {
  const tables = tablesOf(plan)
  const width = Math.max(4, ...plan.lanes.map(lane => lane.name.length)) + 2
  const marked = runsMarked(tables)
  const rows = plan.commands.map((_, c) => rowOf(tables, marked, c))
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
  const lasting = plan.buffers.filter(
    buffer => buffer.life !== 'tick' || buffer.alias !== undefined || plan.storage === 'planned',
  )
  return [
    `plan ${plan.name}: ${plan.storage}, ${plan.inFlight} in flight`,
    `bound, bytes: ${[...sizes, `pinned: ${plan.bound.pinned}`].join(', ')}`,
    ...(plan.arena === undefined ? [] : [`arena, bytes: ${plan.arena.join(', ')}`]),
    ...(plan.communicators ?? []).map(({ name, groups, size }) => {
      const all = size === undefined ? 'all ranks' : `all ${size} ranks`
      const whom = groups === undefined ? all : groups.map(group => `[${group.join(', ')}]`).join(' ')
      return `communicator ${name}: ${whom}`
    }),
    `lanes: ${plan.lanes.map(lane => laneOf(plan, lane)).join(', ')}`,
    ...lasting.map(buffer => {
      const view =
        buffer.alias === undefined
          ? ''
          : ` view of ${plan.buffers[buffer.alias]?.name} at ${buffer.aliasOffset ?? 0}`
      const place = buffer.offset === undefined ? '' : ` at ${buffer.offset}`
      const rate = buffer.rate === undefined ? '' : `, ${buffer.rate} a tick`
      return `${buffer.life} ${buffer.name}: ${buffer.bytes} bytes, ${spaceOf(plan, buffer)}${rate}${place}${view}`
    }),
  ]
}

const laneOf = ({ devices }: Plan, { name, priority, device }: Plan['lanes'][number]): string => {
  const said = [
    ...(priority === 0 ? [] : [`priority ${priority}`]),
    ...(devices === 1 ? [] : [`device ${device}`]),
  ]
  return said.length === 0 ? name : `${name} (${said.join(', ')})`
}

const spaceOf = ({ devices }: Plan, { space, device }: Plan['buffers'][number]): string =>
  space === 'device' && devices > 1 ? `device ${device}` : space

interface Row {
  readonly lane: string
  readonly what: string
  readonly more: string
}

const rowOf = (tables: Tables, marked: Int32Array, c: number): Row => {
  const { plan } = tables
  const command = plan.commands[c]!
  const lane = (id: number) => plan.lanes[id]?.name ?? `lane ${id}`
  const buffer = (id: number) => plan.buffers[id]?.name ?? `buffer ${id}`
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
        what: `run ${plan.nodes[command[1]]?.name ?? `node ${command[1]}`}`,
        more: `${names(command[3])} -> ${names(command[4])}${collectiveText(plan, command[1])}`.trim(),
      }
    case 'record':
      return { lane: lane(command[2]), what: `record e${command[1]}`, more: '' }
    case 'wait':
      return {
        lane: lane(command[2]),
        what: `wait e${command[1]}`,
        more: waitReason(tables, marked, c, command[3] === -1),
      }
    case 'use':
      return {
        lane: home(command[1]),
        what: `use ${buffer(command[1])}`,
        more: useReason(tables, marked, c, command[3]),
      }
  }
}

const collectiveText = (plan: Plan, node: number): string => {
  const collective = plan.nodes[node]?.collective
  return collective === undefined ? '' : ` #${collectiveName(plan, collective)}`
}

/**
 * For each record, the run that it stands after: the last of its lane before it; -1: none in this tick. Behind a wait of its lane it marks the start of the run r that
 * comes next: -2 - r.
 */
const runsMarked = ({ commands, lanes, op, lane }: Tables): Int32Array => {
  const marked = new Int32Array(commands).fill(-1)
  const last = new Int32Array(lanes).fill(-1)
  const waited = new Uint8Array(lanes)
  const starts: number[][] = Array.from({ length: lanes }, () => [])
  for (let c = 0; c < commands; c++) {
    const l = lane[c]!
    if (op[c] === Op.wait || op[c] === Op.previous) waited[l] = 1
    else if (op[c] === Op.record) {
      marked[c] = last[l]!
      if (waited[l] === 1) starts[l]!.push(c)
    } else if (op[c] === Op.run) {
      for (const record of starts[l]!) marked[record] = -2 - c
      starts[l] = []
      waited[l] = 0
      last[l] = c
    }
  }
  return marked
}

const runName = (tables: Tables, c: number): string => {
  const node = tables.subject[c]!
  return `${tables.plan.nodes[node]?.name ?? `node ${node}`} on ${tables.plan.lanes[tables.lane[c]!]!.name}`
}

const waitReason = (tables: Tables, marked: Int32Array, c: number, previous: boolean): string => {
  const record = tables.recordOf[tables.subject[c]!] ?? -1
  if (record < 0) return '#never recorded'
  const run = marked[record]!
  const what =
    run >= 0
      ? runName(tables, run)
      : `the start of ${run === -1 ? tables.plan.lanes[tables.lane[record]!]!.name : runName(tables, -2 - run)}`
  return `#after ${what}${previous ? ', of the tick before' : ''}`
}

const useReason = (tables: Tables, marked: Int32Array, c: number, event: number): string => {
  const record = tables.recordOf[eventOfUse(tables, c)] ?? -1
  const run = record < 0 ? -1 : marked[record]!
  return run < 0 ? `#e${event}` : `#after ${runName(tables, run)}, its last reader`
}
