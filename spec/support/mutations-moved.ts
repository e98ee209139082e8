import type { Command, Plan } from '../../dsl/ir/plan.js'
import { at, edited, is, type Mutation, moved, newEvent } from './mutations.js'

/** Ways to break a plan whose commands are all there, in another order or of another lane, event or buffer. */

const laneOf = (plan: Plan, command: Command): number =>
  command[0] === 'free' ? plan.buffers[command[1]]!.home : command[2]

/** Another number below `count`; undefined where there is none. */
const another = (count: number, not: number, pick: (count: number) => number): number | undefined =>
  count < 2 ? undefined : (not + 1 + pick(count - 1)) % count

export const movedMutations: readonly Mutation[] = [
  {
    name: 'a dropped record',
    laws: ['L4', 'L7'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('record'))
      return c < 0 ? undefined : { plan: edited(plan, c, 1) }
    },
  },
  {
    name: 'a dropped wait for the tick before',
    laws: ['L1', 'L2', 'L3', 'L4', 'L9'],
    apply: (plan, pick) => {
      const c = at(plan, pick, command => command[0] === 'wait' && command[3] === -1)
      return c < 0 ? undefined : { plan: edited(plan, c, 1), names: true }
    },
  },
  {
    name: 'a use before the record of its event',
    laws: ['L4'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('use'))
      const use = plan.commands[c]
      if (use?.[0] !== 'use') return undefined
      const record = plan.commands.findIndex(command => command[0] === 'record' && command[1] === use[3])
      return { plan: moved(plan, c, record), command: record, buffer: use[1] }
    },
  },
  {
    name: 'a use recorded before the last read',
    laws: ['L4', 'L5'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('use'))
      const use = plan.commands[c]
      if (use?.[0] !== 'use') return undefined
      const record = plan.commands.findIndex(command => command[0] === 'record' && command[1] === use[3])
      const read = plan.commands.findLastIndex(
        (command, i) => i < record && command[0] === 'run' && command[2] === use[2],
      )
      if (read < 0) return undefined
      const event = newEvent(plan)
      const early = edited(plan, c, 1, ['use', use[1], use[2], event])
      return { plan: edited(early, read, 0, ['record', event, use[2]]), buffer: use[1] }
    },
  },
  {
    name: 'a use on the home lane',
    laws: ['L4', 'L6'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('use'))
      const use = plan.commands[c]
      if (use?.[0] !== 'use') return undefined
      return { plan: edited(plan, c, 0, ['use', use[1], plan.buffers[use[1]]!.home, use[3]]), buffer: use[1] }
    },
  },
  {
    name: 'a use of another buffer',
    laws: ['L3', 'L4', 'L5', 'L6'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('use'))
      const use = plan.commands[c]
      if (use?.[0] !== 'use') return undefined
      const buffer = another(plan.buffers.length, use[1], pick)
      return buffer === undefined ? undefined : { plan: edited(plan, c, 1, ['use', buffer, use[2], use[3]]) }
    },
  },
  {
    name: 'a wait for another event that there is',
    laws: ['L1', 'L2', 'L3', 'L4', 'L6', 'L7', 'L9'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('wait'))
      const wait = plan.commands[c]
      if (wait?.[0] !== 'wait') return undefined
      const events = plan.commands.flatMap(command =>
        command[0] === 'record' && command[1] !== wait[1] ? [command[1]] : [],
      )
      return events.length === 0
        ? undefined
        : { plan: edited(plan, c, 1, wait.with(1, events[pick(events.length)]!) as never) }
    },
  },
  {
    name: 'a wait after the run that needs it',
    laws: ['L1', 'L2', 'L3', 'L4', 'L6', 'L9'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('wait'))
      const wait = plan.commands[c]
      if (wait?.[0] !== 'wait') return undefined
      const run = plan.commands.findIndex((command, i) => i > c && command[0] === 'run' && command[2] === wait[2])
      return run < 0 ? undefined : { plan: moved(plan, c, run + 1) }
    },
  },
  {
    name: 'a record on another lane',
    laws: ['L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L9'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('record'))
      const record = plan.commands[c]
      if (record?.[0] !== 'record') return undefined
      const lane = another(plan.lanes.length, record[2], pick)
      return lane === undefined ? undefined : { plan: edited(plan, c, 1, ['record', record[1], lane]) }
    },
  },
  {
    name: 'two events made one',
    laws: ['L7'],
    apply: (plan, pick) => {
      const records = plan.commands.flatMap(command => (command[0] === 'record' ? [command[1]] : []))
      if (records.length < 2) return undefined
      const first = pick(records.length)
      const [from, to] = [records[first]!, records[another(records.length, first, pick)!]!]
      const renamed = (command: Command): Command => {
        if ((command[0] === 'record' || command[0] === 'wait') && command[1] === from)
          return command.with(1, to) as never
        return command[0] === 'use' && command[3] === from ? ['use', command[1], command[2], to] : command
      }
      return { plan: { ...plan, commands: plan.commands.map(renamed) } }
    },
  },
  {
    name: 'two commands of one lane swapped',
    laws: ['L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L7', 'L9'],
    apply: (plan, pick) => {
      const i = at(plan, pick, (command, c) =>
        plan.commands.some((other, d) => d > c && laneOf(plan, other) === laneOf(plan, command)),
      )
      if (i < 0) return undefined
      const lane = laneOf(plan, plan.commands[i]!)
      const j = plan.commands.findIndex((other, d) => d > i && laneOf(plan, other) === lane)
      return { plan: { ...plan, commands: plan.commands.with(i, plan.commands[j]!).with(j, plan.commands[i]!) } }
    },
  },
  {
    name: 'a run on another lane',
    laws: ['L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L9'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('run'))
      const run = plan.commands[c]
      if (run?.[0] !== 'run') return undefined
      const lane = another(plan.lanes.length, run[2], pick)
      return lane === undefined ? undefined : { plan: edited(plan, c, 1, run.with(2, lane) as never) }
    },
  },
  {
    name: 'a run issued twice',
    laws: ['L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L9'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('run'))
      return c < 0 ? undefined : { plan: edited(plan, plan.commands.length, 0, plan.commands[c]!) }
    },
  },
  {
    name: 'a run before one that it follows on another lane',
    laws: ['L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L9'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('run'))
      const run = plan.commands[c]
      if (run?.[0] !== 'run') return undefined
      const other = plan.commands.findLastIndex((command, i) => i < c && command[0] === 'run' && command[2] !== run[2])
      return other < 0 ? undefined : { plan: moved(plan, c, other) }
    },
  },
  {
    name: 'a read left out',
    laws: ['L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L9'],
    apply: (plan, pick) => {
      const c = at(plan, pick, command => command[0] === 'run' && command[3].length > 0)
      const run = plan.commands[c]
      if (run?.[0] !== 'run') return undefined
      return { plan: edited(plan, c, 1, ['run', run[1], run[2], run[3].toSpliced(pick(run[3].length), 1), run[4]]) }
    },
  },
  {
    name: 'a write left out',
    laws: ['L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L9'],
    apply: (plan, pick) => {
      const c = at(plan, pick, command => command[0] === 'run' && command[4].length > 0)
      const run = plan.commands[c]
      if (run?.[0] !== 'run') return undefined
      return { plan: edited(plan, c, 1, ['run', run[1], run[2], run[3], run[4].toSpliced(pick(run[4].length), 1)]) }
    },
  },
  {
    name: 'a read of one more buffer',
    laws: ['L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L9'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('run'))
      const run = plan.commands[c]
      if (run?.[0] !== 'run') return undefined
      return {
        plan: edited(plan, c, 1, ['run', run[1], run[2], [...run[3], pick(plan.buffers.length)], run[4]]),
      }
    },
  },
  {
    name: 'one buffer written twice by a run',
    laws: ['L2'],
    apply: (plan, pick) => {
      const c = at(plan, pick, command => command[0] === 'run' && command[4].length > 0)
      const run = plan.commands[c]
      if (run?.[0] !== 'run') return undefined
      const buffer = run[4][0]!
      return { plan: edited(plan, c, 1, ['run', run[1], run[2], run[3], [...run[4], buffer]]), command: c, buffer }
    },
  },
]
