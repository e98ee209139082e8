import { type CommandTable, Op } from '../order/command-table.js'
import type { Frontiers } from '../order/frontiers.js'

/** Ticks that are looked at: a wait may add nothing in the first tick, and something in those that have others before them. */
const ticks = 3

/**
 * The linear test of L6: by command, 1 for each wait that adds nothing in any tick (undefined: there is none), since the lane's frontier covers it, or
 * would with the other waits before the lane's next run. A record, alloc or free of the lane between two waits sees the
 * first one alone, so they are not counted together. The clock begins anew. A tick after which every wait has been found to add something is the last that is looked at.
 */
export const coveredWaits = (tables: CommandTable, clock: Frontiers): Uint8Array | undefined => {
  const { op, lane, recordOf, subject, commands, allocator } = tables
  const covered = allocator.uint8(commands)
  let left = 0
  for (let c = 0; c < commands; c++) {
    if (op[c] !== Op.wait && op[c] !== Op.previous) continue
    const record = recordOf[subject[c]!]!
    if (record < 0 || (op[c] === Op.wait && record > c)) continue
    covered[c] = 1
    left++
  }
  clock.restart(-1)
  const groups = new Groups(tables, clock, covered)
  for (let tick = 0; tick < ticks && groups.added < left; tick++) {
    clock.begin()
    for (let c = 0; c < commands; c++) {
      const code = op[c]!
      if (code === Op.broken || code === Op.use) continue
      if (code === Op.wait || code === Op.previous) {
        groups.put(c)
        clock.wait(c, code)
        continue
      }
      groups.end(lane[c]!)
      if (code === Op.run) clock.run(c)
      else if (code === Op.record) clock.record(c)
    }
    groups.endAll()
  }
  return groups.added < left ? covered : undefined
}

/** The same, seen in the first tick of another replay: whether each wait of the plan adds something there. Where waits are for the tick before, that tick cannot say. */
export class Adding {
  /** Whether all do; else it is not known. */
  all = false
  /** By event, 1 where somebody waits for it. */
  readonly waited: Uint8Array
  private readonly groups: Groups
  private waits = 0

  private constructor(
    private readonly tables: CommandTable,
    clock: Frontiers,
  ) {
    this.groups = new Groups(tables, clock)
    this.waited = tables.allocator.uint8(tables.events)
  }

  static of(tables: CommandTable, clock: Frontiers): Adding | undefined {
    return tables.carries ? undefined : new Adding(tables, clock)
  }

  /** Wait c, just before the clock steps over it. */
  wait(c: number): void {
    this.waits++
    this.waited[this.tables.subject[c]!] = 1
    this.groups.put(c)
  }

  /** Lane l issues something else. */
  other(l: number): void {
    this.groups.end(l)
  }

  /** The tick has been issued. */
  end(): void {
    this.groups.endAll()
    this.all = this.groups.added === this.waits
  }
}

/** Waits of a group times lanes: from there on another group begins, so that no plan asks for more memory than there is. What only so distant a wait covers is not found. */
const mostCells = 2 ** 22

/** Of each lane, its waits since its last other command, and its frontier before them. */
class Groups {
  private readonly waits: number[][]
  private readonly size: Int32Array
  private readonly before: Int32Array
  private after = new Int32Array(0)
  /** Waits that have been found to add something. */
  added = 0

  constructor(
    private readonly tables: CommandTable,
    private readonly clock: Frontiers,
    /** By command, 1 for each wait that has added nothing so far; undefined: none has been looked at. */
    private readonly covered?: Uint8Array,
  ) {
    const { lanes, allocator } = tables
    this.waits = Array.from({ length: lanes }, () => [])
    this.size = allocator.int32(lanes)
    this.before = allocator.int32(lanes * lanes)
  }

  put(c: number): void {
    const { lanes, lane } = this.tables
    const l = lane[c]!
    if (this.size[l]! * lanes >= mostCells) this.end(l)
    if (this.size[l] === 0)
      for (let at = l * lanes; at < (l + 1) * lanes; at++) this.before[at] = this.clock.known[at]!
    this.waits[l]![this.size[l]!++] = c
  }

  end(l: number): void {
    const size = this.size[l]!
    if (size === 0) return
    this.size[l] = 0
    if (size === 1) this.one(l, this.waits[l]![0]!)
    else this.many(l, this.waits[l]!, size)
  }

  endAll(): void {
    for (let l = 0; l < this.tables.lanes; l++) this.end(l)
  }

  private mark(c: number): Int32Array | undefined {
    return this.clock.markOf(this.tables.subject[c]!, this.tables.op[c] === Op.previous ? 1 : 0)
  }

  private needed(c: number): void {
    const { covered } = this
    if (covered !== undefined) {
      if (covered[c] === 0) return
      covered[c] = 0
    }
    this.added++
  }

  /** One wait alone adds what its mark is beyond the frontier. */
  private one(l: number, c: number): void {
    const { lanes, subject } = this.tables
    const mark = this.covered === undefined || this.covered[c] === 1 ? this.mark(c) : undefined
    if (mark === undefined) return
    const from = subject[c]! * lanes
    for (let m = 0; m < lanes; m++)
      if (mark[from + m]! > this.before[l * lanes + m]!) {
        this.needed(c)
        return
      }
  }

  /** after[w] is the join of the waits that follow w; `before` grows to that of the frontier and the waits that precede it. */
  private many(l: number, waits: readonly number[], size: number): void {
    const { before } = this
    const { lanes, subject } = this.tables
    if (this.after.length < (size + 1) * lanes) this.after = new Int32Array(2 * (size + 1) * lanes)
    const { after } = this
    after.fill(0, size * lanes, (size + 1) * lanes)
    for (let w = size - 1; w >= 0; w--) {
      const mark = this.mark(waits[w]!)
      const from = subject[waits[w]!]! * lanes
      for (let m = 0; m < lanes; m++) {
        const later = after[(w + 1) * lanes + m]!
        const point = mark === undefined ? 0 : mark[from + m]!
        after[w * lanes + m] = point > later ? point : later
      }
    }
    for (let w = 0; w < size; w++) {
      const mark = this.mark(waits[w]!)
      if (mark === undefined) continue
      const from = subject[waits[w]!]! * lanes
      let adds = false
      for (let m = 0; m < lanes; m++) {
        const point = mark[from + m]!
        if (point <= before[l * lanes + m]!) continue
        if (point > after[(w + 1) * lanes + m]!) adds = true
        before[l * lanes + m] = point
      }
      if (adds) this.needed(waits[w]!)
    }
  }
}
