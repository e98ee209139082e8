import type { Command, Plan } from '../../dsl/ir/plan.js'
import { type BufferSketch, planOf } from './plans.js'

/** The commands of a plan by hand, one word each. What a run computes is no matter here, so all are of one node. */
export const read = (lane: number, ...buffers: number[]): Command => ['run', 0, lane, buffers, []]
export const write = (lane: number, ...buffers: number[]): Command => ['run', 0, lane, [], buffers]
export const record = (event: number, lane: number): Command => ['record', event, lane]
export const wait = (event: number, lane: number): Command => ['wait', event, lane]
export const use = (buffer: number, lane: number, event: number): Command => ['use', buffer, lane, event]
export const alloc = (buffer: number, lane: number): Command => ['alloc', buffer, lane]
export const free = (buffer: number): Command => ['free', buffer]

const laneNames = (lanes: number): string[] => Array.from({ length: lanes }, (_, i) => `lane${i}`)

/**
 * A schedule over memory that outlives it: its buffers hold a value from the start and are never freed, and one tick is in flight, so that
 * nothing but the schedule's own events orders its accesses.
 */
export const schedule = (lanes: number, buffers: number, commands: readonly Command[]): Plan =>
  planOf({
    name: 'schedule',
    lanes: laneNames(lanes),
    inFlight: 1,
    buffers: Array.from({ length: buffers }, (_, i) => ({ name: `b${i}`, life: 'state', init: 0 })),
    commands,
  })

/** A schedule over memory that it allocates and frees itself. With an arena the storage is planned. */
export const turnover = (
  lanes: number,
  buffers: readonly BufferSketch[],
  commands: readonly Command[],
  arena?: number,
): Plan =>
  planOf({
    name: 'turnover',
    lanes: laneNames(lanes),
    inFlight: 1,
    buffers,
    commands,
    ...(arena === undefined ? {} : { arena }),
  })

/** The plan without one of its commands. */
export const without = (plan: Plan, command: number): Plan => ({
  ...plan,
  commands: plan.commands.filter((_, c) => c !== command),
})
