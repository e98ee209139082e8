import { commandText, quotedBuffer, quotedLane } from '../ir/names.js'
import { type CommandTable, Kind, Mode, pointAt } from '../order/command-table.js'
import type { Frontiers } from '../order/frontiers.js'
import { LastAccesses } from '../order/last-accesses.js'
import { eachBuffer } from '../order/packed.js'
import type { Sink } from './report.js'

/** What is kept on a cell's card beside its last touches (see LastAccesses): its last write, a point of 0 for none; and what `Lifetimes` keeps there. */
export const Card = { writeLane: 3, writePoint: 4, touched: 5, alloc: 6, lastUse: 7 } as const
const beside = 5

/**
 * L1: every read is after the write it sees. L2: every write is after all earlier reads and writes of those bytes, across
 * ticks too. Two ticks decide both: each tick has the same accesses, so the last access of a lane before a given one lies
 * in the same tick or in the one before, and what is before what is the same for every such pair of ticks (see `Frontiers`).
 * Of one lane only its last access counts, and of those only what no other one is after: the rest is before it. All of it is asked of cells: two views of one buffer
 * that share no bytes have nothing to do with each other.
 *
 * A `tick` buffer is a new one each tick, and an `input` or `output` is one of the host's slots, so their order across
 * ticks is not asked here: reuse of their bytes is the allocator's (L4), the arena's (storage.ts) or the host's affair.
 * `param` is written by nobody: it must hold its value for every tick, whatever the order. An output is read by the host
 * when its tick has completed, so some run must write it.
 */
export class Order {
  /** The last points that lanes touched each cell at, but those that another is after; a point of an earlier tick is at most the clock's base. */
  readonly last: LastAccesses

  constructor(
    private readonly tables: CommandTable,
    private readonly clock: Frontiers,
    private readonly sink: Sink,
  ) {
    const { cells, allocator } = tables
    this.last = new LastAccesses(allocator, cells.count, cells.touches, beside)
  }

  restart(): void {
    this.last.restart()
  }

  /** Judges run c, just before the clock steps over it. */
  run(c: number): void {
    const { tables, clock, last } = this
    const { start, cell, mode } = tables.cells
    const from = start[c]!
    const end = start[c + 1]!
    const l = tables.lane[c]!
    for (let a = from; a < end; a++) {
      if (mode[a] === Mode.read) this.read(c, a, l)
      else this.write(c, a, l)
    }
    const { known, lanes } = clock
    const point = known[l * (lanes + 1)]! + 1
    for (let a = from; a < end; a++) last.cover(cell[a]!, l, point, known, l * lanes)
  }

  /** As `run`, in a later tick: only of what lives on across ticks, since all else is of one tick. */
  again(c: number): void {
    const { tables, clock, last } = this
    const { start, cell, root, mode } = tables.cells
    const l = tables.lane[c]!
    const { known, lanes } = clock
    const point = known[l * (lanes + 1)]! + 1
    for (let a = start[c]!; a < start[c + 1]!; a++) {
      if (tables.kind[root[a]!] !== Kind.state && tables.kind[root[a]!] !== Kind.param) continue
      if (mode[a] === Mode.read) this.read(c, a, l)
      else this.write(c, a, l)
    }
    for (let a = start[c]!; a < start[c + 1]!; a++) last.cover(cell[a]!, l, point, known, l * lanes)
  }

  private read(c: number, a: number, l: number): void {
    const { tables, clock } = this
    const { cards } = this.last
    const card = this.last.card(tables.cells.cell[a]!)
    const point = cards[card + Card.writePoint]!
    const lane = cards[card + Card.writeLane]!
    const kind = tables.kind[tables.cells.root[a]!]!
    const carried = kind === Kind.state || kind === Kind.param
    if (point > (carried ? 0 : clock.base[lane]!)) {
      if (clock.known[l * clock.lanes + lane]! < point) this.early(c, a, l)
    } else if (kind !== Kind.param && kind !== Kind.input) this.unwrittenRead(c, a, l)
  }

  private early(c: number, a: number, l: number): void {
    const { tables, clock, sink } = this
    const { cards } = this.last
    const card = this.last.card(tables.cells.cell[a]!)
    const b = tables.cells.named[a]!
    const lane = cards[card + Card.writeLane]!
    const point = cards[card + Card.writePoint]!
    sink.add('L1', c, { buffer: b, lane: l }, () => {
      const { plan } = tables
      const write = pointAt(tables, clock, lane, point)
      return `it reads ${quotedBuffer(plan, b)} without being after its write, commands[${write}] (${commandText(plan, write)})${this.ago(lane, point)}; ${quotedLane(plan, l)} waits for no event that follows it`
    })
  }

  private unwrittenRead(c: number, a: number, l: number): void {
    const { tables, sink } = this
    const b = tables.cells.named[a]!
    const root = tables.cells.root[a]!
    const { life, init } = eachBuffer(tables.plan).at(root)!
    if (life === 'state' && init !== undefined) return
    sink.add('L1', c, { buffer: b, lane: l }, () => {
      const whole = tables.cells.first[root + 1]! - tables.cells.first[root]! > 1 ? ' whole' : ''
      const what = `it reads ${quotedBuffer(tables.plan, b)} (${life})`
      return life === 'state'
        ? `${what}, which has no initial value, before any run has written it${whole}`
        : `${what} before any run of the tick has written it${whole}`
    })
  }

  private write(c: number, a: number, l: number): void {
    const { tables, clock } = this
    const { cards } = this.last
    const { known, base, lanes } = clock
    const card = this.last.card(tables.cells.cell[a]!)
    const kind = tables.kind[tables.cells.root[a]!]!
    const here = known[l * lanes + l]! + 1
    const carried = kind === Kind.state || kind === Kind.param
    if (kind === Kind.param) this.changed(c, a, l)
    if (cards[card + Card.writePoint] === here && cards[card + Card.writeLane] === l) this.twice(c, a, l)
    for (let e = cards[card] === 0 ? 0 : card; e !== 0; e = cards[e + 2]!) {
      const m = cards[e]! - 1
      const point = cards[e + 1]!
      if (m === l || point <= (carried ? 0 : base[m]!) || known[l * lanes + m]! >= point) continue
      this.clash(c, a, l, m, point)
    }
    cards[card + Card.writeLane] = l
    cards[card + Card.writePoint] = here
  }

  private changed(c: number, a: number, l: number): void {
    const { tables, sink } = this
    const b = tables.cells.named[a]!
    sink.add(
      'L2',
      c,
      { buffer: b, lane: l },
      () =>
        `it writes ${quotedBuffer(tables.plan, b)}, a param: every tick reads the value that was given at opening, so nothing may write it`,
    )
  }

  private twice(c: number, a: number, l: number): void {
    const { tables, sink } = this
    const b = tables.cells.named[a]!
    sink.add(
      'L2',
      c,
      { buffer: b, lane: l },
      () => `it writes ${quotedBuffer(tables.plan, b)} twice: the two writes of one run have no order`,
    )
  }

  private clash(c: number, a: number, l: number, m: number, point: number): void {
    const { tables, clock, sink } = this
    const b = tables.cells.named[a]!
    sink.add('L2', c, { buffer: b, lane: l }, () => {
      const earlier = pointAt(tables, clock, m, point)
      return `it writes ${quotedBuffer(tables.plan, b)} without being after its earlier access, commands[${earlier}] (${commandText(tables.plan, earlier)})${this.ago(m, point)}`
    })
  }

  /** After the first tick: an output of which some byte was not written is handed to the host as it was. */
  unwritten(): void {
    const { tables, sink } = this
    const { first } = tables.cells
    for (let b = 0; b < tables.buffers; b++) {
      if (tables.kind[b] !== Kind.output || tables.root[b] !== b) continue
      let missing = 0
      for (let cell = first[b]!; cell < first[b + 1]!; cell++)
        if (this.last.cards[this.last.card(cell) + Card.writePoint] === 0) missing++
      if (missing === 0) continue
      const what = missing < first[b + 1]! - first[b]! ? 'no run writes all of it' : 'no run writes it'
      sink.add(
        'L1',
        -1,
        { buffer: b },
        () => `the host reads output ${quotedBuffer(tables.plan, b)} at the end of a tick, and ${what}`,
      )
    }
  }

  private ago(lane: number, point: number): string {
    return point > this.clock.base[lane]! ? '' : ', of the tick before'
  }
}
