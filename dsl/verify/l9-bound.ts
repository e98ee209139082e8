import { quotedBuffer } from '../ir/names.js'
import type { Plan } from '../ir/plan.js'
import { type Peak, peakFrom } from '../memory/peak.js'
import { tracesOf } from '../memory/plan-trace.js'
import type { AllocationTrace } from '../memory/trace.js'
import type { CommandTable } from '../order/command-table.js'
import type { Replay } from '../order/replay.js'
import type { Sink } from './report.js'

/** The bounds of all memories: devices, then pinned; 0 where the plan has no bound or an invalid one. */
export const boundsOf = ({ plan }: CommandTable): number[] =>
  [...Array.from({ length: plan.devices }, (_, d) => plan.bound.device[d]), plan.bound.pinned].map(bytes =>
    Number.isFinite(bytes) ? (bytes as number) : 0,
  )

/** The release points that the peak follows from. */
const releasesFor = ({ boundKind }: Plan) => (boundKind === undefined ? 'accesses and uses' : 'uses')

/** Whether the peak of such an allocation trace is within the bounds. */
export const peakFits = (
  table: CommandTable,
  traces: () => readonly AllocationTrace[],
  bounds: readonly number[],
): boolean => isWithin(peakFrom(table, traces, bounds), bounds)

const isWithin = (peak: Peak, bounds: readonly number[]): boolean =>
  peak.exact && peaksOf(peak).every((bytes, memory) => bytes <= bounds[memory]!)

const peaksOf = ({ device, pinned }: Peak): number[] => [...device, pinned]

/**
 * L9: the peak, computed from the plan alone, is at most `bound`, for each device and for pinned memory.
 * Which ticks it is the peak of, the plan's `boundKind` says (see `peakOf`). The replay may have gone through
 * whole ticks.
 */
export const checkBound = (replay: Replay, sink: Sink): void => {
  const { table } = replay
  const { plan, named, lane, allocator } = table
  const bounds = boundsOf(table)
  let found: readonly AllocationTrace[] | undefined
  const traces = () => (found ??= tracesOf(table, { replay, allocator, releases: releasesFor(plan) }))
  if (peakFits(table, traces, bounds)) return
  const peak = peakFrom(table, traces)
  if (!peak.exact)
    sink.add(
      'L9',
      -1,
      {},
      () =>
        `its boundKind is exact, and after ${peak.ticks} ticks the session's pool has not come back to ` +
        "a state that it was in before: wanted boundKind 'enforced'",
    )
  peaksOf(peak).forEach((bytes, memory) => {
    const bound = bounds[memory]!
    if (bytes <= bound) return
    const c = peak.reachedAt[memory]!
    const place = c < 0 ? {} : { buffer: named[c]!, lane: lane[c]! }
    sink.add('L9', c, place, () => {
      const what = memory === plan.devices ? 'pinned memory' : `device ${memory}`
      const peakText =
        c < 0
          ? 'the buffers that live on across ticks come to'
          : `with ${quotedBuffer(plan, named[c]!)} allocated, the peak is`
      return `the bound of ${what} is ${bound} bytes, and ${peakText} ${bytes}: ${bytes - bound} too many`
    })
  })
}
