import { Clock } from './clock.js'
import type { Blame } from './matching.js'
import { type Call, callText, type Group, type World } from './ranks.js'

/**
 * L8, across communicators: two that share two ranks or more never have calls side by side on one of those ranks. A call holds a part of the device until its meeting
 * ends, so where one rank begins one first and another the other, each may wait for the other for ever. That each rank has some order is asked here; that it is the same
 * order on all follows, since two orders are a circle of waits (deadlock.ts). Calls over one communicator begin in issue order whatever their lanes,
 * so what is before one is before all that follow it there. Two ticks decide, as for L1 and L2.
 */
export const checkOverlap = (world: World, blame: Blame): void => {
  const rivals = rivalsOf(world)
  if (rivals.size === 0) return
  for (const calls of world.calls) if (calls.some(({ group }) => rivals.has(group))) checkRank(calls, rivals, blame)
}

type Rivals = ReadonlyMap<Group, ReadonlyMap<Group, readonly number[]>>

/** Of each group, those with which it shares two ranks or more, and which. */
const rivalsOf = ({ groups }: World): Rivals => {
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

interface Last {
  readonly call: Call
  readonly lane: number
  readonly point: number
  readonly tick: number
  /** What all that follows over its communicator is after. */
  readonly frontier: Int32Array
}

const checkRank = (calls: readonly Call[], rivals: Rivals, blame: Blame): void => {
  const { tables } = calls[0]!.rank
  const { lanes } = tables
  const clock = new Clock(tables)
  const last = new Map<Group, Last>()
  const told = new Set<string>()
  for (let tick = 0; tick < 2; tick++) {
    clock.begin()
    let next = 0
    for (let c = 0; c < tables.commands; c++) {
      const call = calls[next]
      if (call?.command !== c) {
        clock.step(c)
        continue
      }
      next++
      const l = tables.lane[c]!
      const row = clock.known.subarray(l * lanes, (l + 1) * lanes)
      const before = last.get(call.group)
      if (before !== undefined) for (let m = 0; m < lanes; m++) row[m] = Math.max(row[m]!, before.frontier[m]!)
      for (const [other, shared] of rivals.get(call.group) ?? []) {
        const beside = last.get(other)
        if (beside === undefined || row[beside.lane]! >= beside.point) continue
        const pair = [call.group.name, other.name].sort().join('\n')
        if (told.has(pair)) continue
        told.add(pair)
        blame(
          call,
          () =>
            `it may run beside ${callText(beside.call)}${beside.tick < tick ? ', of the tick before' : ''}: '${call.group.name}' and '${other.name}' share ranks ${shared.join(', ')}, so one must come after the other on each of them, or ranks that begin with different ones wait for each other for ever`,
        )
      }
      clock.step(c)
      last.set(call.group, { call, lane: l, point: row[l]!, tick, frontier: row.slice() })
    }
  }
}
