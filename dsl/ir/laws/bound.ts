import type { Peak } from '../peak.js'
import { bufferName, type Sink } from './report.js'
import type { Tables } from './tables.js'

/** L9: the peak, computed from the plan alone, is at most `bound`, for each device and for pinned memory. */
export const checkBound = (tables: Tables, peak: Peak, sink: Sink): void => {
  const { plan } = tables
  const held = [...peak.device, peak.pinned]
  held.forEach((bytes, memory) => {
    const pinned = memory === plan.devices
    const bound = pinned ? plan.bound.pinned : (plan.bound.device[memory] ?? 0)
    if (bytes <= bound) return
    const command = peak.reachedAt[memory]!
    const place = command < 0 ? {} : { buffer: tables.named[command]!, lane: tables.lane[command]! }
    sink.add('L9', command, place, () => {
      const what = pinned ? 'pinned memory' : `device ${memory}`
      const where =
        command < 0
          ? 'what lives on across ticks comes to'
          : `with ${bufferName(plan, tables.named[command]!)} allocated, the peak is`
      return `the bound of ${what} is ${bound} bytes, and ${where} ${bytes}: ${bytes - bound} too many`
    })
  })
}
