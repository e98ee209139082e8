import type { Timeline } from './timeline.js'

/**
 * A window of a timeline, from the end of one tick to the end of a later one. It has the runs that overlap
 * it, cut at its ends.
 */
export interface Window {
  readonly from: number
  readonly to: number
}

const isKernel = (resource: Timeline['resource'][number]): boolean =>
  resource === 'tensor' || resource === 'bandwidth'

/** Nanoseconds in which each lane is busy. */
export const busyOf = (timeline: Timeline, lanes: number, { from, to }: Window): Float64Array => {
  const busy = new Float64Array(lanes)
  for (let i = 0; i < timeline.runs; i++) {
    const start = Math.max(from, timeline.start[i]!)
    const end = Math.min(to, timeline.end[i]!)
    if (end > start) busy[timeline.lane[i]!]! += end - start
  }
  return busy
}

/**
 * Nanoseconds in which each lane copies or communicates while no kernel runs on its device: the exposed time.
 * Lanes that do so at the same time each count it.
 */
export const exposedOf = (
  timeline: Timeline,
  deviceOf: readonly number[],
  devices: number,
  { from, to }: Window,
): Float64Array => {
  const exposed = new Float64Array(deviceOf.length)
  const inside: number[] = []
  for (let i = 0; i < timeline.runs; i++)
    if (timeline.end[i]! > from && timeline.start[i]! < to) inside.push(i)
  inside.sort((a, b) => timeline.start[a]! - timeline.start[b]! || a - b)
  for (let d = 0; d < devices; d++) {
    // The union of the kernels' times on this device.
    const starts: number[] = []
    const ends: number[] = []
    for (const i of inside) {
      if (deviceOf[timeline.lane[i]!] !== d || !isKernel(timeline.resource[i]!)) continue
      const start = Math.max(from, timeline.start[i]!)
      const end = Math.min(to, timeline.end[i]!)
      if (ends.length > 0 && start <= ends[ends.length - 1]!)
        ends[ends.length - 1] = Math.max(end, ends[ends.length - 1]!)
      else {
        starts.push(start)
        ends.push(end)
      }
    }
    const kernelTime = coverage(starts, ends)
    for (const i of inside) {
      const l = timeline.lane[i]!
      if (deviceOf[l] !== d || isKernel(timeline.resource[i]!)) continue
      const start = Math.max(from, timeline.start[i]!)
      const end = Math.min(to, timeline.end[i]!)
      exposed[l]! += end - start - (kernelTime(end) - kernelTime(start))
    }
  }
  return exposed
}

/** How much of the time before a moment lies in the intervals, which are disjoint and in order. */
const coverage = (starts: readonly number[], ends: readonly number[]): ((time: number) => number) => {
  const before = new Float64Array(starts.length + 1)
  for (let i = 0; i < starts.length; i++) before[i + 1] = before[i]! + ends[i]! - starts[i]!
  return time => {
    let low = 0
    let high = starts.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (starts[middle]! <= time) low = middle + 1
      else high = middle
    }
    return low === 0 ? 0 : before[low - 1]! + Math.min(time, ends[low - 1]!) - starts[low - 1]!
  }
}
