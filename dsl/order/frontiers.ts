import { type ArrayAllocator, heap } from '../collections/scratch-arena.js'

/** The number of lanes, of events, and of ticks in flight of a replay. */
export interface FrontiersOf {
  readonly lanes: number
  readonly events: number
  readonly inFlight: number
  /** Whether some wait is for an event of the tick before. */
  readonly carries: boolean
  /** Whether ticks in flight have lanes of their own, as they have with several arenas. */
  readonly ownLanes?: boolean
}

/**
 * *Happens-before*, the one mechanism that decides it: each lane's frontier while ticks are issued. A point
 * is one run or one wait of a lane, numbered from 1 on and never restarted. Row l of `known` is the frontier
 * of lane l: point p of lane m happens before whatever lane l issues next exactly where known[l · lanes + m]
 * >= p. The relation has four causes:
 *
 *   1. a lane runs its commands in order: known[l][l] counts its own points. With `ownLanes`, a lane
 *      of the plan is two lanes here, of the even and of the odd ticks, so it orders no tick after the one
 *      before. (It still orders tick t after t - 2, which no law asks about.)
 *   2. a wait joins the frontier that the event's lane had at the record, of this tick or of the tick before;
 *   3. the host issues tick t only when tick t - inFlight has completed: `begin` joins that tick's ends into
 *      every lane;
 *   4. nothing else.
 *
 * An order between ticks t <= t' also holds between t + 1 and t' + 1: an edge leads from a tick to itself or
 * a later one, so a path between the two passes through t … t' alone, and each edge is repeated one tick
 * later. So two ticks decide every law that compares a tick with itself or with the one before. From
 * tick `inFlight` - 1 on the frontiers are in steady state: counted from the tick's first points, they are
 * the same in every tick.
 */
export class Frontiers {
  readonly known: Int32Array
  /** The points of each lane at the start of the present tick. */
  readonly base: Int32Array
  readonly lanes: number
  readonly inFlight: number
  /** What is added to a lane of the plan for its lane in the present tick; 0 without `ownLanes`. */
  protected shift = 0
  /** The lanes of a tick where ticks have their own; else 0. */
  private readonly ownLanes: number
  /**
   * By parity of the tick: each event's frontier at its record, a row an event; and 1 + the tick of that
   * record.
   */
  private readonly marks: readonly [Int32Array, Int32Array]
  private readonly recorded: readonly [Int32Array, Int32Array]
  /** By tick, the points of each lane at its end. */
  private readonly ends: Int32Array[] = []
  tick = -1

  constructor(of: FrontiersOf, allocator: ArrayAllocator = heap) {
    const { events, inFlight, carries, ownLanes = false } = of
    const lanes = ownLanes ? 2 * of.lanes : of.lanes
    this.lanes = lanes
    this.ownLanes = ownLanes ? of.lanes : 0
    this.inFlight = inFlight
    this.known = allocator.int32(lanes * lanes)
    this.base = allocator.int32(lanes)
    // Where no wait is for the tick before, both parities share a table.
    const marks = allocator.int32(events * lanes)
    const recorded = allocator.int32(events)
    this.marks = [marks, carries ? allocator.int32(events * lanes) : marks]
    this.recorded = [recorded, carries ? allocator.int32(events) : recorded]
  }

  /** Forgets every tick. */
  restart(): void {
    this.tick = -1
    this.ends.length = 0
    this.known.fill(0)
    this.recorded[0].fill(0)
    this.recorded[1].fill(0)
  }

  /** Starts the next tick. */
  begin(): void {
    const { known, base, lanes } = this
    for (let l = 0; l < lanes; l++) base[l] = known[l * lanes + l]!
    if (this.tick >= 0) this.ends.push(base.slice())
    this.tick++
    this.shift = (this.tick & 1) * this.ownLanes
    const done = this.ends[this.tick - this.inFlight]
    if (done === undefined) return
    for (let l = 0; l < lanes; l++) this.join(l, done, 0)
  }

  /** The lane issues a run or a wait: its new point. */
  advance(l: number): number {
    return ++this.known[l * (this.lanes + 1)]!
  }

  /** The latest point of lane l. */
  now(l: number): number {
    return this.known[l * (this.lanes + 1)]!
  }

  /** The event marks the present frontier of lane l. */
  record(event: number, l: number): void {
    const { lanes, known } = this
    const parity = (this.tick & 1) as 0 | 1
    const marks = this.marks[parity]
    const from = l * lanes
    const to = event * lanes
    for (let m = 0; m < lanes; m++) marks[to + m] = known[from + m]!
    this.recorded[parity][event] = this.tick + 1
  }

  /**
   * Lane l waits for the event as recorded `distance` ticks ago: it joins that frontier, where there is one.
   */
  wait(event: number, l: number, distance: 0 | 1): void {
    const marks = this.marksOf(event, distance)
    if (marks !== undefined) this.join(l, marks, event * this.lanes)
  }

  /** Lane l comes after everything in the frontier `from[start ..]`. */
  join(l: number, from: Int32Array, start: number): void {
    const { known, lanes } = this
    const at = l * lanes
    for (let m = 0; m < lanes; m++) {
      const point = from[start + m]!
      if (point > known[at + m]!) known[at + m] = point
    }
  }

  /**
   * The table in which the event's frontier stands (at event · lanes), as recorded `distance` ticks ago;
   * undefined: it was not recorded then.
   */
  marksOf(event: number, distance: 0 | 1): Int32Array | undefined {
    const tick = this.tick - distance
    const parity = (tick & 1) as 0 | 1
    return tick >= 0 && this.recorded[parity][event] === tick + 1 ? this.marks[parity] : undefined
  }

  /** Does point p of lane m happen before whatever lane l issues next? */
  isBefore(l: number, m: number, p: number): boolean {
    return this.known[l * this.lanes + m]! >= p
  }
}
