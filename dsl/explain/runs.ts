import type { Plan } from '../ir/plan.js'

/** Bytes of a root buffer that a run touches, under the name that it knows them by. */
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
    // A buffer of no bytes is still written and read: it orders like one of one byte.
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
  /** By event: the run that its record stands after; none where the lane has run nothing yet. */
  readonly marks: ReadonlyMap<number, Run>
  /** By event: the run that its record stands before, on the same lane, in the same tick. */
  readonly next: ReadonlyMap<number, Run>
  /** By a wait's command: the run that it holds back; none where the tick ends first. */
  readonly held: ReadonlyMap<number, Run>
}

/** For each record, the run that it stands after; for each wait, the run that it holds back. An event's mark is its first record. */
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
