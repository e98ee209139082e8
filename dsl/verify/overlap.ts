import { Frontiers } from '../order/frontiers.js'
import { eachBeside } from './concurrent.js'
import type { Blame } from './matching.js'
import { type Call, callText, type Group, type World } from './ranks.js'

/**
 * L8, across communicators: two that share two ranks or more never have calls side by side on one of those ranks. A call holds a part of the device until its meeting
 * ends, so where one rank begins one first and another the other, each may wait for the other for ever. That each rank has some order is asked here; that it is the same
 * order on all follows, since two orders are a circle of waits (deadlock.ts).
 */
export const checkOverlap = (world: World, blame: Blame): void => {
  const rivals = conflictsOf(world)
  if (rivals.size === 0) return
  for (const calls of world.calls)
    if (calls.some(({ group }) => rivals.has(group))) checkRank(calls, rivals, blame)
}

type Rivals = ReadonlyMap<Group, ReadonlyMap<Group, readonly number[]>>

/** Of each group, those with which it shares two ranks or more, and which. */
const conflictsOf = ({ groups }: World): Rivals => {
  const rivals = new Map<Group, Map<Group, readonly number[]>>()
  const of = new Map<number, Group[]>()
  for (const group of groups) for (const rank of group.ranks) of.set(rank, [...(of.get(rank) ?? []), group])
  for (const group of groups) {
    const own = new Set(group.ranks)
    for (const other of new Set(group.ranks.flatMap(rank => of.get(rank)!))) {
      if (other === group) continue
      const shared = other.ranks.filter(rank => own.has(rank))
      if (shared.length < 2) continue
      const known = rivals.get(group) ?? new Map<Group, readonly number[]>()
      rivals.set(group, known.set(other, shared))
    }
  }
  return rivals
}

const checkRank = (calls: readonly Call[], rivals: Rivals, blame: Blame): void => {
  const told = new Set<string>()
  eachBeside(
    new Frontiers(calls[0]!.rank.tables),
    calls,
    ({ group }) => group,
    group => rivals.get(group)?.keys() ?? [],
    (call, beside, past) => {
      const [own, other] = [call.group, beside.group]
      const pair = [own.name, other.name].sort().join('\n')
      if (told.has(pair)) return
      told.add(pair)
      const shared = rivals.get(own)!.get(other)!
      blame(
        call,
        () =>
          `it may run beside ${callText(beside)}${past ? ', of the tick before' : ''}: '${own.name}' and '${other.name}' share ranks ${shared.join(', ')}, so one must come after the other on each of them, or ranks that begin with different ones wait for each other for ever`,
      )
    },
  )
}
