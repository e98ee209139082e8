import type { Seat } from '../ir/collective-extents.js'
import { outOfBounds } from '../ir/extents.js'
import type { Plan } from '../ir/plan.js'
import { runsOf } from '../ir/plan-runs.js'
import { byteFaults } from '../ir/run-bytes.js'
import type { World } from './l8-matching.js'
import { maxViolations } from './report.js'

/**
 * What each rank's collectives read and write, by the sizes of the groups that only the plans of all ranks
 * say. Each plan has passed the loader, which asks for the least that any group needs.
 */
export const checkExtents = (
  world: World,
  report: (rank: number, command: number, sentence: () => string) => void,
): void => {
  const seen = new Map<Plan, Set<string>>()
  world.calls.forEach((calls, rank) => {
    const { plan } = world.ranks[rank]!
    const seats: Seat[] = []
    for (const { spec, group, place } of calls)
      seats[spec.communicator] = { least: group.ranks.length, most: group.ranks.length, place }
    const key = JSON.stringify(seats)
    const known = seen.get(plan) ?? new Set()
    if (calls.length === 0 || known.has(key)) return
    seen.set(plan, known.add(key))
    const runs = runsOf(plan)
    const bytes = byteFaults({ ...runs, seat: id => seats[id] ?? runs.seat(id) }, maxViolations)
    for (const { command, buffer, wanted, found } of [...outOfBounds(plan, undefined, seats), ...bytes]) {
      const name = plan.buffers[buffer]?.name ?? `buffer ${buffer}`
      report(rank, command, () => `'${name}': wanted ${wanted}; found ${found}`)
    }
  })
}
