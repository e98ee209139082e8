import { BitSets } from '../collections/bit-sets.js'
import { type ArrayAllocator, withScratchArena } from '../collections/scratch-arena.js'
import { readinessOf } from './readiness.js'
import { SteadyState } from './steady-state.js'
import { type AllocationTrace, When } from './trace.js'

/** How far one memory grows. */
export interface Growth {
  readonly bytes: number
  /** Ticks until the steady state, as far as they were replayed. */
  readonly ticks: number
  /**
   * Whether `bytes` is the peak itself. Else it is what the replayed ticks hold: the work limit came first,
   * or it is beyond `enough`.
   */
  readonly exact: boolean
  /** The alloc command that first took the memory to its peak; -1: no alloc did. */
  readonly reachedAt: number
}

export interface Limits {
  /** Ticks that are replayed at most. */
  readonly ticks: number
  /** Freed chunks times lanes that are looked at, at most. */
  readonly work: number
  /**
   * Where only the question is whether the peak is beyond this many bytes: the replay stops as soon as that
   * is known.
   */
  readonly enough?: number | undefined
  /** Called where the replay stops beyond `enough`. The state is valid during the call only. */
  readonly stopped?: ((at: ReplayState) => void) | undefined
}

/**
 * Where a replay stands: its tick, its event, and the bytes that are left of free f of tick t, in `left[(t %
 * inFlight) · frees + f]`.
 */
export interface ReplayState {
  readonly tick: number
  readonly event: number
  readonly left: Float64Array
}

/** Chunks times lanes beyond which nothing is replayed. */
const maxSlots = 2 ** 25

/**
 * L9's count of bytes, for plans without a `boundKind`: it holds for any allocator, since it says nothing of
 * where bytes lie. The range pool is the session's own allocator, and counts whole ranges at addresses: so a
 * chunk here may be taken in part by any lane, and a range there may not, and the two replays share no loop.
 *
 * Replays it for one memory over many ticks: an allocation takes freed bytes whose every access is before
 * the present point of its lane, oldest free first, in part where that is enough; what is missing grows the
 * memory, from `fixed` bytes on.
 *
 * A chunk is what one free of one tick gave back. `Readiness` says when it is ready for a lane. `inFlight`
 * ticks later it is ready for every lane, and older than all chunks that are not: then only the sum of such
 * chunks counts. So there are at most inFlight · frees chunks.
 */
export const growthOf = (trace: AllocationTrace, fixed: number, limits: Limits): Growth =>
  withScratchArena(allocator => replay(trace, fixed, limits, allocator))

const replay = (trace: AllocationTrace, fixed: number, limits: Limits, allocator: ArrayAllocator): Growth => {
  const { event, when, command, inFlight, allocs, allocLane, allocBytes, frees, freeBytes, lanes } = trace
  if (allocs === 0) return { bytes: fixed, ticks: 1, exact: true, reachedAt: -1 }
  const { enough } = limits
  if (inFlight * lanes * frees > maxSlots) return { bytes: fixed, ticks: 0, exact: false, reachedAt: -1 }

  const { row, head, next, later } = readinessOf(trace, allocator)
  /** By tick, modulo inFlight, and lane: the frees that are ready for the lane. */
  const sets = new BitSets(inFlight * lanes, frees)
  const left = allocator.float64(inFlight * frees)
  const state = new SteadyState()
  /** Bytes that are ready for every lane. */
  let common = 0
  let peak = fixed
  let reachedAt = -1
  let work = 0
  let tick = 0
  for (; tick < limits.ticks && work <= limits.work; tick++) {
    const present = tick % inFlight
    if (tick >= inFlight) {
      for (let f = 0; f < frees; f++) common += left[present * frees + f]!
      left.fill(0, present * frees, (present + 1) * frees)
      for (let l = 0; l < lanes; l++) sets.clear(present * lanes + l)
      // What lanes know is the same in every tick from here on, so what is free decides all that follows.
      state.begin()
      state.put(common)
      for (let age = inFlight - 1; age > 0; age--) {
        const from = ((tick - age) % inFlight) * frees
        for (let f = 0; f < frees; f++) {
          if (left[from + f] === 0) continue
          state.put(age * frees + f)
          state.put(left[from + f]!)
        }
      }
      if (state.isReached()) return { bytes: peak, ticks: tick, exact: true, reachedAt }
    }
    for (let e = 0; e < event.length; e++) {
      const a = event[e]!
      if (a < 0) {
        const f = -1 - a
        if (tick > 0 || when[e] !== When.laterTicks) left[present * frees + f] = freeBytes[f]!
        continue
      }
      const lane = allocLane[a]!
      const base = row[lane]! * frees
      for (let f = head[a]!; f >= 0; f = next[base + f]!) {
        const age = later[base + f]!
        const slot = (tick - age + inFlight) % inFlight
        if (age <= tick && left[slot * frees + f]! > 0) sets.add(slot * lanes + lane, f)
        work++
      }
      work++
      if (when[e] === When.firstTick && tick > 0) continue
      let wanted = allocBytes[a]!
      const part = Math.min(common, wanted)
      common -= part
      wanted -= part
      for (let age = Math.min(tick, inFlight - 1); age >= 0 && wanted > 0; age--) {
        const slot = (tick - age) % inFlight
        const set = slot * lanes + lane
        for (let f = sets.least(set); f >= 0 && wanted > 0; f = sets.least(set)) {
          // Nothing is left of it where another lane has taken it.
          const part = Math.min(wanted, left[slot * frees + f]!)
          wanted -= part
          if ((left[slot * frees + f]! -= part) === 0) sets.remove(set, f)
          work++
        }
      }
      if (wanted === 0) continue
      peak += wanted
      reachedAt = command[e]!
      if (enough === undefined || peak <= enough) continue
      limits.stopped?.({ tick, event: e, left })
      return { bytes: peak, ticks: tick, exact: false, reachedAt }
    }
  }
  return { bytes: peak, ticks: tick, exact: false, reachedAt }
}
