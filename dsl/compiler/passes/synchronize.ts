import * as E from 'fp-ts/lib/Either.js'
import { type ArrayAllocator, heap, withScratchArena } from '../../collections/scratch-arena.js'
import { startsOf } from '../analysis/control-edges.js'
import { type Hazards, hazardsOf } from '../analysis/hazards.js'
import type { CollectiveEdge, Ordered, Synchronized, Waits } from '../analysis/ir.js'
import { ticksMeet } from '../analysis/options.js'
import { type Passed, pass } from '../analysis/pass.js'
import { reduceWithStarts } from './synchronize/starts.js'

//   run a on copy · run b on math, reads a · run c on math, reads a
//   → run a on copy · math waits for a · run b · run c        (c is in order by the wait of b)
//
// The clocks here are not `dsl/order`'s Frontiers. Those replay waits and events that a plan has; here any
// operation may still become one that is waited for, so every operation keeps a clock of its own, and later
// passes read them all. And those count waits as points of a lane, while here waits are still to be found, so
// operations alone are counted.
//
// After this pass every hazard across lanes, and every order that collectives or the user ask for, is kept by
// the fewest waits that there can be.

/**
 * `position[i]`: how many operations of its lane come before operation i. `lengths`: operations of each lane.
 */
const positions = (laneOf: Int32Array, lanes: number): { position: Int32Array; lengths: Int32Array } => {
  const lengths = new Int32Array(lanes)
  const position = heap.int32(laneOf.length)
  for (let i = 0; i < laneOf.length; i++) position[i] = lengths[laneOf[i]!]!++
  return { position, lengths }
}

const reachesBack = (on: Int32Array): boolean => {
  for (let e = 0; e < on.length; e++) if (on[e]! < 0) return true
  return false
}

/** The first `length` items, in memory of their own. */
const copied = <A extends Int32Array | Int8Array>(from: A, length: number, to: A): A => {
  to.set(from.subarray(0, length))
  return to
}

/**
 * The fewest waits that order every hazard, given lanes and issue order: the transitive reduction, which is
 * unique. A clock holds for each lane how many of its operations are known to be done; operations of the tick
 * before count from -(length of the lane) to 0. Hazards are examined latest first: one that the lane's clock
 * dominates needs no wait, any other gets a wait, which joins the clock of the operation that it waits for.
 *
 * A path from the tick before to this tick lies within these two. So two ticks are played: the first finds
 * what each lane knows when it ends, the second begins there and finds the waits of every tick. Where ticks
 * are `apart`, each has lanes of its own: a lane knows nothing of the tick before but by a wait.
 */
export const reduce = (laneOf: Int32Array, lanes: number, hazards: Hazards, apart = false): Waits =>
  withScratchArena(allocator => reduced(laneOf, lanes, hazards, apart, allocator))

/** Joins row `from` of some clocks into row `to`, with `less` taken from each. */
const join = (
  to: Int32Array,
  row: number,
  clocks: Int32Array,
  from: number,
  less: Int32Array | undefined,
  lanes: number,
): void => {
  for (let m = 0; m < lanes; m++) {
    const known = clocks[from + m]! - (less === undefined ? 0 : less[m]!)
    if (known > to[row + m]!) to[row + m] = known
  }
}

const reduced = (
  laneOf: Int32Array,
  lanes: number,
  { start, on }: Hazards,
  apart: boolean,
  allocator: ArrayAllocator,
): Waits => {
  const count = laneOf.length
  const { position, lengths } = positions(laneOf, lanes)
  const waitStart = heap.int32(count + 1)
  const waitOn = allocator.int32(on.length)
  const waitTick = allocator.int8(on.length)
  // What each lane knows when a tick begins; before the first tick nothing.
  let entering = new Int32Array(lanes * lanes)
  for (let l = 0; l < lanes; l++) for (let m = 0; m < lanes; m++) entering[l * lanes + m] = -lengths[m]!
  let before: Int32Array | undefined
  const carries = reachesBack(on)
  // Of ticks that are apart: what is known of the tick before, counted from its first operation on.
  const past = apart && carries ? allocator.int32(count * lanes) : undefined
  for (let tick = carries ? 0 : 1; ; tick++) {
    const clocks = (tick === 0 ? allocator : heap).int32(count * lanes)
    const latest = new Int32Array(lanes).fill(-1)
    let waits = 0
    for (let i = 0; i < count; i++) {
      const lane = laneOf[i]!
      const row = i * lanes
      const previous = latest[lane]!
      latest[lane] = i
      if (previous < 0) for (let m = 0; m < lanes; m++) clocks[row + m] = entering[lane * lanes + m]!
      else for (let m = 0, from = previous * lanes; m < lanes; m++) clocks[row + m] = clocks[from + m]!
      if (past !== undefined && previous >= 0) past.copyWithin(row, previous * lanes, (previous + 1) * lanes)
      for (let e = start[i]!; e < start[i + 1]!; e++) {
        const entry = on[e]!
        const carried = entry < 0
        if (carried && before === undefined) continue
        const earlier = carried ? -1 - entry : entry
        const other = laneOf[earlier]!
        const isApart = carried && past !== undefined
        if (other === lane && !isApart) continue
        const done = position[earlier]! + 1 - (carried && !isApart ? lengths[other]! : 0)
        if ((isApart ? past : clocks)[row + other]! >= done) continue
        waitOn[waits] = earlier
        waitTick[waits++] = carried ? -1 : 0
        const from = earlier * lanes
        if (isApart) join(past, row, before!, from, undefined, lanes)
        else if (carried) join(clocks, row, before!, from, lengths, lanes)
        else {
          join(clocks, row, clocks, from, undefined, lanes)
          if (past !== undefined) join(past, row, past, from, undefined, lanes)
        }
      }
      clocks[row + lane] = position[i]! + 1
      waitStart[i + 1] = waits
    }
    if (tick === 1)
      return {
        position,
        clocks,
        waitStart,
        waitOn: copied(waitOn, waits, heap.int32(waits)),
        waitTick: copied(waitTick, waits, heap.int8(waits)),
      }
    before = clocks
    past?.fill(0)
    if (past === undefined)
      entering = entering.map((known, at) => {
        const last = latest[Math.floor(at / lanes)]!
        return (last < 0 ? known : clocks[last * lanes + (at % lanes)]!) - lengths[at % lanes]!
      })
  }
}

const waitsOf = (ir: Ordered, allocator: ArrayAllocator): Waits & Pick<Synchronized, 'begins'> => {
  const { laneOf, lanes, settings } = ir
  const hazards = hazardsOf(ir, allocator)
  const starts = startsOf(ir)
  return starts === undefined
    ? reduce(laneOf, lanes.length, hazards, settings.arenas > 1)
    : reduceWithStarts(laneOf, lanes.length, hazards, starts, ticksMeet(settings))
}

const isWait = (
  { waitStart, waitOn, waitTick, begins }: Waits & Pick<Synchronized, 'begins'>,
  { later, earlier, tick }: CollectiveEdge,
): boolean => {
  for (let w = waitStart[later]!; w < waitStart[later + 1]!; w++)
    if (waitOn[w] === earlier && waitTick[w] === tick && begins?.[w] !== 1) return true
  return false
}

/**
 * The order of calls over one communicator is kept without waits. It orders collectives, but no memory. So
 * the edges of collectives are reduced together with it first; those that are left are then reduced with all
 * hazards.
 */
const withReducedEdges = (ir: Ordered, allocator: ArrayAllocator): Ordered => {
  const { collectiveEdges: orderingEdges = [] } = ir
  if (!orderingEdges.some(({ sameCommunicator: own }) => own)) return ir
  const whole = waitsOf(ir, allocator)
  return {
    ...ir,
    collectiveEdges: orderingEdges.filter(edge => !edge.sameCommunicator && isWait(whole, edge)),
  }
}

export const synchronize = pass(
  'synchronize',
  (ir: Ordered): Passed<Synchronized> =>
    withScratchArena(allocator => E.right({ ...ir, ...waitsOf(withReducedEdges(ir, allocator), allocator) })),
)
