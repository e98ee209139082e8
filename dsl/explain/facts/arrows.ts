import type { Plan } from '../../ir/plan.js'
import { linksOf, runsOf } from './runs.js'

/**
 * A wait between two runs. `from` and `to` number the runs of a tick; `ticks` is 1 where `from` ran in the
 * previous tick.
 */
export interface Arrow {
  readonly from: number
  readonly to: number
  readonly ticks: 0 | 1
  readonly event: number
  readonly command: number
}

/** The waits of a plan that have a run on either end, in issue order. */
export const arrowsOf = (plan: Plan): readonly Arrow[] => {
  const runs = runsOf(plan)
  const { marks, held } = linksOf(plan, runs)
  const number = new Map(runs.map(({ command }, i) => [command, i]))
  return plan.commands.flatMap((command, at): Arrow[] => {
    if (command[0] !== 'wait') return []
    const [from, to] = [marks.get(command[1]), held.get(at)]
    if (from === undefined || to === undefined) return []
    return [
      {
        from: number.get(from.command)!,
        to: number.get(to.command)!,
        ticks: command[3] === -1 ? 1 : 0,
        event: command[1],
        command: at,
      },
    ]
  })
}
