import { bufferName, commandText, laneName, type Sink } from './report.js'
import { Op, type Tables } from './tables.js'

/**
 * L5: between a lane's last access to a buffer and the record of its use, that lane issues no other run. So the record
 * stands after the last access, with no run of the lane between, and a use of a lane that never accesses the buffer is
 * as imprecise as can be. One pass over the accesses finds each pair's last, one over the uses judges them.
 */
export const checkPrecise = (tables: Tables, sink: Sink): void => {
  const { op, lane, subject, recordOf, runsBefore } = tables
  const last = new Int32Array(tables.pairLane.length).fill(-1)
  for (let c = 0; c < tables.commands; c++) {
    if (op[c] !== Op.run) continue
    for (let a = tables.accessStart[c]!; a < tables.accessStart[c + 1]!; a++) last[tables.accessPair[a]!] = c
  }
  for (let u = 0; u < tables.commands && !sink.full; u++) {
    if (op[u] !== Op.use) continue
    const b = subject[u]!
    const l = lane[u]!
    const event = tables.useEvent[u]!
    const record = recordOf[event]!
    if (record < 0 || lane[record] !== l) continue // marks no point at all: L4
    let access = -1
    for (let p = tables.pairStart[b]!; p < tables.pairStart[b + 1]!; p++)
      if (tables.pairLane[p] === l) access = last[p]!
    if (access >= 0 && record >= access && runsBefore[record]! - runsBefore[access]! === 1) continue
    imprecise(tables, u, access, record, sink)
  }
}

const imprecise = (tables: Tables, u: number, access: number, record: number, sink: Sink): void => {
  const { plan, lane, named, runsBefore } = tables
  const l = lane[u]!
  sink.add('L5', u, { buffer: named[u]!, lane: l, event: tables.eventId[tables.useEvent[u]!]! }, () => {
    const name = bufferName(plan, named[u]!)
    if (access < 0) return `${laneName(plan, l)} never accesses ${name}, so it has no last access to mark`
    const last = `commands[${access}] (${commandText(plan, access)})`
    if (record < access)
      return `its event is recorded at commands[${record}], before ${laneName(plan, l)} last accesses ${name} at ${last}`
    const between = runsBefore[record]! - runsBefore[access]! - 1
    return `${laneName(plan, l)} issues ${between === 1 ? 'another run' : `${between} other runs`} between its last access of ${name} at ${last} and the record at commands[${record}]`
  })
}
