import { Clock } from './clock.js'
import { Lifetimes } from './lifetimes.js'
import { Order } from './order.js'
import type { Sink } from './report.js'
import { Storage } from './storage.js'
import { Kind, Op, type Tables } from './tables.js'

export interface Replayed {
  /** Between two ticks, but where a full sink has ended the replay. */
  readonly clock: Clock
  /** By command: the uses that alone hold back some free; undefined where storage is planned. */
  readonly needed: Uint8Array | undefined
}

/**
 * L1 to L4 by one replay. Made once and replayed often: the exact test of L6 leaves out one wait after the other.
 *
 * Each law compares points of one tick, or of a tick and the one before, so two ticks decide (see Clock). What is before what inside a tick is the same in
 * every tick: of a second one only that is judged again which looks back, accesses of what lives on across ticks, bytes of an arena, and
 * buffers that are allocated before their home lane has issued anything.
 */
export class Safety {
  private readonly clock: Clock
  private readonly order: Order
  private readonly lives: Lifetimes | Storage
  /** By command: whether a run touches what another lane touches in another tick. */
  private readonly carried: Uint8Array
  private readonly carries: boolean

  constructor(
    private readonly tables: Tables,
    private readonly sink: Sink,
  ) {
    this.clock = new Clock(tables)
    this.order = new Order(tables, this.clock, sink)
    this.lives =
      tables.plan.storage === 'planned'
        ? new Storage(tables, this.clock, sink)
        : new Lifetimes(tables, this.clock, sink, this.order.last)
    this.carried = carriedRuns(tables)
    this.carries = this.carried.includes(1)
  }

  /** Replays the plan, leaving out command `dropped` (-1: none); stops as soon as the sink is full. */
  replay(dropped = -1): Replayed {
    const { clock, lives } = this
    this.ticks(dropped)
    return { clock, needed: lives instanceof Lifetimes ? lives.needed : undefined }
  }

  private ticks(dropped: number): void {
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
    if (!this.pooled(lives)) return
    order.unwritten()
    lives.end()
    if (sink.full) return
    if (lives.crossing) this.pooled(lives)
    else if (this.carries) this.again()
  }

  private pooled(lives: Lifetimes): boolean {
    const { clock, order, sink } = this
    const { op, commands } = this.tables
    clock.begin()
    lives.begin()
    for (let c = 0; c < commands && !sink.full; c++) {
      if (op[c] === Op.run) order.run(c)
      lives.step(c)
      clock.step(c)
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

  private again(): void {
    const { clock, order, sink, carried } = this
    clock.begin()
    for (let c = 0; c < this.tables.commands && !sink.full; c++) {
      if (carried[c] === 1) order.again(c)
      clock.step(c)
    }
  }
}

/** Runs that touch a state or param which is written, and on more than one lane. */
const carriedRuns = ({ buffers, kind, cells, commands }: Tables): Uint8Array => {
  if (!kind.includes(Kind.state) && !kind.includes(Kind.param)) return new Uint8Array(0)
  const runs = new Uint8Array(commands)
  const { first, pairStart, start, root } = cells
  const shared = new Uint8Array(buffers)
  for (let b = 0; b < buffers; b++) {
    if (kind[b] !== Kind.state && kind[b] !== Kind.param) continue
    for (let cell = first[b]!; cell < first[b + 1]!; cell++)
      if (pairStart[cell + 1]! - pairStart[cell]! > 1) shared[b] = 1
  }
  const written = new Uint8Array(buffers)
  for (let a = 0; a < root.length; a++) if (cells.mode[a] === 1) written[root[a]!] = 1
  for (let c = 0; c < commands; c++)
    for (let a = start[c]!; a < start[c + 1]!; a++) if (shared[root[a]!] === 1 && written[root[a]!] === 1) runs[c] = 1
  return runs
}
