import { type CommandTable, Kind, Mode, Op } from '../order/command-table.js'
import type { Frontiers } from '../order/frontiers.js'
import type { Adding } from './covered.js'
import { Lifetimes } from './lifetimes.js'
import { Order } from './order.js'
import type { Marks } from './precise.js'
import type { Sink } from './report.js'
import type { Settled } from './settled.js'
import { Storage } from './storage.js'

/** What other laws ask of a first tick, seen in passing where storage is pooled: afterwards each says whether it has seen enough. */
export interface Watch {
  /** L5. */
  readonly marks?: Marks | undefined
  /** L6, of waits. */
  readonly adding?: Adding | undefined
  /** What L9 is judged by. */
  readonly settled?: Settled | undefined
}

/**
 * L1 to L4 by one replay. Made once and replayed often: the exact test of L6 leaves out one wait after the other.
 *
 * Each law compares points of one tick, or of a tick and the one before, so two ticks decide (see Frontiers). What is before what inside a tick is the same in
 * every tick: of a second one only that is judged again which looks back, accesses of what lives on across ticks, bytes of an arena, and
 * first touches that know of no point of their buffer's home in the tick.
 */
export class Safety {
  private readonly order: Order
  private readonly lives: Lifetimes | Storage
  /** By command: whether a run touches what another lane touches in another tick; empty: none does. */
  private readonly carried: Uint8Array

  constructor(
    private readonly tables: CommandTable,
    /** Afterwards between two ticks, but where a full sink has ended the replay. */
    private readonly clock: Frontiers,
    /** By use, those that alone hold back some free; none where storage is planned. */
    needed: Uint8Array,
    private readonly sink: Sink,
  ) {
    this.order = new Order(tables, clock, sink)
    this.lives =
      tables.plan.storage === 'planned'
        ? new Storage(tables, clock, sink)
        : new Lifetimes(tables, clock, sink, this.order.last, needed)
    this.carried = carriedRuns(tables)
  }

  /** Replays the plan, leaving out the wait `dropped` (-1: none); stops as soon as the sink is full. */
  replay(dropped = -1, watch: Watch = {}): void {
    const { clock, order, lives, sink } = this
    clock.restart(dropped)
    order.restart()
    lives.restart()
    if (lives instanceof Storage) {
      if (this.planned(lives)) {
        order.unwritten()
        this.planned(lives)
      }
      return
    }
    if (!this.pooled(lives, watch)) return
    watch.marks?.end(order.last)
    watch.adding?.end()
    watch.settled?.end()
    order.unwritten()
    lives.end()
    if (sink.full) return
    if (lives.crosses || this.carried.length > 0) this.again(lives)
  }

  private pooled(lives: Lifetimes, { marks, adding, settled }: Watch): boolean {
    const { clock, order, sink } = this
    const { op, lane, commands } = this.tables
    clock.begin()
    for (let c = 0; c < commands && !sink.full; c++) {
      switch (op[c]) {
        case Op.run:
          adding?.other(lane[c]!)
          order.run(c)
          lives.run(c)
          clock.run(c)
          marks?.run(c, clock)
          break
        case Op.alloc:
          adding?.other(lane[c]!)
          if (lives.alloc(c)) settled?.alloc(c)
          break
        case Op.free:
          adding?.other(lane[c]!)
          if (lives.free(c)) settled?.free(c, order.last)
          break
        case Op.use:
          lives.use(c)
          break
        case Op.record:
          adding?.other(lane[c]!)
          clock.record(c)
          marks?.record(c)
          settled?.record(c)
          break
        case Op.wait:
        case Op.previous:
          adding?.wait(c)
          clock.wait(c, op[c]!)
          break
      }
    }
    return !sink.full
  }

  private planned(lives: Storage): boolean {
    const { clock, order, sink } = this
    const { op, commands } = this.tables
    clock.begin()
    for (let c = 0; c < commands && !sink.full; c++) {
      if (op[c] === Op.run) order.run(c)
      lives.step(c)
      clock.step(c)
    }
    return !sink.full
  }

  private again(lives: Lifetimes): void {
    const { clock, order, sink, carried } = this
    const { op, commands } = this.tables
    clock.begin()
    for (let c = 0; c < commands && !sink.full; c++) {
      if (carried[c] === 1) order.again(c)
      if (op[c] === Op.run) lives.again(c)
      clock.step(c)
    }
  }
}

/** Runs that touch a state or param which is written, and on more than one lane. */
const carriedRuns = ({ buffers, kind, cells, commands, lane, allocator }: CommandTable): Uint8Array => {
  const none = new Uint8Array(0)
  if (!kind.includes(Kind.state) && !kind.includes(Kind.param)) return none
  const { start, root, cell, mode } = cells
  // Of each cell 1 + the lane that touches it, of each root whether several do.
  const toucher = allocator.int32(cells.count)
  const shared = allocator.uint8(buffers)
  const written = allocator.uint8(buffers)
  let any = false
  for (let c = 0; c < commands; c++) {
    for (let a = start[c]!, end = start[c + 1]!; a < end; a++) {
      const b = root[a]!
      if (kind[b] !== Kind.state && kind[b] !== Kind.param) continue
      if (mode[a] === Mode.write) written[b] = 1
      if (toucher[cell[a]!] === 0) toucher[cell[a]!] = lane[c]! + 1
      else if (toucher[cell[a]!] !== lane[c]! + 1) shared[b] = 1
    }
  }
  for (let b = 0; b < buffers && !any; b++) any = shared[b] === 1 && written[b] === 1
  if (!any) return none
  const runs = allocator.uint8(commands)
  for (let c = 0; c < commands; c++)
    for (let a = start[c]!, end = start[c + 1]!; a < end; a++)
      if (shared[root[a]!] === 1 && written[root[a]!] === 1) runs[c] = 1
  return runs
}
