import type { Fault } from '../../dsl/ir/fault.js'
import { type HostOptions, type NativeReplayFailure, type NativeReplayFigures, native } from '../addon.js'
import { size, thrown } from '../values.js'
import { openFailure } from './open-failure.js'
import type { ResolvedAllocatorOptions } from './settings/options.js'
import { fallbacks } from './stats.js'
import type { AllocatorTrace } from './trace.js'

export interface ReplayResult extends Omit<NativeReplayFigures, 'device' | 'served'> {
  readonly device: string
  readonly deviceName: string
  /** Allocations served by each step of the fallback chain. */
  readonly served: Readonly<Record<(typeof fallbacks)[number], number>>
}

interface ReplayOptions {
  /** `auto`, `host` or `cuda:N`. */
  readonly device: string
  readonly allocator: ResolvedAllocatorOptions
  /** Bytes of the host device. Default: enough for any trace. */
  readonly memory?: number
}

/** The error of a replay: names the trace's operation, or the device that did not open. */
export class ReplayError extends Error {
  constructor(readonly fault: Fault) {
    super(fault.found)
  }
}

const GiB = 2 ** 30

// Four times the live bytes, which no policy reaches. Pages that are never written to cost the host nothing.
const memoryFor = (trace: AllocatorTrace): number =>
  Math.min(64 * 1024 * GiB, 4 * GiB * Math.ceil((trace.peakLive + 1) / GiB))

/** Replays a trace on a device of its own. Rejects with a ReplayError. */
export const replayTrace = async (trace: AllocatorTrace, options: ReplayOptions): Promise<ReplayResult> => {
  const { pinned: _, ...allocator } = options.allocator
  const host: HostOptions = { memory: options.memory ?? memoryFor(trace) }
  const on = async (device: string): Promise<ReplayResult> => {
    const where = device === 'host' ? host : Number(device.slice('cuda:'.length))
    const { kinds, stream, ids, bytes } = trace
    const figures = await native().replay(
      where,
      { ...allocator, roundUpTo: 0, reserveFirst: 0 },
      { kinds, streams: stream, ids, bytes },
    )
    const served = Object.fromEntries(
      fallbacks.map((name, i) => [name, figures.served[i] ?? 0]),
    ) as ReplayResult['served']
    return { ...figures, device, deviceName: figures.device, served }
  }
  if (options.device === 'auto') {
    try {
      return await on('cuda:0')
    } catch (error) {
      if (isReplayFailure(error)) throw failed(error, trace, options, 'cuda:0')
    }
  }
  const device = options.device === 'auto' ? 'host' : options.device
  try {
    return await on(device)
  } catch (error) {
    throw isReplayFailure(error)
      ? failed(error, trace, options, device)
      : new ReplayError(openFailure(error, device))
  }
}

const isReplayFailure = (error: unknown): error is NativeReplayFailure =>
  error instanceof Error && typeof (error as Partial<NativeReplayFailure>).operation === 'number'

const failed = (
  error: NativeReplayFailure,
  trace: AllocatorTrace,
  options: ReplayOptions,
  device: string,
): ReplayError => {
  const { operation, shortage, code } = error
  const at = `ops[${operation}]`
  if (shortage === undefined)
    return new ReplayError({
      _tag: 'DriverFailed',
      at,
      subject: device,
      wanted: 'a driver call that succeeds',
      found: `${code}: ${error.detail ?? thrown(error)}`,
      next: 'run: npx braid doctor',
    })
  const { reserved, limit, live, pending, free, longestFree, deviceFree, deviceTotal } = shortage
  const bounded = limit !== null && limit < deviceTotal
  const most = bounded ? `${size(limit)} that may be reserved` : `${size(deviceTotal)} of ${device}`
  const where = bounded
    ? 'raise --limit'
    : deviceFree >= shortage.size
      ? 'give it in pages, with --expandable true: the system has no piece of memory that long'
      : device === 'host'
        ? 'raise --memory'
        : 'replay it on a larger device, or on host'
  const waits = options.allocator.policy.startsWith('order')
  const parts = [
    `${size(live)} in use`,
    `${size(pending)} freed but still in use by other lanes`,
    `${size(free)} free`,
    `the longest piece ${size(longestFree)}`,
  ]
  return new ReplayError({
    _tag: 'OutOfMemory',
    at,
    subject: device,
    wanted: `${size(shortage.wanted)} of ${most}; the trace has ${size(trace.peakLive)} alive at its peak`,
    found: `${size(reserved)} reserved: ${parts.join(', ')}; ${size(deviceFree)} free on the device`,
    next: waits ? where : `${where}, or try --policy order-then-wait`,
  })
}
