import { commandText, quotedBuffer, quotedLane } from '../ir/names.js'
import { type CommandTable, Op } from '../order/command-table.js'
import type { Frontiers } from '../order/frontiers.js'
import { LastAccesses } from '../order/last-accesses.js'
import type { Sink } from './report.js'

/** Of each event, the point of the last run that its lane had issued at the record; seen in the first tick of another replay. */
export class Marks {
  /** Whether L5 holds; else it is not known. */
  precise = false
  private readonly ran: Int32Array
  private readonly marked: Int32Array

  constructor(private readonly tables: CommandTable) {
    const { lanes, events, allocator } = tables
    this.ran = allocator.int32(lanes)
    this.marked = allocator.int32(events)
  }

  /** Run c has been issued. */
  run(c: number, { known, lanes }: Frontiers): void {
    const l = this.tables.lane[c]!
    this.ran[l] = known[l * (lanes + 1)]!
  }

  record(c: number): void {
    const { recordOf, subject, lane } = this.tables
    const event = subject[c]!
    if (recordOf[event] === c) this.marked[event] = this.ran[lane[c]!]!
  }

  /** The tick has been issued: whether what each use marks is its lane's last access to the buffer, as far as `last` has kept it. */
  end(last: LastAccesses): void {
    this.precise = this.arePrecise(last)
  }

  private arePrecise(last: LastAccesses): boolean {
    const { uses, useCommand, useEvent, recordOf, subject, lane, cells } = this.tables
    for (let u = 0; u < uses; u++) {
      const c = useCommand[u]!
      const record = recordOf[useEvent[u]!]!
      if (record < 0 || lane[record] !== lane[c]) continue // marks no point at all: L4
      const b = subject[c]!
      let point = 0
      for (let cell = cells.first[b]!; cell < cells.first[b + 1]!; cell++)
        point = Math.max(point, last.of(cell, lane[c]!))
      if (point === 0 || point !== this.marked[useEvent[u]!]) return false
    }
    return true
  }
}

/**
 * L5: between a lane's last access to a buffer and the record of its use, that lane issues no other run. So the record
 * stands after the last access, with no run of the lane between, and a use of a lane that never accesses the buffer is
 * as imprecise as can be. One pass over the runs finds the last accesses, counted in runs of their lanes, one over the uses judges them.
 */
export const checkPrecise = (tables: CommandTable, sink: Sink): void => {
  const { op, lane, subject, recordOf, uses, useCommand, useEvent, allocator } = tables
  const last = new LastAccesses(allocator, tables.buffers, tables.accesses)
  const runs = allocator.int32(tables.lanes)
  /** By event, the runs of its lane before the record. */
  const before = allocator.int32(tables.events)
  for (let c = 0; c < tables.commands; c++) {
    const l = lane[c]!
    if (op[c] === Op.record && recordOf[subject[c]!] === c) before[subject[c]!] = runs[l]!
    if (op[c] !== Op.run) continue
    runs[l]!++
    for (let a = tables.accessStart[c]!; a < tables.accessStart[c + 1]!; a++)
      last.touch(tables.accessRoot[a]!, l, runs[l]!)
  }
  for (let u = 0; u < uses && !sink.full; u++) {
    const c = useCommand[u]!
    const event = useEvent[u]!
    const l = lane[c]!
    const record = recordOf[event]!
    if (record < 0 || lane[record] !== l) continue // marks no point at all: L4
    const access = last.of(subject[c]!, l)
    if (access === 0 || access !== before[event])
      imprecise(tables, c, event, access, before[event]! - access, sink)
  }
}

/** Use c, its event, the lane's last access by its number among the lane's runs (0: none), and how many runs are issued between it and the record; less than 0: the record comes first. */
const imprecise = (
  tables: CommandTable,
  c: number,
  event: number,
  access: number,
  between: number,
  sink: Sink,
): void => {
  const { plan, op, lane, named, recordOf } = tables
  const l = lane[c]!
  sink.add('L5', c, { buffer: named[c]!, lane: l, event: tables.eventId[event]! }, () => {
    const name = quotedBuffer(plan, named[c]!)
    if (access === 0) return `${quotedLane(plan, l)} never accesses ${name}, so it has no last access to mark`
    let run = -1
    for (let left = access; left > 0; ) if (op[++run] === Op.run && lane[run] === l) left--
    const last = `commands[${run}] (${commandText(plan, run)})`
    const record = recordOf[event]!
    if (between < 0)
      return `its event is recorded at commands[${record}], before ${quotedLane(plan, l)} last accesses ${name} at ${last}`
    return `${quotedLane(plan, l)} issues ${between === 1 ? 'another run' : `${between} other runs`} between its last access of ${name} at ${last} and the record at commands[${record}]`
  })
}
