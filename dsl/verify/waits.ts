import { quotedLane } from '../ir/names.js'
import { type CommandTable, Op } from '../order/command-table.js'
import type { Sink } from './report.js'

/**
 * L7: every wait's event is recorded earlier in issue order (for a wait with -1: in the tick before, so anywhere in the
 * tick), so no plan can deadlock. An event has one mark a tick: its first record. A second one is reported here alone, and
 * every law is judged as if it were not there.
 */
export const checkWaits = (tables: CommandTable, sink: Sink): void => {
  const { plan, op, subject, recordOf, eventId, lane } = tables
  if (tables.recordsFirst) return
  for (let c = 0; c < tables.commands && !sink.full; c++) {
    const code = op[c]
    if (code === Op.record) {
      const event = subject[c]!
      const first = recordOf[event]!
      if (first === c) continue
      sink.add(
        'L7',
        c,
        { event: eventId[event]!, lane: lane[c]! },
        () =>
          `e${eventId[event]} is recorded a second time in the tick, first at commands[${first}] on ${quotedLane(plan, lane[first]!)}; an event has one mark a tick`,
      )
    } else if (code === Op.wait || code === Op.previous) {
      const event = subject[c]!
      const record = recordOf[event]!
      if (record >= 0 && (record < c || code === Op.previous)) continue
      const found = record < 0 ? 'is never recorded' : `is recorded only later, at commands[${record}]`
      sink.add(
        'L7',
        c,
        { event: eventId[event]!, lane: lane[c]! },
        () => `${quotedLane(plan, lane[c]!)} waits for e${eventId[event]}, which ${found}`,
      )
    }
  }
}
