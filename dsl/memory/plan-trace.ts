import { type ArrayAllocator, heap } from '../collections/scratch-arena.js'
import { type CommandTable, Kind, Op } from '../order/command-table.js'
import { LastAccesses } from '../order/last-accesses.js'
import { Replay } from '../order/replay.js'
import { type AllocationTrace, TraceRecorder, When } from './trace.js'

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

const recordersOf = (table: CommandTable, ticks: Uint8Array, allocator: ArrayAllocator): TraceRecorder[] => {
  const { plan, lanes, commands, op, lane, subject, memory } = table
  const allocs = Array.from({ length: plan.devices + 1 }, () => new Int32Array(lanes))
  const frees = new Int32Array(plan.devices + 1)
  for (let c = 0; c < commands; c++) {
    if (ticks[c] === 0) continue
    if (op[c] === Op.alloc) allocs[memory[subject[c]!]!]![lane[c]!]!++
    else if (op[c] === Op.free) frees[memory[subject[c]!]!]!++
  }
  return allocs.map((counts, m) => new TraceRecorder(counts, frees[m]!, allocator))
}

export interface TraceOptions {
  /** It may leave out a command, and may have gone through some whole ticks. */
  readonly replay?: Replay
  readonly allocator?: ArrayAllocator
  /** Release points by accesses are for L9's count of bytes only: the session's pool has those of uses. */
  readonly releases?: 'accesses and uses' | 'uses'
}

/** The allocation trace of each memory of a plan: devices, then pinned. */
export const tracesOf = (
  table: CommandTable,
  { replay = new Replay(table), allocator = heap, releases = 'accesses and uses' }: TraceOptions = {},
): readonly AllocationTrace[] => {
  const { plan, lanes, commands, op, subject, lane, memory, bytes } = table
  const { accessStart, accessRoot, recordOf, useEvent } = table
  const { ticks, open } = eventsOf(table, allocator)
  const recorders = recordersOf(table, ticks, allocator)
  const leaked = new Float64Array(recorders.length)
  for (let b = 0; b < table.buffers; b++) if (open[b] === 1) leaked[memory[b]!]! += bytes[b]!

  replay.beginSteadyTick()
  const { base, known } = replay
  const counted = releases !== 'uses'
  const accesses = new LastAccesses(allocator, counted ? table.buffers : 0, counted ? table.accesses : 0)
  /**
   * By buffer and lane, the latest point that a use of this tick marks; by event, the point that its record
   * marks.
   */
  const marks = new LastAccesses(allocator, table.buffers, table.uses)
  const recorded = allocator.int32(table.events)
  let uses = 0
  const now = (l: number): number => replay.now(l) - base[l]!
  for (let c = 0; c < commands; c++) {
    const code = op[c]!
    const l = lane[c]!
    if (code !== Op.alloc && code !== Op.free) {
      replay.step(c)
      const point = now(l)
      if (code === Op.run && counted)
        for (let a = accessStart[c]!, end = accessStart[c + 1]!; a < end; a++)
          accesses.put(accessRoot[a]!, l, point)
      else if (code === Op.record && recordOf[subject[c]!] === c) recorded[subject[c]!] = point
      else if (code === Op.use) {
        const marked = recorded[useEvent[uses++]!]!
        if (marked > marks.of(subject[c]!, l)) marks.put(subject[c]!, l, marked)
      }
      continue
    }
    if (ticks[c] === 0) continue
    const b = subject[c]!
    const recorder = recorders[memory[b]!]!
    const when = ticks[c] === inFirst ? When.firstTick : ticks[c] === inLater ? When.laterTicks : When.always
    if (code === Op.alloc) recorder.alloc(b, c, when, bytes[b]!, l, known, base)
    else {
      if (counted)
        for (let e = accesses.first(b); e !== 0; e = accesses.next(e))
          recorder.releaseByAccess(accesses.laneOf(e), accesses.pointOf(e))
      recorder.releaseByUse(l, now(l))
      for (let e = marks.first(b); e !== 0; e = marks.next(e))
        if (marks.laneOf(e) !== l) recorder.releaseByUse(marks.laneOf(e), marks.pointOf(e))
      recorder.free(b, c, when, bytes[b]!)
    }
  }
  const length = Int32Array.from(base, (from, l) => known[l * (lanes + 1)]! - from)
  return recorders.map((recorder, m) => recorder.trace(plan.inFlight, length, leaked[m]!))
}
