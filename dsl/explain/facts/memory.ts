import type { Plan } from '../../ir/plan.js'
import { memoryOf } from '../../order/command-table.js'
import { runsOf } from './runs.js'

/** Bytes of device memory in use from a moment on, in microseconds. */
export interface Level {
  readonly us: number
  readonly bytes: number
}

/** The time of one run of one tick, in microseconds. `run` is its place among the runs of a tick. */
interface RunTime {
  readonly tick: number
  readonly run: number
  readonly start: number
  readonly end: number
}

/**
 * Device memory in use over time: a tick buffer counts from the start of its first operation to the end of
 * its last; buffers that live on across ticks count always. Never above the bound, since a buffer that reuses
 * bytes starts after the last access of their earlier buffer.
 */
export const memoryInUse = (plan: Plan, spans: readonly RunTime[], device = 0): readonly Level[] => {
  const runs = runsOf(plan)
  const touched = runs.map(({ reads, writes }) => [...new Set([...reads, ...writes].map(({ root }) => root))])
  let lasting = 0
  plan.buffers.forEach(buffer => {
    if (buffer.alias !== undefined || memoryOf(plan, buffer) !== device || buffer.life === 'tick') return
    lasting +=
      buffer.life === 'input' || buffer.life === 'output' ? buffer.bytes * plan.inFlight : buffer.bytes
  })
  const open = new Map<string, { from: number; to: number; bytes: number }>()
  for (const { tick, run, start, end } of spans)
    for (const b of touched[run]!) {
      const buffer = plan.buffers[b]!
      if (buffer.life !== 'tick' || memoryOf(plan, buffer) !== device) continue
      const key = `${tick} ${b}`
      const known = open.get(key)
      if (known === undefined) open.set(key, { from: start, to: end, bytes: buffer.bytes })
      else {
        known.from = Math.min(known.from, start)
        known.to = Math.max(known.to, end)
      }
    }
  // At equal times frees come before allocations.
  const steps = [...open.values()]
    .flatMap(({ from, to, bytes }) => [
      { us: from, bytes },
      { us: to, bytes: -bytes },
    ])
    .sort((a, b) => a.us - b.us || a.bytes - b.bytes)
  const levels: Level[] = [{ us: 0, bytes: lasting }]
  let bytes = lasting
  for (const step of steps) {
    bytes += step.bytes
    const last = levels[levels.length - 1]!
    if (last.us === step.us) levels[levels.length - 1] = { us: step.us, bytes }
    else levels.push({ us: step.us, bytes })
  }
  return levels
}

export const highest = (levels: readonly Level[]): number =>
  levels.reduce((most, { bytes }) => Math.max(most, bytes), 0)

/** The level at `from`, and its changes until `to`. */
export const levelsIn = (levels: readonly Level[], from: number, to: number): readonly Level[] => {
  const before = levels.findLast(({ us }) => us <= from)
  return [{ us: from, bytes: before?.bytes ?? 0 }, ...levels.filter(({ us }) => us > from && us < to)]
}
