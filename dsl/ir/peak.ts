import { Clock } from './laws/clock.js'
import { Reuse } from './laws/reuse.js'
import { Op, tablesOf, type Tables } from './laws/tables.js'
import type { Plan } from './plan.js'

/** Bytes that a plan holds at most, by law L9: from the order of its commands alone, so the same in every run. */
export interface Peak {
  readonly device: readonly number[]
  readonly pinned: number
  /** Ticks after which it had settled: from then on every tick takes what the ticks before left. */
  readonly ticks: number
  /** False where the work limit came first: `device` and `pinned` are then what had been reached. */
  readonly settled: boolean
  /** The alloc that first took each memory to its peak: a device, or pinned last; -1: what lives on across ticks is all there is. */
  readonly reachedAt: readonly number[]
}

/** Commands that are replayed at most until a peak settles. */
export const maxPeakSteps = 2 ** 26

/**
 * The peak of a plan, counted in issue order over as many ticks as it takes to settle: `param` and `state` once, `input` and
 * `output` `inFlight` times; views count in their root. Sizes are the buffers' own, before any rounding by the allocator.
 */
export const peakOf = (plan: Plan): Peak => {
  const tables = tablesOf(plan)
  return replayPeak(tables, new Clock(tables))
}

/** As `peakOf`, on a clock that may leave out a command. The clock is as new. */
export const replayPeak = (tables: Tables, clock: Clock): Peak => {
  const { plan, op, subject, lane } = tables
  const peak = lasting(tables)
  const reachedAt = new Array<number>(peak.length).fill(-1)
  const answer = (ticks: number, settled: boolean): Peak => ({
    device: peak.slice(0, -1),
    pinned: peak[peak.length - 1]!,
    ticks,
    settled,
    reachedAt,
  })
  if (plan.storage === 'planned') return answer(1, true)

  const memories = peak.map(() => new Reuse(tables.lanes))
  const open = new Uint8Array(tables.buffers)
  const lastPoint = new Int32Array(tables.pairLane.length)
  const met = new Set<string>()
  const limit = Math.max(4, Math.floor(maxPeakSteps / Math.max(1, tables.commands)))
  for (let tick = 0; tick < limit; tick++) {
    clock.begin()
    // From tick inFlight on, what lanes know of each other at the start of a tick is the same in every tick (see Clock),
    // so the rest of the run is a function of what lies free. Met once more, it repeats for ever.
    if (tick >= plan.inFlight) {
      const key = memories.map(memory => memory.key(clock)).join('|')
      if (met.has(key)) return answer(tick, true)
      met.add(key)
    }
    for (let c = 0; c < tables.commands; c++) {
      const code = op[c]
      if (code === Op.alloc) {
        const b = subject[c]!
        if (open[b] === 1 || tables.life[b] !== 'tick') continue
        open[b] = 1
        const memory = memoryOf(plan, b)
        const missing = memories[memory]!.take(plan.buffers[b]!.bytes, lane[c]!, clock)
        if (missing === 0) continue
        peak[memory]! += missing
        reachedAt[memory] = c
      } else if (code === Op.free) {
        const b = subject[c]!
        if (open[b] === 0) continue
        open[b] = 0
        const memory = memories[memoryOf(plan, b)]!
        for (let p = tables.pairStart[b]!; p < tables.pairStart[b + 1]!; p++) {
          const m = tables.pairLane[p]!
          if (lastPoint[p]! > clock.base[m]!) memory.access(m, lastPoint[p]!)
        }
        memory.free(plan.buffers[b]!.bytes, tick)
      } else {
        clock.step(c)
        if (code !== Op.run) continue
        const point = clock.known[lane[c]! * tables.lanes + lane[c]!]!
        for (let a = tables.accessStart[c]!; a < tables.accessStart[c + 1]!; a++)
          lastPoint[tables.accessPair[a]!] = point
      }
    }
  }
  return answer(limit, false)
}

/** A device's index, or `devices` for pinned memory. */
const memoryOf = (plan: Plan, b: number): number => {
  const buffer = plan.buffers[b]!
  return buffer.space === 'pinned' ? plan.devices : Math.min(Math.max(0, buffer.device), plan.devices - 1)
}

/** What each memory holds whatever the commands do: with planned storage, all of it. */
const lasting = (tables: Tables): number[] => {
  const { plan } = tables
  const planned = plan.storage === 'planned'
  const held = Array.from({ length: plan.devices + 1 }, (_, memory) => (planned ? (plan.arena?.[memory] ?? 0) : 0))
  plan.buffers.forEach((buffer, b) => {
    if (tables.root[b] !== b) return
    const slots = buffer.life === 'input' || buffer.life === 'output'
    if (buffer.life === 'tick' && !(planned && buffer.space === 'pinned')) return
    if (planned && buffer.space === 'device' && !slots) return
    held[memoryOf(plan, b)]! += slots ? buffer.bytes * plan.inFlight : buffer.bytes
  })
  return held
}
