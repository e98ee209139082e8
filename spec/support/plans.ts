import { peakOf } from '../../dsl/ir/peak.js'
import type { Command, Life, Plan, PlanBuffer, PlanLane, PlanNode } from '../../dsl/ir/plan.js'

/** Plans written by hand, command by command: what a person who knows the laws would write. All of them obey every law. */

export interface BufferSketch {
  readonly name: string
  readonly life?: Life
  readonly home?: number
  readonly bytes?: number
  readonly space?: 'device' | 'pinned'
  readonly device?: number
  readonly alias?: number
  readonly aliasOffset?: number
  readonly offset?: number
  readonly init?: number
}

export interface PlanSketch {
  readonly name: string
  readonly lanes: readonly string[]
  /** The device of each lane; of all of them 0 unless given. */
  readonly laneDevices?: readonly number[]
  readonly devices?: number
  readonly buffers: readonly BufferSketch[]
  readonly commands: readonly Command[]
  readonly inFlight?: number
  /** With an arena the storage is planned. */
  readonly arena?: number | readonly number[]
}

/** Completes a sketch: a node for each that a run names, and the least bound that holds. */
export const planOf = (sketch: PlanSketch): Plan => {
  const nodes =
    1 + sketch.commands.reduce((most, command) => (command[0] === 'run' ? Math.max(most, command[1]) : most), -1)
  const devices = sketch.devices ?? 1
  const plan: Plan = {
    plan: 1,
    name: sketch.name,
    devices,
    inFlight: sketch.inFlight ?? 2,
    storage: sketch.arena === undefined ? 'pooled' : 'planned',
    bound: { device: Array.from({ length: devices }, () => 0), pinned: 0 },
    ...(sketch.arena === undefined ? {} : { arena: typeof sketch.arena === 'number' ? [sketch.arena] : sketch.arena }),
    lanes: sketch.lanes.map((name, id): PlanLane => ({ id, name, device: sketch.laneDevices?.[id] ?? 0, priority: 0 })),
    buffers: sketch.buffers.map(
      (buffer, id): PlanBuffer => ({
        id,
        name: buffer.name,
        bytes: buffer.bytes ?? 1024,
        space: buffer.space ?? (buffer.life === 'input' || buffer.life === 'output' ? 'pinned' : 'device'),
        device: buffer.device ?? 0,
        home: buffer.home ?? 0,
        life: buffer.life ?? 'tick',
        ...(buffer.alias === undefined ? {} : { alias: buffer.alias, aliasOffset: buffer.aliasOffset ?? 0 }),
        ...(buffer.offset === undefined ? {} : { offset: buffer.offset }),
        ...(buffer.init === undefined ? {} : { dtype: 'f32' as const, init: buffer.init }),
      }),
    ),
    nodes: Array.from(
      { length: nodes },
      (_, id): PlanNode => ({ id, op: 'test', name: `n${id}`, at: `spec/support/plans.ts:${id + 1}:1` }),
    ),
    commands: sketch.commands,
  }
  return bounded(plan)
}

/** The plan with its own peak as its bound. */
export const bounded = (plan: Plan): Plan => {
  const peak = peakOf(plan)
  return { ...plan, bound: { device: peak.device, pinned: peak.pinned } }
}

const input = { name: 'x', life: 'input' } as const
const output = { name: 'y', life: 'output' } as const

export const singleLane = planOf({
  name: 'single lane',
  lanes: ['main'],
  buffers: [input, { name: 'a' }, { name: 'b' }, output],
  commands: [
    ['alloc', 1, 0],
    ['run', 0, 0, [0], [1]],
    ['alloc', 2, 0],
    ['run', 1, 0, [1], [2]],
    ['free', 1],
    ['run', 2, 0, [2], [3]],
    ['free', 2],
  ],
})

/** The copy lane is the home of what it uploads; the reader's last use lets it go on. */
export const twoLanes = planOf({
  name: 'two lanes',
  lanes: ['math', 'copy'],
  buffers: [input, { name: 'w', home: 1 }, { name: 'h' }, output],
  commands: [
    ['alloc', 1, 1],
    ['run', 0, 1, [0], [1]],
    ['record', 0, 1],
    ['wait', 0, 0],
    ['alloc', 2, 0],
    ['run', 1, 0, [1], [2]],
    ['record', 1, 0],
    ['use', 1, 0, 1],
    ['free', 1],
    ['run', 2, 0, [2], [3]],
    ['free', 2],
  ],
})

/** Three layers through two weight buffers: each upload waits for the reader before the last one, around the tick too. */
export const weightStreaming = planOf({
  name: 'weight streaming',
  lanes: ['math', 'copy'],
  buffers: [
    input,
    { name: 'p[0]', life: 'param', space: 'pinned', home: 1, bytes: 4096 },
    { name: 'p[1]', life: 'param', space: 'pinned', home: 1, bytes: 4096 },
    { name: 'p[2]', life: 'param', space: 'pinned', home: 1, bytes: 4096 },
    { name: 'w[0]', home: 1, bytes: 4096 },
    { name: 'w[1]', home: 1, bytes: 4096 },
    { name: 'w[2]', home: 1, bytes: 4096 },
    { name: 'h[0]' },
    { name: 'h[1]' },
    output,
  ],
  commands: [
    ['wait', 4, 1, -1], // w[0] takes the bytes of the tick before's w[1]
    ['alloc', 4, 1],
    ['run', 0, 1, [1], [4]],
    ['record', 0, 1],
    ['wait', 5, 1, -1], // w[1] those of the tick before's w[2]
    ['alloc', 5, 1],
    ['run', 1, 1, [2], [5]],
    ['record', 1, 1],
    ['wait', 0, 0],
    ['alloc', 7, 0],
    ['run', 3, 0, [0, 4], [7]],
    ['record', 3, 0],
    ['use', 4, 0, 3],
    ['free', 4],
    ['wait', 3, 1], // w[2] those of w[0]
    ['alloc', 6, 1],
    ['run', 2, 1, [3], [6]],
    ['record', 2, 1],
    ['wait', 1, 0],
    ['alloc', 8, 0],
    ['run', 4, 0, [7, 5], [8]],
    ['record', 4, 0],
    ['use', 5, 0, 4],
    ['free', 5],
    ['free', 7],
    ['wait', 2, 0],
    ['run', 5, 0, [8, 6], [9]],
    ['record', 5, 0],
    ['use', 6, 0, 5],
    ['free', 6],
    ['free', 8],
  ],
})
