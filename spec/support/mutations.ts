// Over 300 lines as one thing: every way to break a plan by its commands, each with the law that it breaks.
import type { Command, Law, Plan } from '../../dsl/ir/plan.js'
import { oraclePeak } from './oracle.js'

/** One way to break a plan: what it makes of a plan at a given place, and which law that breaks where it breaks any. */
export interface Mutation {
  readonly name: string
  readonly laws: readonly Law[]
  /** What it makes is no plan of the format at all: it is rejected, and what else breaks is nobody's to say. */
  readonly malformed?: true
  /** Undefined where the plan has no such place. `pick` chooses among places. */
  readonly apply: (plan: Plan, pick: (count: number) => number) => Mutant | undefined
}

export interface Mutant {
  readonly plan: Plan
  /** The command, of the mutant, that must be blamed; undefined: whichever the law finds first. */
  readonly command?: number
  readonly buffer?: number
  /** Whoever is blamed, it is for some buffer: one whose accesses or bytes have lost their order. */
  readonly names?: true
}

export type Test = (command: Command, c: number, plan: Plan) => boolean

export const at = (plan: Plan, pick: (count: number) => number, test: Test): number => {
  const places = plan.commands.flatMap((command, c) => (test(command, c, plan) ? [c] : []))
  return places.length === 0 ? -1 : places[pick(places.length)]!
}

export const edited = (plan: Plan, from: number, remove: number, ...insert: Command[]): Plan => ({
  ...plan,
  commands: plan.commands.toSpliced(from, remove, ...insert),
})

/** Moves command `from` so that it stands just before what is now `to`. */
export const moved = (plan: Plan, from: number, to: number): Plan => {
  const command = plan.commands[from]!
  return to > from ? edited(edited(plan, to, 0, command), from, 1) : edited(edited(plan, from, 1), to, 0, command)
}

export const is =
  (op: Command[0]): Test =>
  command =>
    command[0] === op
export const touches = (command: Command, b: number, plan: Plan): boolean =>
  command[0] === 'run' && [...command[3], ...command[4]].some(id => (plan.buffers[id]!.alias ?? id) === b)
export const newEvent = (plan: Plan): number =>
  1 +
  plan.commands.reduce(
    (most, command) => Math.max(most, command[0] === 'record' || command[0] === 'wait' ? command[1] : 0),
    0,
  )

export const mutations: readonly Mutation[] = [
  {
    name: 'a dropped wait',
    laws: ['L1', 'L2', 'L3', 'L4', 'L9'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('wait'))
      return c < 0 ? undefined : { plan: edited(plan, c, 1), names: true }
    },
  },
  {
    name: 'a dropped use',
    laws: ['L4'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('use'))
      if (c < 0) return undefined
      const buffer = plan.commands[c]![1] as number
      const without = edited(plan, c, 1)
      return {
        plan: without,
        buffer,
        command: without.commands.findIndex(command => command[0] === 'free' && command[1] === buffer),
      }
    },
  },
  {
    name: 'a late use: another run before its record',
    laws: ['L5'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('use'))
      const use = plan.commands[c]
      if (use?.[0] !== 'use') return undefined
      const record = plan.commands.findIndex(command => command[0] === 'record' && command[1] === use[3])
      const idle: Command = ['run', 0, use[2], [], []]
      return { plan: edited(plan, record, 0, idle), command: c + 1, buffer: use[1] }
    },
  },
  {
    name: 'a use on another lane',
    laws: ['L4'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('use'))
      const use = plan.commands[c]
      if (use?.[0] !== 'use' || plan.lanes.length < 2) return undefined
      return {
        plan: edited(plan, c, 1, use.with(2, (use[2] + 1) % plan.lanes.length) as never),
        command: c,
        buffer: use[1],
      }
    },
  },
  {
    name: 'a use of another event',
    laws: ['L4', 'L5'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('use'))
      const use = plan.commands[c]
      if (use?.[0] !== 'use') return undefined
      return { plan: edited(plan, c, 1, ['use', use[1], use[2], newEvent(plan)]), command: c, buffer: use[1] }
    },
  },
  {
    name: 'an early free: before the last access',
    laws: ['L3'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('free'))
      if (c < 0) return undefined
      const buffer = plan.commands[c]![1] as number
      const last = plan.commands.findLastIndex(command => touches(command, buffer, plan))
      return last < 0 ? undefined : { plan: moved(plan, c, last), command: last + 1 }
    },
  },
  {
    name: 'a double free',
    laws: ['L3'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('free'))
      return c < 0
        ? undefined
        : { plan: edited(plan, c, 0, plan.commands[c]!), command: c + 1, buffer: plan.commands[c]![1] as number }
    },
  },
  {
    name: 'a leak: a free dropped',
    laws: ['L3'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('free'))
      if (c < 0) return undefined
      const buffer = plan.commands[c]![1] as number
      return {
        plan: edited(plan, c, 1),
        buffer,
        command: plan.commands.findIndex(command => command[0] === 'alloc' && command[1] === buffer),
      }
    },
  },
  {
    name: 'a missing alloc',
    laws: ['L3'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('alloc'))
      if (c < 0) return undefined
      const buffer = plan.commands[c]![1] as number
      const first = plan.commands.findIndex(command => touches(command, buffer, plan))
      return { plan: edited(plan, c, 1), command: first - 1 }
    },
  },
  {
    name: 'a second alloc',
    laws: ['L3'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('alloc'))
      return c < 0
        ? undefined
        : { plan: edited(plan, c, 0, plan.commands[c]!), command: c + 1, buffer: plan.commands[c]![1] as number }
    },
  },
  {
    name: 'an alloc after the first access',
    laws: ['L3'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('alloc'))
      if (c < 0) return undefined
      const first = plan.commands.findIndex(command => touches(command, plan.commands[c]![1] as number, plan))
      return first < c ? undefined : { plan: moved(plan, c, first + 1), command: first - 1 }
    },
  },
  {
    name: 'an alloc on another lane',
    laws: ['L3'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('alloc'))
      const alloc = plan.commands[c]
      if (alloc?.[0] !== 'alloc' || plan.lanes.length < 2) return undefined
      return {
        plan: edited(plan, c, 1, ['alloc', alloc[1], (alloc[2] + 1) % plan.lanes.length]),
        command: c,
        buffer: alloc[1],
      }
    },
  },
  {
    name: 'an access after the free',
    laws: ['L3'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('free'))
      if (c < 0) return undefined
      const buffer = plan.commands[c]![1] as number
      return {
        plan: edited(plan, c + 1, 0, ['run', 0, plan.buffers[buffer]!.home, [buffer], []]),
        command: c + 1,
        buffer,
      }
    },
  },
  {
    name: 'a free before a use',
    laws: ['L3', 'L4'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('use'))
      if (c < 0) return undefined
      const free = plan.commands.findIndex(command => command[0] === 'free' && command[1] === plan.commands[c]![1])
      return { plan: moved(plan, free, c), buffer: plan.commands[c]![1] as number }
    },
  },
  {
    name: 'a read before any write',
    laws: ['L1'],
    apply: (plan, pick) => {
      const c = at(
        plan,
        pick,
        command =>
          command[0] === 'run' && command[4].some(b => plan.buffers[b]!.life === 'tick' && !command[3].includes(b)),
      )
      const run = plan.commands[c]
      if (run?.[0] !== 'run') return undefined
      const buffer = run[4].find(b => plan.buffers[b]!.life === 'tick')!
      const first = plan.commands.findIndex(command => command[0] === 'run' && command[4].includes(buffer))
      return first !== c
        ? undefined
        : { plan: edited(plan, c, 0, ['run', 0, run[2], [buffer], []]), command: c, buffer }
    },
  },
  {
    name: 'two commands swapped',
    laws: ['L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L7', 'L9'],
    apply: (plan, pick) => {
      if (plan.commands.length < 2) return undefined
      const c = pick(plan.commands.length - 1)
      return { plan: moved(plan, c + 1, c) }
    },
  },
  {
    name: 'an event waited for before its record',
    laws: ['L7'],
    apply: (plan, pick) => {
      const c = at(plan, pick, command => command[0] === 'wait' && command[3] !== -1)
      if (c < 0) return undefined
      const record = plan.commands.findIndex(command => command[0] === 'record' && command[1] === plan.commands[c]![1])
      return { plan: moved(plan, c, record), command: record }
    },
  },
  {
    name: 'a wait for an event that nobody records',
    laws: ['L7'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('wait'))
      const wait = plan.commands[c]
      return wait?.[0] !== 'wait'
        ? undefined
        : { plan: edited(plan, c, 1, wait.with(1, newEvent(plan)) as never), command: c }
    },
  },
  {
    name: 'an event recorded twice',
    laws: ['L7'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('record'))
      return c < 0
        ? undefined
        : { plan: edited(plan, plan.commands.length, 0, plan.commands[c]!), command: plan.commands.length }
    },
  },
  {
    name: 'a wait of the wrong tick',
    laws: ['L1', 'L2', 'L3', 'L4', 'L6', 'L7', 'L9'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('wait'))
      const wait = plan.commands[c]
      if (wait?.[0] !== 'wait') return undefined
      const other: Command = wait[3] === -1 ? ['wait', wait[1], wait[2]] : ['wait', wait[1], wait[2], -1]
      return { plan: edited(plan, c, 1, other) }
    },
  },
  {
    name: 'a wait on the wrong lane',
    laws: ['L1', 'L2', 'L3', 'L4', 'L6', 'L9'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('wait'))
      const wait = plan.commands[c]
      if (wait?.[0] !== 'wait' || plan.lanes.length < 2) return undefined
      return { plan: edited(plan, c, 1, wait.with(2, (wait[2] + 1) % plan.lanes.length) as never) }
    },
  },
  {
    name: 'a record before the run that it stands for',
    laws: ['L1', 'L2', 'L3', 'L4', 'L5', 'L6', 'L9'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('record'))
      const run = plan.commands.findLastIndex(
        (command, i) => i < c && command[0] === 'run' && command[2] === plan.commands[c]![2],
      )
      return c < 0 || run < 0 ? undefined : { plan: moved(plan, c, run) }
    },
  },
  {
    name: 'a bound one byte too small',
    laws: ['L9'],
    apply: plan => {
      const { bytes, reachedAt } = oraclePeak(plan)
      const device = bytes.findIndex((size, d) => d < plan.devices && size > 0)
      if (device < 0) return undefined
      const bounds = plan.bound.device.with(device, bytes[device]! - 1)
      return { plan: { ...plan, bound: { ...plan.bound, device: bounds } }, command: reachedAt[device]! }
    },
  },
  {
    name: 'a bound of pinned memory too small',
    laws: ['L9'],
    apply: plan => {
      const { bytes, reachedAt } = oraclePeak(plan)
      const pinned = bytes.at(-1)!
      if (pinned === 0) return undefined
      return { plan: { ...plan, bound: { ...plan.bound, pinned: pinned - 1 } }, command: reachedAt.at(-1)! }
    },
  },
  {
    name: 'a redundant wait',
    laws: ['L6'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('wait'))
      return c < 0 ? undefined : { plan: edited(plan, c, 0, plan.commands[c]!), command: c }
    },
  },
  {
    name: 'a redundant use',
    laws: ['L6'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('use'))
      return c < 0
        ? undefined
        : { plan: edited(plan, c, 0, plan.commands[c]!), command: c, buffer: plan.commands[c]![1] as number }
    },
  },
  {
    name: 'a redundant record',
    laws: ['L6'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('run'))
      const run = plan.commands[c]
      return run?.[0] !== 'run'
        ? undefined
        : { plan: edited(plan, c + 1, 0, ['record', newEvent(plan), run[2]]), command: c + 1 }
    },
  },
  {
    name: 'a write to a param',
    laws: ['L2'],
    apply: (plan, pick) => {
      const c = at(plan, pick, is('run'))
      const run = plan.commands[c]
      const buffer = plan.buffers.findIndex(({ life }) => life === 'param')
      if (run?.[0] !== 'run' || buffer < 0) return undefined
      return { plan: edited(plan, c, 1, ['run', run[1], run[2], run[3], [...run[4], buffer]]), command: c, buffer }
    },
  },
  {
    name: 'an output that nobody writes',
    laws: ['L1'],
    apply: plan => {
      const buffer = plan.buffers.length
      return {
        plan: {
          ...plan,
          bound: { ...plan.bound, pinned: plan.bound.pinned + 8 * plan.inFlight },
          buffers: [
            ...plan.buffers,
            { id: buffer, name: 'unwritten', bytes: 8, space: 'pinned', device: 0, home: 0, life: 'output' },
          ],
        },
        command: -1,
        buffer,
      }
    },
  },
  {
    name: 'a free of a view or of what lives on',
    laws: ['L3'],
    apply: (plan, pick) => {
      const others = plan.buffers.filter(({ life, alias }) => life !== 'tick' || alias !== undefined)
      if (others.length === 0) return undefined
      const buffer = others[pick(others.length)]!.id
      return { plan: edited(plan, plan.commands.length, 0, ['free', buffer]), command: plan.commands.length, buffer }
    },
  },
  {
    name: 'bytes shared in the arena',
    // Moved to where all is in order, the buffer leaves behind a wait that nobody needs.
    laws: ['L3', 'L4', 'L6'],
    apply: (plan, pick) => {
      const placed = plan.buffers.filter(({ offset, life }) => offset !== undefined && life === 'tick')
      if (placed.length < 2) return undefined
      const from = placed[pick(placed.length)]!
      const to = placed[pick(placed.length)]!
      if (from === to || from.offset === to.offset || from.device !== to.device) return undefined
      if (to.offset! + from.bytes > plan.arena![to.device]!) return undefined
      return {
        plan: {
          ...plan,
          buffers: plan.buffers.map(buffer => (buffer === from ? { ...buffer, offset: to.offset! } : buffer)),
        },
      }
    },
  },
  {
    name: 'bytes of a param shared in the arena',
    laws: ['L3'],
    apply: (plan, pick) => {
      const param = plan.buffers.find(({ offset, life }) => offset !== undefined && life === 'param')
      const placed = plan.buffers.filter(
        ({ offset, life, device }) => offset !== undefined && life === 'tick' && device === param?.device,
      )
      if (param === undefined || placed.length === 0) return undefined
      const from = placed[pick(placed.length)]!
      return {
        plan: {
          ...plan,
          buffers: plan.buffers.map(buffer => (buffer === from ? { ...buffer, offset: param.offset! } : buffer)),
        },
        command: -1,
        buffer: param.id,
      }
    },
  },
]
