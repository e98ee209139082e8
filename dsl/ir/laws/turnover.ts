import type { Plan } from '../plan.js'
import { Clock } from './clock.js'
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
  /** Events in issue order: a >= 0 is alloc number a, and -1 - f is free number f. */
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

/** By command: bit 0 where an alloc or free happens in the first tick, bit 1 where it does in later ones, which depends on what a tick leaves open. */
const eventsOf = ({ commands, op, subject, named, kind, buffers }: Tables) => {
  const open = new Uint8Array(buffers)
  const ticks = new Uint8Array(commands)
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

/** Those of accesses alone, where nobody has asked for both yet; from a clock that has gone through some ticks. */
export const accessTurnovers = (tables: Tables, clock: Clock): Turnovers =>
  latest.get(tables) ?? turnoversOf(tables, clock, ['accesses'])

/** The turnovers of the whole plan, kept with its tables: the pool's peak and that of L9 are asked for one after the other. */
export const latestTurnovers = (tables: Tables): Turnovers => {
  let known = latest.get(tables)
  if (known === undefined) latest.set(tables, (known = turnoversOf(tables, new Clock(tables))))
  return known
}

interface Rows {
  readonly start: Int32Array
  readonly lane: Int32Array
  readonly point: Int32Array
  next: number
}

const rowsOf = (frees: number, count: number): Rows => ({
  start: new Int32Array(frees + 1),
  lane: new Int32Array(count),
  point: new Int32Array(count),
  next: 0,
})

const put = (rows: Rows, lane: number, point: number): void => {
  rows.lane[rows.next] = lane
  rows.point[rows.next++] = point
}

/**
 * The clock may leave out a command, and may have gone through some ticks. Where releases by uses are not wanted there are none, and those by accesses name
 * only the accesses that no other one is after.
 */
export const turnoversOf = (
  tables: Tables,
  clock: Clock,
  wanted: readonly Releases[] = ['accesses', 'uses'],
): Turnovers => {
  const asUses = wanted.includes('uses')
  const {
    plan,
    lanes,
    commands,
    op,
    subject,
    lane,
    useEvent,
    pairStart,
    pairLane,
    accessStart,
    accessPair,
    accessRoot,
  } = tables
  const { useStart, useList, memory, bytes } = tables
  const { ticks, open } = eventsOf(tables)
  const memories = plan.devices + 1
  const allocs = new Int32Array(memories)
  const frees = new Int32Array(memories)
  const accesses = new Int32Array(memories)
  const uses = new Int32Array(memories)
  for (let c = 0; c < commands; c++) {
    if (ticks[c] === 0) continue
    const b = subject[c]!
    if (op[c] === Op.alloc) allocs[memory[b]!]!++
    else {
      frees[memory[b]!]!++
      accesses[memory[b]!]! += pairStart[b + 1]! - pairStart[b]!
      if (asUses) uses[memory[b]!]! += 1 + Math.min(lanes - 1, useStart[b + 1]! - useStart[b]!)
    }
  }
  const made = Array.from(allocs, (count, m) => ({
    event: new Int32Array(count + frees[m]!),
    when: new Uint8Array(count + frees[m]!),
    command: new Int32Array(count + frees[m]!),
    buffer: new Int32Array(count + frees[m]!),
    allocLane: new Int32Array(count),
    frontier: new Int32Array(count * lanes),
    allocBytes: new Float64Array(count),
    freeBytes: new Float64Array(frees[m]!),
    accesses: rowsOf(frees[m]!, accesses[m]!),
    uses: rowsOf(frees[m]!, uses[m]!),
    leaked: 0,
  }))
  for (let b = 0; b < tables.buffers; b++) if (open[b] === 1) made[memory[b]!]!.leaked += bytes[b]!

  // What a settled tick knows is of the inFlight - 1 ticks before it, and of all that was before those: a replay's start says as much.
  for (let tick = clock.tick + 2; tick < plan.inFlight; tick++) {
    clock.begin()
    for (let c = 0; c < commands; c++) clock.step(c)
  }
  clock.begin()
  const base = clock.base
  const known = clock.known
  const nextAlloc = new Int32Array(memories)
  const nextFree = new Int32Array(memories)
  // By pair, its lane's last access so far; by event, its lane's point at the record: all from 1 on, 0 is none.
  const lastPoint = new Int32Array(pairLane.length)
  const recorded = new Int32Array(tables.events)
  // By use, the point that it marks, as known when it is issued; and of each buffer, the first use since its last free.
  const markedBy = new Int32Array(asUses ? useList.length : 0)
  const useNext = asUses ? useStart.slice() : useStart
  const useFrom = asUses ? useStart.slice() : useStart
  const marked = new Int32Array(lanes)
  for (let c = 0; c < commands; c++) {
    const code = op[c]!
    if (code === Op.alloc || code === Op.free) {
      if (ticks[c] === 0) continue
      const b = subject[c]!
      const m = memory[b]!
      const to = made[m]!
      const e = nextAlloc[m]! + nextFree[m]!
      to.when[e] = ticks[c] === 3 ? When.always : ticks[c] === 1 ? When.firstTick : When.laterTicks
      to.command[e] = c
      to.buffer[e] = b
      if (code === Op.alloc) {
        const a = nextAlloc[m]!++
        const l = lane[c]!
        to.event[e] = a
        to.allocLane[a] = l
        to.allocBytes[a] = bytes[b]!
        for (let o = 0; o < lanes; o++) to.frontier[a * lanes + o] = known[l * lanes + o]! - base[o]!
        continue
      }
      const f = nextFree[m]!++
      to.event[e] = -1 - f
      to.freeBytes[f] = bytes[b]!
      for (let p = pairStart[b]!; p < pairStart[b + 1]!; p++)
        if (lastPoint[p] !== 0) put(to.accesses, pairLane[p]!, lastPoint[p]!)
      to.accesses.start[f + 1] = to.accesses.next
      if (!asUses) continue
      const home = lane[c]!
      const uses = useStart[b + 1]! - useStart[b]!
      if (uses > 0) {
        marked.fill(0)
        for (let i = useFrom[b]!; i < useStart[b + 1]! && useList[i]! < c; i++) {
          const u = useList[i]!
          const l = lane[u]!
          const point = markedBy[i]!
          if (point > marked[l]!) marked[l] = point
          useFrom[b] = i + 1
        }
      }
      for (let o = 0; o < lanes; o++)
        if (o === home) put(to.uses, o, known[o * lanes + o]! - base[o]!)
        else if (uses > 0 && marked[o]! > 0) put(to.uses, o, marked[o]!)
      to.uses.start[f + 1] = to.uses.next
      continue
    }
    if (code === Op.broken) continue
    const l = lane[c]!
    if (code === Op.use) {
      if (!asUses) continue
      const b = subject[c]!
      markedBy[useNext[b]!++] = recorded[useEvent[c]!]!
      continue
    }
    clock.step(c)
    if (code === Op.record && tables.recordOf[subject[c]!] === c)
      recorded[subject[c]!] = known[l * lanes + l]! - base[l]!
    if (code !== Op.run) continue
    const point = known[l * lanes + l]! - base[l]!
    for (let a = accessStart[c]!; a < accessStart[c + 1]!; a++) {
      const pair = accessPair[a]!
      lastPoint[pair] = point
      if (asUses) continue
      // What the lane knows of is before whatever is after this point: those other last accesses need not be asked for.
      const b = accessRoot[a]!
      for (let p = pairStart[b]!; p < pairStart[b + 1]!; p++) {
        const m = pairLane[p]!
        if (m !== l && lastPoint[p]! !== 0 && known[l * lanes + m]! - base[m]! >= lastPoint[p]!) lastPoint[p] = 0
      }
    }
  }
  const length = new Int32Array(lanes)
  for (let l = 0; l < lanes; l++) length[l] = known[l * lanes + l]! - base[l]!
  const released = (releases: Releases, size: (bytes: Float64Array) => Float64Array): Turnover[] =>
    made.map(({ event, when, command, buffer, allocLane, frontier, allocBytes, freeBytes, leaked, ...rows }, m) => ({
      lanes,
      inFlight: plan.inFlight,
      length,
      event,
      when,
      command,
      buffer,
      allocs: allocs[m]!,
      allocLane,
      frontier,
      frees: frees[m]!,
      releaseStart: rows[releases].start,
      releaseLane: rows[releases].lane,
      releasePoint: rows[releases].point,
      allocBytes: size(allocBytes),
      freeBytes: size(freeBytes),
      leaked,
    }))
  return {
    accesses: released('accesses', bytes => bytes),
    uses: asUses ? released('uses', sizes => sizes.map(rounded)) : [],
  }
}
