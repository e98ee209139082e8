import { type CommandTable, Op } from '../../order/command-table.js'
import { Replay } from '../../order/replay.js'

/**
 * Why a lane happens-after another lane's runs: the command of a wait, and the tick of that wait; `wait` is
 * -1 where the cause is that the host issues a tick only after an earlier tick has completed.
 */
export interface Cause {
  readonly wait: number
  readonly tick: number
}

/** Happens-before, and for each pair of lanes the cause of the latest order between them. */
export class HappensBefore extends Replay {
  private readonly causeWait: Int32Array
  private readonly causeTick: Int32Array
  /** By lane: the points of its runs, in order. */
  private readonly runPoints: number[][]

  constructor(table: CommandTable) {
    super(table)
    const { lanes } = this
    this.causeWait = new Int32Array(lanes * lanes).fill(-1)
    this.causeTick = new Int32Array(lanes * lanes)
    this.runPoints = Array.from({ length: lanes }, () => [])
  }

  override begin(): void {
    const before = this.known.slice()
    super.begin()
    this.learn(before, 0, -1)
  }

  override step(command: number): void {
    const lane = this.laneOf(command)
    const code = this.table.op[command]
    const isWait = code === Op.wait || code === Op.previous
    const before = isWait ? this.known.slice(lane * this.lanes, (lane + 1) * this.lanes) : undefined
    super.step(command)
    if (before !== undefined) this.learn(before, lane * this.lanes, command)
    if (code === Op.run) this.runPoints[lane]!.push(this.now(lane))
  }

  /** Number of runs of lane `other`, over all ticks, that happen before the next command of `lane`. */
  runsBefore(lane: number, other: number): number {
    return this.runsUpTo(other, this.known[lane * this.lanes + other]!)
  }

  /** Whether a point of `lane` happens before an event of this tick. */
  isBeforeEvent(event: number, lane: number, point: number): boolean {
    const marks = this.marksOf(event, 0)
    return marks !== undefined && marks[event * this.lanes + lane]! >= point
  }

  /** Why `lane` happens-after the latest run of `other` that it happens-after. */
  causeOf(lane: number, other: number): Cause {
    const at = lane * this.lanes + other
    return { wait: this.causeWait[at]!, tick: this.causeTick[at]! }
  }

  private runsUpTo(lane: number, point: number): number {
    const points = this.runPoints[lane]!
    let low = 0
    let high = points.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (points[middle]! <= point) low = middle + 1
      else high = middle
    }
    return low
  }

  /**
   * Records the cause where the lane newly happens-after a run; a join that adds only waits of the other lane
   * is no cause.
   */
  private learn(before: Int32Array, first: number, wait: number): void {
    for (let i = 0; i < before.length; i++) {
      const at = first + i
      const [was, is] = [before[i]!, this.known[at]!]
      const other = at % this.lanes
      if (was === is || this.runsUpTo(other, was) === this.runsUpTo(other, is)) continue
      this.causeWait[at] = wait
      this.causeTick[at] = this.tick
    }
  }
}
