// Over 150 lines as one thing: one replay of a plan's commands, and all that it notes on the way.

import { bufferName, laneName, nodeName, placeOf } from '../ir/names.js'
import type { Plan } from '../ir/plan.js'
import { type Held, heldAtPeak } from '../memory/held.js'
import { type Choices, choicesOf } from './choices.js'
import { type Access, linksOf, overlap, type Run, runsOf } from './runs.js'
import { type Takeover, takeoversOf } from './takeovers.js'
import { type WaitFor, Waits } from './why-wait.js'

export type { WaitFor } from './why-wait.js'

/** A run by the user's names. `at` is empty where a plan does not say. */
export interface Step {
  readonly name: string
  readonly lane: string
  readonly at: string
}

export interface Reasons {
  readonly name: string
  readonly bound: Plan['bound']
  readonly lanes: readonly {
    readonly name: string
    readonly device: number
    readonly priority: number
    readonly runs: number
    readonly waits: number
    /** Its first operations, and how they came to it. */
    readonly does: readonly string[]
    readonly because: string
  }[]
  readonly choices: Choices
  readonly waits: readonly {
    readonly command: number
    readonly lane: string
    readonly for: WaitFor
    readonly before: string
    readonly after: string
    readonly because: string
    /** Where the user wrote the operation that waits, and the one that it waits for. */
    readonly at: string
    readonly beforeAt: string
    readonly beforeLane: string
  }[]
  readonly uses: readonly {
    readonly command: number
    readonly buffer: string
    readonly home: string
    readonly lane: string
    readonly access: string
    readonly at: string
  }[]
  readonly elidedWaits: readonly {
    readonly before: string
    readonly after: string
    readonly by: string
    readonly lane: string
    readonly at: string
  }[]
  readonly elidedUses: readonly {
    readonly buffer: string
    readonly home: string
    readonly lane: string
    readonly access: string
    readonly by: string
    readonly at: string
  }[]
  readonly held: readonly Held[]
  /** Planned storage: whose bytes each buffer of an arena takes over. */
  readonly takeovers: readonly Takeover[]
}

/** Earlier accesses of one root that a later one may depend on. */
interface Past {
  writes: { readonly run: Run; readonly access: Access }[]
  reads: { readonly run: Run; readonly access: Access }[]
}

const covers = (whole: Access, part: Access): boolean => whole.from <= part.from && part.to <= whole.to

export const reasonsOf = (plan: Plan): Reasons => {
  const runs = runsOf(plan)
  const { marks, next: following, held } = linksOf(plan, runs)
  const orders = new Waits(plan, runs)
  const step = (run: Run | undefined): Step =>
    run === undefined
      ? { name: 'the end of the tick', lane: '', at: '' }
      : { name: nodeName(plan, run.node), lane: laneName(plan, run.lane), at: placeOf(plan.nodes[run.node]) }
  const count = plan.lanes.length
  // known[l][m]: how many runs of lane m lane l is after; via[l][m]: the wait that brought that.
  const known = plan.lanes.map(() => new Int32Array(count))
  const via = plan.lanes.map(() => new Int32Array(count).fill(-1))
  const snapshot = new Map<number, Int32Array>()
  const waits: Reasons['waits'][number][] = []
  const uses: Reasons['uses'][number][] = []
  const elidedWaits: Reasons['elidedWaits'][number][] = []
  const elidedUses: Reasons['elidedUses'][number][] = []
  const past = new Map<number, Past>()
  const latest = new Map<number, Map<number, Run>>()
  const kept = new Map<number, { readonly lane: number; readonly event: number }[]>()
  const direct = new Map<number, Set<Run>>()
  /** By run's command: nodes after which it comes by a wait of its own, since the user asked for it. And by node, its latest run. */
  const asked = new Map<number, Set<number>>()
  const issued = new Map<number, Run>()
  const waitText = (at: number): string => {
    const command = plan.commands[at]
    return command?.[0] === 'wait'
      ? `${laneName(plan, command[2])} waited for ${step(marks.get(command[1])).name} already`
      : 'the order of the lane'
  }
  /** What a run depends on directly, by data: the writes that it sees, and what it overwrites. */
  const dependencies = (run: Run): Set<Run> => {
    const earlier = new Set<Run>()
    for (const read of run.reads)
      for (const { run: writer, access } of past.get(read.root)?.writes ?? [])
        if (overlap(read, access)) earlier.add(writer)
    for (const write of run.writes) {
      const { reads = [], writes = [] } = past.get(write.root) ?? {}
      const readers = reads.filter(({ access }) => overlap(write, access))
      for (const { run: reader } of readers) earlier.add(reader)
      if (readers.length === 0)
        for (const { run: writer, access } of writes) if (overlap(write, access)) earlier.add(writer)
    }
    earlier.delete(run)
    return earlier
  }
  const remember = (run: Run): void => {
    for (const access of run.reads) {
      const of = past.get(access.root)
      if (of === undefined) past.set(access.root, { writes: [], reads: [{ run, access }] })
      else of.reads.push({ run, access })
    }
    for (const access of run.writes) {
      const of = past.get(access.root) ?? { writes: [], reads: [] }
      past.set(access.root, {
        writes: [...of.writes.filter(other => !covers(access, other.access)), { run, access }],
        reads: of.reads.filter(other => !overlap(access, other.access)),
      })
    }
    for (const { root } of [...run.reads, ...run.writes])
      latest.set(root, (latest.get(root) ?? new Map()).set(run.lane, run))
  }
  let next = 0
  plan.commands.forEach((command, at) => {
    switch (command[0]) {
      case 'wait': {
        const [, event, lane, tick] = command
        const before = marks.get(event)
        const after = held.get(at)
        const ticks = tick === -1
        const seen = before === undefined || ticks ? 0 : known[lane]![before.lane]!
        const { node, start, ...why } = orders.why(at, before, following.get(event), after, seen, ticks)
        const started = start === true ? runs.find(run => run.node === node) : undefined
        const [from, to] = [step(started ?? before), step(after)]
        if (after !== undefined && node !== undefined)
          asked.set(after.command, (asked.get(after.command) ?? new Set()).add(node))
        waits.push({
          command: at,
          lane: laneName(plan, lane),
          ...why,
          before:
            started !== undefined
              ? `the start of ${from.name}`
              : before === undefined
                ? 'what nothing precedes'
                : `${from.name}${ticks ? ' of the tick before' : ''}`,
          after: to.name,
          at: to.at,
          beforeAt: from.at,
          beforeLane: from.lane,
        })
        if (tick === -1 || before === undefined) break
        if (after !== undefined)
          direct.set(after.command, (direct.get(after.command) ?? new Set()).add(before))
        const brought = snapshot.get(event)
        for (let m = 0; brought !== undefined && m < count; m++)
          if (brought[m]! > known[lane]![m]!) {
            known[lane]![m] = brought[m]!
            via[lane]![m] = at
          }
        break
      }
      case 'record':
        if (!snapshot.has(command[1])) snapshot.set(command[1], known[command[2]]!.slice())
        break
      case 'run': {
        const run = runs[next++]!
        for (const before of dependencies(run))
          if (before.lane !== run.lane && !direct.get(run.command)?.has(before)) {
            const { name, lane, at } = step(run)
            elidedWaits.push({
              before: step(before).name,
              after: name,
              by: waitText(via[run.lane]![before.lane]!),
              lane,
              at,
            })
          }
        for (const [node, when] of plan.nodes[run.node]?.after ?? []) {
          const before = issued.get(node)
          if (before === undefined || before.lane === run.lane) continue
          if (
            asked.get(run.command)?.has(node) ||
            (when === 'finish' && direct.get(run.command)?.has(before))
          )
            continue
          const { name, lane, at } = step(run)
          const told = via[run.lane]![before.lane]!
          const start = when === 'start'
          elidedWaits.push({
            before: `${start ? 'the start of ' : ''}${step(before).name}`,
            after: name,
            by:
              start && told < 0
                ? `nothing that it is not after itself holds ${step(before).name} back`
                : waitText(told),
            lane,
            at,
          })
        }
        remember(run)
        issued.set(run.node, run)
        known[run.lane]![run.lane] = run.place
        break
      }
      case 'use': {
        const [, buffer, lane, event] = command
        const { name, at: place } = step(marks.get(event))
        uses.push({
          command: at,
          buffer: bufferName(plan, buffer),
          home: laneName(plan, plan.buffers[buffer]!.home),
          lane: laneName(plan, lane),
          access: name,
          at: place,
        })
        const root = plan.buffers[buffer]!.alias ?? buffer
        const of = kept.get(root)
        if (of === undefined) kept.set(root, [{ lane, event }])
        else of.push({ lane, event })
        break
      }
      case 'free': {
        const [, buffer] = command
        const { home } = plan.buffers[buffer]!
        for (const [lane, run] of latest.get(buffer) ?? []) {
          if (lane === home || kept.get(buffer)?.some(use => use.lane === lane)) continue
          const other = kept.get(buffer)?.find(use => (snapshot.get(use.event)?.[lane] ?? 0) >= run.place)
          const ordered = known[home]![lane]! >= run.place
          if (!ordered && other === undefined) continue
          const by = ordered
            ? waitText(via[home]![lane]!)
            : `the use on ${laneName(plan, other?.lane ?? home)} is after it`
          const { name, at: place } = step(run)
          elidedUses.push({
            buffer: bufferName(plan, buffer),
            home: laneName(plan, home),
            lane: laneName(plan, lane),
            access: name,
            by,
            at: place,
          })
        }
        break
      }
    }
  })
  const choices = choicesOf(plan)
  const waiting = new Map<string, number>()
  for (const { lane } of waits) waiting.set(lane, (waiting.get(lane) ?? 0) + 1)
  const names = plan.lanes.map((): string[] => [])
  for (const run of runs) names[run.lane]!.push(nodeName(plan, run.node))
  const lanes = plan.lanes.map(({ id, device, priority }) => ({
    name: laneName(plan, id),
    device,
    priority,
    runs: names[id]!.length,
    waits: waiting.get(laneName(plan, id)) ?? 0,
    does: names[id]!.slice(0, 16),
    because: choices.lanes[id] ?? '',
  }))
  return {
    name: plan.name,
    bound: plan.bound,
    lanes,
    choices,
    waits,
    uses,
    elidedWaits,
    elidedUses,
    held: heldAtPeak(plan),
    takeovers: takeoversOf(plan),
  }
}
