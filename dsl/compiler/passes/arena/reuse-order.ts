import { IntervalMap } from '../../../collections/interval-map.js'
import type { Arena, Ordered, Synchronized, WindowEdge } from '../../analysis/ir.js'
import type { LiveRanges } from '../../analysis/live-ranges.js'
import { ticksMeet } from '../../analysis/options.js'

/**
 * A place in an arena begins at a multiple of this and is as long as one: every kernel and copy accepts such
 * addresses.
 */
export const alignment = 512

export const aligned = (bytes: number): number => Math.ceil(bytes / alignment) * alignment

/**
 * Decides by the clocks of operations which live ranges may have the same bytes: one may follow another where
 * every last access of the other is before its own first access (in issue order is not enough), and where its
 * own last accesses are before the other's first access a tick later.
 */
export class ReuseOrder {
  readonly lanes: number
  readonly operations: number
  /** By lane, how many operations it has. */
  readonly lengths: Int32Array
  /** Operations of lane m: `onLane[laneStart[m] .. laneStart[m + 1]]`. */
  private readonly laneStart: Int32Array
  private readonly onLane: Int32Array
  private readonly counts: Int32Array

  constructor(
    private readonly ir: Synchronized,
    private readonly ranges: LiveRanges,
  ) {
    this.lanes = ir.lanes.length
    this.operations = ir.operations.length
    this.lengths = new Int32Array(this.lanes)
    for (const lane of ir.laneOf) this.lengths[lane]!++
    this.laneStart = new Int32Array(this.lanes + 1)
    for (let m = 0; m < this.lanes; m++) this.laneStart[m + 1] = this.laneStart[m]! + this.lengths[m]!
    this.onLane = new Int32Array(this.operations)
    ir.laneOf.forEach((lane, i) => {
      this.onLane[this.laneStart[lane]! + ir.position[i]!] = i
    })
    this.counts = new Int32Array(this.lanes)
  }

  /**
   * Visits by lane the operations, as stretches of places on it, that are issued before operation i and not
   * known to be done when it begins; and those of the tick before of which that is not known.
   */
  eachOpen(i: number, visit: (lane: number, from: number, to: number) => void): void {
    const { counts, lanes, lengths } = this
    this.before(i, counts)
    for (let m = 0; m < lanes; m++)
      if (counts[m]! < lengths[m]!) visit(m, counts[m]!, this.issuedBefore(i, m) - 1)
    this.beforeInLastTick(i, counts)
    for (let m = 0; m < lanes; m++) if (counts[m]! < lengths[m]!) visit(m, counts[m]!, lengths[m]! - 1)
  }

  /** How many operations of a lane are issued before operation i. */
  private issuedBefore(i: number, lane: number): number {
    const { onLane, laneStart } = this
    let low = laneStart[lane]!
    for (let high = laneStart[lane + 1]!; low < high; ) {
      const middle = (low + high) >> 1
      if (onLane[middle]! < i) low = middle + 1
      else high = middle
    }
    return low - laneStart[lane]!
  }

  /** Visits by lane the place on it of range k's last access there. */
  eachEnd(k: number, visit: (lane: number, at: number) => void): void {
    const { laneOf, position } = this.ir
    const { start, lastOn } = this.ranges
    for (let a = start[k]!; a < start[k + 1]!; a++) visit(laneOf[lastOn[a]!]!, position[lastOn[a]!]!)
  }

  /** By lane, how many of its operations are done before operation i begins. */
  before(i: number, into: Int32Array): void {
    const { clocks, laneOf, position } = this.ir
    const at = i * this.lanes
    for (let m = 0; m < this.lanes; m++) into[m] = Math.max(0, clocks[at + m]!)
    into[laneOf[i]!] = position[i]!
  }

  /**
   * By lane, how many of its operations of the tick before are done before operation i of this tick begins.
   */
  beforeInLastTick(i: number, into: Int32Array): void {
    const { clocks, laneOf, settings } = this.ir
    const at = i * this.lanes
    for (let m = 0; m < this.lanes; m++)
      into[m] = !ticksMeet(settings) ? this.lengths[m]! : Math.max(0, clocks[at + m]! + this.lengths[m]!)
    into[laneOf[i]!] = this.lengths[laneOf[i]!]!
  }

  /** By lane, how many of its operations must be done until the last accesses of range k are. */
  end(k: number, into: Int32Array): void {
    into.fill(0)
    this.eachEnd(k, (lane, at) => {
      into[lane] = at + 1
    })
  }
}

/**
 * Range `later` has bytes that range `earlier` had right before it: in this tick (0), or in the one before
 * (-1).
 */
type Visit = (later: number, earlier: number, tick: 0 | -1) => void

/**
 * Visits every two ranges of one arena of which one has a byte right after the other; `members` are in order
 * of first access.
 */
const eachReuse = (members: Int32Array, from: Float64Array, to: Float64Array, visit: Visit): void => {
  const cuts = Float64Array.from(new Set([...from, ...to])).sort()
  const index = new Map<number, number>()
  cuts.forEach((cut, i) => {
    index.set(cut, i)
  })
  const intervals = new IntervalMap(cuts.length)
  // In the second tick every byte has had an owner: of that tick if the owner comes before, else of the tick
  // before.
  for (const tick of [0, 1])
    members.forEach((k, i) => {
      intervals.claim(index.get(from[i]!)!, index.get(to[i]!)!, k, earlier => {
        if (tick === 0) visit(k, earlier, 0)
        else if (earlier >= k) visit(k, earlier, -1)
      })
    })
}

/**
 * The order between lanes that the places in an arena need: a first access is after all last accesses of the
 * ranges that had its bytes right before, also those of the tick before. Any other two ranges that share a
 * byte follow.
 */
export const reuseEdges = (
  { laneOf, buffers, settings }: Ordered,
  { buffer, first, start, lastOn }: LiveRanges,
  { offset, members }: Arena & { readonly members: readonly Int32Array[] },
): WindowEdge[] => {
  const edges: WindowEdge[] = []
  const visit: Visit = (later, earlier, tick) => {
    if (tick === -1 && !ticksMeet(settings)) return
    for (let a = start[earlier]!; a < start[earlier + 1]!; a++)
      if (laneOf[lastOn[a]!] !== laneOf[first[later]!])
        edges.push({ later: first[later]!, earlier: lastOn[a]!, tick })
  }
  for (const own of members) {
    const from = Float64Array.from(own, k => offset[buffer[k]!]!)
    const to = from.map((at, i) => at + aligned(buffers[buffer[own[i]!]!]!.bytes))
    eachReuse(own, from, to, visit)
  }
  return edges
}

/**
 * Orders each range's first access after its own last accesses of the tick before, so that one place is
 * enough for it, whichever ranges use the bytes in between.
 */
export const returnEdges = (
  { settings }: Ordered,
  { first, start, lastOn }: LiveRanges,
  includes: (k: number) => boolean,
): WindowEdge[] => {
  const edges: WindowEdge[] = []
  if (!ticksMeet(settings)) return edges
  for (let k = 0; k < first.length; k++)
    if (includes(k))
      for (let a = start[k]!; a < start[k + 1]!; a++)
        edges.push({ later: first[k]!, earlier: lastOn[a]!, tick: -1 })
  return edges
}
