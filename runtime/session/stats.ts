import type { Plan } from '../../dsl/ir/plan.js'
import type { NativeStats } from '../addon.js'
import type { Ticks } from './ticks.js'

/** The last values of a series, for medians and percentiles, in constant memory and constant time a value. */
export class Recent {
  readonly #values: Float64Array
  #count = 0

  constructor(size = 1024) {
    this.#values = new Float64Array(size)
  }

  add(value: number): void {
    this.#values[this.#count++ % this.#values.length] = value
  }

  /** Sorted, smallest first. */
  sorted(): Float64Array {
    return this.#values.slice(0, Math.min(this.#count, this.#values.length)).sort()
  }

  /** median, p90 and max; all 0 while there is nothing. */
  summary(): Summary {
    return summarize(this.sorted())
  }
}

export interface Summary {
  readonly median: number
  readonly p90: number
  readonly max: number
}

const summarize = (sorted: Float64Array): Summary => {
  const at = (part: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0
  const middle = sorted.length >> 1
  const median = sorted.length % 2 === 1 ? at(0.5) : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2
  return { median, p90: at(0.9), max: sorted[sorted.length - 1] ?? 0 }
}

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
  /**
   * Microseconds of the JavaScript thread to submit a filled tick, and before that to copy its feeds' values.
   */
  readonly enqueueUs: Summary
  readonly fillUs: Summary
  /** Microseconds that the native thread took to issue a tick. */
  readonly issueUs: Summary
  /**
   * Bytes: the most allocated at once; the most held from the device, workspaces included; pinned host
   * memory. Of several devices the sums.
   */
  readonly peak: { readonly allocated: number; readonly reserved: number; readonly pinned: number }
  /** The highest byte of the device's pool that was ever allocated. */
  readonly poolPeak: number
  /** The plan's bound. */
  readonly bound: { readonly device: number; readonly pinned: number }
  /** By device of the plan, bytes as above. */
  readonly devices: readonly DeviceStats[]
  /**
   * By input, values that the session took from a feed and that no tick has: those that a full session drops,
   * and those of ticks that are incomplete when the run ends, as of feeds of unequal length.
   */
  readonly drops: Readonly<Record<string, number>>
  readonly credits: {
    readonly inFlight: number
    readonly free: number
    readonly flying: number
    readonly leased: number
  }
  /**
   * Allocations by their path in the allocator, and driver events made since the first tick: 0 in steady
   * state.
   */
  readonly reuse: { readonly byOrder: number; readonly byWait: number; readonly byGrowth: number }
  readonly eventsCreated: number
  /**
   * How often issuing a tick paused because a stream's queue was full. Other sessions of the device go on
   * meanwhile.
   */
  readonly fullQueues: number
  /** Launches of the plan's graphs; 0 where each command is issued by itself. */
  readonly graphLaunches: number
}

/** What a session measures on the JavaScript thread. */
export interface Measured {
  readonly ticks: Ticks
  readonly tickMs: Recent
  readonly enqueueUs: Recent
  readonly fillUs: Recent
  readonly drops: ReadonlyMap<string, number>
}

export const sessionStats = (
  { ticks, tickMs, enqueueUs, fillUs, drops }: Measured,
  native: NativeStats,
  plan: Plan,
): SessionStats => ({
  ticks: native.ticks,
  tickMs: tickMs.summary(),
  enqueueUs: enqueueUs.summary(),
  fillUs: fillUs.summary(),
  issueUs: summarize(native.issueNanoseconds.map(nanoseconds => nanoseconds / 1000).sort()),
  peak: { allocated: native.allocatedPeak, reserved: native.reservedPeak, pinned: native.pinned },
  poolPeak: native.poolPeak,
  bound: { device: plan.bound.device.reduce((sum, bytes) => sum + bytes, 0), pinned: plan.bound.pinned },
  devices: native.devices.map(({ allocatedPeak, reserved, poolPeak }, device) => ({
    peak: { allocated: allocatedPeak, reserved },
    poolPeak,
    bound: plan.bound.device[device] ?? 0,
  })),
  drops: Object.fromEntries(drops),
  credits: { inFlight: ticks.size, free: ticks.free, flying: ticks.flying, leased: ticks.leased().length },
  reuse: { byOrder: native.byOrder, byWait: native.byWait, byGrowth: native.byGrowth },
  eventsCreated: native.eventsCreated,
  fullQueues: native.fullQueues,
  graphLaunches: native.graphLaunches,
})
