// A task graph as the passes have it after `order`: each task writes one buffer of its own and reads those of the tasks it depends on.
import { h200 } from '../../dsl/machine/h200.js'
import type { Buffer, Operation, Ordered } from '../../dsl/passes/ir.js'
import type { Settings } from '../../dsl/passes/options.js'
import type { TaskGraph } from './families.js'

const settings: Settings = {
  name: 'tasks',
  dims: new Map(),
  inFlight: 2,
  memory: 'fast',
  storage: 'planned',
  lanes: 8,
  placement: 'chains',
  machine: h200,
  profile: new Map(),
}

/** One operation and one buffer a task. */
export const tasks = (
  deps: TaskGraph['deps'],
  bytes: (task: number) => number,
  movedBytes = 0,
): Pick<Ordered, 'operations' | 'buffers'> => ({
  operations: deps.map(
    (reads, id): Operation => ({
      op: 'task',
      name: `t${id}`,
      at: 'here',
      kernel: undefined,
      flops: 0,
      movedBytes,
      reads,
      writes: [id],
      after: reads,
      kind: 'compute',
      lane: undefined,
      workspace: 0,
      ahead: undefined,
      tolerance: 0,
      user: undefined,
    }),
  ),
  buffers: deps.map(
    (_, id): Buffer => ({ name: `b${id}`, bytes: bytes(id), space: 'device', life: 'tick', root: id, offset: 0 }),
  ),
})

export const orderedTasks = (
  { deps }: TaskGraph,
  laneOf: Int32Array,
  bytes: (task: number) => number,
  more: Partial<Settings> = {},
): Ordered => ({
  settings: { ...settings, ...more },
  ...tasks(deps, bytes),
  lanes: Array.from({ length: 1 + laneOf.reduce((most, lane) => Math.max(most, lane), 0) }, (_, id) => ({
    id,
    name: `l${id}`,
    device: 0,
    priority: 0,
  })),
  laneOf,
  windows: [],
  keep: false,
})
