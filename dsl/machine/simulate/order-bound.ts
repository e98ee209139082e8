import { Step, type Workload } from './workload.js'

/**
 * The end of each tick if order alone delayed it: every run takes its time without concurrent runs and starts
 * as soon as its lane, its events and the completed tick of `inFlight` before allow; no threads, no engines,
 * no shared resources. No run of a replay starts earlier, so the pace of these ends is a lower bound of the
 * plan's pace: the longest chain of runs, divided by the number of ticks it spans.
 */
export const orderBound = (workload: Workload, ticks: number): Float64Array => {
  const { steps, kind, lane, subject, events, inFlight, laneSets = 1 } = workload
  const lanes = laneSets * workload.lanes
  const { latency, work } = workload.usage
  const ended = new Float64Array(ticks)
  const free = new Float64Array(lanes)
  // By parity of the tick; before the first tick no event was recorded, and all times are 0.
  const marks = [new Float64Array(events), new Float64Array(events)] as const
  for (let tick = 0; tick < ticks; tick++) {
    const now = marks[(tick & 1) as 0 | 1]
    const before = marks[(1 - (tick & 1)) as 0 | 1]
    const earlier = tick - inFlight
    if (earlier >= 0) for (let l = 0; l < lanes; l++) free[l] = Math.max(free[l]!, ended[earlier]!)
    let end = tick > 0 ? ended[tick - 1]! : 0
    const shift = (tick % laneSets) * workload.lanes
    for (let s = 0; s < steps; s++) {
      const l = lane[s]! + shift
      const what = subject[s]!
      if (kind[s] === Step.run) {
        free[l]! += latency[what]! + work[what]!
        if (free[l]! > end) end = free[l]!
      } else if (kind[s] === Step.record) now[what] = free[l]!
      else free[l] = Math.max(free[l]!, kind[s] === Step.wait ? now[what]! : before[what]!)
    }
    ended[tick] = end
  }
  return ended
}
