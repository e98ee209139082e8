import type { Clock } from './clock.js'
import { bufferName, commandText, laneName, type Sink } from './report.js'
import { Mode, type Tables } from './tables.js'

/**
 * L1: every read is after the write it sees. L2: every write is after all earlier reads and writes of its buffer, across
 * ticks too. Two ticks decide both: each tick has the same accesses, so the last access of a lane before a given one lies
 * in the same tick or in the one before, and what is before what is the same for every such pair of ticks (see `Clock`).
 * Of one lane only its last access counts: the others are before it.
 *
 * A `tick` buffer is a new one each tick, and an `input` or `output` is one of the host's slots, so their order across
 * ticks is not asked here: reuse of their bytes is the allocator's (L4), the arena's (storage.ts) or the host's affair.
 * `param` is written by nobody: it must hold its value for every tick, whatever the order. An output is read by the host
 * when its tick has completed, so some run must write it.
 */
export class Order {
  /** The last write of each root: its command, point, lane and tick. */
  private readonly writeCommand: Int32Array
  private readonly writePoint: Int32Array
  private readonly writeLane: Int32Array
  private readonly writeTick: Int32Array
  /** The last access of each pair: its command and point. */
  private readonly lastCommand: Int32Array
  private readonly lastPoint: Int32Array
  private readonly writer: Int32Array

  constructor(
    private readonly tables: Tables,
    private readonly clock: Clock,
    private readonly sink: Sink,
  ) {
    const { buffers, pairLane } = tables
    this.writeCommand = new Int32Array(buffers)
    this.writePoint = new Int32Array(buffers)
    this.writeLane = new Int32Array(buffers)
    this.writeTick = new Int32Array(buffers).fill(-1)
    this.lastCommand = new Int32Array(pairLane.length)
    this.lastPoint = new Int32Array(pairLane.length)
    this.writer = new Int32Array(buffers).fill(-1)
  }

  restart(): void {
    this.writeTick.fill(-1)
    this.lastPoint.fill(0)
    this.writer.fill(-1)
  }

  /** Judges run c, just before the clock steps over it. */
  run(c: number): void {
    const { accessStart, accessMode } = this.tables
    const end = accessStart[c + 1]!
    for (let a = accessStart[c]!; a < end; a++) {
      if (accessMode[a] === Mode.read) this.read(c, a)
      else this.write(c, a)
    }
    this.note(c)
  }

  private carried(b: number): boolean {
    const life = this.tables.life[b]
    return life === 'state' || life === 'param'
  }

  private read(c: number, a: number): void {
    const { tables, clock, sink } = this
    const b = tables.accessRoot[a]!
    const l = tables.lane[c]!
    const written = this.carried(b) ? this.writeTick[b]! >= 0 : this.writeTick[b] === clock.tick
    if (!written) {
      const buffer = tables.plan.buffers[b]!
      const given =
        buffer.life === 'param' || buffer.life === 'input' || (buffer.life === 'state' && buffer.init !== undefined)
      if (given) return
      sink.add('L1', c, { buffer: tables.accessNamed[a]!, lane: l }, () => {
        const what = `it reads ${bufferName(tables.plan, tables.accessNamed[a]!)} (${buffer.life})`
        return buffer.life === 'state'
          ? `${what}, which has no initial value, before any run has written it`
          : `${what} before any run of the tick has written it`
      })
      return
    }
    if (clock.covers(l, this.writeLane[b]!, this.writePoint[b]!)) return
    const write = this.writeCommand[b]!
    sink.add('L1', c, { buffer: tables.accessNamed[a]!, lane: l }, () => {
      const name = bufferName(tables.plan, tables.accessNamed[a]!)
      return `it reads ${name} without being after its write, commands[${write}] (${commandText(tables.plan, write)})${this.ago(this.writeTick[b]!)}; ${laneName(tables.plan, l)} waits for no event that follows it`
    })
  }

  private write(c: number, a: number): void {
    const { tables, clock, sink } = this
    const b = tables.accessRoot[a]!
    const l = tables.lane[c]!
    const name = () => bufferName(tables.plan, tables.accessNamed[a]!)
    const place = { buffer: tables.accessNamed[a]!, lane: l }
    if (tables.life[b] === 'param') {
      sink.add(
        'L2',
        c,
        place,
        () =>
          `it writes ${name()}, a param: every tick reads the value that was given at opening, so nothing may write it`,
      )
    }
    if (this.writer[b] === c && this.writeTick[b] === clock.tick) {
      sink.add('L2', c, place, () => `it writes ${name()} twice: the two writes of one run have no order`)
    }
    this.writer[b] = c
    const carried = this.carried(b)
    for (let p = tables.pairStart[b]!; p < tables.pairStart[b + 1]!; p++) {
      const m = tables.pairLane[p]!
      const point = this.lastPoint[p]!
      if (m === l || point <= (carried ? 0 : clock.base[m]!) || clock.covers(l, m, point)) continue
      const earlier = this.lastCommand[p]!
      sink.add('L2', c, place, () => {
        const tick = point <= clock.base[m]! ? clock.tick - 1 : clock.tick
        return `it writes ${name()} without being after its earlier access, commands[${earlier}] (${commandText(tables.plan, earlier)})${this.ago(tick)}`
      })
    }
    this.writeTick[b] = clock.tick
    this.writeCommand[b] = c
    this.writeLane[b] = l
    this.writePoint[b] = clock.known[l * tables.lanes + l]! + 1
  }

  private note(c: number): void {
    const { tables, clock } = this
    const l = tables.lane[c]!
    const point = clock.known[l * tables.lanes + l]! + 1
    for (let a = tables.accessStart[c]!; a < tables.accessStart[c + 1]!; a++) {
      const p = tables.accessPair[a]!
      this.lastPoint[p] = point
      this.lastCommand[p] = c
    }
  }

  /** After the first tick: an output that nobody wrote is handed to the host as it was. */
  unwritten(): void {
    const { tables, sink } = this
    for (let b = 0; b < tables.buffers; b++) {
      if (tables.life[b] !== 'output' || tables.root[b] !== b || this.writeTick[b]! >= 0) continue
      sink.add(
        'L1',
        -1,
        { buffer: b },
        () => `the host reads output ${bufferName(tables.plan, b)} at the end of a tick, and no run writes it`,
      )
    }
  }

  private ago(tick: number): string {
    return tick === this.clock.tick ? '' : ', of the tick before'
  }
}
