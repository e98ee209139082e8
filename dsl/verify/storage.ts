import { commandText, quotedBuffer } from '../ir/names.js'
import { type CommandTable, Kind, Op, pointAt } from '../order/command-table.js'
import type { Frontiers } from '../order/frontiers.js'
import { IntervalMap } from '../order/interval-map.js'
import { LastAccesses } from '../order/last-accesses.js'
import type { Sink } from './report.js'

/** The last access that lane `lane` made of an owner before. */
interface Debt {
  readonly previous: number
  readonly lane: number
  readonly point: number
}

/**
 * L3 and L4 with planned storage: of two buffers that share bytes, every access of one is before the first access of the
 * other, across ticks too. Reported as L3 where their lifetimes overlap in issue order already, else as L4.
 *
 * Only successive owners of a byte are compared: each is wholly before the next one's first access, and that access is one
 * of the next one's own, so any two owners further apart are ordered through those between. A buffer of the tick before is
 * an owner like any other, itself included. `state` and `param` hold their bytes across all ticks and share them with nobody.
 * Of a buffer whose views are accessed, whose bytes need no order among each other, every cell's first access is asked (see ByteIntervals).
 * A pinned buffer has no place in the arena: it has bytes of its own, so its only other owner is itself, a tick earlier.
 */
export class Storage {
  private readonly intervals: IntervalMap[] = []
  private readonly from: Int32Array
  private readonly to: Int32Array
  /** The tick of the buffer's last first access, and whether other owners have taken its bytes since. */
  private readonly claimed: Int32Array
  private readonly taker: Int32Array
  private readonly last: LastAccesses
  /** Of roots of several cells: what each cell's first access of the tick must be after; by cell, the tick in which it was accessed last. */
  private readonly debts = new Map<number, { readonly since: number; readonly debts: readonly Debt[] }>()
  private readonly touched: Int32Array

  constructor(
    private readonly tables: CommandTable,
    private readonly clock: Frontiers,
    private readonly sink: Sink,
  ) {
    const { buffers, cells, accesses, allocator } = tables
    this.from = allocator.int32(buffers).fill(-1)
    this.to = allocator.int32(buffers).fill(-1)
    this.claimed = allocator.int32(buffers).fill(-1)
    this.taker = allocator.int32(buffers).fill(-1)
    this.last = new LastAccesses(allocator, buffers, accesses)
    this.touched = allocator.int32(cells.count).fill(-1)
    for (let device = 0; device < tables.plan.devices; device++) this.cut(device)
  }

  restart(): void {
    for (const intervals of this.intervals) intervals.restart()
    this.claimed.fill(-1)
    this.taker.fill(-1)
    this.last.restart()
    this.debts.clear()
    this.touched.fill(-1)
  }

  private cut(device: number): void {
    const roots = arenaRoots(this.tables, device)
    const { buffers } = this.tables.plan
    const cuts = Float64Array.from(
      roots.flatMap(b => [buffers[b]!.offset!, buffers[b]!.offset! + buffers[b]!.bytes]),
    ).sort()
    let count = 0
    for (let i = 0; i < cuts.length; i++) if (i === 0 || cuts[i] !== cuts[i - 1]) cuts[count++] = cuts[i]!
    const index = (value: number) => {
      let low = 0
      for (let high = count - 1; low < high; ) {
        const middle = (low + high) >> 1
        if (cuts[middle]! < value) low = middle + 1
        else high = middle
      }
      return low
    }
    for (const b of roots) {
      this.from[b] = index(buffers[b]!.offset!)
      this.to[b] = index(buffers[b]!.offset! + buffers[b]!.bytes)
    }
    this.intervals.push(new IntervalMap(count))
  }

  /** Judges command c, just before the clock steps over it. */
  step(c: number): void {
    const { tables, sink } = this
    const code = tables.op[c]
    if (code === Op.run) this.run(c)
    if (code !== Op.alloc && code !== Op.free && code !== Op.use) return
    sink.add(
      code === Op.use ? 'L4' : 'L3',
      c,
      { buffer: tables.named[c]! },
      () =>
        `a plan with planned storage has no alloc, use or free: ${quotedBuffer(tables.plan, tables.named[c]!)} has its place in the arena`,
    )
  }

  // All claims of a run come before the question who has been displaced: a run that reads bytes which it writes as another
  // buffer displaces an owner that it is itself still using.
  private run(c: number): void {
    const { tables, clock, sink } = this
    const l = tables.lane[c]!
    const end = tables.accessStart[c + 1]!
    for (let a = tables.accessStart[c]!; a < end; a++) {
      const b = tables.accessRoot[a]!
      if (tables.kind[b] !== Kind.tick || this.claimed[b] === clock.tick) continue
      this.claimed[b] = clock.tick
      this.taker[b] = -1
      const { first } = tables.cells
      const debts: Debt[] | undefined = first[b + 1]! - first[b]! > 1 ? [] : undefined
      if (debts !== undefined) this.debts.set(b, { since: c, debts })
      const intervals = this.from[b] === -1 ? undefined : this.intervals[tables.plan.buffers[b]!.device]
      if (intervals === undefined) this.follow(c, l, b, b, debts)
      else {
        intervals.claim(this.from[b]!, this.to[b]!, b, previous => {
          if (previous !== b) this.taker[previous] = b
          this.follow(c, l, b, previous, debts)
        })
      }
    }
    if (this.debts.size > 0) this.cells(c, l)
    const point = clock.known[l * tables.lanes + l]! + 1
    for (let a = tables.accessStart[c]!; a < end; a++) {
      const b = tables.accessRoot[a]!
      const taker = this.taker[b]!
      if (taker !== -1 && tables.kind[b] === Kind.tick) {
        const named = tables.accessNamed[a]!
        sink.add(
          'L3',
          c,
          { buffer: named, lane: l },
          () =>
            `it accesses ${quotedBuffer(tables.plan, named)}, whose bytes ${quotedBuffer(tables.plan, taker)} has taken over: the two share bytes, and their accesses must not overlap`,
        )
      }
      this.last.touch(b, l, point)
    }
  }

  /** First accesses of cells whose buffer another run has claimed already in this tick. */
  private cells(c: number, l: number): void {
    const { tables, clock, touched } = this
    const { start, cell, root } = tables.cells
    for (let a = start[c]!, end = start[c + 1]!; a < end; a++) {
      const b = root[a]!
      if (touched[cell[a]!] === clock.tick) continue
      touched[cell[a]!] = clock.tick
      const owed = this.debts.get(b)
      if (owed === undefined || owed.since === c) continue
      for (const debt of owed.debts) this.after(c, l, b, debt.previous, debt.lane, debt.point)
    }
  }

  /** Every access of `previous` is before the first access of b, which run c on lane l makes; `debts` keeps what they were. */
  private follow(c: number, l: number, b: number, previous: number, debts: Debt[] | undefined): void {
    const { cards } = this.last
    for (let e = this.last.first(previous); e !== 0; e = cards[e + 2]!) {
      const lane = cards[e]! - 1
      const point = cards[e + 1]!
      debts?.push({ previous, lane, point })
      this.after(c, l, b, previous, lane, point)
    }
  }

  private after(c: number, l: number, b: number, previous: number, m: number, point: number): void {
    const { tables, clock, sink } = this
    if (m === l || clock.covers(l, m, point)) return
    sink.add('L4', c, { buffer: b, lane: l }, () => {
      const earlier = pointAt(tables, clock, m, point)
      const ago = point <= clock.base[m]! ? ' in the tick before' : ''
      return `its first access of ${quotedBuffer(tables.plan, b)} is not after the last access of ${quotedBuffer(tables.plan, previous)}, which has the same bytes${ago}: commands[${earlier}] (${commandText(tables.plan, earlier)})`
    })
  }
}

/** The roots that lie in a device's arena. */
const arenaRoots = (tables: CommandTable, device: number): number[] => {
  const found: number[] = []
  tables.plan.buffers.forEach((buffer, b) => {
    if (
      buffer.space === 'device' &&
      buffer.device === device &&
      tables.root[b] === b &&
      buffer.offset !== undefined &&
      buffer.bytes > 0
    )
      found.push(b)
  })
  return found
}

/** `state` and `param` share bytes with nobody, and nothing lies outside its arena: both without any replay. */
export const checkArena = (tables: CommandTable, sink: Sink): void => {
  const { plan } = tables
  for (let device = 0; device < plan.devices; device++) {
    const roots = arenaRoots(tables, device).sort(
      (x, y) => plan.buffers[x]!.offset! - plan.buffers[y]!.offset! || x - y,
    )
    const end = (b: number) => plan.buffers[b]!.offset! + plan.buffers[b]!.bytes
    const lasting = (b: number) => tables.kind[b] !== Kind.tick
    let furthest = -1
    let furthestLasting = -1
    for (const b of roots) {
      const offset = plan.buffers[b]!.offset!
      const over = lasting(b) ? furthest : furthestLasting
      if (over !== -1 && end(over) > offset) {
        const [kept, other] = lasting(b) ? [b, over] : [over, b]
        sink.add(
          'L3',
          -1,
          { buffer: kept },
          () =>
            `${quotedBuffer(plan, kept)} (${plan.buffers[kept]!.life}) keeps its bytes across ticks, and ${quotedBuffer(plan, other)} lies over them`,
        )
      }
      if (furthest === -1 || end(b) > end(furthest)) furthest = b
      if (lasting(b) && (furthestLasting === -1 || end(b) > end(furthestLasting))) furthestLasting = b
      const arena = plan.arena?.[device] ?? 0
      if (end(b) > arena) {
        sink.add(
          'L9',
          -1,
          { buffer: b },
          () =>
            `${quotedBuffer(plan, b)} ends at byte ${end(b)} of device ${device}'s arena, which has ${arena}`,
        )
      }
    }
  }
  plan.buffers.forEach((buffer, b) => {
    if (buffer.space !== 'device' || tables.root[b] !== b) return
    const { offset } = buffer
    if (offset !== undefined && !(Number.isSafeInteger(offset) && offset >= 0))
      sink.add(
        'L3',
        -1,
        { buffer: b },
        () => `${quotedBuffer(plan, b)} lies at byte ${offset} of its device's arena`,
      )
    if (offset !== undefined) return
    if (buffer.life === 'input' || buffer.life === 'output') return
    sink.add(
      'L3',
      -1,
      { buffer: b },
      () => `${quotedBuffer(plan, b)} has no offset, so no place in its device's arena`,
    )
  })
}
