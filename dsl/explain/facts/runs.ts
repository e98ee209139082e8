import type { Plan } from '../../ir/plan.js'

/**
 * The bytes of a root buffer that a run accesses, and the buffer (a view or the root) that the command names.
 */
export interface Access {
  readonly buffer: number
  readonly root: number
  readonly from: number
  readonly to: number
}

export interface Run {
  readonly command: number
  readonly node: number
  readonly lane: number
  /** Its place among the runs of its lane, from 1. */
  readonly place: number
  readonly reads: readonly Access[]
  readonly writes: readonly Access[]
}

export const overlap = (a: Access, b: Access): boolean => a.root === b.root && a.from < b.to && b.from < a.to

const accessOf =
  (plan: Plan) =>
  (buffer: number): Access => {
    const { alias, aliasOffset = 0, bytes } = plan.buffers[buffer]!
    // A buffer of no bytes is ordered as if it had one byte.
    return { buffer, root: alias ?? buffer, from: aliasOffset, to: aliasOffset + Math.max(1, bytes) }
  }

export const runsOf = (plan: Plan): readonly Run[] => {
  const places = plan.lanes.map(() => 0)
  const access = accessOf(plan)
  return plan.commands.flatMap((command, at): readonly Run[] => {
    if (command[0] !== 'run') return []
    const [, node, lane, reads, writes] = command
    return [
      {
        command: at,
        node,
        lane,
        place: ++places[lane]!,
        reads: reads.map(access),
        writes: writes.map(access),
      },
    ]
  })
}

export interface Links {
  /** By event: the lane's last run before its record; absent where there is none. */
  readonly marks: ReadonlyMap<number, Run>
  /** By event: the lane's next run after its record, in the same tick; absent where there is none. */
  readonly next: ReadonlyMap<number, Run>
  /** By a wait's command: the lane's next run, which the wait delays; absent where there is none. */
  readonly held: ReadonlyMap<number, Run>
}

/** The runs around each record, and the run that each wait delays. The first record of an event counts. */
export const linksOf = (plan: Plan, runs: readonly Run[]): Links => {
  const marks = new Map<number, Run>()
  const following = new Map<number, Run>()
  const recordedSince: number[][] = plan.lanes.map(() => [])
  const recorded = new Set<number>()
  const last: (Run | undefined)[] = plan.lanes.map(() => undefined)
  const held = new Map<number, Run>()
  const pending: number[][] = plan.lanes.map(() => [])
  let next = 0
  plan.commands.forEach((command, at) => {
    if (command[0] === 'record') {
      if (recorded.has(command[1])) return
      recorded.add(command[1])
      recordedSince[command[2]]!.push(command[1])
      const run = last[command[2]]
      if (run !== undefined) marks.set(command[1], run)
    } else if (command[0] === 'wait') pending[command[2]]!.push(at)
    else if (command[0] === 'run') {
      const run = runs[next++]!
      last[run.lane] = run
      for (const wait of pending[run.lane]!) held.set(wait, run)
      pending[run.lane] = []
      for (const event of recordedSince[run.lane]!) following.set(event, run)
      recordedSince[run.lane] = []
    }
  })
  return { marks, next: following, held }
}
