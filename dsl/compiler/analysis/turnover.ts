import { Ledger, startsOf } from '../../memory/ledger.js'
import { rounded } from '../../memory/range-pool.js'
import type { Turnovers } from '../../memory/turnover.js'
import { type ArrayAllocator, heap } from '../../order/scratch-arena.js'
import { accessesOf } from './accesses.js'
import { byOperation } from './by-operation.js'
import { devicesOf, memoryOf } from './device-of.js'
import type { Lifetimes } from './ir.js'
import { LastAccesses } from './last-accesses.js'

/** What the plan's memories will give out and take back, and how many commands it will have. */
export interface Traffic {
  readonly turnovers: Turnovers
  readonly commands: number
}

/** Operations that a wait names, numbered; -1: none does. Behind them, where a wait is for a start, those whose start it is. */
const waitedFor = (
  { operations, waitOn, begins }: Lifetimes,
  room: ArrayAllocator,
): { mark: Int32Array; marks: number } => {
  const count = operations.length
  const mark = room.int32(begins === undefined ? count : 2 * count).fill(-1)
  let marks = 0
  for (let w = 0; w < waitOn.length; w++) {
    const on = begins?.[w] === 1 ? count + waitOn[w]! : waitOn[w]!
    if (mark[on] === -1) mark[on] = marks++
  }
  return { mark, marks }
}

/**
 * What each lane knows of the others while ticks are issued, as the plan's commands will say it: each wait and each run is a point of its lane, an event's
 * mark is its lane's frontier after the run, or before it where it marks a start. (The verifier has the same of a plan: dsl/order/clock.ts.)
 */
class Issue {
  readonly known: Int32Array
  readonly base: Int32Array
  private readonly lanes: number
  private readonly mark: Int32Array
  private now: Int32Array
  private before: Int32Array
  private tick = -1

  constructor(
    private readonly ir: Lifetimes,
    room: ArrayAllocator,
  ) {
    this.lanes = ir.lanes.length
    this.known = new Int32Array(this.lanes * this.lanes)
    this.base = new Int32Array(this.lanes)
    const { mark, marks } = waitedFor(ir, room)
    this.mark = mark
    this.now = room.int32(marks * this.lanes)
    this.before = ir.waitTick.includes(-1) ? room.int32(marks * this.lanes) : this.now
  }

  begin(): void {
    for (let l = 0; l < this.lanes; l++) this.base[l] = this.known[l * this.lanes + l]!
    const { now } = this
    this.now = this.before
    this.before = now
    this.tick++
  }

  /** The waits of operation i. */
  wait(i: number): void {
    const { known, lanes, ir } = this
    const own = ir.laneOf[i]! * lanes
    for (let w = ir.waitStart[i]!; w < ir.waitStart[i + 1]!; w++) {
      const carried = ir.waitTick[w] !== 0
      if (!carried || this.tick > 0) {
        const marks = carried ? this.before : this.now
        const on = ir.begins?.[w] === 1 ? ir.operations.length + ir.waitOn[w]! : ir.waitOn[w]!
        for (let m = 0, from = this.mark[on]! * lanes; m < lanes; m++)
          if (marks[from + m]! > known[own + m]!) known[own + m] = marks[from + m]!
      }
      known[own + ir.laneOf[i]!]!++
    }
  }

  /** The run of operation i, and the records of its events. */
  run(i: number): void {
    const { known, lanes, now } = this
    const lane = this.ir.laneOf[i]!
    const start = this.ir.begins === undefined ? -1 : this.mark[this.ir.operations.length + i]!
    if (start >= 0) for (let m = 0; m < lanes; m++) now[start * lanes + m] = known[lane * lanes + m]!
    known[lane * lanes + lane]!++
    const mark = this.mark[i]!
    if (mark >= 0) for (let m = 0; m < lanes; m++) now[mark * lanes + m] = known[lane * lanes + m]!
  }
}

/** By memory, the devices', then pinned: how many buffers come and go in a tick, by home lane, on how many lanes they are touched, and how many uses they have. */
const counted = (
  ir: Lifetimes,
  room: ArrayAllocator,
): { homes: Int32Array[]; touched: number[]; uses: number[]; memory: Uint8Array; bytes: Float64Array } => {
  const { start, root } = accessesOf(ir)
  const memory = room.uint8(ir.buffers.length)
  const devices = devicesOf(ir)
  const bytes = room.float64(ir.buffers.length)
  for (let b = 0; b < memory.length; b++) {
    const buffer = ir.buffers[b]!
    memory[b] = memoryOf(buffer, devices)
    bytes[b] = buffer.bytes
  }
  const none = new Array<number>(devices + 1).fill(0)
  const [touched, uses] = [none.slice(), none]
  const homes = none.map(() => new Int32Array(ir.lanes.length))
  for (let b = 0; b < ir.buffers.length; b++) if (ir.last[b]! >= 0) homes[memory[b]!]![ir.home[b]!]!++
  // The accesses are at least as many as the lanes that touch.
  for (let a = 0; a < start[ir.operations.length]!; a++)
    if (ir.last[root[a]!]! >= 0) touched[memory[root[a]!]!]!++
  for (let u = 0; u < ir.useBuffer.length; u++) uses[memory[ir.useBuffer[u]!]!]!++
  return { homes, touched, uses, memory, bytes }
}

/** Of an order with its waits and lifetimes: what a settled tick of its plan gives out and takes back. Made of `room`. */
export const trafficOf = (ir: Lifetimes, room: ArrayAllocator = heap): Traffic => {
  const { operations, laneOf, home, useStart, useBuffer } = ir
  const count = operations.length
  const lanes = ir.lanes.length
  const { start, root } = accessesOf(ir)
  const { homes, touched, uses, memory, bytes } = counted(ir, room)
  const ledgers = homes.map((allocs, m) => {
    const frees = startsOf(allocs)[lanes]!
    // Uses release at the home lane's point and at those that they mark.
    return new Ledger({ allocs, frees, accesses: touched[m]!, uses: frees + uses[m]! }, room)
  })
  const allocs = byOperation(ir.first, count, room)
  const frees = byOperation(ir.last, count, room)
  const marks = byOperation(useBuffer, ir.buffers.length, room)
  const markedBy = room.int32(useBuffer.length)
  for (let i = 0; i < count; i++) for (let u = useStart[i]!; u < useStart[i + 1]!; u++) markedBy[u] = i
  const waited = room.uint8(count)
  // The records that waits ask of each operation: 1 after it, 2 before it.
  for (let w = 0; w < ir.waitOn.length; w++) waited[ir.waitOn[w]!]! |= ir.begins?.[w] === 1 ? 2 : 1

  const issue = new Issue(ir, room)
  const { known, base } = issue
  for (let tick = 1; tick < ir.settings.inFlight; tick++) {
    issue.begin()
    for (let i = 0; i < count; i++) {
      issue.wait(i)
      issue.run(i)
    }
  }
  issue.begin()
  const point = room.int32(count)
  const last = new LastAccesses(ir.buffers.length, lanes, room)
  const accesses = new Int32Array(lanes)
  let command = 0
  for (let i = 0; i < count; i++) {
    const lane = laneOf[i]!
    issue.wait(i)
    command += ir.waitStart[i + 1]! - ir.waitStart[i]!
    for (let a = allocs.start[i]!; a < allocs.start[i + 1]!; a++) {
      const buffer = allocs.items[a]!
      ledgers[memory[buffer]!]!.alloc(buffer, command++, bytes[buffer]!, home[buffer]!, known, base)
    }
    issue.run(i)
    point[i] = known[lane * lanes + lane]! - base[lane]!
    for (let a = start[i]!; a < start[i + 1]!; a++) if (ir.last[root[a]!]! >= 0) last.touch(root[a]!, lane, i)
    const marked = useStart[i + 1]! - useStart[i]!
    command += 1 + marked + ((waited[i]! & 1) === 1 || marked > 0 ? 1 : 0) + (waited[i]! >> 1)
    for (let f = frees.start[i]!; f < frees.start[i + 1]!; f++) {
      const buffer = frees.items[f]!
      const ledger = ledgers[memory[buffer]!]!
      const length = last.drain(buffer, accesses)
      for (let at = 0; at < length; at++)
        ledger.release('accesses', laneOf[accesses[at]!]!, point[accesses[at]!]!)
      const on = home[buffer]!
      ledger.release('uses', on, known[on * lanes + on]! - base[on]!)
      for (let u = marks.start[buffer]!; u < marks.start[buffer + 1]!; u++) {
        const by = markedBy[marks.items[u]!]!
        ledger.release('uses', laneOf[by]!, point[by]!)
      }
      ledger.free(buffer, command++, bytes[buffer]!)
    }
  }
  const length = Int32Array.from(base, (from, l) => known[l * lanes + l]! - from)
  const { inFlight } = ir.settings
  // Of large graphs most sizes are whole granules already.
  const even = bytes.every(size => rounded(size) === size)
  const turnovers: Turnovers = {
    accesses: ledgers.map(ledger => ledger.turnover('accesses', { inFlight, length })),
    uses: ledgers.map(ledger => ledger.turnover('uses', { inFlight, length }, even ? undefined : rounded)),
  }
  return { turnovers, commands: command }
}
