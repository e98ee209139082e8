// Over 150 lines as one thing: one replay of a plan's commands, and all that it notes on the way.
import { peakOf } from '../ir/peak.js'
import type { Plan } from '../ir/plan.js'
import { aliveAt } from '../passes/alive.js'

/**
 * What a wait is for. `data`: an operation reads or overwrites what another one wrote or reads in the tick. `state`: the same across
 * ticks. `memory`: an allocation takes bytes that another buffer has left. `order`: none of these; such a wait breaks law L6.
 */
export type WaitFor = 'data' | 'state' | 'memory' | 'order'

export interface Reasons {
  readonly name: string
  readonly bound: Plan['bound']
  readonly lanes: readonly { readonly name: string; readonly runs: number; readonly waits: number }[]
  readonly waits: readonly {
    readonly command: number
    readonly lane: string
    readonly for: WaitFor
    readonly before: string
    readonly after: string
    readonly because: string
  }[]
  readonly uses: readonly {
    readonly command: number
    readonly buffer: string
    readonly home: string
    readonly lane: string
    readonly access: string
  }[]
  readonly elidedWaits: readonly { readonly before: string; readonly after: string; readonly by: string }[]
  readonly elidedUses: readonly {
    readonly buffer: string
    readonly home: string
    readonly lane: string
    readonly access: string
    readonly by: string
  }[]
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

const rootsOf =
  (plan: Plan) =>
  (buffers: readonly number[]): readonly number[] =>
    buffers.map(b => plan.buffers[b]?.alias ?? b)

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

/** Why `after` must come after `before`, where they touch the same memory: of this tick, or what lives on across ticks. */
const conflict = (plan: Plan, before: Run, after: Run, ticks: boolean): string | undefined => {
  const name = (b: number) => plan.buffers[b]!.name
  const shared = (mine: readonly number[], theirs: readonly number[]) =>
    mine.find(b => theirs.includes(b) && (!ticks || plan.buffers[b]!.life === 'state' || plan.storage === 'planned'))
  const read = shared(after.reads, before.writes)
  if (read !== undefined) return `it reads ${name(read)}`
  const overwritten = shared(after.writes, before.reads)
  if (overwritten !== undefined) return `it overwrites ${name(overwritten)}, which the other reads`
  const again = shared(after.writes, before.writes)
  return again === undefined ? undefined : `it overwrites ${name(again)}`
}

/** How many operations of each lane are looked at for what a wait orders, beyond the two that it stands between. */
const reach = 32

/** What a wait orders by data, where it is not the two operations themselves: earlier ones of the one lane, later ones of the other. */
const farther = (
  plan: Plan,
  byLane: readonly (readonly Run[])[],
  before: Run,
  after: Run,
  from: number,
  ticks: boolean,
) => {
  for (let b = before.place; b > Math.max(from, before.place - reach); b--) {
    for (let a = after.place; a < after.place + reach; a++) {
      const [earlier, later] = [byLane[before.lane]![b - 1], byLane[after.lane]![a - 1]]
      const why = earlier && later && conflict(plan, earlier, later, ticks)
      if (why !== undefined) return { earlier, later, why }
    }
  }
  return undefined
}

/** The buffers that lane allocates between a wait and the operation that it holds back: what the freed bytes are for. */
const takersOf = (plan: Plan, wait: number, after: Run | undefined): readonly number[] =>
  plan.commands
    .slice(wait, after?.command ?? plan.commands.length)
    .flatMap(command => (command[0] === 'alloc' && command[2] === (after?.lane ?? -1) ? [command[1]] : []))

/** Of what `before` accesses, what has been freed when the taker is allocated; of the taker's own home and size first. */
const givers = (
  plan: Plan,
  before: Run,
  wait: number,
  takers: readonly number[],
  ticks: boolean,
): readonly number[] => {
  const freed = new Set(
    plan.commands.flatMap((command, at) => (command[0] === 'free' && (ticks || at < wait) ? [command[1]] : [])),
  )
  const near = (b: number): number => {
    const { home, bytes } = plan.buffers[b]!
    const alike = takers.map(t => plan.buffers[t]!)
    return (alike.some(t => t.home === home) ? 2 : 0) + (alike.some(t => t.bytes === bytes) ? 1 : 0)
  }
  const memory = (b: number) => `${plan.buffers[b]!.space} ${plan.buffers[b]!.device}`
  const all = [...new Set([...before.reads, ...before.writes])].filter(
    b => freed.has(b) && takers.some(t => memory(t) === memory(b)),
  )
  const best = all.reduce((most, b) => Math.max(most, near(b)), 0)
  return all.filter(b => near(b) === best)
}

export const reasonsOf = (plan: Plan): Reasons => {
  const runs = runsOf(plan)
  const { marks, held } = linksOf(plan, runs)
  const label = (run: Run | undefined): string =>
    run === undefined ? 'the end of the tick' : plan.nodes[run.node]!.name
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
  const byLane = plan.lanes.map(({ id }) => runs.filter(run => run.lane === id))
  const names = (buffers: readonly number[]): string => buffers.map(b => plan.buffers[b]!.name).join(', ')
  const whyWait = (
    at: number,
    before: Run | undefined,
    after: Run | undefined,
    from: number,
    ticks: boolean,
  ): { for: WaitFor; because: string } => {
    const data: WaitFor = ticks ? 'state' : 'data'
    const direct = before && after && conflict(plan, before, after, ticks)
    if (direct !== undefined) return { for: data, because: direct }
    const takers = takersOf(plan, at, after)
    const left = before === undefined ? [] : givers(plan, before, at, takers, ticks)
    if (left.length > 0)
      return { for: 'memory', because: `${names(takers)} takes the bytes that ${names(left)} leaves` }
    const far = before && after && farther(plan, byLane, before, after, from, ticks)
    if (far) return { for: data, because: `${label(far.later)} comes after ${label(far.earlier)}, since ${far.why}` }
    if (takers.length > 0) return { for: 'memory', because: `${names(takers)} takes bytes that were in use until then` }
    return { for: 'order', because: 'no data and no memory that is known here' }
  }
  const waitText = (at: number): string => {
    const command = plan.commands[at]
    return command?.[0] === 'wait'
      ? `${laneName(command[2])} waited for ${label(marks.get(command[1]))} already`
      : 'the order of the lane'
  }
  let next = 0
  plan.commands.forEach((command, at) => {
    switch (command[0]) {
      case 'wait': {
        const [, event, lane, tick] = command
        const before = marks.get(event)
        const after = held.get(at)
        const ticks = tick === -1
        const when = ticks ? ' of the tick before' : ''
        const known0 = before === undefined || ticks ? 0 : known[lane]![before.lane]!
        waits.push({
          command: at,
          lane: laneName(lane),
          ...whyWait(at, before, after, known0, ticks),
          before: `${label(before)}${when}`,
          after: label(after),
        })
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
        for (const b of run.writes)
          for (const r of readers.get(b)?.length ? readers.get(b)! : writer.has(b) ? [writer.get(b)!] : [])
            earlier.add(r)
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
        uses.push({
          command: at,
          buffer: plan.buffers[buffer]!.name,
          home: laneName(plan.buffers[buffer]!.home),
          lane: laneName(lane),
          access: label(access),
        })
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
          const by = ordered ? waitText(via[home]![lane]!) : `the use on ${laneName(other?.lane ?? home)} is after it`
          elidedUses.push({ buffer: name, home: laneName(home), lane: laneName(lane), access: label(run), by })
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
