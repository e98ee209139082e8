import { Step, type Workload } from './workload.js'

/**
 * When each tick would end if only order held it back: every run as long as it takes by itself, as soon as its lane, its events and the tick that must have
 * completed let it; no threads, no engines, nothing shared. No run of a replay starts earlier, so the pace of these ends is a bound on that of the
 * plan: the longest chain of runs, counted by how many ticks it spans.
 */
export const orderBound = (workload: Workload, ticks: number): Float64Array => {
  const { steps, kind, lane, subject, events, lanes, inFlight } = workload
  const { latency, work } = workload.usage
  const ended = new Float64Array(ticks)
  const free = new Float64Array(lanes)
  // By parity of the tick; before the first tick nothing was recorded, at time 0.
  const marks = [new Float64Array(events), new Float64Array(events)] as const
  for (let tick = 0; tick < ticks; tick++) {
    const now = marks[(tick & 1) as 0 | 1]
    const before = marks[(1 - (tick & 1)) as 0 | 1]
    const earlier = tick - inFlight
    if (earlier >= 0) for (let l = 0; l < lanes; l++) free[l] = Math.max(free[l]!, ended[earlier]!)
    let end = tick > 0 ? ended[tick - 1]! : 0
    for (let s = 0; s < steps; s++) {
      const l = lane[s]!
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
