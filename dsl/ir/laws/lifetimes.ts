import type { Clock } from './clock.js'
import { bufferName, commandText, laneName, type Sink } from './report.js'
import { Op, type Tables } from './tables.js'

const closed = { never: 0, open: 1, freed: 2 } as const

/**
 * L3, pooled: a tick buffer is allocated once, on its home lane, before its first access, and freed once, after its last;
 * nothing else is allocated or freed. Being *before* the first access is asked in both senses, in issue order and in the
 * order of lanes: the block may have had another owner until the home lane's point at the alloc, so a foreign lane's first
 * access must be after that point (the accesses that follow are, by L1 and L2).
 *
 * L4, pooled: at a free, each foreign lane's last access is marked by a use, or before the event of another use of that
 * buffer, or before some command already issued on the home lane.
 *
 * L4 is a matter of one tick, since all accesses of a tick buffer and its free are of one. What precedes an alloc on the
 * home lane may be of the tick before, so L3 is judged in two.
 */
export class Lifetimes {
  private readonly state: Uint8Array
  private readonly allocCommand: Int32Array
  private readonly allocPoint: Int32Array
  private readonly touched: Uint8Array
  /** The last access of each pair: its command, and its point; of the tick where it is beyond the clock's base. */
  private readonly lastCommand: Int32Array
  private readonly lastPoint: Int32Array

  constructor(
    private readonly tables: Tables,
    private readonly clock: Clock,
    private readonly sink: Sink,
  ) {
    this.state = new Uint8Array(tables.buffers)
    this.allocCommand = new Int32Array(tables.buffers).fill(-1)
    this.allocPoint = new Int32Array(tables.buffers)
    this.touched = new Uint8Array(tables.buffers)
    this.lastCommand = new Int32Array(tables.pairLane.length)
    this.lastPoint = new Int32Array(tables.pairLane.length)
  }

  begin(): void {
    this.state.fill(closed.never)
    this.touched.fill(0)
    if (this.clock.tick === 0) this.lastPoint.fill(0)
  }

  /** Judges command c, just before the clock steps over it. */
  step(c: number): void {
    switch (this.tables.op[c]) {
      case Op.alloc:
        this.alloc(c)
        break
      case Op.free:
        this.free(c)
        break
      case Op.run:
        this.run(c)
        break
      case Op.use:
        this.use(c)
        break
    }
  }

  private alloc(c: number): void {
    const { tables, clock, sink } = this
    const b = tables.named[c]!
    const { plan } = tables
    const home = tables.home[b]!
    const place = { buffer: b, lane: tables.lane[c]! }
    if (!this.owns(c, 'allocated')) return
    if (this.state[b] !== closed.never) {
      sink.add(
        'L3',
        c,
        place,
        () => `${bufferName(plan, b)} is allocated a second time, first at commands[${this.allocCommand[b]}]`,
      )
      return
    }
    if (tables.lane[c] !== home) {
      sink.add(
        'L3',
        c,
        place,
        () =>
          `${bufferName(plan, b)} is allocated on ${laneName(plan, tables.lane[c]!)}, but its home is ${laneName(plan, home)}`,
      )
    }
    this.state[b] = closed.open
    this.allocCommand[b] = c
    this.allocPoint[b] = clock.known[home * tables.lanes + home]!
  }

  /** Only tick buffers that are no views have a lifetime of their own. */
  private owns(c: number, verb: string): boolean {
    const { tables, sink } = this
    const b = tables.named[c]!
    const buffer = tables.plan.buffers[b]!
    if (tables.root[b] === b && buffer.life === 'tick') return true
    const why =
      tables.root[b] === b
        ? `its life is ${buffer.life}`
        : `it is a view of ${bufferName(tables.plan, tables.root[b]!)}`
    sink.add('L3', c, { buffer: b }, () => `${bufferName(tables.plan, b)} is ${verb}, but ${why}`)
    return false
  }

  private run(c: number): void {
    const { tables, clock, sink } = this
    const l = tables.lane[c]!
    const point = clock.known[l * tables.lanes + l]! + 1
    for (let a = tables.accessStart[c]!; a < tables.accessStart[c + 1]!; a++) {
      const b = tables.accessRoot[a]!
      this.lastPoint[tables.accessPair[a]!] = point
      this.lastCommand[tables.accessPair[a]!] = c
      if (tables.life[b] !== 'tick') continue
      const place = { buffer: tables.accessNamed[a]!, lane: l }
      const name = () => bufferName(tables.plan, tables.accessNamed[a]!)
      if (this.state[b] === closed.never) {
        sink.add('L3', c, place, () => `it accesses ${name()} before its alloc`)
      } else if (this.state[b] === closed.freed) {
        sink.add('L3', c, place, () => `it accesses ${name()} after its free`)
      } else if (this.touched[b] === 0) {
        const home = tables.home[b]!
        if (l !== home && !clock.covers(l, home, this.allocPoint[b]!)) {
          sink.add(
            'L3',
            c,
            place,
            () =>
              `it is the first access of ${name()}, but is not after the point of its home ${laneName(tables.plan, home)} at commands[${this.allocCommand[b]}] (${commandText(tables.plan, this.allocCommand[b]!)}): what held these bytes before may still use them`,
          )
        }
      }
      this.touched[b] = 1
    }
  }

  private use(c: number): void {
    const { tables, sink } = this
    const b = tables.named[c]!
    const buffer = tables.plan.buffers[b]!
    const place = { buffer: b, lane: tables.lane[c]! }
    if (buffer.life === 'tick' && this.state[tables.subject[c]!] !== closed.open) {
      const when =
        this.state[tables.subject[c]!] === closed.freed
          ? 'after its free, which it can no longer hold back'
          : 'before its alloc'
      sink.add('L3', c, place, () => `it marks ${bufferName(tables.plan, b)} ${when}`)
    }
    const event = tables.useEvent[c]!
    if (this.marks(c)) return
    sink.add('L4', c, { ...place, event: tables.eventId[event]! }, () => {
      const record = tables.recordOf[event]!
      const found =
        record < 0
          ? 'which is never recorded'
          : record > c
            ? `which is recorded only later, at commands[${record}]`
            : `which is recorded on ${laneName(tables.plan, tables.lane[record]!)}`
      return `it marks the last access of ${bufferName(tables.plan, b)} on ${laneName(tables.plan, tables.lane[c]!)} by e${tables.eventId[event]}, ${found}`
    })
  }

  /** Does use c stand for a point at all: an event recorded earlier in the tick, on the lane that it names? */
  private marks(c: number): boolean {
    const { tables } = this
    const record = tables.recordOf[tables.useEvent[c]!]!
    return record >= 0 && record < c && tables.lane[record] === tables.lane[c]
  }

  private free(c: number): void {
    const { tables, sink, clock } = this
    const b = tables.named[c]!
    if (!this.owns(c, 'freed')) return
    if (this.state[b] !== closed.open) {
      const why = this.state[b] === closed.freed ? 'a second time' : 'before its alloc'
      sink.add('L3', c, { buffer: b }, () => `${bufferName(tables.plan, b)} is freed ${why}`)
      return
    }
    this.state[b] = closed.freed
    const home = tables.home[b]!
    for (let p = tables.pairStart[b]!; p < tables.pairStart[b + 1]!; p++) {
      const m = tables.pairLane[p]!
      const point = this.lastPoint[p]!
      if (m === home || point <= clock.base[m]! || clock.covers(home, m, point)) continue
      if (this.marked(b, c, m, point, -1)) continue
      const last = this.lastCommand[p]!
      sink.add(
        'L4',
        c,
        { buffer: b, lane: m },
        () =>
          `${laneName(tables.plan, m)} last accesses ${bufferName(tables.plan, b)} at commands[${last}] (${commandText(tables.plan, last)}), which no use marks and no command already issued on its home ${laneName(tables.plan, home)} is after`,
      )
    }
  }

  /** Is point p of lane m before the event of some use of b that stands before command c? `without` is a use to leave out. */
  marked(b: number, c: number, m: number, p: number, without: number): boolean {
    const { tables, clock } = this
    for (let i = tables.useStart[b]!; i < tables.useStart[b + 1]!; i++) {
      const u = tables.useList[i]!
      if (u >= c) return false
      if (u === without || !this.marks(u)) continue
      const event = tables.useEvent[u]!
      const table = clock.markOf(event, 0)
      if (table !== undefined && table[event * tables.lanes + m]! >= p) return true
    }
    return false
  }

  /** At the end of a tick: whatever is still open leaks, once a tick. */
  end(): void {
    const { tables, sink } = this
    for (let b = 0; b < tables.buffers; b++) {
      if (this.state[b] !== closed.open) continue
      sink.add(
        'L3',
        this.allocCommand[b]!,
        { buffer: b },
        () => `${bufferName(tables.plan, b)} is never freed: every tick leaks ${tables.plan.buffers[b]!.bytes} bytes`,
      )
    }
  }
}
