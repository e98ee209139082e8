import { nodeName } from '../ir/names.js'
import { type CommandTable, Op } from '../order/command-table.js'
import { eachNode, graphsIn } from '../order/compiled-plan.js'
import { type FlatGraphs, graphEdgesOf } from '../order/graph-edges.js'
import { whyNoNode } from '../order/graph-nodes.js'
import type { Sink } from './report.js'

/**
 * L11: the edges of a graph imply the order of the plan among its nodes, and hold nothing else: they are the
 * transitive reduction of *before* among the runs of the range, of which there is exactly one. A range has
 * runs, of any devices, each of which may be in a graph; ranges ascend and do not overlap. Edges that are not
 * needed concern quality, so with `safety` they are accepted where they lead forward from node to node.
 */
export const checkGraphs = (table: CommandTable, safety: boolean, sink: Sink): void => {
  const { plan } = table
  const given = graphsIn(plan)
  if (given === undefined) {
    const { arenas = 1 } = plan
    if (arenas > 1)
      sink.add(
        'L11',
        -1,
        {},
        () => `it has ${arenas} arenas and no graphs: only ticks of graphs have their own`,
      )
    return
  }
  if (plan.storage !== 'planned') {
    sink.add('L11', -1, {}, () => 'it has graphs, whose nodes need planned storage')
    return
  }
  if (!checkRanges(table, given, sink) || !checkNodes(table, given, sink)) return
  const { commands, lanes, events, op, lane, subject, allocator } = table
  const wanted = graphEdgesOf({ commands, lanes, events, op, lane, event: subject }, given, allocator)
  for (let g = 0; g < given.from.length && !sink.full; g++) checkEdges(table, g, given, wanted, safety, sink)
}

/** Whether the ranges ascend, have commands and share none. */
const checkRanges = ({ commands }: CommandTable, { from, to }: FlatGraphs, sink: Sink): boolean => {
  let end = 0
  for (let g = 0; g < from.length; g++) {
    const first = from[g]!
    if (first < end || to[g]! <= first || to[g]! > commands) {
      const wanted = `one command or more, from ${end} on and up to ${commands}`
      sink.add(
        'L11',
        first < commands ? first : -1,
        {},
        () => `the range of graphs[${g}] is to be of ${wanted}`,
      )
      return false
    }
    end = to[g]!
  }
  return true
}

/** Whether every command of a range may be there, and some are runs. */
const checkNodes = (table: CommandTable, { from, to }: FlatGraphs, sink: Sink): boolean => {
  const { plan, op, subject } = table
  const nodes = eachNode(plan)
  let sound = true
  const wrong = (c: number, sentence: () => string): void => {
    sink.add('L11', c, {}, sentence)
    sound = false
  }
  for (let g = 0; g < from.length && !sink.full; g++) {
    let runs = 0
    for (let c = from[g]!; c < to[g]!; c++) {
      if (op[c] === Op.record || op[c] === Op.wait || op[c] === Op.previous) continue
      if (op[c] !== Op.run) {
        wrong(c, () => `only runs, records and waits can be in graphs[${g}]`)
        continue
      }
      const why = whyNoNode(nodes.at(subject[c]!)!)
      if (why !== undefined) wrong(c, () => `it can be in no graph: ${why}; graphs[${g}] has it`)
      runs++
    }
    if (runs === 0) wrong(from[g]!, () => `graphs[${g}] has no run`)
  }
  return sound
}

/** Compares two lists of edges: the graph's, which must be sorted, with the reduction. */
const checkEdges = (
  table: CommandTable,
  g: number,
  given: FlatGraphs,
  wanted: FlatGraphs,
  safety: boolean,
  sink: Sink,
): void => {
  const { plan, op } = table
  const name = (c: number): string => `commands[${c}] (${nodeName(plan, table.subject[c]!)})`
  const isNode = (c: number): boolean => c >= given.from[g]! && c < given.to[g]! && op[c] === Op.run
  let w = wanted.edgeStart[g]!
  const missing = (upTo: number, before: number): void => {
    for (; w < wanted.edgeStart[g + 1]!; w++) {
      const earlier = wanted.edges[2 * w]!
      const later = wanted.edges[2 * w + 1]!
      if (later > upTo || (later === upTo && earlier >= before)) return
      sink.add(
        'L11',
        later,
        {},
        () => `the plan orders it after ${name(earlier)}, and graphs[${g}] has no edge from there`,
      )
    }
  }
  let last: readonly [number, number] = [-1, -1]
  for (let e = given.edgeStart[g]!; e < given.edgeStart[g + 1]! && !sink.full; e++) {
    const before = given.edges[2 * e]!
    const after = given.edges[2 * e + 1]!
    if (!isNode(before) || !isNode(after) || before >= after) {
      sink.add(
        'L11',
        isNode(after) ? after : given.from[g]!,
        {},
        () => `edge ${before} → ${after} of graphs[${g}] does not lead from a run of it to a later one`,
      )
      continue
    }
    if (after < last[1] || (after === last[1] && before <= last[0])) {
      sink.add(
        'L11',
        after,
        {},
        () => `edge ${before} → ${after} of graphs[${g}] stands behind ${last[0]} → ${last[1]}`,
      )
      continue
    }
    last = [before, after]
    missing(after, before)
    const found = w < wanted.edgeStart[g + 1]!
    if (found && wanted.edges[2 * w] === before && wanted.edges[2 * w + 1] === after) w++
    else if (!safety)
      sink.add(
        'L11',
        after,
        {},
        () => `the edge from ${name(before)} is not of the plan's order, or its other edges imply it`,
      )
  }
  missing(Number.POSITIVE_INFINITY, 0)
}
