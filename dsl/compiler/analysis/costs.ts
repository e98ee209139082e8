import { callOf, type Demand, demandOf } from '../../machine/cost.js'
import { laneDepth } from '../../machine/machine.js'
import { type Usage, usageOf } from '../../machine/usage.js'
import { type ArrayAllocator, heap } from '../../order/scratch-arena.js'
import type { Operation } from './ir.js'
import { type Work, workOf } from './operations.js'
import type { Settings } from './options.js'

/** What operations ask of the machine that a plan is made for, by operation. Times are nanoseconds. */
export interface Costs extends Usage {
  /** On the issuing thread: to start the operation, to record an event, to make a lane wait. */
  readonly issue: Float64Array
  readonly record: number
  readonly wait: number
  /** From a record's point to the start of what waits for it on another lane. */
  readonly waitLatency: number
  /** Operations outstanding on each of so many lanes of all devices; the thread that issues one more is blocked until the oldest ends. */
  readonly depth: (lanes: number) => number
}

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
  let devices = 1
  for (const { device = 0 } of operations) devices = Math.max(devices, device + 1)
  const issue = new Float64Array(operations.length)
  const demand = (i: number): Demand => {
    const found = demandOf(operations[i]!, machine, profile)
    issue[i] = callOf(operations[i]!, found, machine)
    return found
  }
  return {
    ...usageOf(operations.length, devices, machine, demand, i => operations[i]!.device ?? 0),
    issue,
    record: host.record,
    wait: host.wait,
    waitLatency: device.waitLatency,
    depth: lanes => laneDepth(device, Math.ceil(lanes / devices)),
  }
}
