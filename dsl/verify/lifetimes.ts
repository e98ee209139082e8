import { commandText, quotedBuffer, quotedLane } from '../ir/names.js'
import { type CommandTable, Kind, Op, pointAt } from '../order/command-table.js'
import type { Frontiers } from '../order/frontiers.js'
import type { LastAccesses } from '../order/last-accesses.js'
import { Card } from './order.js'
import type { Sink } from './report.js'

/** Of a buffer, on the card of its first cell: `never` while it has not been allocated, `freed` when it has been, and in between 1 + its home's point at the alloc. */
const alloc = { never: 0, freed: -1 } as const

/** The command that allocates b first. */
const allocOf = ({ op, named }: CommandTable, b: number): number =>
  named.findIndex((id, c) => id === b && op[c] === Op.alloc)

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
  /** Uses so far, and by use, 1 + the one of its root before it. */
  private uses = 0
  private readonly useBefore: Int32Array
  /**
   * First touches, each behind its command, of what is allocated before its home's first point of the tick, by a lane that knows no point of that tick of it: only for those the
   * tick before matters.
   */
  private readonly crossing: number[] = []
  /** In a second tick, the next of them. */
  private crossed = 0
  private only = -1
  /** Whether each buffer is one cell, of the same number. */
  private readonly plain: boolean

  constructor(
    private readonly tables: CommandTable,
    private readonly clock: Frontiers,
    private readonly sink: Sink,
    /** The last points that lanes touched each cell at, but those that another is after: what holds that one back holds them back too. */
    private readonly last: LastAccesses,
    /** By use, whether it alone stands for some access; what L6 asks. */
    private readonly needed: Uint8Array,
  ) {
    this.useBefore = tables.allocator.int32(tables.uses)
    this.plain = tables.cells.cell === tables.accessRoot
  }

  /** The card of a root: that of its first cell. */
  private card(b: number): number {
    return this.last.card(this.plain ? b : this.tables.cells.first[b]!)
  }

  /** What is on cards is as new already. */
  restart(): void {
    this.uses = 0
    this.crossing.length = 0
    this.crossed = 0
  }

  get crosses(): boolean {
    return this.crossing.length > 0
  }

  /** Judges an alloc, as all commands below just before the clock steps over it. Whether it allocates anything. */
  alloc(c: number): boolean {
    const { tables, clock, sink } = this
    const { cards } = this.last
    const b = tables.named[c]!
    const { plan } = tables
    const home = tables.home[b]!
    if (!this.owns(c, 'allocated')) return false
    const at = this.card(b) + Card.alloc
    if (cards[at] !== alloc.never) {
      sink.add(
        'L3',
        c,
        { buffer: b, lane: tables.lane[c]! },
        () => `${quotedBuffer(plan, b)} is allocated a second time, first at commands[${allocOf(tables, b)}]`,
      )
      return false
    }
    if (tables.lane[c] !== home) {
      sink.add(
        'L3',
        c,
        { buffer: b, lane: tables.lane[c]! },
        () =>
          `${quotedBuffer(plan, b)} is allocated on ${quotedLane(plan, tables.lane[c]!)}, but its home is ${quotedLane(plan, home)}`,
      )
    }
    cards[at] = 1 + clock.known[home * (clock.lanes + 1)]!
    return true
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
        ? `its life is ${tables.plan.buffers[b]!.life}`
        : `it is a view of ${quotedBuffer(tables.plan, tables.root[b]!)}`
    sink.add('L3', c, { buffer: b }, () => `${quotedBuffer(tables.plan, b)} is ${verb}, but ${why}`)
  }

  run(c: number): void {
    const { tables, clock, last } = this
    const { cards } = last
    const { start, root, cell } = tables.cells
    const l = tables.lane[c]!
    for (let a = start[c]!, end = start[c + 1]!; a < end; a++) {
      const b = root[a]!
      if (tables.kind[b] !== Kind.tick) continue
      const touched = last.card(cell[a]!) + Card.touched
      const fresh = cards[touched] === 0
      cards[touched] = 1
      const allocated = cards[this.card(b) + Card.alloc]!
      if (allocated <= 0) this.outside(c, a, l)
      else if (fresh) {
        const home = tables.home[b]!
        if (l === home) continue
        const point = allocated - 1
        const known = clock.known[l * clock.lanes + home]!
        if (known < point) this.tooEarly(c, a, l)
        else if (known <= clock.base[home]!) this.crossing.push(c, a)
      }
    }
  }

  /** As `run`, in a second tick: only of touches that cross, which must be after all that their home had issued in the tick before. */
  again(c: number): void {
    const { crossing, clock, tables } = this
    for (; crossing[this.crossed] === c; this.crossed += 2) {
      const a = crossing[this.crossed + 1]!
      const l = tables.lane[c]!
      const home = tables.home[tables.cells.root[a]!]!
      if (clock.known[l * clock.lanes + home]! < clock.base[home]!) this.tooEarly(c, a, l)
    }
  }

  private outside(c: number, a: number, l: number): void {
    const { tables, sink } = this
    const named = tables.cells.named[a]!
    const never = this.last.cards[this.card(tables.cells.root[a]!) + Card.alloc] === alloc.never
    sink.add(
      'L3',
      c,
      { buffer: named, lane: l },
      () =>
        `it accesses ${quotedBuffer(tables.plan, named)} ${never ? 'before its alloc' : 'after its free'}`,
    )
  }

  private tooEarly(c: number, a: number, l: number): void {
    const { tables, sink } = this
    const { plan } = tables
    const named = tables.cells.named[a]!
    const b = tables.cells.root[a]!
    const at = allocOf(tables, b)
    sink.add(
      'L3',
      c,
      { buffer: named, lane: l },
      () =>
        `it is the first access of ${quotedBuffer(plan, named)}, but is not after the point of its home ${quotedLane(plan, tables.home[b]!)} at commands[${at}] (${commandText(plan, at)}): what held these bytes before may still use them`,
    )
  }

  use(c: number): void {
    const { tables } = this
    const { cards } = this.last
    const b = tables.named[c]!
    const card = this.card(tables.subject[c]!)
    const u = this.uses++
    if (tables.kind[b] === Kind.tick && cards[card + Card.alloc]! <= 0) this.misplaced(c, b)
    if (!this.marks(c, u)) {
      this.unmarked(c, b, u)
      return
    }
    this.useBefore[u] = cards[card + Card.lastUse]!
    cards[card + Card.lastUse] = u + 1
  }

  private misplaced(c: number, b: number): void {
    const { tables, sink } = this
    const freed = this.last.cards[this.card(tables.subject[c]!) + Card.alloc] === alloc.freed
    const when = freed ? 'after its free, which it can no longer hold back' : 'before its alloc'
    sink.add(
      'L3',
      c,
      { buffer: b, lane: tables.lane[c]! },
      () => `it marks ${quotedBuffer(tables.plan, b)} ${when}`,
    )
  }

  private unmarked(c: number, b: number, u: number): void {
    const { tables, sink } = this
    const event = tables.useEvent[u]!
    sink.add('L4', c, { buffer: b, lane: tables.lane[c]!, event: tables.eventId[event]! }, () => {
      const record = tables.recordOf[event]!
      const found =
        record < 0
          ? 'which is never recorded'
          : record > c
            ? `which is recorded only later, at commands[${record}]`
            : `which is recorded on ${quotedLane(tables.plan, tables.lane[record]!)}`
      return `it marks the last access of ${quotedBuffer(tables.plan, b)} on ${quotedLane(tables.plan, tables.lane[c]!)} by e${tables.eventId[event]}, ${found}`
    })
  }

  /** Does use u, command c, stand for a point at all: an event recorded earlier in the tick, on the lane that it names? */
  private marks(c: number, u: number): boolean {
    const { tables } = this
    const record = tables.recordOf[tables.useEvent[u]!]!
    return record >= 0 && record < c && tables.lane[record] === tables.lane[c]
  }

  /** Whether it frees anything. */
  free(c: number): boolean {
    const { tables, clock, last } = this
    const { cards } = last
    const { first } = tables.cells
    const b = tables.named[c]!
    if (!this.owns(c, 'freed')) return false
    const at = this.card(b) + Card.alloc
    if (cards[at]! <= 0) {
      this.freed(c, b)
      return false
    }
    cards[at] = alloc.freed
    const home = tables.home[b]!
    const { known, base, lanes } = clock
    const from = this.plain ? b : first[b]!
    const end = this.plain ? b + 1 : first[b + 1]!
    for (let cell = from; cell < end; cell++) {
      for (let e = last.first(cell); e !== 0; e = cards[e + 2]!) {
        const m = cards[e]! - 1
        const point = cards[e + 1]!
        if (m === home || point <= base[m]! || known[home * lanes + m]! >= point) continue
        const marks = this.marked(b, m, point)
        if (marks === 1) this.needed[this.only] = 1
        else if (marks === 0) this.unheld(c, b, m, point)
      }
    }
    return true
  }

  private freed(c: number, b: number): void {
    const { tables, sink } = this
    const why =
      this.last.cards[this.card(b) + Card.alloc] === alloc.freed ? 'a second time' : 'before its alloc'
    sink.add('L3', c, { buffer: b }, () => `${quotedBuffer(tables.plan, b)} is freed ${why}`)
  }

  private unheld(c: number, b: number, m: number, point: number): void {
    const { tables, clock, sink } = this
    const { plan } = tables
    sink.add('L4', c, { buffer: b, lane: m }, () => {
      const last = pointAt(tables, clock, m, point)
      return `${quotedLane(plan, m)} last accesses ${quotedBuffer(plan, b)} at commands[${last}] (${commandText(plan, last)}), which no use marks and no command already issued on its home ${quotedLane(plan, tables.home[b]!)} is after`
    })
  }

  /** How many uses of b so far have point p of lane m before their event: 0, 1 (then it is `only`) or 2 for more. */
  private marked(b: number, m: number, p: number): number {
    const { clock, useBefore } = this
    const { useEvent } = this.tables
    let count = 0
    for (
      let u = this.last.cards[this.card(b) + Card.lastUse]! - 1;
      u >= 0 && count < 2;
      u = useBefore[u]! - 1
    ) {
      const event = useEvent[u]!
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
    for (let b = 0; b < tables.buffers; b++)
      if (this.last.cards[this.card(b) + Card.alloc]! > 0) this.leaks(b)
  }

  private leaks(b: number): void {
    const { tables, sink } = this
    sink.add(
      'L3',
      allocOf(tables, b),
      { buffer: b },
      () =>
        `${quotedBuffer(tables.plan, b)} is never freed: every tick leaks ${tables.plan.buffers[b]!.bytes} bytes`,
    )
  }
}
