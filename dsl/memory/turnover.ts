import type { Plan } from '../ir/plan.js'
import { type CommandTable, Kind, Op } from '../order/command-table.js'
import { Frontiers } from '../order/frontiers.js'
import { LastAccesses } from '../order/last-accesses.js'
import { type ArrayAllocator, heap } from '../order/scratch-arena.js'
import { Ledger } from './ledger.js'
import { rounded } from './range-pool.js'

/** In which ticks an event happens: a plan that leaks, or frees first, does otherwise in its first tick. */
export const When = { always: 0, firstTick: 1, laterTicks: 2 } as const

/**
 * What one memory (a device's, or pinned) gives out and takes back in a tick, in issue order, made flat for replays of many ticks.
 *
 * From tick `inFlight` on, what lanes know of each other is the same in every tick, counted from the tick's first points (see Frontiers); and in the
 * ticks before, what they know less of is nothing but ticks that never were. So one tick's frontiers, with points counted from the start of
 * the tick, are those of all: point p of a tick is point p + n · length[lane] of the run, n ticks later.
 */
export interface Turnover {
  readonly lanes: number
  readonly inFlight: number
  /** Points of each lane in one tick. */
  readonly length: Int32Array
  /** Events in issue order: a >= 0 is alloc number a, and -1 - f is free number f. Allocs are numbered lane by lane, in issue order on each; frees in issue order. */
  readonly event: Int32Array
  readonly when: Uint8Array
  readonly command: Int32Array
  readonly buffer: Int32Array
  readonly allocs: number
  readonly allocLane: Int32Array
  /** Its lane's frontier at alloc a: `frontier[a · lanes ..]`, from the start of the tick. */
  readonly frontier: Int32Array
  readonly frees: number
  /** What a taker of free f must be after: points `releasePoint` of lanes `releaseLane`, from releaseStart[f] up to releaseStart[f + 1]. */
  readonly releaseStart: Int32Array
  readonly releaseLane: Int32Array
  readonly releasePoint: Int32Array
  /** Size of each alloc and each free. */
  readonly allocBytes: Float64Array
  readonly freeBytes: Float64Array
  /** What is still held when a tick ends: 0 but for a plan that leaks. */
  readonly leaked: number
}

/** After which points freed bytes may be taken: all accesses (law L9), or the home lane's point at the free and those of the uses (the session's pool). */
export type Releases = 'accesses' | 'uses'

/** A device's index, or `devices` for pinned memory. */
export const memoryOf = (plan: Plan, b: number): number => {
  const buffer = plan.buffers[b]!
  return buffer.space === 'pinned' ? plan.devices : Math.min(Math.max(0, buffer.device), plan.devices - 1)
}

/** By command: bit 0 where an alloc or free happens in the first tick, bit 1 where it does in later ones, which depends on what a tick leaves open. Where L3 holds every one happens in all. */
const eventsOf = ({ commands, op, subject, named, kind, buffers }: CommandTable, room: ArrayAllocator) => {
  const open = room.uint8(buffers)
  const ticks = room.uint8(commands)
  let strays = false
  const replay = (bit: number): void => {
    for (let c = 0; c < commands; c++) {
      const code = op[c]
      if (code !== Op.alloc && code !== Op.free) continue
      const b = subject[c]!
      // A view is never allocated or freed itself: law L3 says so, and its root stays as it was.
      if (code === Op.free && open[b] === 0) strays = true
      if (named[c] !== b || kind[b] !== Kind.tick || open[b] === (code === Op.alloc ? 1 : 0)) continue
      open[b] = code === Op.alloc ? 1 : 0
      ticks[c]! |= bit
    }
  }
  replay(1)
  // Where nothing stays open and every free had its alloc, each tick is as the first.
  if (!open.includes(1) && !strays) for (let c = 0; c < commands; c++) ticks[c] = ticks[c]! * 3
  else replay(2)
  return { ticks, open }
}

/** The turnover of each memory, devices, then pinned, by what releases its bytes. With `uses` sizes are rounded as the session's pool rounds them. */
export type Turnovers = Readonly<Record<Releases, readonly Turnover[]>>

const latest = new WeakMap<CommandTable, Turnovers>()

/** Those of accesses alone, where nobody has asked for both yet; from a clock that has gone through some ticks, of a plan for which L3 holds if it is `safe`. */
export const accessTurnovers = (tables: CommandTable, clock: Frontiers, safe: boolean): Turnovers =>
  latest.get(tables) ?? turnoversOf(tables, clock, { wanted: ['accesses'], safe, room: tables.allocator })

/** The turnovers of the whole plan, kept with its tables: the pool's peak and that of L9 are asked for one after the other. */
export const latestTurnovers = (tables: CommandTable): Turnovers => {
  let known = latest.get(tables)
  if (known === undefined) latest.set(tables, (known = turnoversOf(tables, new Frontiers(tables))))
  return known
}

/** Empty ledgers, one for each memory, as long as a tick asks for; `ticks` where some allocs and frees happen in none. */
const ledgersOf = (
  tables: CommandTable,
  room: ArrayAllocator,
  asUses: boolean,
  ticks?: Uint8Array,
): Ledger[] => {
  const { plan, lanes, commands, op, lane, subject, memory } = tables
  const allocs = Array.from({ length: plan.devices + 1 }, () => new Int32Array(lanes))
  const frees = new Int32Array(plan.devices + 1)
  for (let c = 0; c < commands; c++) {
    if (ticks?.[c] === 0) continue
    if (op[c] === Op.alloc) allocs[memory[subject[c]!]!]![lane[c]!]!++
    else if (op[c] === Op.free) frees[memory[subject[c]!]!]!++
  }
  return allocs.map((counts, m) => {
    const rows = 2 * frees[m]!
    return new Ledger({ allocs: counts, frees: frees[m]!, accesses: rows, uses: asUses ? rows : 0 }, room)
  })
}

interface Asked {
  readonly wanted?: readonly Releases[]
  /** Whether L3 is known to hold: then nothing leaks, and nothing is freed first. */
  readonly safe?: boolean
  readonly room?: ArrayAllocator
}

/**
 * The clock may leave out a command, and may have gone through some ticks. Where releases by uses are not wanted there are none, and those by accesses name
 * only the accesses that no other one is after.
 */
export const turnoversOf = (tables: CommandTable, clock: Frontiers, asked: Asked = {}): Turnovers => {
  const { wanted = ['accesses', 'uses'], safe = false, room = heap } = asked
  const asUses = wanted.includes('uses')
  const { plan, lanes, commands, op, subject, lane, accessStart, accessRoot, memory, bytes } = tables
  const { ticks, open } = safe ? { ticks: undefined, open: undefined } : eventsOf(tables, room)
  const ledgers = ledgersOf(tables, room, asUses, ticks)
  const leaked = new Float64Array(ledgers.length)
  for (let b = 0; b < tables.buffers; b++) if (open?.[b] === 1) leaked[memory[b]!]! += bytes[b]!

  // What a settled tick knows is of the inFlight - 1 ticks before it, and of all that was before those: a replay's start says as much.
  for (let tick = clock.tick + 2; tick < plan.inFlight; tick++) {
    clock.begin()
    for (let c = 0; c < commands; c++) clock.step(c)
  }
  clock.begin()
  const { base, known } = clock
  const last = new LastAccesses(room, tables.buffers, tables.accesses)
  const marks = asUses ? new Marked(tables, clock, room) : undefined
  for (let c = 0; c < commands; c++) {
    const code = op[c]!
    const l = lane[c]!
    if (code === Op.alloc || code === Op.free) {
      const when = ticks === undefined ? 3 : ticks[c]!
      if (when === 0) continue
      const b = subject[c]!
      const ledger = ledgers[memory[b]!]!
      if (code === Op.alloc) ledger.alloc(b, c, bytes[b]!, l, known, base)
      else {
        releaseAll(ledger, last, b, base)
        marks?.release(ledger, b, l)
        ledger.free(b, c, bytes[b]!)
      }
      if (when !== 3) ledger.only(when === 1 ? When.firstTick : When.laterTicks)
    } else if (code === Op.run) {
      clock.run(c)
      const point = known[l * lanes + l]!
      for (let a = accessStart[c]!, end = accessStart[c + 1]!; a < end; a++)
        if (asUses) last.touch(accessRoot[a]!, l, point)
        else last.cover(accessRoot[a]!, l, point, known, l * lanes)
    } else if (code === Op.record) {
      clock.record(c)
      marks?.record(c)
    } else if (code === Op.use) marks?.use(c)
    else if (code !== Op.broken) clock.wait(c, code)
  }
  const { inFlight } = plan
  const length = Int32Array.from(base, (from, l) => known[l * (lanes + 1)]! - from)
  const all = (of: Releases, size?: (bytes: number) => number): Turnover[] =>
    ledgers.map((ledger, m) => ledger.turnover(of, { inFlight, length, leaked: leaked[m]! }, size))
  return { accesses: all('accesses'), uses: asUses ? all('uses', rounded) : [] }
}

/** The coming free of b releases what was last touched, at points counted from `base`. */
export const releaseAll = (ledger: Ledger, last: LastAccesses, b: number, base: Int32Array): void => {
  const { cards } = last
  for (let e = last.first(b); e !== 0; e = cards[e + 2]!) {
    const m = cards[e]! - 1
    ledger.release('accesses', m, cards[e + 1]! - base[m]!)
  }
}

/** What uses mark, in a tick. */
class Marked {
  /** By event, its lane's point at the record, from 1 on; 0: none. */
  private readonly recorded: Int32Array
  /** By use, the point that it marks, as known when it is issued, and 1 + the use of its buffer before it; by buffer, 1 + the last use since its last free. */
  private readonly point: Int32Array
  private readonly useBefore: Int32Array
  private readonly lastUse: Int32Array
  private readonly latest: Int32Array
  private uses = 0

  constructor(
    private readonly tables: CommandTable,
    private readonly clock: Frontiers,
    room: ArrayAllocator,
  ) {
    this.recorded = room.int32(tables.events)
    this.point = room.int32(tables.uses)
    this.useBefore = room.int32(tables.uses)
    this.lastUse = room.int32(tables.buffers)
    this.latest = room.int32(tables.lanes)
  }

  /** The point of lane l that the clock has come to. */
  private now(l: number): number {
    const { known, base, lanes } = this.clock
    return known[l * (lanes + 1)]! - base[l]!
  }

  record(c: number): void {
    const { recordOf, subject, lane } = this.tables
    const event = subject[c]!
    if (recordOf[event] === c) this.recorded[event] = this.now(lane[c]!)
  }

  use(c: number): void {
    const { tables, lastUse } = this
    const u = this.uses++
    const b = tables.subject[c]!
    this.point[u] = this.recorded[tables.useEvent[u]!]!
    this.useBefore[u] = lastUse[b]!
    lastUse[b] = u + 1
  }

  /** The coming free of b, at home on lane `home`: its lane's point, and the latest one that uses mark on each lane. */
  release(ledger: Ledger, b: number, home: number): void {
    const { latest, point, useBefore, lastUse } = this
    const { lane, useCommand } = this.tables
    latest.fill(0)
    for (let u = lastUse[b]! - 1; u >= 0; u = useBefore[u]! - 1) {
      const user = lane[useCommand[u]!]!
      if (point[u]! > latest[user]!) latest[user] = point[u]!
    }
    lastUse[b] = 0
    latest[home] = this.now(home)
    for (let l = 0; l < latest.length; l++)
      if (l === home || latest[l]! > 0) ledger.release('uses', l, latest[l]!)
  }
}
