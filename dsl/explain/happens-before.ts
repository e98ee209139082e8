import { type CommandTable, Op } from '../order/command-table.js'
import { Replay } from '../order/replay.js'

/** What brought a lane behind another lane's runs: a wait's command, or -1 for the host, which begins a tick late; and the tick in which it did. */
export interface Cause {
  readonly wait: number
  readonly tick: number
}

/** Happens-before, with the cause by which each lane is after what it is after of each other lane. */
export class HappensBefore extends Replay {
  private readonly causeWait: Int32Array
  private readonly causeTick: Int32Array
  /** By lane: the points of its runs, in order. */
  private readonly runPoints: number[][]

  constructor(table: CommandTable) {
    super(table)
    const { lanes } = table
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
    const lane = this.table.lane[command]!
    const code = this.table.op[command]
    const isWait = code === Op.wait || code === Op.previous
    const before = isWait ? this.known.slice(lane * this.lanes, (lane + 1) * this.lanes) : undefined
    super.step(command)
    if (before !== undefined) this.learn(before, lane * this.lanes, command)
    if (code === Op.run) this.runPoints[lane]!.push(this.now(lane))
  }

  /** How many runs of lane `other`, of all ticks, are before whatever `lane` issues next. */
  runsBefore(lane: number, other: number): number {
    return this.runsUpTo(other, this.known[lane * this.lanes + other]!)
  }

  /** Whether a point of `lane` is before an event of this tick. */
  isBeforeEvent(event: number, lane: number, point: number): boolean {
    const marks = this.marksOf(event, 0)
    return marks !== undefined && marks[event * this.lanes + lane]! >= point
  }

  /** By what `lane` is after the latest run of `other` that it is after. */
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

  /** A wait is the cause only of runs that the lane was not after already: not of further waits of the other lane. */
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
