import type { Plan } from '../../ir/plan.js'
import type { Machine } from '../../machine/machine.js'
import { runsOf, simulate } from '../../machine/simulate/simulate.js'
import { paceOf } from '../../machine/simulate/steady-state.js'
import type { Span, Timeline } from './timeline.js'

/**
 * The predicted timeline of a plan on a machine, in microseconds. Undefined for a plan without runs. Throws a
 * `BraidError` where `machine` is not a machine.
 */
export const predicted = (plan: Plan, machine: Machine | string): Timeline | undefined => {
  const { machine: name, tickMs, timeline } = simulate(plan, machine)
  const perTick = timeline.ticks === 0 ? 0 : timeline.runs / timeline.ticks
  if (perTick === 0) return undefined
  const spans = runsOf(timeline).map(
    ({ index, node, lane, tick, start, end, resource, cause, after }): Span => ({
      index,
      tick,
      run: index % perTick,
      node,
      lane,
      start: start / 1e3,
      end: end / 1e3,
      resource,
      cause,
      after,
    }),
  )
  // The last ticks of a simulation have no successors, so the tick shown is the last one before them.
  const tick = Math.max(0, timeline.ticks - 1 - plan.inFlight)
  const { over, steady } = paceOf(timeline.ended.subarray(0, tick + 1), plan.inFlight)
  return { plan, machine: name, tick, tickUs: tickMs * 1e3, over: steady ? over : 1, steady, spans }
}
