import { quotedBuffer, quotedLane, quotedNode } from '../ir/names.js'
import type { Plan } from '../ir/plan.js'
import { viewErrors } from '../ir/views.js'
import { type CommandTable, Mode, Op } from '../order/command-table.js'
import { eachBuffer, eachNode } from '../order/compiled-plan.js'
import type { Sink } from './report.js'

/**
 * Ids and devices. Buffers (L3), lanes (L7) and nodes (L1) have the ids that commands call them by; a buffer
 * and its home are of one device; a view lies inside its root. A run reads (L1) and writes (L2) memory that
 * its lane's device can address: its own, pinned memory, and that of other devices only where it is a copy of
 * one source or its node says `peerAccess`. Commands of different devices are ordered by the same events as
 * any others.
 */
export const checkPlaces = (table: CommandTable, sink: Sink): void => {
  checkLists(table.plan, sink)
  const { inexact } = table.intervals
  if (inexact >= 0)
    sink.add(
      'L1',
      -1,
      { buffer: inexact },
      () =>
        `${quotedBuffer(table.plan, inexact)} is written, ` +
        'a part of a buffer with too many views to judge by bytes what its reads see',
    )
  if (table.plan.devices > 1 || table.plan.lanes.some(({ device }) => device !== 0)) checkReach(table, sink)
}

const isIn = (id: unknown, count: number): boolean =>
  Number.isInteger(id) && (id as number) >= 0 && (id as number) < count

const checkLists = (plan: Plan, sink: Sink): void => {
  const { lanes, devices } = plan
  const buffers = eachBuffer(plan)
  const nodes = eachNode(plan)
  for (let l = 0; l < lanes.length; l++) {
    const { id, device } = lanes[l]!
    if (id !== l)
      sink.add(
        'L7',
        -1,
        { lane: l },
        () => `${quotedLane(plan, l)} is number ${l} of its lanes and says id ${id}`,
      )
    if (!isIn(device, devices))
      sink.add(
        'L7',
        -1,
        { lane: l },
        () => `${quotedLane(plan, l)} is of device ${device}, and the plan has ${devices}`,
      )
  }
  for (let n = 0; n < nodes.length; n++) if (nodes.at(n)!.id !== n) misnumbered(plan, n, sink)
  for (let b = 0; b < buffers.length; b++) {
    const buffer = buffers.at(b)!
    const { home, device } = buffer
    const isPlaced =
      buffer.id === b && isIn(device, devices) && isIn(home, lanes.length) && buffer.alias === undefined
    if (!isPlaced || (buffer.space === 'device' && lanes[home]!.device !== device)) checkBuffer(plan, b, sink)
  }
}

const misnumbered = (plan: Plan, n: number, sink: Sink): void =>
  sink.add(
    'L1',
    -1,
    {},
    () => `${quotedNode(plan, n)} is number ${n} of its nodes and says id ${plan.nodes[n]!.id}`,
  )

const checkBuffer = (plan: Plan, b: number, sink: Sink): void => {
  const { lanes, devices } = plan
  const { id, space, device, home, alias } = plan.buffers[b]!
  const add = (sentence: string, place: { lane?: number } = {}) =>
    sink.add('L3', -1, { buffer: b, ...place }, () => `${quotedBuffer(plan, b)} ${sentence}`)
  if (id !== b) add(`is number ${b} of its buffers and says id ${id}`)
  if (!isIn(device, devices)) add(`is on device ${device}, and the plan has ${devices}`)
  if (!isIn(home, lanes.length)) add(`has lane ${home} for a home, and the plan has ${lanes.length}`)
  else if (space === 'device' && lanes[home]!.device !== device)
    add(
      `is on device ${device}, and its home ${quotedLane(plan, home)} is of device ${lanes[home]!.device}, ` +
        'whose order its memory cannot follow',
      { lane: home },
    )
  if (alias !== undefined) checkView(plan, b, sink)
}

const checkView = (plan: Plan, b: number, sink: Sink): void => {
  const { alias } = plan.buffers[b]!
  const add = (sentence: string) =>
    sink.add('L3', -1, { buffer: b }, () => `${quotedBuffer(plan, b)} is a view ${sentence}`)
  if (plan.buffers[alias!] === undefined) add(`of buffer ${alias}, which the plan does not have`)
  for (const { wanted, found } of viewErrors(plan, b)) add(`of ${found}; wanted: ${wanted}`)
}

const checkReach = (table: CommandTable, sink: Sink): void => {
  const { plan, op, lane, subject, accessStart, accessNamed, accessMode } = table
  for (let c = 0; c < table.commands && !sink.full; c++) {
    if (op[c] !== Op.run) continue
    const node = plan.nodes[subject[c]!]!
    // A copy of several sources stays on one device.
    const reaches = node.kernel?.kind === 'copy' ? (node.kernel.parts ?? 1) === 1 : node.peerAccess === true
    if (reaches) continue
    const { device } = plan.lanes[lane[c]!]!
    for (let a = accessStart[c]!; a < accessStart[c + 1]!; a++) {
      const buffer = plan.buffers[accessNamed[a]!]!
      if (buffer.space === 'pinned' || buffer.device === device) continue
      const reads = accessMode[a] === Mode.read
      sink.add(
        reads ? 'L1' : 'L2',
        c,
        { buffer: accessNamed[a]!, lane: lane[c]! },
        () =>
          `it runs on device ${device} and ${reads ? 'reads' : 'writes'} ` +
          `${quotedBuffer(plan, accessNamed[a]!)} on device ${buffer.device}: ` +
          'only a copy of one source may, or a node that says peerAccess',
      )
    }
  }
}
