import type { Plan, PlanNode } from '../../ir/plan.js'
import { type CommandTable, commandTableOf, Op } from '../../order/command-table.js'
import {
  asNode,
  callOf,
  type Demand,
  demandOf,
  isCollective,
  type MeasuredTimes,
  type Work,
} from '../cost.js'
import { fillTime } from '../filling.js'
import { laneDepth, type Machine } from '../machine.js'
import { usageOf } from '../usage.js'
import { GraphPieces } from './graph-pieces.js'
import { Step, type Workload } from './workload.js'

/** A plan as a workload of the simulator. Runs are numbered by their place among the runs of a tick. */
export interface PlanWorkload extends Workload {
  readonly node: Int32Array
  readonly laneOf: Int32Array
}

type RunCommand = readonly [
  'run',
  node: number,
  lane: number,
  reads: readonly number[],
  writes: readonly number[],
]

/**
 * The memory that the accesses of a run touch: whether all of it is pinned, and the devices of source and
 * target.
 */
const placesOf = (plan: Plan, reads: readonly number[], writes: readonly number[]) => {
  const where = (b: number | undefined): number | undefined => {
    const buffer = b === undefined ? undefined : plan.buffers[b]
    return buffer === undefined ? undefined : buffer.space === 'pinned' ? -1 : buffer.device
  }
  const all = [...reads, ...writes]
  return {
    pinned: all.length > 0 && all.every(b => where(b) === -1),
    from: where(reads[0]),
    to: where(writes[0]),
  }
}

const copies = new Set(['upload', 'download', 'copy', 'peer', 'store'])

/**
 * Ranks of a communicator, where the plan says which they are or how many; all its groups are assumed to have
 * one size.
 */
const groupOf = ({ communicators = [] }: Plan, id: number | undefined): number | undefined => {
  const { groups, size } = (id === undefined ? undefined : communicators[id]) ?? {}
  return groups?.[0]?.length ?? size
}

/** A plan's run as the cost model's work; the spaces of its buffers decide the direction of a copy. */
export const workOf = (
  plan: Plan,
  node: PlanNode,
  reads: readonly number[],
  writes: readonly number[],
): Work => {
  const { pinned, from, to } = placesOf(plan, reads, writes)
  const bytes = [...reads, ...writes].reduce((sum, b) => sum + (plan.buffers[b]?.bytes ?? 0), 0)
  const { op, name, flops = 0, movedBytes = bytes, kernel, collective } = node
  const work: Work = { op, name, flops, movedBytes, kernel, collective }
  if (isCollective(work))
    return { ...work, kind: 'collective', ranks: groupOf(plan, collective?.communicator) }
  if (pinned) return { ...work, kind: 'host' }
  if (
    (kernel === undefined ? copies.has(op) : kernel.kind === 'copy') &&
    from !== undefined &&
    to !== undefined
  ) {
    if (from === -1) return { ...work, kind: 'upload' }
    if (to === -1) return { ...work, kind: 'download' }
    if (from !== to) return { ...work, kind: 'peer' }
  }
  return { ...work, kind: 'compute' }
}

/** The commands that are steps of a lane; memory commands only take time of the issuing thread. */
const stepsOf = ({ op, subject, recordOf, commands }: CommandTable) => {
  const kind = new Int8Array(commands).fill(-1)
  for (let c = 0; c < commands; c++) {
    const code = op[c]!
    const record = code === Op.record || code === Op.wait ? recordOf[subject[c]!]! : -1
    if (code === Op.run) kind[c] = Step.run
    else if (code === Op.previous) kind[c] = Step.waitPrevious
    // The first record of an event counts; a wait for an event that is not recorded earlier in the tick
    // orders nothing.
    else if (code === Op.record && record === c) kind[c] = Step.record
    else if (code === Op.wait && record >= 0 && record < c) kind[c] = Step.wait
  }
  return kind
}

type PutStep = (kind: number, lane: number, event: number) => void

/**
 * Where the bound is enforced, the session orders every lane after the end of the tick before, on all lanes:
 * one lane waits for the others' ends, and the others for it.
 */
class TickOrder {
  private readonly busy: readonly number[]
  /** Events beside the plan's: the one lane's, then the ends of the others. */
  readonly events: number
  readonly steps: number

  constructor(
    private readonly table: CommandTable,
    kindOf: Int8Array,
  ) {
    this.busy = [...new Set(table.lane.filter((_, c) => kindOf[c]! >= 0))]
    this.events = this.busy.length
    this.steps = this.busy.length === 0 ? 0 : 3 * this.busy.length - 2
  }

  begin(put: PutStep): void {
    const [first, ...others] = this.busy
    if (first === undefined) return
    const own = this.table.events
    for (let i = 1; i < this.busy.length; i++) put(Step.waitPrevious, first, own + i)
    put(Step.record, first, own)
    for (const lane of others) put(Step.wait, lane, own)
  }

  /** The session records the ends of lanes anyway. */
  end(put: PutStep): void {
    for (let i = 1; i < this.busy.length; i++) put(Step.record, this.busy[i]!, this.table.events + i)
  }
}

/** The workload of the plan on the machine, with measured times where there are any. */
export const workloadOf = (plan: Plan, machine: Machine, measured?: MeasuredTimes): PlanWorkload => {
  const table = commandTableOf(plan)
  const { op, lane, subject, lanes, events, commands } = table
  const { host, device } = machine
  const kindOf = stepsOf(table)
  const order = plan.boundKind === 'enforced' ? new TickOrder(table, kindOf) : undefined
  const graphs = GraphPieces.of(table)
  const steps = kindOf.filter(kind => kind >= 0).length + (order?.steps ?? 0) + (graphs?.steps ?? 0)
  const columns = {
    kind: new Uint8Array(steps),
    lane: new Int32Array(steps),
    subject: new Int32Array(steps),
    issue: new Float64Array(steps),
  }
  const runs: RunCommand[] = []
  const demands: Demand[] = []
  const inGraph: number[] = []
  let s = 0
  let pending = 0
  const put = (kind: number, lane: number, subject: number, issue: number): void => {
    columns.kind[s] = kind
    columns.lane[s] = lane
    columns.subject[s] = subject
    columns.issue[s++] = issue
  }
  order?.begin((kind, lane, event) => put(kind, lane, event, kind === Step.record ? host.record : host.wait))
  for (let c = 0; c < commands; c++) {
    const code = op[c]!
    if (code === Op.alloc || code === Op.free || code === Op.use) pending += host.allocate
    const kind = kindOf[c]!
    graphs?.begin(c, kindOf, host, put)
    const inside = graphs?.isInside(c) === true
    if (inside && kind !== Step.run) {
      if (kind === Step.record || (kind === Step.wait && graphs!.isEdge(c)))
        put(kind, lane[c]!, subject[c]!, 0)
    } else if (kind === Step.record) put(kind, lane[c]!, subject[c]!, pending + host.record)
    else if (kind === Step.wait || kind === Step.waitPrevious)
      put(kind, lane[c]!, graphs?.eventFor(subject[c]!, c) ?? subject[c]!, pending + host.wait)
    else if (kind === Step.run) {
      const command = plan.commands[c] as RunCommand
      const node = plan.nodes[command[1]]!
      const demand = demandOf(workOf(plan, node, command[3], command[4]), machine, measured)
      const isMeasured = measured?.has(node.name) === true
      put(kind, lane[c]!, runs.length, inside ? 0 : pending + callOf(node, demand, machine))
      runs.push(command)
      demands.push(inside && !isMeasured ? asNode(demand, machine) : demand)
      inGraph.push(inside ? 1 : 0)
    }
    if (kind >= 0) pending = 0
    graphs?.end(c, host, put)
  }
  order?.end((kind, lane, event) => put(kind, lane, event, 0))
  const node = Int32Array.from(runs, ([, node]) => node)
  const laneOf = Int32Array.from(runs, ([, , lane]) => lane)
  const deviceOf = plan.lanes.map(lane => Math.min(plan.devices - 1, Math.max(0, lane.device)))
  return {
    ...columns,
    lanes,
    events: events + (order?.events ?? 0) + (graphs?.events ?? 0),
    inFlight: plan.inFlight,
    ...(plan.arenas === undefined ? {} : { laneSets: plan.arenas }),
    steps: s,
    // After its last step a tick records an end event on each lane that runs something.
    trailing: pending + [...new Set(laneOf)].filter(l => graphs?.ends(l) ?? true).length * host.record,
    runs: runs.length,
    usage: usageOf(
      runs.length,
      plan.devices,
      machine,
      run => demands[run]!,
      run => deviceOf[laneOf[run]!]!,
    ),
    waitLatency: device.waitLatency,
    depth: laneDepth(device, Math.ceil(lanes / plan.devices)),
    feed: feedOf(plan, machine),
    turnaround: host.turnaround,
    ...(graphs === undefined ? {} : { inGraph: Uint8Array.from(inGraph) }),
    node,
    laneOf,
  }
}

/** The program's own thread fills the slots of a tick's inputs, and does the fixed work of each tick. */
const feedOf = ({ buffers }: Plan, { host }: Machine): number => {
  let bytes = 0
  for (const { life, alias, bytes: own } of buffers) if (life === 'input' && alias === undefined) bytes += own
  return host.tick + fillTime(host, bytes)
}

/** The workload at a slower clock, which scales all arithmetic; memory and links have their own clocks. */
export const throttled = (workload: PlanWorkload, factor: number): PlanWorkload => {
  const { usage } = workload
  const work = usage.work.map((work, run) => (usage.resource[run] === 'tensor' ? work * factor : work))
  return { ...workload, usage: { ...usage, work } }
}
