import { type ArrayAllocator, heap, withScratchArena } from '../../../collections/scratch-arena.js'
import { type FlatCommands, Mode, Op } from '../../../order/flat-commands.js'
import { byOperation } from '../../analysis/by-operation.js'
import type { Accesses, Lifetimes } from '../../analysis/ir.js'

/** The facts that commands are made of; of the operations only their accesses. */
export interface Issued
  extends Pick<
    Lifetimes,
    | 'laneOf'
    | 'waitStart'
    | 'waitOn'
    | 'waitTick'
    | 'begins'
    | 'first'
    | 'last'
    | 'useStart'
    | 'useBuffer'
    | 'home'
  > {
  readonly accesses: Accesses
}

export const issuedOf = (ir: Lifetimes): Issued => {
  const { laneOf, waitStart, waitOn, waitTick, begins, first, last, useStart, useBuffer, home } = ir
  const issued = { laneOf, waitStart, waitOn, waitTick, first, last, useStart, useBuffer, home }
  return { ...issued, ...(begins === undefined ? {} : { begins }), accesses: ir.accesses }
}

/**
 * By operation: the event of its end if a wait or a use names it, else -1. Behind all operations, where some
 * wait is for a start: the events of starts. Events are numbered in the order of their records.
 */
const eventsOf = (
  { laneOf, waitOn, begins, useStart }: Issued,
  allocator: ArrayAllocator,
): { event: Int32Array; events: number } => {
  const operations = laneOf.length
  const event = allocator.int32(begins === undefined ? operations : 2 * operations).fill(-1)
  for (let w = 0; w < waitOn.length; w++) event[begins?.[w] === 1 ? operations + waitOn[w]! : waitOn[w]!] = 0
  let events = 0
  for (let i = 0; i < operations; i++) {
    if (begins !== undefined && event[operations + i] === 0) event[operations + i] = events++
    if (event[i] === 0 || useStart[i + 1]! > useStart[i]!) event[i] = events++
  }
  return { event, events }
}

/** Commands in columns; `accesses`: how many accesses come before the next command. */
class Sheet {
  readonly op: Uint8Array
  readonly lane: Uint16Array
  readonly named: Int32Array
  readonly accessStart: Int32Array
  accesses = 0
  length = 0

  constructor(commands: number, allocator: ArrayAllocator) {
    this.op = allocator.uint8(commands)
    this.lane = allocator.uint16(commands)
    this.named = allocator.int32(commands)
    this.accessStart = allocator.int32(commands + 1)
  }

  put(op: number, lane: number, named: number): void {
    const at = this.length++
    this.op[at] = op
    this.lane[at] = lane
    this.named[at] = named
    this.accessStart[at] = this.accesses
  }
}

/**
 * The commands in issue order, flat. For each operation: its waits, the allocs of buffers that it accesses
 * first, the record of its start if some operation waits for that, the run, the record of its end, the uses
 * that this event marks, and the frees of buffers that it accesses last. For a plan that is looked at once
 * they may come from a scratch arena.
 */
export const commandsOf = (ir: Issued, allocator?: ArrayAllocator): FlatCommands =>
  allocator === undefined
    ? withScratchArena(scratch => written(ir, heap, scratch))
    : written(ir, allocator, allocator)

const written = (ir: Issued, into: ArrayAllocator, allocator: ArrayAllocator): FlatCommands => {
  const { laneOf, waitStart, waitOn, waitTick, begins, useStart, useBuffer, home, accesses } = ir
  const operations = laneOf.length
  const { event, events } = eventsOf(ir, allocator)
  const allocs = byOperation(ir.first, operations, allocator)
  const frees = byOperation(ir.last, operations, allocator)
  const uses = useBuffer.length
  const commands = operations + events + waitOn.length + uses + allocs.items.length + frees.items.length
  const sheet = new Sheet(commands, into)
  const useEventId = into.int32(uses)
  for (let i = 0; i < operations; i++) {
    const lane = laneOf[i]!
    for (let w = waitStart[i]!; w < waitStart[i + 1]!; w++) {
      const on = event[begins?.[w] === 1 ? operations + waitOn[w]! : waitOn[w]!]!
      sheet.put(waitTick[w] === 0 ? Op.wait : Op.previous, lane, on)
    }
    for (let a = allocs.start[i]!; a < allocs.start[i + 1]!; a++)
      sheet.put(Op.alloc, home[allocs.items[a]!]!, allocs.items[a]!)
    if (begins !== undefined && event[operations + i]! >= 0)
      sheet.put(Op.record, lane, event[operations + i]!)
    sheet.put(Op.run, lane, i)
    sheet.accesses = accesses.start[i + 1]!
    if (event[i]! >= 0) sheet.put(Op.record, lane, event[i]!)
    for (let u = useStart[i]!; u < useStart[i + 1]!; u++) {
      useEventId[u] = event[i]!
      sheet.put(Op.use, lane, useBuffer[u]!)
    }
    for (let f = frees.start[i]!; f < frees.start[i + 1]!; f++)
      sheet.put(Op.free, home[frees.items[f]!]!, frees.items[f]!)
  }
  sheet.accessStart[commands] = accesses.named.length
  const accessMode = into.uint8(accesses.named.length)
  for (let i = 0; i < operations; i++)
    for (let a = accesses.written[i]!; a < accesses.start[i + 1]!; a++) accessMode[a] = Mode.write
  return {
    commands,
    op: sheet.op,
    lane: sheet.lane,
    named: sheet.named,
    useEventId,
    accesses: accesses.named.length,
    accessStart: sheet.accessStart,
    accessNamed: accesses.named,
    accessMode,
  }
}
