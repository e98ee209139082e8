import { bufferName, laneName, nodeName, placeOf, planName } from '../../ir/names.js'
import type { BoundKind, Plan } from '../../ir/plan.js'
import { type Held, heldAtPeak } from '../../memory/held.js'
import { commandTableOf } from '../../order/command-table.js'
import { type Choices, choicesOf } from './choices.js'
import { type Graphs, graphsOf, modeOf } from './graphs.js'
import { HappensBefore } from './happens-before.js'
import { type MemoryReuse, memoryReuseOf } from './memory-reuse.js'
import { type Access, type Links, linksOf, overlap, type Run, runsOf } from './runs.js'
import { type WaitFor, Waits } from './why-wait.js'

export type { WaitFor } from './why-wait.js'

/** A run by the user's names. `at` is empty where the plan has no source position. */
export interface Step {
  readonly name: string
  readonly lane: string
  readonly at: string
}

export interface Reasons {
  readonly name: string
  readonly bound: Plan['bound']
  /** How the bound is kept, where the plan says it. */
  readonly boundKind?: BoundKind
  readonly lanes: readonly {
    readonly name: string
    readonly device: number
    readonly priority: number
    readonly runs: number
    readonly waits: number
    /** The names of its first operations. */
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
    /** The user's source position of the operation that waits, and of the one that it waits for. */
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
  /** Under `mode: 'auto'`: why this mode. */
  readonly mode?: string
  /** Graph mode: what is launched as executable graphs. */
  readonly graphs?: Graphs
  /** Planned storage: which bytes are reused, and by which buffers. */
  readonly takeovers: readonly MemoryReuse[]
}

const contains = (whole: Access, part: Access): boolean => whole.from <= part.from && part.to <= whole.to

interface Accessed {
  readonly run: Run
  readonly access: Access
}

/** Accesses of one root that a later access may depend on. */
interface Past {
  readonly writes: readonly Accessed[]
  readonly reads: readonly Accessed[]
}

const untouched: Past = { writes: [], reads: [] }

/** The data dependencies of runs, in issue order. */
class DataOrder {
  private readonly past = new Map<number, Past>()
  /** By root and lane, the latest run that accessed it. */
  readonly latest = new Map<number, Map<number, Run>>()

  /** The runs whose writes a run reads, and those whose accesses it overwrites. */
  dependencies(run: Run): Set<Run> {
    const earlier = new Set<Run>()
    for (const read of run.reads)
      for (const { run: writer, access } of this.past.get(read.root)?.writes ?? [])
        if (overlap(read, access)) earlier.add(writer)
    for (const write of run.writes) {
      const { reads, writes } = this.past.get(write.root) ?? untouched
      const readers = reads.filter(({ access }) => overlap(write, access))
      for (const { run: reader } of readers) earlier.add(reader)
      if (readers.length === 0)
        for (const { run: writer, access } of writes) if (overlap(write, access)) earlier.add(writer)
    }
    earlier.delete(run)
    return earlier
  }

  add(run: Run): void {
    for (const access of run.reads) {
      const { reads, writes } = this.past.get(access.root) ?? untouched
      this.past.set(access.root, { writes, reads: [...reads, { run, access }] })
    }
    for (const access of run.writes) {
      const { reads, writes } = this.past.get(access.root) ?? untouched
      this.past.set(access.root, {
        writes: [...writes.filter(other => !contains(access, other.access)), { run, access }],
        reads: reads.filter(other => !overlap(access, other.access)),
      })
    }
    for (const { root } of [...run.reads, ...run.writes])
      this.latest.set(root, (this.latest.get(root) ?? new Map()).set(run.lane, run))
  }
}

const addTo = <Key, Value>(sets: Map<Key, Set<Value>>, key: Key, value: Value): void =>
  void sets.set(key, (sets.get(key) ?? new Set()).add(value))

/** One replay of a tick's commands, which collects the reason for each wait and use. */
class ReasonReplay {
  readonly waits: Reasons['waits'][number][] = []
  readonly uses: Reasons['uses'][number][] = []
  readonly elidedWaits: Reasons['elidedWaits'][number][] = []
  readonly elidedUses: Reasons['elidedUses'][number][] = []
  private readonly links: Links
  private readonly whyWait: Waits
  private readonly order: HappensBefore
  private readonly data = new DataOrder()
  /** By run's command, its point. */
  private readonly pointOf = new Map<number, number>()
  /** By event of the plan, its number in the command table. */
  private readonly eventOf = new Map<number, number>()
  /** By root, the uses so far: the lane of each and its event. */
  private readonly usesOf = new Map<number, { readonly lane: number; readonly event: number }[]>()
  /**
   * By a run's command: the runs that it waits for directly, and the nodes whose order by `after` those waits
   * keep.
   */
  private readonly waitsFor = new Map<number, Set<Run>>()
  private readonly asked = new Map<number, Set<number>>()
  /** By node, its latest run. */
  private readonly issued = new Map<number, Run>()

  constructor(
    private readonly plan: Plan,
    private readonly runs: readonly Run[],
  ) {
    this.links = linksOf(plan, runs)
    this.whyWait = new Waits(plan, runs)
    this.order = new HappensBefore(commandTableOf(plan))
    this.order.begin()
    let next = 0
    plan.commands.forEach((command, at) => {
      if (command[0] === 'record') this.eventOf.set(command[1], this.order.table.subject[at]!)
      else if (command[0] === 'wait') this.wait(at, command[1], command[2], command[3] === -1)
      else if (command[0] === 'run') this.run(runs[next]!)
      else if (command[0] === 'use') this.use(at, command[1], command[2], command[3])
      else if (command[0] === 'free') this.free(command[1])
      this.order.step(at)
      if (command[0] === 'run') this.pointOf.set(at, this.order.now(runs[next++]!.lane))
    })
  }

  private step(run: Run | undefined): Step {
    const { plan } = this
    if (run === undefined) return { name: 'the end of the tick', lane: '', at: '' }
    return {
      name: nodeName(plan, run.node),
      lane: laneName(plan, run.lane),
      at: placeOf(plan.nodes[run.node]),
    }
  }

  /** Why `lane` happens-after the runs of `other`, as a sentence. */
  private reasonFor(lane: number, other: number): string {
    const command = this.plan.commands[this.order.causeOf(lane, other).wait]
    if (command?.[0] !== 'wait') return 'the order of the lane'
    const before = this.step(this.links.marks.get(command[1])).name
    return `${laneName(this.plan, command[2])} waited for ${before} already`
  }

  private wait(at: number, event: number, lane: number, previous: boolean): void {
    const { plan, links, order } = this
    const before = links.marks.get(event)
    const after = links.held.get(at)
    const seen = before === undefined || previous ? 0 : order.runsBefore(lane, before.lane)
    const { node, start, ...why } = this.whyWait.why(at, before, links.next.get(event), after, seen, previous)
    const started = start === true ? this.runs.find(run => run.node === node) : undefined
    const [from, to] = [this.step(started ?? before), this.step(after)]
    if (after !== undefined && node !== undefined) addTo(this.asked, after.command, node)
    if (after !== undefined && before !== undefined && !previous) addTo(this.waitsFor, after.command, before)
    const name =
      before === undefined ? 'what nothing precedes' : `${from.name}${previous ? ' of the tick before' : ''}`
    this.waits.push({
      command: at,
      lane: laneName(plan, lane),
      ...why,
      before: started === undefined ? name : `the start of ${from.name}`,
      after: to.name,
      at: to.at,
      beforeAt: from.at,
      beforeLane: from.lane,
    })
  }

  private run(run: Run): void {
    const { name, lane, at } = this.step(run)
    for (const before of this.data.dependencies(run)) {
      if (before.lane === run.lane || this.waitsFor.get(run.command)?.has(before)) continue
      const by = this.reasonFor(run.lane, before.lane)
      this.elidedWaits.push({ before: this.step(before).name, after: name, by, lane, at })
    }
    for (const [node, when] of this.plan.nodes[run.node]?.after ?? []) {
      const before = this.issued.get(node)
      if (before === undefined || before.lane === run.lane || this.asked.get(run.command)?.has(node)) continue
      const start = when === 'start'
      if (!start && this.waitsFor.get(run.command)?.has(before)) continue
      const earlier = this.step(before).name
      const free = start && this.order.causeOf(run.lane, before.lane).wait < 0
      this.elidedWaits.push({
        before: `${start ? 'the start of ' : ''}${earlier}`,
        after: name,
        by: free
          ? `nothing that it is not after itself holds ${earlier} back`
          : this.reasonFor(run.lane, before.lane),
        lane,
        at,
      })
    }
    this.data.add(run)
    this.issued.set(run.node, run)
  }

  private use(at: number, buffer: number, lane: number, event: number): void {
    const { plan } = this
    const { name, at: place } = this.step(this.links.marks.get(event))
    this.uses.push({
      command: at,
      buffer: bufferName(plan, buffer),
      home: laneName(plan, plan.buffers[buffer]!.home),
      lane: laneName(plan, lane),
      access: name,
      at: place,
    })
    const root = plan.buffers[buffer]!.alias ?? buffer
    const all = this.usesOf.get(root) ?? []
    this.usesOf.set(root, [...all, { lane, event: this.eventOf.get(event) ?? -1 }])
  }

  /** The lanes that accessed the buffer without a use: what orders each of them before the free. */
  private free(buffer: number): void {
    const { plan, order } = this
    const { home } = plan.buffers[buffer]!
    const uses = this.usesOf.get(buffer) ?? []
    for (const [lane, run] of this.data.latest.get(buffer) ?? []) {
      if (lane === home || uses.some(use => use.lane === lane)) continue
      const point = this.pointOf.get(run.command)!
      const other = uses.find(({ event }) => event >= 0 && order.isBeforeEvent(event, lane, point))
      const ordered = order.isBefore(home, lane, point)
      if (!ordered && other === undefined) continue
      const { name, at } = this.step(run)
      this.elidedUses.push({
        buffer: bufferName(plan, buffer),
        home: laneName(plan, home),
        lane: laneName(plan, lane),
        access: name,
        by: ordered
          ? this.reasonFor(home, lane)
          : `the use on ${laneName(plan, other?.lane ?? home)} is after it`,
        at,
      })
    }
  }
}

export const reasonsOf = (plan: Plan): Reasons => {
  const runs = runsOf(plan)
  const { waits, uses, elidedWaits, elidedUses } = new ReasonReplay(plan, runs)
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
  const graphs = graphsOf(plan)
  const mode = modeOf(plan)
  return {
    name: planName(plan),
    bound: plan.bound,
    ...(mode === '' ? {} : { mode }),
    ...(graphs === undefined ? {} : { graphs }),
    ...(plan.boundKind === undefined ? {} : { boundKind: plan.boundKind }),
    lanes,
    choices,
    waits,
    uses,
    elidedWaits,
    elidedUses,
    held: heldAtPeak(plan),
    takeovers: memoryReuseOf(plan),
  }
}
