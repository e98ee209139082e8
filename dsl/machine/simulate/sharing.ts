import { poolsPerDevice, type Usage } from '../usage.js'

/**
 * The concurrent runs, each at the speed that its device's pools allow. Alone a run has speed 1. Where the
 * demands on a pool (multiprocessors, memory bandwidth, the bus, the engines of a direction, the link) exceed
 * the pool, each run with a demand on it is slowed by that factor; the most loaded pool of a run decides. So
 * concurrent runs that each fill the device take as long as one after the other, and runs that fit together
 * take no longer than alone.
 */
export class Sharing {
  private readonly lanes: Int32Array
  private readonly left: Float64Array
  private readonly speed: Float64Array
  private readonly run: Int32Array
  private readonly load: Float64Array
  private count = 0
  private since = 0
  private end = Number.POSITIVE_INFINITY
  /** Whether runs began or ended since the speeds were found. */
  private isStale = false

  constructor(
    private readonly usage: Usage,
    lanes: number,
  ) {
    this.lanes = new Int32Array(lanes)
    this.left = new Float64Array(lanes)
    this.speed = new Float64Array(lanes)
    this.run = new Int32Array(lanes)
    this.load = new Float64Array(usage.pools)
  }

  /**
   * The end of the first run to end at the present speeds; infinite where none is at work. Is read before time
   * goes on, so the speeds are found once for all that begins and ends at a time.
   */
  get next(): number {
    if (this.isStale) this.share()
    return this.end
  }

  /** The run of a lane begins its work. */
  add(lane: number, run: number, work: number, now: number): void {
    this.advance(now)
    this.lanes[this.count++] = lane
    this.run[lane] = run
    this.left[lane] = work
    this.isStale = true
  }

  /** Calls `ended` for each lane whose run ends now, in the order in which the runs began. */
  take(now: number, ended: (lane: number) => void): void {
    this.advance(now)
    const { lanes, left, speed } = this
    const least = Math.max(1e-6, now * 1e-14)
    let kept = 0
    const done: number[] = []
    for (let i = 0; i < this.count; i++) {
      const lane = lanes[i]!
      // A remainder below a millionth of a nanosecond, or below the precision of a late time, is a rounding
      // error; to wait for it would never end.
      if (left[lane]! <= least * speed[lane]!) done.push(lane)
      else lanes[kept++] = lane
    }
    this.count = kept
    this.isStale = true
    for (const lane of done) ended(lane)
  }

  private advance(now: number): void {
    const past = now - this.since
    this.since = now
    if (past <= 0) return
    for (let i = 0; i < this.count; i++) this.left[this.lanes[i]!]! -= past * this.speed[this.lanes[i]!]!
  }

  private share(): void {
    const { usage, lanes, run, load, left, speed, since: now } = this
    const { demand, firstPool } = usage
    load.fill(0)
    for (let i = 0; i < this.count; i++) {
      const r = run[lanes[i]!]!
      const at = firstPool[r]!
      for (let p = 0; p < poolsPerDevice; p++) load[at + p]! += demand[r * poolsPerDevice + p]!
    }
    this.isStale = false
    this.end = Number.POSITIVE_INFINITY
    for (let i = 0; i < this.count; i++) {
      const lane = lanes[i]!
      const r = run[lane]!
      const at = firstPool[r]!
      let most = 1
      for (let p = 0; p < poolsPerDevice; p++)
        if (demand[r * poolsPerDevice + p]! > 0 && load[at + p]! > most) most = load[at + p]!
      speed[lane] = 1 / most
      const end = now + Math.max(0, left[lane]!) * most
      if (end < this.end) this.end = end
    }
  }
}
