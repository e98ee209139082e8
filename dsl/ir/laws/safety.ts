import { Clock } from './clock.js'
import { Lifetimes } from './lifetimes.js'
import { Order } from './order.js'
import type { Sink } from './report.js'
import { Storage } from './storage.js'
import { Op, type Tables } from './tables.js'

/** Ticks that decide L1 to L4: each law compares points of one tick, or of a tick and the one before (see Clock). */
const ticks = 2

/** L1 to L4 by one replay. Made once and replayed often: the exact test of L6 leaves out one wait after the other. */
export class Safety {
  private readonly clock: Clock
  private readonly order: Order
  private readonly lives: Lifetimes | Storage

  constructor(
    private readonly tables: Tables,
    private readonly sink: Sink,
  ) {
    this.clock = new Clock(tables)
    this.order = new Order(tables, this.clock, sink)
    const Lives = tables.plan.storage === 'planned' ? Storage : Lifetimes
    this.lives = new Lives(tables, this.clock, sink)
  }

  /** Replays the plan, leaving out command `dropped` (-1: none); stops as soon as the sink is full. */
  replay(dropped = -1): void {
    const { tables, clock, order, lives, sink } = this
    clock.restart(dropped)
    order.restart()
    if (lives instanceof Storage) lives.restart()
    for (let tick = 0; tick < ticks; tick++) {
      clock.begin()
      if (lives instanceof Lifetimes) lives.begin()
      for (let c = 0; c < tables.commands; c++) {
        const code = tables.op[c]
        if (code === Op.run) order.run(c)
        lives.step(c)
        clock.step(c)
        if (sink.full) return
      }
      if (tick > 0) continue
      order.unwritten()
      if (lives instanceof Lifetimes) lives.end()
    }
  }
}
