import type { ArrayAllocator } from '../collections/scratch-arena.js'
import type { PlanGraph } from '../ir/plan.js'
import { Op } from './flat-commands.js'
import { Frontiers } from './frontiers.js'

/**
 * The graphs of a plan in flat arrays: graph g has the commands from[g] up to to[g], and the edges
 * edgeStart[g] up to edgeStart[g + 1]; edge e leads from command edges[2e] to command edges[2e + 1].
 */
export interface FlatGraphs {
  readonly from: Int32Array
  readonly to: Int32Array
  readonly edgeStart: Int32Array
  readonly edges: Int32Array
}

/** Ranges of commands, ascending, none of which overlap. */
export type Ranges = Pick<FlatGraphs, 'from' | 'to'>

/** Commands by what order follows from. `event`: by record and wait, a number below `events`. */
export interface OrderedCommands {
  readonly commands: number
  readonly lanes: number
  readonly events: number
  readonly op: Uint8Array
  readonly lane: Uint16Array
  readonly event: Int32Array
}

/**
 * The edges of each range: the transitive reduction of *before* (see `Frontiers`) among its runs. A path
 * between two runs of a tick passes only through commands that are issued between them, so through none
 * outside the range. Sorted by the later end, then by the earlier one.
 *
 * A run's edges come from its lane's previous run, and from each other lane of which its lane has learnt of a
 * later run since: from that lane's last known run. Such a run x is left out where another of them comes
 * after x. Work and memory are those of a replay: linear in commands, and in waits and events times lanes.
 */
export const graphEdgesOf = (
  given: OrderedCommands,
  ranges: Ranges,
  allocator: ArrayAllocator,
): FlatGraphs => {
  const { commands, op } = given
  const { from, to } = ranges
  const reduction = new Reduction(given, allocator)
  const edgeStart = new Int32Array(from.length + 1)
  let g = 0
  for (let c = 0; c < commands; c++) {
    while (g < from.length && c >= to[g]!) edgeStart[++g] = reduction.edges
    const inside = g < from.length && c >= from[g]!
    if (inside && c === from[g]) reduction.begin()
    if (op[c] === Op.run) reduction.run(c, inside)
    else if (op[c] === Op.record) reduction.record(c)
    else if (op[c] === Op.wait) reduction.wait(c)
  }
  while (g < from.length) edgeStart[++g] = reduction.edges
  return { from, to, edgeStart, edges: reduction.list() }
}

/** A replay of one tick whose points are runs only: run p of lane m is point p. */
class Reduction {
  edges = 0
  private pairs = new Int32Array(64)
  private readonly order: Frontiers
  /** By lane, its point at the start of the present range. */
  private readonly base: Int32Array
  /** Row l: the frontier of lane l at its last run, that run included. */
  private readonly atRun: Int32Array
  /** By lane, whether it has waited since its last run. */
  private readonly waited: Uint8Array
  /** By event, the row of `atRun` of its lane when it was recorded. */
  private readonly recorded: Int32Array
  /** The command of point p of lane l is runOf[start[l] + p - 1]; then the first event recorded after it. */
  private readonly start: Int32Array
  private readonly runOf: Int32Array
  private readonly eventOf: Int32Array
  /** What a run's candidates, except its lane's own, happen after. */
  private readonly joined: Int32Array

  constructor(
    private readonly given: OrderedCommands,
    allocator: ArrayAllocator,
  ) {
    const { commands, lanes, events, op, lane } = given
    this.order = new Frontiers({ lanes, events, inFlight: 1, carries: false }, allocator)
    this.order.begin()
    this.base = allocator.int32(lanes)
    this.atRun = allocator.int32(lanes * lanes)
    this.waited = allocator.uint8(lanes)
    this.recorded = allocator.int32(events * lanes)
    this.start = allocator.int32(lanes + 1)
    this.joined = allocator.int32(lanes)
    for (let c = 0; c < commands; c++) if (op[c] === Op.run) this.start[lane[c]! + 1]!++
    for (let l = 0; l < lanes; l++) this.start[l + 1]! += this.start[l]!
    this.runOf = allocator.int32(this.start[lanes]!)
    this.eventOf = allocator.int32(this.start[lanes]!)
  }

  /** Begins a range: from here on no earlier run is a node. */
  begin(): void {
    for (let l = 0; l < this.given.lanes; l++) this.base[l] = this.order.now(l)
  }

  record(c: number): void {
    const { given, order, atRun, recorded, start, eventOf } = this
    const { lanes } = given
    const event = given.event[c]!
    const l = given.lane[c]!
    if (order.marksOf(event, 0) !== undefined) return
    order.record(event, l)
    for (let m = 0; m < lanes; m++) recorded[event * lanes + m] = atRun[l * lanes + m]!
    const last = start[l]! + order.now(l) - 1
    if (order.now(l) > 0 && eventOf[last] === 0) eventOf[last] = 1 + event
  }

  wait(c: number): void {
    const l = this.given.lane[c]!
    this.order.wait(this.given.event[c]!, l, 0)
    this.waited[l] = 1
  }

  run(c: number, inside: boolean): void {
    const { given, order, atRun, waited, start, runOf, base } = this
    const l = given.lane[c]!
    const row = l * given.lanes
    const own = order.now(l)
    if (inside) {
      const ownJoined = waited[l] === 1 ? this.edgesFromOthers(c, l) : 0
      if (own > base[l]! && ownJoined < own) this.add(runOf[start[l]! + own - 1]!, c)
    }
    runOf[start[l]! + own] = c
    order.advance(l)
    if (waited[l] === 1) for (let m = 0; m < given.lanes; m++) atRun[row + m] = order.known[row + m]!
    else atRun[row + l] = own + 1
    waited[l] = 0
  }

  /** The edges of run c from other lanes; returns the last run of its own lane that these come after. */
  private edgesFromOthers(c: number, l: number): number {
    const { given, order, base, atRun, recorded, start, runOf, eventOf, joined } = this
    const { lanes } = given
    const isCandidate = (m: number): boolean => {
      const known = order.known[l * lanes + m]!
      return m !== l && known > base[m]! && known > atRun[l * lanes + m]!
    }
    joined.fill(0)
    for (let m = 0; m < lanes; m++) {
      if (!isCandidate(m)) continue
      const point = order.known[l * lanes + m]!
      // Only a record between that run and the next one of its lane can have told of it.
      const snapshot = (eventOf[start[m]! + point - 1]! - 1) * lanes
      for (let k = 0; k < lanes; k++) {
        const after = k === m ? point - 1 : recorded[snapshot + k]!
        if (after > joined[k]!) joined[k] = after
      }
    }
    for (let m = 0; m < lanes; m++) {
      const point = order.known[l * lanes + m]!
      if (isCandidate(m) && joined[m]! < point) this.add(runOf[start[m]! + point - 1]!, c)
    }
    return joined[l]!
  }

  /** Adds an edge, in order among those that lead to `after`. */
  private add(before: number, after: number): void {
    if (2 * this.edges === this.pairs.length) {
      const longer = new Int32Array(2 * this.pairs.length)
      longer.set(this.pairs)
      this.pairs = longer
    }
    const { pairs } = this
    let at = this.edges++
    for (; at > 0 && pairs[2 * at - 1] === after && pairs[2 * at - 2]! > before; at--) {
      pairs[2 * at] = pairs[2 * at - 2]!
      pairs[2 * at + 1] = after
    }
    pairs[2 * at] = before
    pairs[2 * at + 1] = after
  }

  list(): Int32Array {
    return this.pairs.slice(0, 2 * this.edges)
  }
}

/** Flat graphs as lists, frozen through and through. */
export const graphLists = ({ from, to, edgeStart, edges }: FlatGraphs): readonly PlanGraph[] =>
  Object.freeze(
    Array.from(from, (begin, g) => {
      const first = edgeStart[g]!
      const pairs = Array.from({ length: edgeStart[g + 1]! - first }, (_, e) =>
        Object.freeze([edges[2 * (first + e)]!, edges[2 * (first + e) + 1]!] as const),
      )
      return Object.freeze({ from: begin, to: to[g]!, edges: Object.freeze(pairs) })
    }),
  )

/** Graphs of any origin; what is no number becomes -1, which is no command. */
export const flatGraphsFrom = (graphs: readonly PlanGraph[]): FlatGraphs => {
  const whole = (value: unknown): number =>
    typeof value === 'number' && value >>> 0 === value && value < 2 ** 31 ? value : -1
  const count = graphs.reduce((sum, { edges }) => sum + edges.length, 0)
  const edgeStart = new Int32Array(graphs.length + 1)
  const edges = new Int32Array(2 * count)
  let next = 0
  graphs.forEach((graph, g) => {
    for (const edge of graph.edges) {
      edges[2 * next] = whole(edge?.[0])
      edges[2 * next++ + 1] = whole(edge?.[1])
    }
    edgeStart[g + 1] = next
  })
  const ends = (key: 'from' | 'to') => Int32Array.from(graphs, graph => whole(graph[key]))
  return { from: ends('from'), to: ends('to'), edgeStart, edges }
}
