import type { Plan } from '../../dsl/ir/plan.js'
import type { Engine } from './engine.js'
import { type Summary, summarize } from './summary.js'

export interface DeviceStats {
  readonly peak: { readonly allocated: number; readonly reserved: number }
  readonly poolPeak: number
  readonly bound: number
}

/** Figures of a session so far. Times are of the last 1,024 ticks. */
export interface SessionStats {
  /** Ticks completed, in all runs. */
  readonly ticks: number
  /** From the later of a tick's submission and the completion before it, to its completion. */
  readonly tickMs: Summary
  /** Microseconds that the JavaScript thread took to hand a filled tick over, and before that to copy its feeds' values. */
  readonly enqueueUs: Summary
  readonly fillUs: Summary
  /** Microseconds that the native thread took to issue a tick. */
  readonly issueUs: Summary
  /** Bytes: the most given out at once; the most held from the device, workspaces and all; pinned host memory. Of several devices the sums. */
  readonly peak: { readonly allocated: number; readonly reserved: number; readonly pinned: number }
  /** The furthest byte of the device's pool that was ever given out. */
  readonly poolPeak: number
  /** What the plan promised to stay within. */
  readonly bound: { readonly device: number; readonly pinned: number }
  /** By device of the plan, bytes as above. */
  readonly devices: readonly DeviceStats[]
  /** Values dropped, by input. */
  readonly drops: Readonly<Record<string, number>>
  readonly credits: {
    readonly inFlight: number
    readonly free: number
    readonly flying: number
    readonly leased: number
  }
  /** Allocations by how they were served, and driver events made since the first tick: 0 in steady state. */
  readonly reuse: { readonly byOrder: number; readonly byWait: number; readonly byGrowth: number }
  readonly eventsCreated: number
  /** How often issuing a tick went on later, since a stream held as many operations as its queue takes. Other sessions of the device went on meanwhile. */
  readonly fullQueues: number
}

export const sessionStats = (engine: Engine, plan: Plan): SessionStats => {
  const native = engine.stats()
  const { ticks } = engine
  return {
    ticks: native.ticks,
    tickMs: engine.tickMs.summary(),
    enqueueUs: engine.enqueueUs.summary(),
    fillUs: engine.fillUs.summary(),
    issueUs: summarize(native.issueNanoseconds.map(nanoseconds => nanoseconds / 1000).sort()),
    peak: { allocated: native.allocatedPeak, reserved: native.reservedPeak, pinned: native.pinned },
    poolPeak: native.poolPeak,
    bound: { device: plan.bound.device.reduce((sum, bytes) => sum + bytes, 0), pinned: plan.bound.pinned },
    devices: native.devices.map(({ allocatedPeak, reserved, poolPeak }, device) => ({
      peak: { allocated: allocatedPeak, reserved },
      poolPeak,
      bound: plan.bound.device[device] ?? 0,
    })),
    drops: Object.fromEntries(engine.drops),
    credits: { inFlight: ticks.size, free: ticks.free, flying: ticks.flying, leased: ticks.leased().length },
    reuse: { byOrder: native.byOrder, byWait: native.byWait, byGrowth: native.byGrowth },
    eventsCreated: native.eventsCreated,
    fullQueues: native.fullQueues,
  }
}
