// Over 150 lines as one thing: one replay of a plan's commands, and all that it notes on the way.
import { peakOf } from '../ir/peak.js'
import type { Plan } from '../ir/plan.js'
import { aliveAt } from '../passes/alive.js'

export interface Reasons {
  readonly name: string
  readonly bound: Plan['bound']
  readonly lanes: readonly { readonly name: string; readonly runs: number; readonly waits: number }[]
  readonly waits: readonly { readonly command: number; readonly lane: string; readonly before: string; readonly after: string; readonly because: string }[]
  readonly uses: readonly { readonly command: number; readonly buffer: string; readonly lane: string; readonly access: string }[]
  readonly elidedWaits: readonly { readonly before: string; readonly after: string; readonly by: string }[]
  readonly elidedUses: readonly { readonly buffer: string; readonly lane: string; readonly access: string; readonly by: string }[]
  readonly alive: readonly { readonly name: string; readonly bytes: number; readonly life: string }[]
}

interface Run {
  readonly command: number
  readonly node: number
  readonly lane: number
  /** Its place among the runs of its lane, from 1. */
  readonly place: number
  readonly reads: readonly number[]
  readonly writes: readonly number[]
}

const rootsOf = (plan: Plan) => (buffers: readonly number[]): readonly number[] => buffers.map(b => plan.buffers[b]?.alias ?? b)

const runsOf = (plan: Plan): readonly Run[] => {
  const places = plan.lanes.map(() => 0)
  const roots = rootsOf(plan)
  return plan.commands.flatMap((command, at): readonly Run[] => {
    if (command[0] !== 'run') return []
    const [, node, lane, reads, writes] = command
    return [{ command: at, node, lane, place: ++places[lane]!, reads: roots(reads), writes: roots(writes) }]
  })
}

/** For each record, the run that it stands after; for each wait, the run that it holds back. */
const linksOf = (plan: Plan, runs: readonly Run[]) => {
  const marks = new Map<number, Run>()
  const last: (Run | undefined)[] = plan.lanes.map(() => undefined)
  const held = new Map<number, Run>()
  const pending: number[][] = plan.lanes.map(() => [])
  let next = 0
  plan.commands.forEach((command, at) => {
    if (command[0] === 'record' && last[command[2]] !== undefined) marks.set(command[1], last[command[2]]!)
    else if (command[0] === 'wait') pending[command[2]]!.push(at)
    else if (command[0] === 'run') {
      const run = runs[next++]!
      last[run.lane] = run
      for (const wait of pending[run.lane]!) held.set(wait, run)
      pending[run.lane] = []
    }
  })
  return { marks, held }
}

/** Why `after` must come after `before`, where they touch the same memory; undefined where they do not. */
const conflict = (plan: Plan, before: Run, after: Run): string | undefined => {
  const name = (b: number) => plan.buffers[b]!.name
  const read = after.reads.find(b => before.writes.includes(b))
  if (read !== undefined) return `it reads ${name(read)}`
  const overwritten = after.writes.find(b => before.reads.includes(b))
  if (overwritten !== undefined) return `it overwrites ${name(overwritten)}, which the other reads`
  const again = after.writes.find(b => before.writes.includes(b))
  return again === undefined ? undefined : `it overwrites ${name(again)}`
}

export const reasonsOf = (plan: Plan): Reasons => {
  const runs = runsOf(plan)
  const { marks, held } = linksOf(plan, runs)
  const label = (run: Run | undefined): string => (run === undefined ? 'the end of the tick' : plan.nodes[run.node]!.name)
  const laneName = (lane: number): string => plan.lanes[lane]!.name
  const count = plan.lanes.length
  // known[l][m]: how many runs of lane m lane l is after; via[l][m]: the wait that brought that.
  const known = plan.lanes.map(() => new Int32Array(count))
  const via = plan.lanes.map(() => new Int32Array(count).fill(-1))
  const snapshot = new Map<number, Int32Array>()
  const waits: Reasons['waits'][number][] = []
  const uses: Reasons['uses'][number][] = []
  const elidedWaits: Reasons['elidedWaits'][number][] = []
  const elidedUses: Reasons['elidedUses'][number][] = []
  const writer = new Map<number, Run>()
  const readers = new Map<number, Run[]>()
  const latest = new Map<number, Map<number, Run>>()
  const kept = new Map<number, { readonly lane: number; readonly event: number }[]>()
  const direct = new Map<number, Set<Run>>()
  const waitText = (at: number): string => {
    const command = plan.commands[at]
    return command?.[0] === 'wait' ? `${laneName(command[2])} waited for ${label(marks.get(command[1]))} already` : 'the order of the lane'
  }
  let next = 0
  plan.commands.forEach((command, at) => {
    switch (command[0]) {
      case 'wait': {
        const [, event, lane, tick] = command
        const before = marks.get(event)
        const after = held.get(at)
        const reason = before && after ? conflict(plan, before, after) : undefined
        const writes = after?.writes.map(b => plan.buffers[b]!.name).join(', ')
        const because = reason ?? `so that ${writes || 'what follows'} can have the memory of what the other has read`
        const when = tick === -1 ? ' of the tick before' : ''
        waits.push({ command: at, lane: laneName(lane), before: `${label(before)}${when}`, after: label(after), because })
        if (tick === -1 || before === undefined) break
        if (after !== undefined) direct.set(after.command, (direct.get(after.command) ?? new Set()).add(before))
        const brought = snapshot.get(event)
        for (let m = 0; brought !== undefined && m < count; m++)
          if (brought[m]! > known[lane]![m]!) {
            known[lane]![m] = brought[m]!
            via[lane]![m] = at
          }
        break
      }
      case 'record':
        snapshot.set(command[1], known[command[2]]!.slice())
        break
      case 'run': {
        const run = runs[next++]!
        const earlier = new Set<Run>()
        for (const b of run.reads) if (writer.has(b)) earlier.add(writer.get(b)!)
        for (const b of run.writes) for (const r of readers.get(b)?.length ? readers.get(b)! : writer.has(b) ? [writer.get(b)!] : []) earlier.add(r)
        for (const before of earlier)
          if (before.lane !== run.lane && !direct.get(run.command)?.has(before))
            elidedWaits.push({ before: label(before), after: label(run), by: waitText(via[run.lane]![before.lane]!) })
        for (const b of run.reads) {
          const others = readers.get(b)
          if (others === undefined) readers.set(b, [run])
          else others.push(run)
        }
        for (const b of run.writes) {
          writer.set(b, run)
          readers.set(b, [])
        }
        for (const b of [...run.reads, ...run.writes]) latest.set(b, (latest.get(b) ?? new Map()).set(run.lane, run))
        known[run.lane]![run.lane] = run.place
        break
      }
      case 'use': {
        const [, buffer, lane, event] = command
        const access = marks.get(event)
        uses.push({ command: at, buffer: plan.buffers[buffer]!.name, lane: laneName(lane), access: label(access) })
        kept.set(buffer, [...(kept.get(buffer) ?? []), { lane, event }])
        break
      }
      case 'free': {
        const [, buffer] = command
        const { home, name } = plan.buffers[buffer]!
        for (const [lane, run] of latest.get(buffer) ?? []) {
          if (lane === home || kept.get(buffer)?.some(use => use.lane === lane)) continue
          const other = kept.get(buffer)?.find(use => (snapshot.get(use.event)?.[lane] ?? 0) >= run.place)
          const ordered = known[home]![lane]! >= run.place
          const by = ordered ? `its home lane ${waitText(via[home]![lane]!).replace(`${laneName(home)} `, '')}` : `the use on ${laneName(other?.lane ?? home)} is after it`
          elidedUses.push({ buffer: name, lane: laneName(lane), access: label(run), by })
        }
        break
      }
    }
  })
  const lanes = plan.lanes.map(({ id, name }) => ({
    name,
    runs: runs.filter(run => run.lane === id).length,
    waits: waits.filter(wait => wait.lane === name).length,
  }))
  const alive = aliveAt(plan, peakOf(plan).reachedAt[0] ?? -1).map(({ name, bytes, life }) => ({ name, bytes, life }))
  return { name: plan.name, bound: plan.bound, lanes, waits, uses, elidedWaits, elidedUses, alive }
}
