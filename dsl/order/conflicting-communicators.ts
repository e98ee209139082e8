import type { PlanCommunicator } from '../ir/plan.js'

/**
 * By communicator, those that conflict with it: they share two ranks or more in some group. Calls over the
 * two must never be concurrent, since a call occupies a part of the device until all of its group have come.
 * A communicator without groups has all ranks.
 */
export const conflictsOf = (
  communicators: readonly PlanCommunicator[],
): ReadonlyMap<number, ReadonlySet<number>> => {
  const conflicts = new Map<number, Set<number>>()
  const add = (a: number, b: number): void => {
    const known = conflicts.get(a)
    if (known === undefined) conflicts.set(a, new Set([b]))
    else known.add(b)
  }
  for (let a = 0; a < communicators.length; a++)
    for (let b = a + 1; b < communicators.length; b++)
      if (shareTwo(communicators[a]!, communicators[b]!)) {
        add(a, b)
        add(b, a)
      }
  return conflicts
}

const shareTwo = (a: PlanCommunicator, b: PlanCommunicator): boolean => {
  if (a.groups === undefined || b.groups === undefined) {
    const { groups, size = 2 } = a.groups === undefined ? b : a
    return groups === undefined ? size > 1 : groups.some(group => group.length > 1)
  }
  const groupOf = new Map<number, number>()
  a.groups.forEach((group, g) => {
    for (const rank of group) groupOf.set(rank, g)
  })
  return b.groups.some(group => {
    const seen = new Set<number>()
    return group.some(rank => {
      const other = groupOf.get(rank)
      if (other === undefined) return false
      if (seen.has(other)) return true
      seen.add(other)
      return false
    })
  })
}
