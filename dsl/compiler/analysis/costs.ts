import { callOf, demandOf, type Resource } from '../../machine/cost.js'
import { laneDepth } from '../../machine/machine.js'
import { type ArrayAllocator, heap } from '../../order/scratch-arena.js'
import type { Operation } from './ir.js'
import { type Work, workOf } from './operations.js'
import type { Settings } from './options.js'

/** What is shared on a device: processors, memory bandwidth, the engines of each direction and link, and what both directions of copying have together. */
export const resources = 7

/** What operations ask of the machine that a plan is made for, by operation. Times are nanoseconds. */
export interface Costs {
  /** From start to end with nothing beside it: `latency`, which shares nothing, then `work`. */
  readonly alone: Float64Array
  readonly latency: Float64Array
  readonly work: Float64Array
  /** Of each shared thing the part that its work keeps busy: `demand[resources · i + r]`, at most 1. */
  readonly demand: Float64Array
  /** Where the shared things of the operation's device are among those of all: `shared[i] + r`; and how many these are. */
  readonly shared: Int16Array
  readonly pools: number
  /** The shared thing, among those of all devices, of which an operation has one whole while it runs, or -1; and how many there are of each. */
  readonly engine: Int16Array
  readonly engines: readonly number[]
  /** Nanoseconds of all the power that a device may draw for long, the most of any: no tick is shorter for long. */
  readonly power: number
  /** On the issuing thread: to start the operation, to record an event, to make a lane wait. */
  readonly issue: Float64Array
  readonly record: number
  readonly wait: number
  /** From a record's point to the start of what waits for it on another lane. */
  readonly waitLatency: number
  /** Operations outstanding on each of so many lanes of all devices; the thread that issues one more is blocked until the oldest ends. */
  readonly depth: (lanes: number) => number
}

const engines: Readonly<Partial<Record<Resource, number>>> = { h2d: 2, d2h: 3, peer: 4, link: 5 }
const bus = 6

/** Of so many kinds of work it is remembered. */
const mostKnown = 1024

/** What each operation takes from start to end with nothing beside it: all that a path's length asks for. Nanoseconds. */
export const aloneOf = (
  operations: readonly Operation[],
  { machine, profile }: Settings,
  room: ArrayAllocator = heap,
): Float64Array => {
  const alone = room.float64(operations.length)
  // Large graphs repeat themselves: a machine's figures are the same of fused kernels that do the same, whatever they are called.
  const known = new Map<Work, number>()
  for (let i = 0; i < operations.length; i++) {
    const operation = operations[i]!
    const work = workOf(operation)
    const repeats = work.kernel?.kind === 'map' && profile.size === 0
    const found = repeats ? known.get(work) : undefined
    alone[i] = found ?? demandOf(operation, machine, profile).nanoseconds
    if (repeats && found === undefined && known.size < mostKnown) known.set(work, alone[i]!)
  }
  return alone
}

/** The machine's figures for each operation, those that were measured first. */
export const costsOf = (operations: readonly Operation[], { machine, profile }: Settings): Costs => {
  const { host, device } = machine
  const count = operations.length
  let devices = 1
  for (const { device = 0 } of operations) devices = Math.max(devices, device + 1)
  const own = [0, 0, device.h2d.engines, device.d2h.engines, machine.peer.engines, 0, 0]
  const costs = {
    alone: new Float64Array(count),
    latency: new Float64Array(count),
    work: new Float64Array(count),
    demand: new Float64Array(count * resources),
    shared: new Int16Array(count),
    pools: resources * devices,
    engine: new Int16Array(count).fill(-1),
    engines: devices === 1 ? own : Array.from({ length: devices }, () => own).flat(),
    issue: new Float64Array(count),
    record: host.record,
    wait: host.wait,
    waitLatency: device.waitLatency,
    depth: (lanes: number) => laneDepth(device, Math.ceil(lanes / devices)),
  }
  const energy = new Float64Array(devices)
  operations.forEach((operation, i) => {
    const found = demandOf(operation, machine, profile)
    const { resource, nanoseconds, latency, multiprocessors, bandwidth } = found
    costs.alone[i] = nanoseconds
    costs.latency[i] = latency
    costs.work[i] = nanoseconds - latency
    costs.demand[resources * i] = multiprocessors
    costs.demand[resources * i + 1] = bandwidth
    const engine = engines[resource]
    if (engine !== undefined) costs.demand[resources * i + engine] = 1
    costs.demand[resources * i + bus] = found.bus
    const copies = resource === 'h2d' || resource === 'd2h' || resource === 'peer'
    costs.shared[i] = resources * (operation.device ?? 0)
    if (copies) costs.engine[i] = costs.shared[i]! + engine!
    costs.issue[i] = callOf(operation, found, machine)
    energy[operation.device ?? 0]! += found.energy
  })
  return { ...costs, power: Math.max(0, ...energy) }
}
