import { quotedLane } from '../ir/names.js'
import { type CommandTable, Op } from '../order/command-table.js'
import type { Sink } from './report.js'

/**
 * L7: every wait's event is recorded earlier in issue order (for a wait with -1: anywhere in the tick, since
 * the record is the previous tick's), so no plan can deadlock. An event marks one point a tick, by its first
 * record. A second record is reported here alone; every other law ignores it.
 */
export const checkWaits = (table: CommandTable, sink: Sink): void => {
  const { plan, op, subject, recordOf, eventId, lane } = table
  for (let c = 0; c < table.commands && !sink.full; c++) {
    const code = op[c]
    if (code !== Op.record && code !== Op.wait && code !== Op.previous) continue
    const event = subject[c]!
    const record = recordOf[event]!
    const place = { event: eventId[event]!, lane: lane[c]! }
    if (code === Op.record) {
      if (record === c) continue
      sink.add(
        'L7',
        c,
        place,
        () =>
          `e${eventId[event]} is recorded a second time in the tick, ` +
          `first at commands[${record}] on ${quotedLane(plan, lane[record]!)}; ` +
          'an event marks one point a tick',
      )
    } else if (record < 0 || (record > c && code === Op.wait)) {
      const found = record < 0 ? 'is never recorded' : `is recorded only later, at commands[${record}]`
      sink.add(
        'L7',
        c,
        place,
        () => `${quotedLane(plan, lane[c]!)} waits for e${eventId[event]}, which ${found}`,
      )
    }
  }
}
