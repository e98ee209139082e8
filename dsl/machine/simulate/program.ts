import type { Plan, PlanNode } from '../../ir/plan.js'
import { latestCommandTable, Op } from '../../order/command-table.js'
import {
  callOf,
  type Demand,
  demandOf,
  isCollective,
  type MeasuredTimes,
  type Resource,
  type Work,
} from '../cost.js'
import { fillTime } from '../filling.js'
import type { Machine } from '../machine.js'

/** What is shared among the runs that are at work: multiprocessors, memory and bus of each device, and the link to other ranks. */
export const pools = { multiprocessors: 0, bandwidth: 1, bus: 2, link: 3 } as const
export const poolsPerDevice = 4

/** What a lane does for one command: it runs, marks an event, or waits for one of this tick or of the tick before. */
export const Step = { run: 0, record: 1, wait: 2, previous: 3 } as const

/**
 * A plan made flat for a machine. *Steps* are the commands that a lane carries out, in issue order; what else costs the issuing thread time stands in
 * `pause`. Runs are numbered by their step's place among the runs of a tick.
 */
export interface Program {
  readonly plan: Plan
  readonly machine: Machine
  readonly lanes: number
  readonly events: number
  readonly steps: number
  readonly runs: number
  readonly kind: Uint8Array
  readonly lane: Int32Array
  /** A run's number, or an event. */
  readonly subject: Int32Array
  /** Nanoseconds that the step costs the issuing thread; before it, those of allocations, frees and uses. */
  readonly cost: Float64Array
  readonly pause: Float64Array
  /** After the last step: what remains of the tick for the issuing thread, an end event for each lane that runs something among it. */
  readonly trailing: number
  /** Steps of each lane: `laneSteps[laneStart[l] ..]`. */
  readonly laneStart: Int32Array
  readonly laneSteps: Int32Array
  /** By run. */
  readonly node: Int32Array
  readonly laneOf: Int32Array
  readonly resource: readonly Resource[]
  readonly latency: Float64Array
  readonly work: Float64Array
  /** Shares of the pools of its device: `demand[run · poolsPerDevice + pool]`. */
  readonly demand: Float64Array
  /** The exclusive engine that it takes, or -1. */
  readonly engine: Int32Array
  /** How many at a time, by engine. */
  readonly engineSize: Int32Array
  readonly device: Int32Array
  /** Nanoseconds that the program's own thread takes for each tick. */
  readonly feed: number
  /** Nanoseconds a tick of all the power that a device may draw for long, the most of any: no tick is shorter for long. */
  readonly power: number
}

/** Memory that the accesses of a run touch: only pinned, and where its bytes come from and go to. */
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

/** Ranks of a communicator, where the plan says which they are or how many; its groups are taken to be of one size. */
const groupOf = ({ communicators = [] }: Plan, id: number | undefined): number | undefined => {
  const { groups, size } = (id === undefined ? undefined : communicators[id]) ?? {}
  return groups?.[0]?.length ?? size
}

/** A plan's run as the cost model wants it: which way it copies is a matter of where its buffers lie. */
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

const engines: Readonly<Partial<Record<Resource, number>>> = { h2d: 0, d2h: 1, peer: 2 }
const enginesPerDevice = 3

export const programOf = (plan: Plan, machine: Machine, measured?: MeasuredTimes): Program => {
  const tables = latestCommandTable(plan)
  const { op, lane, subject, recordOf, lanes, events, commands } = tables
  const { host, device } = machine
  const isStep = (c: number): boolean => {
    const code = op[c]!
    if (code === Op.run || code === Op.previous) return true
    // An event's mark is its first record; a wait for one that is not recorded earlier in the tick orders nothing.
    if (code === Op.record) return recordOf[subject[c]!] === c
    return code === Op.wait && recordOf[subject[c]!]! >= 0 && recordOf[subject[c]!]! < c
  }
  let steps = 0
  let runs = 0
  for (let c = 0; c < commands; c++) {
    if (isStep(c)) steps++
    if (op[c] === Op.run) runs++
  }
  const devices = plan.devices
  const program = {
    plan,
    machine,
    lanes,
    events,
    steps,
    runs,
    kind: new Uint8Array(steps),
    lane: new Int32Array(steps),
    subject: new Int32Array(steps),
    cost: new Float64Array(steps),
    pause: new Float64Array(steps),
    laneStart: new Int32Array(lanes + 1),
    laneSteps: new Int32Array(steps),
    node: new Int32Array(runs),
    laneOf: new Int32Array(runs),
    resource: Array.from<Resource>({ length: runs }),
    latency: new Float64Array(runs),
    work: new Float64Array(runs),
    demand: new Float64Array(runs * poolsPerDevice),
    engine: new Int32Array(runs).fill(-1),
    // The last one is the host, which is shared by all devices.
    engineSize: new Int32Array(devices * enginesPerDevice + 1).fill(1),
    device: new Int32Array(runs),
    feed: feedOf(plan, machine),
  }
  for (let d = 0; d < devices; d++)
    for (const [engine, { engines: size }] of [device.h2d, device.d2h, machine.peer].entries())
      program.engineSize[d * enginesPerDevice + engine] = size
  const energy = new Float64Array(devices)
  let s = 0
  let r = 0
  let pause = 0
  for (let c = 0; c < commands; c++) {
    const code = op[c]!
    if (!isStep(c)) {
      if (code === Op.alloc || code === Op.free || code === Op.use) pause += host.allocate
      continue
    }
    const l = lane[c]!
    program.lane[s] = l
    program.pause[s] = pause
    pause = 0
    program.laneStart[l + 1]!++
    if (code === Op.run) {
      const command = plan.commands[c] as readonly [
        'run',
        number,
        number,
        readonly number[],
        readonly number[],
      ]
      const n = command[1]
      const demand = demandOf(workOf(plan, plan.nodes[n]!, command[3], command[4]), machine, measured)
      program.kind[s] = Step.run
      program.subject[s] = r
      program.cost[s] = callOf(plan.nodes[n]!, demand, machine)
      program.node[r] = n
      program.laneOf[r] = l
      const on = Math.min(devices - 1, Math.max(0, plan.lanes[l]!.device))
      fill(program, r, demand, on)
      energy[on]! += demand.energy
      r++
    } else {
      program.kind[s] = code === Op.record ? Step.record : code === Op.wait ? Step.wait : Step.previous
      program.subject[s] = subject[c]!
      program.cost[s] = code === Op.record ? host.record : host.wait
    }
    s++
  }
  for (let l = 0; l < lanes; l++) program.laneStart[l + 1]! += program.laneStart[l]!
  const next = program.laneStart.slice()
  for (let i = 0; i < steps; i++) program.laneSteps[next[program.lane[i]!]!++] = i
  return {
    ...program,
    power: Math.max(0, ...energy),
    trailing: pause + new Set(program.laneOf).size * host.record,
  }
}

const fill = (
  to: Pick<Program, 'resource' | 'latency' | 'work' | 'demand' | 'engine' | 'engineSize' | 'device'> & {
    resource: Resource[]
  },
  run: number,
  { resource, nanoseconds, latency, multiprocessors, bandwidth, bus }: Demand,
  device: number,
): void => {
  to.resource[run] = resource
  to.latency[run] = latency
  to.work[run] = Math.max(0, nanoseconds - latency)
  to.demand[run * poolsPerDevice + pools.multiprocessors] = multiprocessors
  to.demand[run * poolsPerDevice + pools.bandwidth] = bandwidth
  to.demand[run * poolsPerDevice + pools.bus] = bus
  to.demand[run * poolsPerDevice + pools.link] = resource === 'link' ? 1 : 0
  to.device[run] = device
  const engine = engines[resource]
  if (engine !== undefined) to.engine[run] = device * enginesPerDevice + engine
  if (resource === 'host') to.engine[run] = to.engineSize.length - 1
}

/** The program's own thread fills the slots of a tick's inputs, and does what each tick takes. */
const feedOf = ({ buffers }: Plan, { host }: Machine): number => {
  let bytes = 0
  for (const { life, alias, bytes: own } of buffers) if (life === 'input' && alias === undefined) bytes += own
  return host.tick + fillTime(host, bytes)
}

/** The same at a slower clock, which all arithmetic goes by; memory and links have clocks of their own. */
export const throttled = (program: Program, factor: number): Program => ({
  ...program,
  work: program.work.map((work, run) => (program.resource[run] === 'tensor' ? work * factor : work)),
})
