import { type ArrayAllocator, heap } from '../../collections/scratch-arena.js'
import { asNode, callOf, type Demand, demandOf } from '../../machine/cost.js'
import { laneDepth } from '../../machine/machine.js'
import { type Usage, usageOf } from '../../machine/usage.js'
import type { Operation } from './ir.js'
import { type Work, workOf } from './operations.js'
import type { Settings } from './options.js'

/** The costs of operations on the machine that a plan is made for, by operation. Times are nanoseconds. */
export interface Costs extends Usage {
  /** Times on the issuing thread: to launch the operation, to record an event, to make a lane wait. */
  readonly issue: Float64Array
  readonly record: number
  readonly wait: number
  /** From the point of a record to the start of the operation that waits for it on another lane. */
  readonly waitLatency: number
  /**
   * Operations that may be outstanding on each of so many lanes; to issue one more blocks until the oldest
   * ends.
   */
  readonly depth: (lanes: number) => number
}

/** Kinds of work whose demand is kept. */
const mostKnown = 1024

/** Up to so many operations their demands are kept, since a search asks for them many times. */
const mostKept = 2 ** 16

/**
 * By list of operations, what they demand of the machine, or take by the profile, that was asked for last.
 */
const kept = new WeakMap<
  readonly Operation[],
  Pick<Settings, 'machine' | 'profile'> & { readonly demands: readonly Demand[] }
>()

/**
 * What each operation demands of the machine. Operations that do the same have one `Work`; its demand does
 * not depend on their names, unless their times are measured.
 */
const demandsOf = (operations: readonly Operation[], { machine, profile }: Settings): readonly Demand[] => {
  const known = kept.get(operations)
  if (known?.machine === machine && known.profile === profile) return known.demands
  const byWork = new Map<Work, Demand>()
  const demands = operations.map(operation => {
    if (profile.size > 0) return demandOf(operation, machine, profile)
    const work = workOf(operation)
    const found = byWork.get(work) ?? demandOf(operation, machine)
    if (byWork.size < mostKnown) byWork.set(work, found)
    return found
  })
  if (demands.length <= mostKept) kept.set(operations, { machine, profile, demands })
  return demands
}

/**
 * Nanoseconds from start to end of each operation with nothing concurrent: enough to find the longest path.
 */
export const aloneOf = (
  operations: readonly Operation[],
  settings: Settings,
  allocator: ArrayAllocator = heap,
): Float64Array => {
  const alone = allocator.float64(operations.length)
  const demands = demandsOf(operations, settings)
  for (let i = 0; i < operations.length; i++) alone[i] = demands[i]!.nanoseconds
  return alone
}

/**
 * The costs of each operation: measured times where the profile has them, else the machine's figures. In
 * graph mode those of a graph's nodes: edges and events cost the issuing thread nothing, and no queue is
 * full.
 */
export const costsOf = (operations: readonly Operation[], settings: Settings): Costs => {
  const { machine, profile, mode } = settings
  const { host, device } = machine
  const demands = demandsOf(operations, settings)
  let devices = 1
  for (const { device = 0 } of operations) devices = Math.max(devices, device + 1)
  const issue = new Float64Array(operations.length)
  const demand = (i: number): Demand => {
    const operation = operations[i]!
    const found = demands[i]!
    if (mode !== 'graph' || operation.collective !== undefined) {
      issue[i] = callOf(operation, found, machine)
      return found
    }
    issue[i] = host.node
    return profile.has(operation.name) ? found : asNode(found, machine)
  }
  return {
    ...usageOf(operations.length, devices, machine, demand, i => operations[i]!.device ?? 0),
    issue,
    record: mode === 'graph' ? 0 : host.record,
    wait: mode === 'graph' ? 0 : host.wait,
    waitLatency: device.waitLatency,
    depth: lanes =>
      mode === 'graph' ? Number.POSITIVE_INFINITY : laneDepth(device, Math.ceil(lanes / devices)),
  }
}
