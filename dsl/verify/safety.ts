import { Op } from '../order/command-table.js'
import { LastAccesses } from '../order/last-accesses.js'
import type { Replay } from '../order/replay.js'
import { Order } from './l1-l2-order.js'
import { ArenaOrder } from './l3-l4-arena.js'
import { Lifetimes } from './l3-lifetimes.js'
import { Uses } from './l4-uses.js'
import type { Sink } from './report.js'

/** L3 and L4 of a plan with pooled storage, command by command. */
class Pooled {
  constructor(
    private readonly op: Uint8Array,
    private readonly lifetimes: Lifetimes,
    private readonly uses: Uses,
  ) {}

  get looksBack(): boolean {
    return this.lifetimes.looksBack
  }

  begin(): void {
    this.lifetimes.begin()
    this.uses.begin()
  }

  judge(c: number): void {
    const { op, lifetimes, uses } = this
    if (op[c] === Op.run) lifetimes.run(c)
    else if (op[c] === Op.alloc) lifetimes.alloc(c)
    else if (op[c] === Op.use) {
      lifetimes.use(c)
      uses.use(c)
    } else if (op[c] === Op.free && lifetimes.free(c)) uses.free(c)
  }

  end(): void {
    this.lifetimes.end()
  }
}

/**
 * L1 to L4 by one replay of at most two ticks, which decide them (see Frontiers). Made once and replayed
 * often: the exact test of L6 leaves out one wait after another.
 */
export class Safety {
  private readonly last: LastAccesses
  private readonly order: Order
  private readonly storage: Pooled | ArenaOrder

  constructor(
    private readonly replay: Replay,
    /** By use, 1 where it alone holds back some free; none with planned storage. */
    needed: Uint8Array,
    private readonly sink: Sink,
  ) {
    const { plan, op, intervals, allocator } = replay.table
    // A plan without lanes has no commands either.
    const lanes = replay.table.lanes === 0 ? 0 : replay.lanes / replay.table.lanes
    this.last = new LastAccesses(allocator, intervals.count, lanes * intervals.accesses)
    this.order = new Order(replay, this.last, sink)
    this.storage =
      plan.storage === 'planned'
        ? new ArenaOrder(replay, sink)
        : new Pooled(op, new Lifetimes(replay, sink), new Uses(replay, this.last, needed, sink))
  }

  /** Judges the plan without the wait `dropped` (-1: none); stops as soon as the sink is full. */
  judge(dropped = -1): void {
    const { replay, order, storage, last, sink } = this
    const { op, commands } = replay.table
    replay.restart(dropped)
    last.restart()
    order.restart()
    if (storage instanceof ArenaOrder) storage.restart()
    for (let tick = 0; tick < 2; tick++) {
      replay.begin()
      storage.begin()
      for (let c = 0; c < commands && !sink.full; c++) {
        if (op[c] === Op.run) order.run(c)
        storage.judge(c)
        replay.step(c)
      }
      if (sink.full) return
      storage.end()
      // Where nothing of the previous tick matters, every tick is judged as the first one is.
      if (!order.looksBack && !storage.looksBack) break
    }
    order.checkOutputs()
  }
}
