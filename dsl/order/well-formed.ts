import type { Plan } from '../ir/plan.js'
import { type FlatCommands, Mode, Op } from './flat-commands.js'
import { eachBuffer, eachNode } from './packed.js'

/**
 * Whether commands that came flat say of themselves what a walk over their lists would find: every id is one that the plan has, events are numbered as the plan does, reads
 * stand before writes, and what can be derived is so. The proof relies on nothing that whoever wrote them says of them.
 */
export const isWellFormed = (walk: FlatCommands, plan: Plan, root: Int32Array, home: Int32Array): boolean =>
  areWhole(walk) && hasIds(walk, plan, root, home) && hasAccesses(walk, eachBuffer(plan).length)

const areWhole = ({
  commands,
  op,
  lane,
  named,
  events,
  eventId,
  recordOf,
  uses,
  useCommand,
  useEvent,
  whole,
}: FlatCommands) => {
  if (!whole || op.length !== commands || lane.length !== commands || named.length !== commands) return false
  if (eventId.length !== events || recordOf.length !== events) return false
  if (useCommand.length !== uses || useEvent.length !== uses) return false
  for (let e = 0; e < events; e++) if (eventId[e] !== e) return false
  return true
}

const hasIds = (walk: FlatCommands, plan: Plan, root: Int32Array, home: Int32Array): boolean => {
  const { commands, op, lane, named, events, recordOf, uses, useCommand, useEvent } = walk
  const lanes = plan.lanes.length
  const buffers = eachBuffer(plan).length
  const nodes = eachNode(plan).length
  let used = 0
  let recorded = 0
  let carries = false
  let recordsFirst = true
  for (let c = 0; c < commands; c++) {
    const code = op[c]!
    const id = named[c]!
    if (id < 0 || lane[c]! >= lanes) return false
    switch (code) {
      case Op.run:
        if (id >= nodes) return false
        break
      case Op.alloc:
        if (id >= buffers) return false
        break
      case Op.free:
        if (id >= buffers || lane[c] !== home[root[id]!]) return false
        break
      case Op.use:
        if (id >= buffers || useCommand[used] !== c || !(useEvent[used]! >= 0 && useEvent[used]! < events))
          return false
        used++
        break
      case Op.record: {
        // The first of its event is at or before every other.
        const first = id < events ? recordOf[id]! : -1
        if (first < 0 || first > c) return false
        if (first === c) recorded++
        else recordsFirst = false
        break
      }
      case Op.wait:
      case Op.previous:
        if (id >= events) return false
        if (recordOf[id]! < 0 || recordOf[id]! > c) recordsFirst = false
        if (code === Op.previous) carries = true
        break
      default:
        return false
    }
  }
  // Each event that says where it is recorded was met there.
  let said = 0
  for (let e = 0; e < events; e++) if (recordOf[e]! !== -1) said++
  return used === uses && recorded === said && carries === walk.carries && recordsFirst === walk.recordsFirst
}

const hasAccesses = (
  { commands, op, accesses, accessStart, accessNamed, accessMode }: FlatCommands,
  buffers: number,
): boolean => {
  if (accessStart[0] !== 0 || accessStart[commands] !== accesses) return false
  if (accessNamed.length !== accesses || accessMode.length !== accesses) return false
  for (let c = 0; c < commands; c++) {
    const from = accessStart[c]!
    const end = accessStart[c + 1]!
    if (end < from || end > accesses || (end > from && op[c] !== Op.run)) return false
    let mode: number = Mode.read
    for (let a = from; a < end; a++) {
      if (!(accessNamed[a]! >= 0 && accessNamed[a]! < buffers)) return false
      if (accessMode[a]! < mode || accessMode[a]! > Mode.write) return false
      mode = accessMode[a]!
    }
  }
  return true
}
