import type { Plan } from '../plan.js'
import { heap, type Room } from '../scratch.js'
import { Clock } from './clock.js'
import { Last } from './last.js'
import { rounded } from './range-pool.js'
import { Kind, Op, type Tables } from './tables.js'

/** In which ticks an event happens: a plan that leaks, or frees first, does otherwise in its first tick. */
export const When = { always: 0, firstTick: 1, laterTicks: 2 } as const

/**
 * What one memory (a device's, or pinned) gives out and takes back in a tick, in issue order, made flat for replays of many ticks.
 *
 * From tick `inFlight` on, what lanes know of each other is the same in every tick, counted from the tick's first points (see Clock); and in the
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
const eventsOf = ({ commands, op, subject, named, kind, buffers }: Tables, room: Room) => {
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

const latest = new WeakMap<Tables, Turnovers>()

/** Those of accesses alone, where nobody has asked for both yet; from a clock that has gone through some ticks, of a plan for which L3 holds if it is `safe`. */
export const accessTurnovers = (tables: Tables, clock: Clock, safe: boolean): Turnovers =>
  latest.get(tables) ?? turnoversOf(tables, clock, { wanted: ['accesses'], safe, room: tables.room })

/** The turnovers of the whole plan, kept with its tables: the pool's peak and that of L9 are asked for one after the other. */
export const latestTurnovers = (tables: Tables): Turnovers => {
  let known = latest.get(tables)
  if (known === undefined) latest.set(tables, (known = turnoversOf(tables, new Clock(tables))))
  return known
}

interface Rows {
  readonly start: Int32Array
  lane: Int32Array
  point: Int32Array
  next: number
}

const rowsOf = (room: Room, frees: number): Rows => ({
  start: room.int32(frees + 1),
  lane: room.int32(2 * frees),
  point: room.int32(2 * frees),
  next: 0,
})

const put = (rows: Rows, room: Room, lane: number, point: number): void => {
  if (rows.next === rows.lane.length) {
    const { lane, point } = rows
    rows.lane = room.int32(2 * rows.next + 2)
    rows.point = room.int32(2 * rows.next + 2)
    rows.lane.set(lane)
    rows.point.set(point)
  }
  rows.lane[rows.next] = lane
  rows.point[rows.next++] = point
}

/** By memory, how many allocs each lane has in a tick, and how many frees there are. */
const countsOf = ({ plan, lanes, commands, op, lane, subject, memory }: Tables, ticks: Uint8Array | undefined) => {
  const allocs = Array.from({ length: plan.devices + 1 }, () => new Int32Array(lanes))
  const frees = new Int32Array(plan.devices + 1)
  for (let c = 0; c < commands; c++) {
    if (ticks?.[c] === 0) continue
    if (op[c] === Op.alloc) allocs[memory[subject[c]!]!]![lane[c]!]!++
    else if (op[c] === Op.free) frees[memory[subject[c]!]!]!++
  }
  return { allocs, frees }
}

/** Where the numbers of each lane's allocs begin, and all of them end. */
export const startsOf = (counts: Int32Array): Int32Array => {
  const starts = new Int32Array(counts.length + 1)
  for (let l = 0; l < counts.length; l++) starts[l + 1] = starts[l]! + counts[l]!
  return starts
}

interface Asked {
  readonly wanted?: readonly Releases[]
  /** Whether L3 is known to hold: then nothing leaks, nothing is freed first, and of what has been freed nobody asks again. */
  readonly safe?: boolean
  readonly room?: Room
}

/**
 * The clock may leave out a command, and may have gone through some ticks. Where releases by uses are not wanted there are none, and those by accesses name
 * only the accesses that no other one is after.
 */
export const turnoversOf = (tables: Tables, clock: Clock, asked: Asked = {}): Turnovers => {
  const { wanted = ['accesses', 'uses'], safe = false, room = heap } = asked
  const asUses = wanted.includes('uses')
  const { plan, lanes, commands, op, subject, lane, accessStart, accessRoot, memory, bytes } = tables
  const { ticks, open } = safe ? { ticks: undefined, open: undefined } : eventsOf(tables, room)
  const { allocs, frees } = countsOf(tables, ticks)
  const memories = allocs.length
  const made = allocs.map((counts, m) => {
    const next = startsOf(counts)
    const count = next[lanes]!
    return {
      event: room.int32(count + frees[m]!),
      when: room.uint8(count + frees[m]!),
      command: room.int32(count + frees[m]!),
      buffer: room.int32(count + frees[m]!),
      next,
      allocs: count,
      allocLane: room.int32(count),
      frontier: room.int32(count * lanes),
      allocBytes: room.float64(count),
      freeBytes: room.float64(frees[m]!),
      accesses: rowsOf(room, frees[m]!),
      uses: rowsOf(room, asUses ? frees[m]! : 0),
      leaked: 0,
    }
  })
  for (let b = 0; b < tables.buffers; b++) if (open?.[b] === 1) made[memory[b]!]!.leaked += bytes[b]!

  // What a settled tick knows is of the inFlight - 1 ticks before it, and of all that was before those: a replay's start says as much.
  for (let tick = clock.tick + 2; tick < plan.inFlight; tick++) {
    clock.begin()
    for (let c = 0; c < commands; c++) clock.step(c)
  }
  clock.begin()
  const base = clock.base
  const known = clock.known
  const nextEvent = new Int32Array(memories)
  const nextFree = new Int32Array(memories)
  const last = new Last(room, tables.buffers, tables.accesses)
  const { head, entries } = last
  // By event, its lane's point at the record, from 1 on; 0: none.
  const recorded = room.int32(tables.events)
  // By use, the point that it marks, as known when it is issued, and 1 + the use of its buffer before it; by buffer, 1 + the last use since its last free.
  const marks = room.int32(asUses ? tables.uses : 0)
  const useBefore = room.int32(asUses ? tables.uses : 0)
  const lastUse = room.int32(asUses ? tables.buffers : 0)
  const marked = room.int32(lanes)
  let nextUse = 0
  for (let c = 0; c < commands; c++) {
    const code = op[c]!
    const l = lane[c]!
    if (code === Op.alloc || code === Op.free) {
      const when = ticks === undefined ? 3 : ticks[c]!
      if (when === 0) continue
      const b = subject[c]!
      const m = memory[b]!
      const to = made[m]!
      const e = nextEvent[m]!++
      to.when[e] = when === 3 ? When.always : when === 1 ? When.firstTick : When.laterTicks
      to.command[e] = c
      to.buffer[e] = b
      if (code === Op.alloc) {
        const a = to.next[l]!++
        to.event[e] = a
        to.allocLane[a] = l
        to.allocBytes[a] = bytes[b]!
        const { frontier } = to
        for (let o = 0; o < lanes; o++) frontier[a * lanes + o] = known[l * lanes + o]! - base[o]!
        continue
      }
      const f = nextFree[m]!++
      to.event[e] = -1 - f
      to.freeBytes[f] = bytes[b]!
      for (let at = head[b]!; at !== 0; at = entries[at + 2]!)
        put(to.accesses, room, entries[at]!, entries[at + 1]! - base[entries[at]!]!)
      to.accesses.start[f + 1] = to.accesses.next
      if (safe) last.forget(b)
      if (!asUses) continue
      marked.fill(0)
      for (let u = lastUse[b]! - 1; u >= 0; u = useBefore[u]! - 1) {
        const user = lane[tables.useCommand[u]!]!
        if (marks[u]! > marked[user]!) marked[user] = marks[u]!
      }
      lastUse[b] = 0
      marked[l] = known[l * lanes + l]! - base[l]!
      for (let o = 0; o < lanes; o++) if (o === l || marked[o]! > 0) put(to.uses, room, o, marked[o]!)
      to.uses.start[f + 1] = to.uses.next
    } else if (code === Op.run) {
      clock.run(c)
      const point = known[l * lanes + l]!
      for (let a = accessStart[c]!, end = accessStart[c + 1]!; a < end; a++)
        if (asUses) last.touch(accessRoot[a]!, l, point)
        else last.cover(accessRoot[a]!, l, point, known, l * lanes)
    } else if (code === Op.record) {
      clock.record(c)
      if (tables.recordOf[subject[c]!] === c) recorded[subject[c]!] = known[l * lanes + l]! - base[l]!
    } else if (code === Op.use) {
      const u = nextUse++
      if (!asUses) continue
      const b = subject[c]!
      marks[u] = recorded[tables.useEvent[u]!]!
      useBefore[u] = lastUse[b]!
      lastUse[b] = u + 1
    } else if (code !== Op.broken) clock.wait(c, code)
  }
  const length = new Int32Array(lanes)
  for (let l = 0; l < lanes; l++) length[l] = known[l * lanes + l]! - base[l]!
  const released = (releases: Releases, size: (bytes: Float64Array) => Float64Array): Turnover[] =>
    made.map(
      ({ event, when, command, buffer, allocs, allocLane, frontier, allocBytes, freeBytes, leaked, ...rows }, m) => ({
        lanes,
        inFlight: plan.inFlight,
        length,
        event,
        when,
        command,
        buffer,
        allocs,
        allocLane,
        frontier,
        frees: frees[m]!,
        releaseStart: rows[releases].start,
        releaseLane: rows[releases].lane,
        releasePoint: rows[releases].point,
        allocBytes: size(allocBytes),
        freeBytes: size(freeBytes),
        leaked,
      }),
    )
  return {
    accesses: released('accesses', bytes => bytes),
    uses: asUses ? released('uses', sizes => sizes.map(rounded)) : [],
  }
}
