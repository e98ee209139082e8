import { commandText, quotedBuffer, quotedLane } from '../ir/names.js'
import { Kind, Mode } from '../order/command-table.js'
import { eachBuffer } from '../order/compiled-plan.js'
import type { LastAccesses } from '../order/last-accesses.js'
import type { Replay } from '../order/replay.js'
import type { Sink } from './report.js'

/**
 * L1: every read is after the write it sees. L2: every write is after all earlier reads and writes of those
 * bytes, across ticks too. Both are asked of byte intervals: two views of one buffer that share no bytes have
 * nothing to do with each other. Each tick has the same accesses, so a lane's last access before a given one
 * lies in the same tick or in the one before.
 *
 * A `tick` buffer is a new one each tick, and an `input` or `output` is one of the host's slots, so their
 * order across ticks is not asked here: reuse of their bytes is a matter of L4, or of the host. Nothing may
 * write a `param`: it holds its value for every tick. The host reads an output when its tick has completed,
 * so some run must write it.
 */
export class Order {
  /** Of each interval, the lane of its last write, and the point; 0: none. */
  private readonly writeLane: Uint16Array
  private readonly writePoint: Int32Array
  /**
   * Whether a later tick may break a law that the first one keeps: where a buffer that lives on across ticks
   * is written.
   */
  looksBack = false

  constructor(
    private readonly replay: Replay,
    /** The maximal accesses of each interval; a point of an earlier tick is at most the replay's base. */
    private readonly last: LastAccesses,
    private readonly sink: Sink,
  ) {
    const { intervals, allocator } = replay.table
    this.writeLane = allocator.uint16(intervals.count)
    this.writePoint = allocator.int32(intervals.count)
  }

  restart(): void {
    this.writePoint.fill(0)
  }

  /** Judges run c, just before it is issued. */
  run(c: number): void {
    const { replay, last } = this
    const { start, interval, mode } = replay.table.intervals
    const from = start[c]!
    const end = start[c + 1]!
    const l = replay.laneOf(c)
    for (let a = from; a < end; a++) {
      if (mode[a] === Mode.read) this.read(c, a, l)
      else this.write(c, a, l)
    }
    const { known, lanes } = replay
    const point = replay.now(l) + 1
    for (let a = from; a < end; a++) last.putMaximal(interval[a]!, l, point, known, l * lanes)
  }

  /** The plan's lane that a lane of the replay is. */
  private laneIn(l: number): number {
    return l % this.replay.table.lanes
  }

  private livesOn(root: number): boolean {
    const kind = this.replay.table.kind[root]
    return kind === Kind.state || kind === Kind.param
  }

  private read(c: number, a: number, l: number): void {
    const { replay } = this
    const { intervals, kind } = replay.table
    const i = intervals.interval[a]!
    const root = intervals.root[a]!
    const point = this.writePoint[i]!
    const lane = this.writeLane[i]!
    if (point > (this.livesOn(root) ? 0 : replay.base[lane]!)) {
      if (!replay.isBefore(l, lane, point)) this.readsTooEarly(c, a, l, lane, point)
    } else if (kind[root] !== Kind.param && kind[root] !== Kind.input) this.readsUnwritten(c, a, l)
  }

  private write(c: number, a: number, l: number): void {
    const { replay, last } = this
    const { intervals, kind } = replay.table
    const i = intervals.interval[a]!
    const root = intervals.root[a]!
    const here = replay.now(l) + 1
    const livesOn = this.livesOn(root)
    if (livesOn) this.looksBack = true
    if (kind[root] === Kind.param) this.writesParam(c, a, l)
    if (this.writePoint[i] === here && this.writeLane[i] === l) this.writesTwice(c, a, l)
    for (let e = last.first(i); e !== 0; e = last.next(e)) {
      const m = last.laneOf(e)
      const point = last.pointOf(e)
      if (m === l || point <= (livesOn ? 0 : replay.base[m]!) || replay.isBefore(l, m, point)) continue
      this.writesTooEarly(c, a, l, m, point)
    }
    this.writeLane[i] = l
    this.writePoint[i] = here
  }

  /** After whole ticks: an output of which no run writes some byte is handed to the host as it was. */
  checkOutputs(): void {
    const { plan, intervals, buffers, kind, root } = this.replay.table
    for (let b = 0; b < buffers; b++) {
      // Of no bytes there is nothing to write.
      if (kind[b] !== Kind.output || root[b] !== b || eachBuffer(plan).at(b)!.bytes === 0) continue
      const all = this.writePoint.subarray(intervals.first[b]!, intervals.first[b + 1]!)
      const missing = all.filter(point => point === 0).length
      if (missing === 0) continue
      const what = missing < all.length ? 'no run writes all of it' : 'no run writes it'
      this.sink.add(
        'L1',
        -1,
        { buffer: b },
        () => `the host reads output ${quotedBuffer(plan, b)} at the end of a tick, and ${what}`,
      )
    }
  }

  private readsTooEarly(c: number, a: number, l: number, lane: number, point: number): void {
    const { plan, intervals } = this.replay.table
    const b = intervals.named[a]!
    this.sink.add('L1', c, { buffer: b, lane: this.laneIn(l) }, () => {
      const write = this.accessText(lane, point)
      const broken = `it reads ${quotedBuffer(plan, b)} without being after its write, ${write}`
      return `${broken}; ${quotedLane(plan, this.laneIn(l))} waits for no event that follows it`
    })
  }

  private readsUnwritten(c: number, a: number, l: number): void {
    const { plan, intervals } = this.replay.table
    const b = intervals.named[a]!
    const root = intervals.root[a]!
    const { life, init } = eachBuffer(plan).at(root)!
    if (life === 'state' && init !== undefined) return
    this.sink.add('L1', c, { buffer: b, lane: this.laneIn(l) }, () => {
      const whole = intervals.first[root + 1]! - intervals.first[root]! > 1 ? ' whole' : ''
      const what = `it reads ${quotedBuffer(plan, b)} (${life})`
      return life === 'state'
        ? `${what}, which has no initial value, before any run has written it${whole}`
        : `${what} before any run of the tick has written it${whole}`
    })
  }

  private writesParam(c: number, a: number, l: number): void {
    const { plan, intervals } = this.replay.table
    const b = intervals.named[a]!
    this.sink.add(
      'L2',
      c,
      { buffer: b, lane: this.laneIn(l) },
      () =>
        `it writes ${quotedBuffer(plan, b)}, a param: ` +
        'no run may write it, since its value changes only between ticks',
    )
  }

  private writesTwice(c: number, a: number, l: number): void {
    const { plan, intervals } = this.replay.table
    const b = intervals.named[a]!
    this.sink.add(
      'L2',
      c,
      { buffer: b, lane: this.laneIn(l) },
      () => `it writes ${quotedBuffer(plan, b)} twice: the two writes of one run have no order`,
    )
  }

  private writesTooEarly(c: number, a: number, l: number, m: number, point: number): void {
    const { plan, intervals } = this.replay.table
    const b = intervals.named[a]!
    this.sink.add(
      'L2',
      c,
      { buffer: b, lane: this.laneIn(l) },
      () =>
        `it writes ${quotedBuffer(plan, b)} without being after its earlier access, ` +
        this.accessText(m, point),
    )
  }

  private accessText(lane: number, point: number): string {
    const { replay } = this
    const c = replay.commandAt(lane, point)
    const ago = point > replay.base[lane]! ? '' : ', of the tick before'
    return `commands[${c}] (${commandText(replay.table.plan, c)})${ago}`
  }
}
