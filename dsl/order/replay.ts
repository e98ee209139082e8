import { type CommandTable, Op } from './command-table.js'
import { Frontiers } from './frontiers.js'

/**
 * The frontiers of a plan, replayed command by command. The first record of an event in the tick counts: L7
 * reports a second one, and every other law ignores it.
 */
export class Replay extends Frontiers {
  private readonly op: Uint8Array
  private readonly lane: Uint16Array
  private readonly subject: Int32Array
  private readonly recordOf: Int32Array
  private dropped = -1

  constructor(readonly table: CommandTable) {
    const { lanes, events, carries, plan, allocator } = table
    const ownLanes = plan.storage === 'planned' && (plan.arenas ?? 1) > 1
    super({ lanes, events, carries, inFlight: plan.inFlight, ownLanes }, allocator)
    this.op = table.op
    this.lane = table.lane
    this.subject = table.subject
    this.recordOf = table.recordOf
  }

  /** Restarts, and leaves out the wait `dropped` from now on; -1: none. */
  override restart(dropped = -1): void {
    super.restart()
    this.dropped = dropped
  }

  /** The lane of command c in the present tick. */
  laneOf(c: number): number {
    return this.lane[c]! + this.shift
  }

  /** Issues command c: afterwards a run or a wait has its point. */
  step(c: number): void {
    const code = this.op[c]!
    if (code === Op.run) this.advance(this.laneOf(c))
    else if (code === Op.record) {
      if (this.recordOf[this.subject[c]!] === c) this.record(this.subject[c]!, this.laneOf(c))
    } else if (code === Op.wait || code === Op.previous) {
      if (c === this.dropped) return
      this.wait(this.subject[c]!, this.laneOf(c), code === Op.previous ? 1 : 0)
      this.advance(this.laneOf(c))
    }
  }

  /** Issues whole ticks, and begins one that is in steady state. */
  beginSteadyTick(): void {
    while (this.tick + 2 < this.inFlight) {
      this.begin()
      for (let c = 0; c < this.table.commands; c++) this.step(c)
    }
    this.begin()
  }

  /**
   * The run or wait that is point `point` of lane l, of the present tick or an earlier one. It searches the
   * plan once, so it is for sentences only.
   */
  commandAt(l: number, point: number): number {
    const { op, lane } = this
    const own: number[] = []
    for (let c = 0; c < this.table.commands; c++)
      if (
        lane[c] === l % this.table.lanes &&
        (op[c] === Op.run || op[c] === Op.wait || op[c] === Op.previous)
      )
        own.push(c)
    return own[(point - 1) % own.length] ?? -1
  }
}
