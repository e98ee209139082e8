import { conflictsOf } from '../../../order/conflicting-communicators.js'
import type { CollectiveEdge, Placed } from '../../analysis/ir.js'
import { ticksMeet } from '../../analysis/options.js'

const none: readonly CollectiveEdge[] = []

/**
 * Two communicators conflict if they share two ranks: their calls must come one after the other in the same
 * order on every rank, across the end of the tick too where ticks overlap. The operations are in issue order,
 * and their order is kept by one edge wherever it passes from a communicator to a conflicting one: calls over
 * one communicator follow each other anyway.
 */
export const collectiveEdges = ({
  operations,
  laneOf,
  communicators = [],
  settings,
}: Pick<Placed, 'operations' | 'laneOf' | 'communicators' | 'settings'>): readonly CollectiveEdge[] => {
  if (communicators.length < 2) return none
  const conflicting = conflictsOf(communicators)
  if (conflicting.size === 0) return none
  const over = (i: number): number => operations[i]!.collective?.communicator ?? -1
  const calls: number[] = []
  /** By communicator: its last call of the tick. */
  const ends = new Map<number, number>()
  for (let i = 0; i < operations.length; i++) {
    if (operations[i]!.kind !== 'collective' || !conflicting.has(over(i))) continue
    calls.push(i)
    ends.set(over(i), i)
  }
  const orderingEdges: CollectiveEdge[] = []
  const add = (
    later: number,
    earlier: number | undefined,
    tick: CollectiveEdge['tick'],
    own: boolean,
  ): void => {
    if (earlier === undefined || laneOf[earlier] === laneOf[later]) return
    if (tick === 0 || ticksMeet(settings)) orderingEdges.push({ later, earlier, tick, sameCommunicator: own })
  }
  const last = new Map<number, number>()
  for (const call of calls) {
    const own = last.get(over(call))
    if (own === undefined) add(call, ends.get(over(call)), -1, true)
    else add(call, own, 0, true)
    for (const other of conflicting.get(over(call))!) {
      const before = last.get(other)
      if (before === undefined) {
        if (own === undefined) add(call, ends.get(other), -1, false)
      } else if (own === undefined || own < before) add(call, before, 0, false)
    }
    last.set(over(call), call)
  }
  return orderingEdges.some(({ sameCommunicator: own }) => !own) ? orderingEdges : none
}
