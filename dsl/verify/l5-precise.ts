import { commandText, quotedBuffer, quotedLane } from '../ir/names.js'
import { type CommandTable, Op } from '../order/command-table.js'
import { LastAccesses } from '../order/last-accesses.js'
import type { Sink } from './report.js'

/**
 * L5: between a lane's last access to a buffer and the record of its use, that lane issues no other run. A
 * use of a lane that never accesses the buffer breaks the law too. One pass over the runs finds the last
 * accesses of buffers with uses, counted in runs of their lanes; one over the uses judges them.
 */
export const checkPrecise = (table: CommandTable, sink: Sink): void => {
  const { op, lane, subject, recordOf, accessStart, accessRoot, uses, useCommand, useEvent, allocator } =
    table
  const isUsed = allocator.uint8(table.buffers)
  for (let u = 0; u < uses; u++) isUsed[subject[useCommand[u]!]!] = 1
  const last = new LastAccesses(allocator, table.buffers, table.accesses)
  const runs = allocator.int32(table.lanes)
  /** By event, the runs of its lane before the record. */
  const before = allocator.int32(table.events)
  for (let c = 0; c < table.commands; c++) {
    const l = lane[c]!
    if (op[c] === Op.record && recordOf[subject[c]!] === c) before[subject[c]!] = runs[l]!
    if (op[c] !== Op.run) continue
    runs[l]!++
    for (let a = accessStart[c]!, end = accessStart[c + 1]!; a < end; a++)
      if (isUsed[accessRoot[a]!] === 1) last.put(accessRoot[a]!, l, runs[l]!)
  }
  for (let u = 0; u < uses && !sink.full; u++) {
    const c = useCommand[u]!
    const event = useEvent[u]!
    const l = lane[c]!
    const record = recordOf[event]!
    if (record < 0 || lane[record] !== l) continue // it marks no point at all, which L4 reports
    const access = last.of(subject[c]!, l)
    if (access === 0 || access !== before[event]) imprecise(table, c, event, access, before[event]!, sink)
  }
}

/**
 * Use c of an event; `access`: its lane's last access of the buffer, by its number among the lane's runs (0:
 * none); `before`: the lane's runs before the record.
 */
const imprecise = (
  table: CommandTable,
  c: number,
  event: number,
  access: number,
  before: number,
  sink: Sink,
): void => {
  const { plan, op, lane, named, recordOf, eventId } = table
  const l = lane[c]!
  sink.add('L5', c, { buffer: named[c]!, lane: l, event: eventId[event]! }, () => {
    const name = quotedBuffer(plan, named[c]!)
    if (access === 0) return `${quotedLane(plan, l)} never accesses ${name}, so it has no last access to mark`
    let run = -1
    for (let left = access; left > 0; ) if (op[++run] === Op.run && lane[run] === l) left--
    const last = `commands[${run}] (${commandText(plan, run)})`
    const record = recordOf[event]!
    const between = before - access
    if (between < 0)
      return [
        `its event is recorded at commands[${record}], `,
        `before ${quotedLane(plan, l)} last accesses ${name} at ${last}`,
      ].join('')
    const runs = between === 1 ? 'another run' : `${between} other runs`
    return [
      `${quotedLane(plan, l)} issues ${runs} between its last access of ${name} at ${last} `,
      `and the record at commands[${record}]`,
    ].join('')
  })
}
