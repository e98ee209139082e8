import { IntervalMap } from '../collections/interval-map.js'
import { lowerBound } from '../collections/lower-bound.js'
import { commandText, quotedBuffer } from '../ir/names.js'
import { ownBytesFrom } from '../memory/arenas.js'
import { type CommandTable, Kind, Op } from '../order/command-table.js'
import { LastAccesses } from '../order/last-accesses.js'
import type { Replay } from '../order/replay.js'
import type { Sink } from './report.js'

/** The last access that lane `lane` made of the buffer `of`, which had the same bytes before. */
interface Earlier {
  readonly of: number
  readonly lane: number
  readonly point: number
}

/**
 * L3 and L4 with planned storage: of two buffers that share bytes, every access of one is before the first
 * access of the other, across ticks too. Reported as L3 where the two overlap in issue order already, else as
 * L4.
 *
 * Only successive owners of a byte are compared: each is wholly before the next one's first access, and that
 * access is one of the next one's own, so any two owners further apart are ordered through those between. A
 * buffer of the tick before is an owner like any other, itself included. `state` and `param` hold their bytes
 * across all ticks, and share them with no other buffer. Where a buffer has several byte intervals, which
 * need no order among each other, the first access of every interval is judged. A pinned buffer has bytes of
 * its own, so its only other owner is itself, a tick earlier.
 */
export class ArenaOrder {
  /**
   * By device, the owners of its arena's bytes; by buffer, its bytes there in cuts: from and to, -1 where it
   * has no place.
   */
  private readonly owners: IntervalMap[] = []
  private readonly from: Int32Array
  private readonly to: Int32Array
  /**
   * By buffer, the tick of its last first access, and the buffer that has taken its bytes since; -1: none.
   */
  private readonly claimed: Int32Array
  private readonly taker: Int32Array
  private readonly last: LastAccesses
  /**
   * By root of several intervals: the command of its first access in the tick, and what the first access of
   * each interval must be after.
   */
  private readonly earlier = new Map<number, { readonly since: number; readonly accesses: Earlier[] }>()
  /** Whether ticks in flight have arenas of their own: then those of a tick have had no owner before it. */
  private readonly ownLanes: boolean
  /** Bytes of the arena have had other owners in the tick before. */
  readonly looksBack: boolean
  /** By interval, the tick of its last access. */
  private readonly accessed: Int32Array

  constructor(
    private readonly replay: Replay,
    private readonly sink: Sink,
  ) {
    const { plan, buffers, intervals, accesses, allocator } = replay.table
    this.from = allocator.int32(buffers).fill(-1)
    this.to = allocator.int32(buffers).fill(-1)
    this.claimed = allocator.int32(buffers)
    this.taker = allocator.int32(buffers)
    this.ownLanes = replay.lanes > replay.table.lanes
    this.looksBack = !this.ownLanes
    this.last = new LastAccesses(allocator, buffers, accesses)
    this.accessed = allocator.int32(intervals.count)
    for (let device = 0; device < plan.devices; device++) this.cut(device)
  }

  restart(): void {
    for (const owners of this.owners) owners.restart()
    this.claimed.fill(-1)
    this.taker.fill(-1)
    this.last.restart()
    this.earlier.clear()
    this.accessed.fill(-1)
  }

  begin(): void {
    if (this.ownLanes) this.restart()
  }

  end(): void {}

  private cut(device: number): void {
    const { table } = this.replay
    const roots = arenaRoots(table, device)
    const { buffers } = table.plan
    const ends = (b: number): [number, number] => [
      buffers[b]!.offset!,
      buffers[b]!.offset! + buffers[b]!.bytes,
    ]
    const cuts = Float64Array.from(new Set(roots.flatMap(ends))).sort()
    for (const b of roots) {
      const [from, to] = ends(b)
      this.from[b] = lowerBound(cuts, from)
      this.to[b] = lowerBound(cuts, to)
    }
    this.owners.push(new IntervalMap(cuts.length))
  }

  /** Judges command c, just before it is issued. */
  judge(c: number): void {
    const { op, named, plan } = this.replay.table
    const code = op[c]
    if (code === Op.run) this.run(c)
    if (code !== Op.alloc && code !== Op.free && code !== Op.use) return
    this.sink.add(
      code === Op.use ? 'L4' : 'L3',
      c,
      { buffer: named[c]! },
      () =>
        'a plan with planned storage has no alloc, use or free: ' +
        `${quotedBuffer(plan, named[c]!)} has its place in the arena`,
    )
  }

  // A run claims all its bytes before its accesses are judged: a run that reads bytes which it writes as
  // another buffer displaces an owner that it is itself still using.
  private run(c: number): void {
    const { replay, taker, last } = this
    const { plan, lanes, kind, accessStart, accessRoot, accessNamed } = replay.table
    const l = replay.laneOf(c)
    const end = accessStart[c + 1]!
    for (let a = accessStart[c]!; a < end; a++) {
      const b = accessRoot[a]!
      if (kind[b] === Kind.tick && this.claimed[b] !== replay.tick) this.claim(c, l, b)
    }
    if (this.earlier.size > 0) this.furtherIntervals(c, l)
    for (let a = accessStart[c]!; a < end; a++) {
      const b = accessRoot[a]!
      const by = taker[b]!
      if (by !== -1 && kind[b] === Kind.tick) {
        const named = accessNamed[a]!
        this.sink.add(
          'L3',
          c,
          { buffer: named, lane: l % lanes },
          () =>
            `it accesses ${quotedBuffer(plan, named)}, ` +
            `whose bytes ${quotedBuffer(plan, by)} has taken over: ` +
            'the two share bytes, and their accesses must not overlap',
        )
      }
      last.put(b, l, replay.now(l) + 1)
    }
  }

  /**
   * The first access of b in the tick: b takes its bytes from their owners, whose accesses must all be
   * before.
   */
  private claim(c: number, l: number, b: number): void {
    const { replay, taker, from, to } = this
    const { plan, intervals } = replay.table
    this.claimed[b] = replay.tick
    taker[b] = -1
    const accesses: Earlier[] | undefined = intervals.first[b + 1]! - intervals.first[b]! > 1 ? [] : undefined
    if (accesses !== undefined) this.earlier.set(b, { since: c, accesses })
    if (from[b] === -1) this.follow(c, l, b, b, accesses)
    else
      this.owners[plan.buffers[b]!.device]!.claim(from[b]!, to[b]!, b, previous => {
        if (previous !== b) taker[previous] = b
        this.follow(c, l, b, previous, accesses)
      })
  }

  /** First accesses of intervals whose buffer another run of the tick has claimed. */
  private furtherIntervals(c: number, l: number): void {
    const { replay, accessed } = this
    const { start, interval, root } = replay.table.intervals
    for (let a = start[c]!, end = start[c + 1]!; a < end; a++) {
      if (accessed[interval[a]!] === replay.tick) continue
      accessed[interval[a]!] = replay.tick
      const earlier = this.earlier.get(root[a]!)
      if (earlier === undefined || earlier.since === c) continue
      for (const { of, lane, point } of earlier.accesses) this.after(c, l, root[a]!, of, lane, point)
    }
  }

  /**
   * Every access of `previous` is before the first access of b, which run c on lane l makes; `accesses` keeps
   * them.
   */
  private follow(c: number, l: number, b: number, previous: number, accesses: Earlier[] | undefined): void {
    const { last } = this
    for (let e = last.first(previous); e !== 0; e = last.next(e)) {
      const [lane, point] = [last.laneOf(e), last.pointOf(e)]
      accesses?.push({ of: previous, lane, point })
      this.after(c, l, b, previous, lane, point)
    }
  }

  private after(c: number, l: number, b: number, previous: number, m: number, point: number): void {
    const { replay } = this
    const { plan, lanes } = replay.table
    if (m === l || replay.isBefore(l, m, point)) return
    this.sink.add('L4', c, { buffer: b, lane: l % lanes }, () => {
      const access = replay.commandAt(m, point)
      const ago = point <= replay.base[m]! ? ' in the tick before' : ''
      return [
        `its first access of ${quotedBuffer(plan, b)} is not after `,
        `the last access of ${quotedBuffer(plan, previous)}, which has the same bytes${ago}: `,
        `commands[${access}] (${commandText(plan, access)})`,
      ].join('')
    })
  }
}

/** The roots that lie in a device's arena. */
const arenaRoots = (table: CommandTable, device: number): number[] => {
  const found: number[] = []
  table.plan.buffers.forEach((buffer, b) => {
    if (
      buffer.space === 'device' &&
      buffer.device === device &&
      table.root[b] === b &&
      buffer.offset !== undefined &&
      buffer.bytes > 0
    )
      found.push(b)
  })
  return found
}

/**
 * Several arenas are as many as ticks in flight: so an arena is used again only when the host knows that its
 * tick has completed. Ticks share `state` and `param` alone, so these lie below all that a tick has for
 * itself.
 */
const checkArenas = (table: CommandTable, sink: Sink): void => {
  const { arenas = 1, inFlight, devices, buffers } = table.plan
  if (arenas === 1) return
  if (arenas !== inFlight)
    sink.add(
      'L4',
      -1,
      {},
      () =>
        `it has ${arenas} arenas for ${inFlight} ticks in flight: wanted one arena, or as many as ticks in ` +
        `flight, since the host waits only for the end of the tick ${inFlight} before`,
    )
  for (let device = 0; device < devices; device++) {
    const from = ownBytesFrom(table.plan, device)
    for (const b of arenaRoots(table, device)) {
      const { life, offset, bytes } = buffers[b]!
      if (table.kind[b] === Kind.tick || offset! + bytes <= from) continue
      sink.add(
        'L3',
        -1,
        { buffer: b },
        () =>
          `${quotedBuffer(table.plan, b)} (${life}) is there once and ends at byte ${offset! + bytes}, and from ` +
          `byte ${from} on each tick in flight has an arena of its own`,
      )
    }
  }
}

/**
 * Without any replay: `state` and `param` share bytes with no other buffer, and nothing lies outside its
 * arena.
 */
export const checkArena = (table: CommandTable, sink: Sink): void => {
  const { plan } = table
  checkArenas(table, sink)
  for (let device = 0; device < plan.devices; device++) {
    const roots = arenaRoots(table, device).sort(
      (x, y) => plan.buffers[x]!.offset! - plan.buffers[y]!.offset! || x - y,
    )
    const end = (b: number) => plan.buffers[b]!.offset! + plan.buffers[b]!.bytes
    const lasting = (b: number) => table.kind[b] !== Kind.tick
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
            `${quotedBuffer(plan, kept)} (${plan.buffers[kept]!.life}) keeps its bytes across ticks, ` +
            `and ${quotedBuffer(plan, other)} lies over them`,
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
    if (buffer.space !== 'device' || table.root[b] !== b) return
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
