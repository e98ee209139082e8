import { Bits } from '../order/bits.js'
import { type ArrayAllocator, withScratchArena } from '../order/scratch-arena.js'
import { readinessOf, type Unavailable, unavailable } from './ready.js'
import { Snapshots } from './snapshots.js'
import { type Turnover, When } from './turnover.js'

export interface Growth {
  readonly bytes: number
  readonly ticks: number
  /** Whether `bytes` is the peak itself, or else one that is proved not to be exceeded, where the limits came first. */
  readonly exact: boolean
  /** The alloc's command that first took the memory there, as far as it was replayed; -1: none. */
  readonly reachedAt: number
}

export interface Limits {
  /** Ticks that are replayed at most. */
  readonly ticks: number
  /** Chunks and lanes that are looked at, at most. */
  readonly work: number
  /** All that is asked is whether the peak is beyond this: the replay stops when that is known. */
  readonly enough?: number | undefined
  /** Told where the replay stopped beyond `enough`: what is free then, and of which free of which tick. Holds for the time of the call. */
  readonly stopped?: ((at: Standing) => void) | undefined
}

/** Where a replay stands: in which tick, at which event, with the free bytes left of free f of tick t in `left[(t % inFlight) · frees + f]`. */
export interface Standing {
  readonly tick: number
  readonly event: number
  readonly left: Float64Array
}

/** Slots of chunks times lanes beyond which nothing is replayed. */
const maxSlots = 2 ** 25

/**
 * One memory over many ticks, as L9 says: an allocation takes freed bytes whose every access is before the present point of its lane, oldest free
 * first, in part where that is enough; what is missing grows the peak.
 *
 * A chunk is what one free of one tick gave back. It is ready for a lane when `Readiness` says so, which is the same in every tick; `inFlight` ticks later it
 * is ready for all, and older than what is not: then only the sum of such chunks counts. So there are never more than inFlight · frees of them.
 */
export const growthOf = (turnover: Turnover, fixed: number, limits: Limits): Growth =>
  withScratchArena(room => grown(turnover, fixed, limits, room))

const grown = (turnover: Turnover, fixed: number, limits: Limits, room: ArrayAllocator): Growth => {
  const { event, when, command, inFlight, allocs, allocLane, allocBytes, frees, freeBytes, lanes } = turnover
  if (allocs === 0) return { bytes: fixed, ticks: 1, exact: true, reachedAt: -1 }
  const { enough } = limits
  let known: Unavailable | undefined
  const proof = (): Unavailable => {
    known ??= withScratchArena(own => unavailable(turnover, own))
    return known
  }
  const prove = (): number => fixed + proof().bytes
  // No state can recur before it has been there inFlight + 1 ticks long: where so many are beyond the limit, none is played.
  const least = (inFlight + 1) * allocs
  const isHopeless = (): boolean =>
    least * (1 + lanes) > limits.work && least + (inFlight + 1) * proof().ready > limits.work
  if (enough === undefined ? isHopeless() : prove() <= enough)
    return { bytes: prove(), ticks: 0, exact: false, reachedAt: -1 }
  if (inFlight * lanes * frees > maxSlots) return { bytes: prove(), ticks: 0, exact: false, reachedAt: -1 }

  const { row, head, next, later } = readinessOf(turnover, room)
  const sets = new Bits(inFlight * lanes, frees)
  const left = room.float64(inFlight * frees)
  const snapshots = new Snapshots()
  let common = 0
  let peak = fixed
  let reachedAt = -1
  let work = 0
  let tick = 0
  for (; tick < limits.ticks && work <= limits.work; tick++) {
    const present = tick % inFlight
    if (tick >= inFlight) {
      // What the tick inFlight ago left is ready for every lane, and the oldest there is.
      for (let f = 0; f < frees; f++) common += left[present * frees + f]!
      left.fill(0, present * frees, (present + 1) * frees)
      for (let l = 0; l < lanes; l++) sets.clear(present * lanes + l)
      // From here on what lanes know is the same in every tick, so the rest follows from what lies free. Met once more, it repeats for ever.
      snapshots.begin()
      snapshots.put(common)
      for (let age = inFlight - 1; age > 0; age--) {
        const from = ((tick - age) % inFlight) * frees
        for (let f = 0; f < frees; f++) {
          if (left[from + f] === 0) continue
          snapshots.put(age * frees + f)
          snapshots.put(left[from + f]!)
        }
      }
      if (snapshots.met()) return { bytes: peak, ticks: tick, exact: true, reachedAt }
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
  return { bytes: prove(), ticks: tick, exact: false, reachedAt }
}
