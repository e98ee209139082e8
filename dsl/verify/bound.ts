import { quotedBuffer } from '../ir/names.js'
import { type Peak, peakFrom } from '../memory/peak.js'
import { tracesOf } from '../memory/plan-trace.js'
import type { AllocationTrace } from '../memory/trace.js'
import type { CommandTable } from '../order/command-table.js'
import type { Frontiers } from '../order/frontiers.js'
import type { Sink } from './report.js'
import type { Settled } from './settled.js'

/** The bounds of all memories: devices, then pinned; 0 where the plan names none, or what is no size: nothing would be beyond NaN. */
export const boundsOf = ({ plan }: CommandTable): number[] =>
  [...Array.from({ length: plan.devices }, (_, d) => plan.bound.device[d]), plan.bound.pinned].map(bytes =>
    Number.isFinite(bytes) ? (bytes as number) : 0,
  )

/** Whether the peak of such traces is within the bound. */
export const peakFits = (
  tables: CommandTable,
  traces: () => readonly AllocationTrace[],
  bounds: readonly number[],
): boolean => heldAt(peakFrom(tables, traces, bounds)).every((bytes, memory) => !(bytes > bounds[memory]!))

const heldAt = ({ device, pinned }: Peak): number[] => [...device, pinned]

/** L9: the peak, computed from the plan alone (`known`, where it has been; else from a clock that has gone through some whole ticks; `safe`: L3 holds), is at most `bound`, for each device and for pinned memory. */
export const checkBound = (
  tables: CommandTable,
  clock: Frontiers,
  safe: boolean,
  sink: Sink,
  known?: Peak,
  settled?: Settled,
): void => {
  const { plan } = tables
  const bounds = boundsOf(tables)
  if (known !== undefined && heldAt(known).every((bytes, memory) => !(bytes > bounds[memory]!))) return
  let found: readonly AllocationTrace[] | undefined
  const traces = () =>
    (found ??=
      (safe ? settled?.traces() : undefined) ??
      tracesOf(tables, clock, { accessesOnly: true, safe, allocator: tables.allocator }))
  if (peakFits(tables, traces, bounds)) return
  const peak = peakFrom(tables, traces)
  const held = heldAt(peak)
  held.forEach((bytes, memory) => {
    const pinned = memory === plan.devices
    const bound = bounds[memory]!
    if (bytes <= bound) return
    const command = peak.reachedAt[memory]!
    const place = command < 0 ? {} : { buffer: tables.named[command]!, lane: tables.lane[command]! }
    sink.add('L9', command, place, () => {
      const what = pinned ? 'pinned memory' : `device ${memory}`
      const where =
        command < 0
          ? 'what lives on across ticks comes to'
          : `with ${quotedBuffer(plan, tables.named[command]!)} allocated, the peak is`
      return `the bound of ${what} is ${bound} bytes, and ${where} ${bytes}: ${bytes - bound} too many`
    })
  })
}
