import { withScratchArena } from '../../../collections/scratch-arena.js'
import type { PlanBuffer, PlanLane, PlanNode } from '../../../ir/plan.js'
import type { Listing } from '../../../order/compiled-plan.js'
import { type FlatCommands, Mode, Op } from '../../../order/flat-commands.js'
import { type FlatGraphs, graphEdgesOf, type Ranges } from '../../../order/graph-edges.js'
import { whyNoNode } from '../../../order/graph-nodes.js'

/** The facts of a plan that decide what may be in a graph. */
interface Plan {
  readonly lanes: readonly PlanLane[]
  readonly nodes: Listing<PlanNode>
  readonly buffers: Listing<PlanBuffer>
  readonly arenas?: number
}

/**
 * The fewest graphs of a plan: each takes in all runs from its first one on, of any devices, up to one that
 * may be in no graph. With a run come the waits and the record right before it, and the records of its lane
 * right after it. Where ticks overlap, what lies between the accesses of a state that the tick writes is a
 * graph of its own: the next tick waits for that one alone.
 */
export const graphsOf = (plan: Plan, flat: FlatCommands): FlatGraphs =>
  withScratchArena(scratch => {
    const { commands, op, lane, named } = flat
    let events = 0
    for (let c = 0; c < commands; c++) if (op[c] === Op.record) events = Math.max(events, named[c]! + 1)
    const given = { commands, lanes: plan.lanes.length, events, op, lane, event: named }
    return graphEdgesOf(given, rangesOf(plan, flat), scratch)
  })

/**
 * By command: whether a graph must end before it. From the first access of a state up to the last one nothing
 * is cut.
 */
const cutsAroundStates = ({ buffers, arenas = 1 }: Plan, flat: FlatCommands): Uint8Array | undefined => {
  if (arenas === 1) return undefined
  const { commands, op, accessStart, accessNamed, accessMode } = flat
  const spans = new Map<number, { readonly first: number; last: number; written: boolean }>()
  const runs: number[] = []
  for (let c = 0; c < commands; c++) {
    if (op[c] !== Op.run) continue
    for (let a = accessStart[c]!; a < accessStart[c + 1]!; a++) {
      const buffer = buffers.at(accessNamed[a]!)
      if (buffer?.life !== 'state') continue
      const root = buffer.alias ?? buffer.id
      const span = spans.get(root) ?? { first: runs.length, last: runs.length, written: false }
      spans.set(root, span)
      span.last = runs.length
      span.written ||= accessMode[a] === Mode.write
    }
    runs.push(c)
  }
  const written = [...spans.values()].filter(({ written }) => written).sort((a, b) => a.first - b.first)
  const cuts = new Uint8Array(commands)
  let end = 0
  for (const { first, last } of written) {
    if (first > end) for (const run of [end, first]) cuts[runs[run]!] = 1
    end = Math.max(end, last + 1)
  }
  if (end < runs.length) cuts[runs[end]!] = 1
  return cuts
}

const rangesOf = (plan: Plan, flat: FlatCommands): Ranges => {
  const { nodes } = plan
  const { commands, op, lane, named } = flat
  const cuts = cutsAroundStates(plan, flat)
  const from: number[] = []
  const to: number[] = []
  let isOpen = false
  for (let c = 0, begin = 0; c < commands; c++) {
    if (op[c] !== Op.run) continue
    const l = lane[c]!
    const isNode = whyNoNode(nodes.at(named[c]!)!) === undefined
    if (cuts?.[c] === 1) isOpen = false
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
