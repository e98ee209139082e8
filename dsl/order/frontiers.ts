import { type CommandTable, Op } from './command-table.js'

/**
 * *Before*, replayed. A lane's frontier (`known`, a row a lane) says how far along every lane all that follows on it is
 * known to be after; a point is one run or one wait of a lane, numbered from 1 on and never restarted. So a point p of
 * lane m is before whatever lane l issues next exactly where known[l · lanes + m] >= p. The relation has four causes:
 *
 *   1. a lane runs its commands in order: known[l][l] counts its own points;
 *   2. a wait joins the frontier that its event's lane had at the record (of this tick, or of the tick before with -1:
 *      then nothing in the first tick). An event's record is its first in the tick: a second one is L7's to report, marks
 *      nothing and is nobody's mark, so all else is judged as if it were not there;
 *   3. the host issues tick t only when tick t - inFlight has completed: `begin` joins that tick's ends into every lane;
 *   4. nothing else.
 *
 * Everything that these say about a pair of ticks t <= t' is the same for t + 1 and t' + 1: an edge leads from a tick to
 * itself or onwards, so a path between the two passes through t … t' alone, and each edge is there again one tick later.
 */
export class Frontiers {
  readonly known: Int32Array
  /** The points of each lane at the start of the present tick. */
  readonly base: Int32Array
  readonly lanes: number
  private readonly op: Uint8Array
  private readonly lane: Uint16Array
  private readonly subject: Int32Array
  private readonly recordOf: Int32Array
  private readonly marks: readonly [Int32Array, Int32Array]
  /** 1 + the tick of the last record, by parity of the tick and event. */
  private readonly recorded: readonly [Int32Array, Int32Array]
  private readonly ends: Int32Array[] = []
  tick = -1

  constructor(
    readonly tables: CommandTable,
    /** A wait that is left out of the replay; -1: none. */
    private dropped = -1,
  ) {
    const { lanes, events, allocator } = tables
    this.lanes = lanes
    this.op = tables.op
    this.lane = tables.lane
    this.subject = tables.subject
    this.recordOf = tables.recordOf
    this.known = allocator.int32(lanes * lanes)
    this.base = allocator.int32(lanes)
    // Nobody asks for the mark of the tick before where no wait does: then both parities share a table.
    const marks = allocator.int32(events * lanes)
    const recorded = allocator.int32(events)
    this.marks = [marks, tables.carries ? allocator.int32(events * lanes) : marks]
    this.recorded = [recorded, tables.carries ? allocator.int32(events) : recorded]
  }

  /** As if new, leaving out `dropped`. */
  restart(dropped: number): void {
    this.dropped = dropped
    this.tick = -1
    this.ends.length = 0
    this.known.fill(0)
    this.recorded[0].fill(0)
    this.recorded[1].fill(0)
  }

  /** Starts the next tick. */
  begin(): void {
    const { known, base, lanes } = this
    if (this.tick >= 0) this.ends.push(this.points())
    this.tick++
    for (let l = 0; l < lanes; l++) base[l] = known[l * lanes + l]!
    const done = this.ends[this.tick - this.tables.plan.inFlight]
    if (done === undefined) return
    for (let l = 0; l < lanes; l++) join(known, l * lanes, done, 0, lanes)
  }

  private points(): Int32Array {
    const { lanes } = this
    const points = new Int32Array(lanes)
    for (let l = 0; l < lanes; l++) points[l] = this.known[l * lanes + l]!
    return points
  }

  /** Issues command c: afterwards a run or wait has its point, known[l][l]. */
  step(c: number): void {
    const code = this.op[c]!
    if (code === Op.run) this.run(c)
    else if (code === Op.record) this.record(c)
    else if (code === Op.wait || code === Op.previous) this.wait(c, code)
  }

  run(c: number): void {
    this.known[this.lane[c]! * (this.lanes + 1)]!++
  }

  record(c: number): void {
    const { lanes, known } = this
    const event = this.subject[c]!
    if (this.recordOf[event] !== c) return
    const parity = (this.tick & 1) as 0 | 1
    const marks = this.marks[parity]
    const from = this.lane[c]! * lanes
    const to = event * lanes
    for (let m = 0; m < lanes; m++) marks[to + m] = known[from + m]!
    this.recorded[parity][event] = this.tick + 1
  }

  wait(c: number, code: number): void {
    if (c === this.dropped) return
    const { lanes, known } = this
    const l = this.lane[c]!
    const event = this.subject[c]!
    const mark = this.markOf(event, code === Op.previous ? 1 : 0)
    if (mark !== undefined) join(known, l * lanes, mark, event * lanes, lanes)
    known[l * lanes + l]!++
  }

  /** The table in which the event's frontier stands (at event · lanes), as recorded `distance` ticks ago; undefined where it was not. */
  markOf(event: number, distance: 0 | 1): Int32Array | undefined {
    const tick = this.tick - distance
    const parity = (tick & 1) as 0 | 1
    return tick >= 0 && this.recorded[parity][event] === tick + 1 ? this.marks[parity] : undefined
  }

  /** Is point p of lane m before whatever lane l issues next? */
  covers(l: number, m: number, p: number): boolean {
    return this.known[l * this.lanes + m]! >= p
  }
}

const join = (into: Int32Array, at: number, from: Int32Array, start: number, lanes: number): void => {
  for (let m = 0; m < lanes; m++) {
    const point = from[start + m]!
    if (point > into[at + m]!) into[at + m] = point
  }
}
