import type { Plan } from '../ir/plan.js'
import { type CommandTable, Kind, Op } from '../order/command-table.js'
import { LastAccesses } from '../order/last-accesses.js'
import { Replay } from '../order/replay.js'
import { type ArrayAllocator, heap } from '../order/scratch-arena.js'
import { type AllocationTrace, TraceRecorder, When } from './trace.js'

/** The number of a buffer's memory: its device's index, or `devices` for pinned memory. */
export const memoryOf = (plan: Plan, b: number): number => {
  const buffer = plan.buffers[b]!
  return buffer.space === 'pinned' ? plan.devices : Math.min(Math.max(0, buffer.device), plan.devices - 1)
}

const inFirst = 1
const inLater = 2

/**
 * By command: in which ticks it allocates or frees, `inFirst` and `inLater` added up. That depends on what a
 * tick leaves allocated; where law L3 holds, every alloc and free happens in all ticks. `open`: by buffer, 1
 * where a tick leaves it allocated.
 */
const eventsOf = (table: CommandTable, allocator: ArrayAllocator) => {
  const { commands, op, subject, named, kind, buffers } = table
  const open = allocator.uint8(buffers)
  const ticks = allocator.uint8(commands)
  let freesFirst = false
  const replay = (tick: number): void => {
    for (let c = 0; c < commands; c++) {
      const code = op[c]
      if (code !== Op.alloc && code !== Op.free) continue
      const b = subject[c]!
      // Law L3 reports a view that is allocated or freed itself; it changes nothing for its root.
      if (code === Op.free && open[b] === 0) freesFirst = true
      if (named[c] !== b || kind[b] !== Kind.tick || open[b] === (code === Op.alloc ? 1 : 0)) continue
      open[b] = code === Op.alloc ? 1 : 0
      ticks[c]! |= tick
    }
  }
  replay(inFirst)
  // Where nothing stays allocated and every free had its alloc, each tick is as the first.
  if (!open.includes(1) && !freesFirst)
    for (let c = 0; c < commands; c++) ticks[c] = ticks[c]! * (inFirst | inLater)
  else replay(inLater)
  return { ticks, open }
}

const recordersOf = (table: CommandTable, allocator: ArrayAllocator, ticks?: Uint8Array): TraceRecorder[] => {
  const { plan, lanes, commands, op, lane, subject, memory } = table
  const allocs = Array.from({ length: plan.devices + 1 }, () => new Int32Array(lanes))
  const frees = new Int32Array(plan.devices + 1)
  for (let c = 0; c < commands; c++) {
    if (ticks?.[c] === 0) continue
    if (op[c] === Op.alloc) allocs[memory[subject[c]!]!]![lane[c]!]!++
    else if (op[c] === Op.free) frees[memory[subject[c]!]!]!++
  }
  return allocs.map((counts, m) => new TraceRecorder(counts, frees[m]!, allocator))
}

export interface TraceOptions {
  /**
   * Whether releases by uses are left out. Then releases by accesses name only the maximal accesses, not
   * those that happen before another one.
   */
  readonly accessesOnly?: boolean
  /** Whether law L3 is known to hold: then nothing leaks, and nothing is freed first. */
  readonly safe?: boolean
  readonly allocator?: ArrayAllocator
}

/**
 * The allocation trace of each memory of a plan: devices, then pinned. `frontiers` may leave out a command,
 * and may have gone through some whole ticks.
 */
export const tracesOf = (
  table: CommandTable,
  frontiers = new Replay(table),
  { accessesOnly = false, safe = false, allocator = heap }: TraceOptions = {},
): readonly AllocationTrace[] => {
  const { plan, lanes, commands, op, subject, lane, accessStart, accessRoot, memory, bytes } = table
  const { ticks, open } = safe ? { ticks: undefined, open: undefined } : eventsOf(table, allocator)
  const recorders = recordersOf(table, allocator, ticks)
  const leaked = new Float64Array(recorders.length)
  for (let b = 0; b < table.buffers; b++) if (open?.[b] === 1) leaked[memory[b]!]! += bytes[b]!

  frontiers.beginSteadyTick()
  const { base, known } = frontiers
  const last = new LastAccesses(allocator, table.buffers, table.accesses)
  const marks = accessesOnly ? undefined : new UseMarks(table, frontiers, allocator)
  for (let c = 0; c < commands; c++) {
    const code = op[c]!
    const l = lane[c]!
    if (code === Op.alloc || code === Op.free) {
      const when = ticks === undefined ? inFirst | inLater : ticks[c]!
      if (when === 0) continue
      const b = subject[c]!
      const recorder = recorders[memory[b]!]!
      if (code === Op.alloc) recorder.alloc(b, c, bytes[b]!, l, known, base)
      else {
        releaseByAccesses(recorder, last, b, base)
        marks?.release(recorder, b, l)
        recorder.free(b, c, bytes[b]!)
      }
      if (when === inFirst) recorder.only(When.firstTick)
      else if (when === inLater) recorder.only(When.laterTicks)
      continue
    }
    frontiers.step(c)
    if (code === Op.run) {
      const point = frontiers.now(l)
      for (let a = accessStart[c]!, end = accessStart[c + 1]!; a < end; a++)
        if (accessesOnly) last.putMaximal(accessRoot[a]!, l, point, known, l * lanes)
        else last.put(accessRoot[a]!, l, point)
    } else if (code === Op.record) marks?.record(c)
    else if (code === Op.use) marks?.use(c)
  }
  const length = Int32Array.from(base, (from, l) => known[l * (lanes + 1)]! - from)
  return recorders.map((recorder, m) => recorder.trace(plan.inFlight, length, leaked[m]!))
}

/** The next free, of buffer b, releases its bytes at its last accesses. Points are counted from `base`. */
export const releaseByAccesses = (
  recorder: TraceRecorder,
  last: LastAccesses,
  b: number,
  base: Int32Array,
): void => {
  for (let e = last.first(b); e !== 0; e = last.next(e)) {
    const m = last.laneOf(e)
    recorder.releaseByAccess(m, last.pointOf(e) - base[m]!)
  }
}

/** The points that the uses of a tick mark. */
class UseMarks {
  /** By event, its lane's point at the record, from 1 on; 0: not recorded. */
  private readonly recorded: Int32Array
  /**
   * By use, the point that it marks, and 1 + the use of its buffer before it; by buffer, 1 + the last use
   * since its last free.
   */
  private readonly point: Int32Array
  private readonly useBefore: Int32Array
  private readonly lastUse: Int32Array
  private readonly latest: Int32Array
  private uses = 0

  constructor(
    private readonly table: CommandTable,
    private readonly frontiers: Replay,
    allocator: ArrayAllocator,
  ) {
    this.recorded = allocator.int32(table.events)
    this.point = allocator.int32(table.uses)
    this.useBefore = allocator.int32(table.uses)
    this.lastUse = allocator.int32(table.buffers)
    this.latest = allocator.int32(table.lanes)
  }

  /** The present point of lane l. */
  private now(l: number): number {
    const { known, base, lanes } = this.frontiers
    return known[l * (lanes + 1)]! - base[l]!
  }

  record(c: number): void {
    const { recordOf, subject, lane } = this.table
    const event = subject[c]!
    if (recordOf[event] === c) this.recorded[event] = this.now(lane[c]!)
  }

  use(c: number): void {
    const { table, lastUse } = this
    const u = this.uses++
    const b = table.subject[c]!
    this.point[u] = this.recorded[table.useEvent[u]!]!
    this.useBefore[u] = lastUse[b]!
    lastUse[b] = u + 1
  }

  /**
   * The next free, of buffer b, releases its bytes at its home lane's point and at the latest one that its
   * uses mark on each lane.
   */
  release(recorder: TraceRecorder, b: number, home: number): void {
    const { latest, point, useBefore, lastUse } = this
    const { lane, useCommand } = this.table
    latest.fill(0)
    for (let u = lastUse[b]! - 1; u >= 0; u = useBefore[u]! - 1) {
      const user = lane[useCommand[u]!]!
      if (point[u]! > latest[user]!) latest[user] = point[u]!
    }
    lastUse[b] = 0
    latest[home] = this.now(home)
    for (let l = 0; l < latest.length; l++)
      if (l === home || latest[l]! > 0) recorder.releaseByUse(l, latest[l]!)
  }
}
