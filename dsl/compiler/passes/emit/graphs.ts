import type { PlanLane, PlanNode } from '../../../ir/plan.js'
import type { Listing } from '../../../order/compiled-plan.js'
import { type FlatCommands, Op } from '../../../order/flat-commands.js'
import { type FlatGraphs, graphEdgesOf, type Ranges } from '../../../order/graph-edges.js'
import { whyNoNode } from '../../../order/graph-nodes.js'
import { withScratchArena } from '../../../order/scratch-arena.js'

/** The facts of a plan that decide what may be in a graph. */
interface Plan {
  readonly lanes: readonly PlanLane[]
  readonly nodes: Listing<PlanNode>
}

/**
 * The fewest graphs of a plan: each takes in all runs from its first one on, of any devices, up to one that
 * may be in no graph. With a run come the waits and the record right before it, and the records of its lane
 * right after it.
 */
export const graphsOf = (plan: Plan, flat: FlatCommands): FlatGraphs =>
  withScratchArena(scratch => {
    const { commands, op, lane, named } = flat
    let events = 0
    for (let c = 0; c < commands; c++) if (op[c] === Op.record) events = Math.max(events, named[c]! + 1)
    const given = { commands, lanes: plan.lanes.length, events, op, lane, event: named }
    return graphEdgesOf(given, rangesOf(plan, flat), scratch)
  })

const rangesOf = ({ nodes }: Plan, { commands, op, lane, named }: FlatCommands): Ranges => {
  const from: number[] = []
  const to: number[] = []
  let isOpen = false
  for (let c = 0, begin = 0; c < commands; c++) {
    if (op[c] !== Op.run) continue
    const l = lane[c]!
    const isNode = whyNoNode(nodes.at(named[c]!)!) === undefined
    while (op[c + 1] === Op.record && lane[c + 1] === l) c++
    const end = c + 1
    if (isNode && isOpen) to[to.length - 1] = end
    else if (isNode) {
      from.push(begin)
      to.push(end)
    }
    isOpen = isNode
    begin = end
  }
  return { from: Int32Array.from(from), to: Int32Array.from(to) }
}
