import type { Clock } from './clock.js'
import { bufferName, commandText, laneName, type Sink } from './report.js'
import { Kind, Op, pointAt, type Tables } from './tables.js'

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
  /** By cell: whether the tick has touched it. */
  private readonly touched: Uint8Array
  /** By command: the uses that alone stand for some access; what L6 asks. */
  readonly needed: Uint8Array
  /** Whether some buffer is allocated before its home's first point of the tick and first touched on another lane: only then the tick before matters. */
  crossing = false
  private only = -1

  constructor(
    private readonly tables: Tables,
    private readonly clock: Clock,
    private readonly sink: Sink,
    /** The last point that each lane touched each cell at. */
    private readonly lastPoint: Int32Array,
  ) {
    this.state = new Uint8Array(tables.buffers)
    this.allocCommand = new Int32Array(tables.buffers).fill(-1)
    this.allocPoint = new Int32Array(tables.buffers)
    this.touched = new Uint8Array(tables.cells.first[tables.buffers]!)
    this.needed = new Uint8Array(tables.commands)
  }

  restart(): void {
    this.crossing = false
  }

  begin(): void {
    this.state.fill(closed.never)
    this.touched.fill(0)
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
    if (!this.owns(c, 'allocated')) return
    if (this.state[b] !== closed.never) {
      sink.add(
        'L3',
        c,
        { buffer: b, lane: tables.lane[c]! },
        () => `${bufferName(plan, b)} is allocated a second time, first at commands[${this.allocCommand[b]}]`,
      )
      return
    }
    if (tables.lane[c] !== home) {
      sink.add(
        'L3',
        c,
        { buffer: b, lane: tables.lane[c]! },
        () =>
          `${bufferName(plan, b)} is allocated on ${laneName(plan, tables.lane[c]!)}, but its home is ${laneName(plan, home)}`,
      )
    }
    this.state[b] = closed.open
    this.allocCommand[b] = c
    this.allocPoint[b] = clock.known[home * (clock.lanes + 1)]!
  }

  /** Only tick buffers that are no views have a lifetime of their own. */
  private owns(c: number, verb: string): boolean {
    const { tables } = this
    const b = tables.named[c]!
    if (tables.root[b] === b && tables.kind[b] === Kind.tick) return true
    this.disowned(c, b, verb)
    return false
  }

  private disowned(c: number, b: number, verb: string): void {
    const { tables, sink } = this
    const why =
      tables.root[b] === b
        ? `its life is ${tables.life[b]}`
        : `it is a view of ${bufferName(tables.plan, tables.root[b]!)}`
    sink.add('L3', c, { buffer: b }, () => `${bufferName(tables.plan, b)} is ${verb}, but ${why}`)
  }

  private run(c: number): void {
    const { tables, clock, state, touched } = this
    const { start, root, cell } = tables.cells
    const l = tables.lane[c]!
    for (let a = start[c]!, end = start[c + 1]!; a < end; a++) {
      const b = root[a]!
      if (tables.kind[b] !== Kind.tick) continue
      const fresh = touched[cell[a]!] === 0
      touched[cell[a]!] = 1
      if (state[b] !== closed.open) this.outside(c, a, l)
      else if (fresh) {
        const home = tables.home[b]!
        if (l === home) continue
        const point = this.allocPoint[b]!
        if (point <= clock.base[home]!) this.crossing = true
        if (clock.known[l * clock.lanes + home]! < point) this.tooEarly(c, a, l)
      }
    }
  }

  private outside(c: number, a: number, l: number): void {
    const { tables, sink } = this
    const named = tables.cells.named[a]!
    const never = this.state[tables.cells.root[a]!] === closed.never
    sink.add(
      'L3',
      c,
      { buffer: named, lane: l },
      () => `it accesses ${bufferName(tables.plan, named)} ${never ? 'before its alloc' : 'after its free'}`,
    )
  }

  private tooEarly(c: number, a: number, l: number): void {
    const { tables, sink } = this
    const { plan } = tables
    const named = tables.cells.named[a]!
    const b = tables.cells.root[a]!
    const alloc = this.allocCommand[b]!
    sink.add(
      'L3',
      c,
      { buffer: named, lane: l },
      () =>
        `it is the first access of ${bufferName(plan, named)}, but is not after the point of its home ${laneName(plan, tables.home[b]!)} at commands[${alloc}] (${commandText(plan, alloc)}): what held these bytes before may still use them`,
    )
  }

  private use(c: number): void {
    const { tables, state } = this
    const b = tables.named[c]!
    if (tables.kind[b] === Kind.tick && state[tables.subject[c]!] !== closed.open) this.misplaced(c, b)
    if (!this.marks(c)) this.unmarked(c, b)
  }

  private misplaced(c: number, b: number): void {
    const { tables, sink } = this
    const freed = this.state[tables.subject[c]!] === closed.freed
    const when = freed ? 'after its free, which it can no longer hold back' : 'before its alloc'
    sink.add('L3', c, { buffer: b, lane: tables.lane[c]! }, () => `it marks ${bufferName(tables.plan, b)} ${when}`)
  }

  private unmarked(c: number, b: number): void {
    const { tables, sink } = this
    const event = tables.useEvent[c]!
    sink.add('L4', c, { buffer: b, lane: tables.lane[c]!, event: tables.eventId[event]! }, () => {
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
    const { tables, clock, lastPoint } = this
    const { first, pairStart, pairLane } = tables.cells
    const b = tables.named[c]!
    if (!this.owns(c, 'freed')) return
    if (this.state[b] !== closed.open) {
      this.freed(c, b)
      return
    }
    this.state[b] = closed.freed
    const home = tables.home[b]!
    const { known, base, lanes } = clock
    for (let p = pairStart[first[b]!]!, end = pairStart[first[b + 1]!]!; p < end; p++) {
      const m = pairLane[p]!
      const point = lastPoint[p]!
      if (m === home || point <= base[m]! || known[home * lanes + m]! >= point) continue
      const marks = this.marked(b, c, m, point)
      if (marks === 1) this.needed[this.only] = 1
      else if (marks === 0) this.unheld(c, b, m, point)
    }
  }

  private freed(c: number, b: number): void {
    const { tables, sink } = this
    const why = this.state[b] === closed.freed ? 'a second time' : 'before its alloc'
    sink.add('L3', c, { buffer: b }, () => `${bufferName(tables.plan, b)} is freed ${why}`)
  }

  private unheld(c: number, b: number, m: number, point: number): void {
    const { tables, clock, sink } = this
    const { plan } = tables
    sink.add('L4', c, { buffer: b, lane: m }, () => {
      const last = pointAt(tables, clock, m, point)
      return `${laneName(plan, m)} last accesses ${bufferName(plan, b)} at commands[${last}] (${commandText(plan, last)}), which no use marks and no command already issued on its home ${laneName(plan, tables.home[b]!)} is after`
    })
  }

  /** How many uses of b before command c have point p of lane m before their event: 0, 1 (then it is `only`) or 2 for more. */
  private marked(b: number, c: number, m: number, p: number): number {
    const { tables, clock } = this
    const { useStart, useList, useEvent, recordOf, lane } = tables
    let count = 0
    for (let i = useStart[b]!; i < useStart[b + 1]! && count < 2; i++) {
      const u = useList[i]!
      if (u >= c) break
      const event = useEvent[u]!
      const record = recordOf[event]!
      if (record < 0 || record >= u || lane[record] !== lane[u]) continue
      const table = clock.markOf(event, 0)
      if (table === undefined || table[event * clock.lanes + m]! < p) continue
      this.only = u
      count++
    }
    return count
  }

  /** At the end of a tick: whatever is still open leaks, once a tick. */
  end(): void {
    const { tables } = this
    for (let b = 0; b < tables.buffers; b++) if (this.state[b] === closed.open) this.leaks(b)
  }

  private leaks(b: number): void {
    const { tables, sink } = this
    sink.add(
      'L3',
      this.allocCommand[b]!,
      { buffer: b },
      () => `${bufferName(tables.plan, b)} is never freed: every tick leaks ${tables.plan.buffers[b]!.bytes} bytes`,
    )
  }
}
