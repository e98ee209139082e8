import type { Hazards } from '../../analysis/hazards.js'
import type { Waits } from '../../analysis/ir.js'

// The reduction of `synchronize` has one point an operation, and that is all that most graphs need. With
// starts there are two, and whether a start is a point at all depends on the waits found so far: that costs
// twice the clocks and a sorted list for every operation, so it is done only in graphs with such an edge.

/**
 * As `reduce`, for graphs in which some operation waits for the start of another. A start is a point of its
 * own only where the operation waits for something; else it is the end of the operation before it on its lane
 * (of the tick before, for the lane's first operation; `overlap`: ticks overlap, so that this order is not
 * given anyway). Points are partially ordered again, so the transitive reduction is unique again: an end
 * happens after its start, so a lane that knows of the end needs no wait for the start.
 *
 * Clocks count half operations here: the start of the operation at position p of its lane is 2p + 1, its end
 * 2p + 2. An *entry* is such a point by issue order, so that the latest is the largest: 2i is the start of
 * operation i, 2i + 1 its end, and entries of the tick before lie 2 · count lower.
 */
export const reduceWithStarts = (
  laneOf: Int32Array,
  lanes: number,
  hazards: Hazards,
  starts: ReadonlyMap<number, readonly number[]>,
  overlap: boolean,
): Waits & { readonly begins: Uint8Array } => {
  const count = laneOf.length
  const lengths = new Int32Array(lanes)
  const position = laneOf.map(lane => lengths[lane]!++)
  const last = new Int32Array(lanes).fill(-1)
  const previous = new Int32Array(count)
  for (let i = 0; i < count; i++) {
    previous[i] = last[laneOf[i]!]!
    last[laneOf[i]!] = i
  }
  const waitStart = new Int32Array(count + 1)
  /** The entry of an operation's start; undefined: it starts before anything can wait for it. */
  const startOf = (i: number): number | undefined => {
    if (waitStart[i + 1]! > waitStart[i]!) return 2 * i
    if (previous[i]! >= 0) return 2 * previous[i]! + 1
    return overlap ? 2 * last[laneOf[i]!]! + 1 - 2 * count : undefined
  }
  const entriesOf = (i: number): number[] => {
    const entries: number[] = []
    for (let e = hazards.start[i]!; e < hazards.start[i + 1]!; e++) {
      const on = hazards.on[e]!
      entries.push(on < 0 ? 2 * (-1 - on) + 1 - 2 * count : 2 * on + 1)
    }
    for (const earlier of starts.get(i) ?? []) {
      const start = startOf(earlier)
      if (start !== undefined) entries.push(start)
    }
    return entries.sort((a, b) => b - a)
  }
  let waitOn: number[] = []
  let waitTick: number[] = []
  let begins: number[] = []
  let entering = new Int32Array(lanes * lanes).map((_, at) => -2 * lengths[at % lanes]!)
  let before: Int32Array | undefined
  const reachesBack = overlap || hazards.on.some(entry => entry < 0)
  for (let tick = reachesBack ? 0 : 1; ; tick++) {
    const clocks = new Int32Array(count * lanes)
    waitOn = []
    waitTick = []
    begins = []
    for (let i = 0; i < count; i++) {
      const lane = laneOf[i]!
      const row = i * lanes
      for (let m = 0; m < lanes; m++)
        clocks[row + m] = previous[i]! < 0 ? entering[lane * lanes + m]! : clocks[previous[i]! * lanes + m]!
      for (const entry of entriesOf(i)) {
        const carried = entry < 0
        if (carried && before === undefined) continue
        const point = carried ? entry + 2 * count : entry
        const earlier = point >> 1
        const other = laneOf[earlier]!
        if (other === lane) continue
        const own = 2 * position[earlier]! + 1 + (point & 1)
        if (clocks[row + other]! >= own - (carried ? 2 * lengths[other]! : 0)) continue
        waitOn.push(earlier)
        waitTick.push(carried ? -1 : 0)
        begins.push(1 - (point & 1))
        const clock = carried ? before! : clocks
        for (let m = 0; m < lanes; m++) {
          const known = (m === other ? own : clock[earlier * lanes + m]!) - (carried ? 2 * lengths[m]! : 0)
          if (known > clocks[row + m]!) clocks[row + m] = known
        }
      }
      clocks[row + lane] = 2 * position[i]! + 2
      waitStart[i + 1] = waitOn.length
    }
    if (tick === 1)
      return {
        position,
        clocks: clocks.map(known => known >> 1),
        waitStart,
        waitOn: Int32Array.from(waitOn),
        waitTick: Int8Array.from(waitTick),
        begins: Uint8Array.from(begins),
      }
    before = clocks
    entering = entering.map((known, at) => {
      const end = last[Math.floor(at / lanes)]!
      return (end < 0 ? known : clocks[end * lanes + (at % lanes)]!) - 2 * lengths[at % lanes]!
    })
  }
}
