import { quotedBuffer, quotedLane, quotedNode } from '../ir/names.js'
import type { Plan } from '../ir/plan.js'
import { type CommandTable, Mode, Op } from '../order/command-table.js'
import { eachBuffer, eachNode } from '../order/compiled-plan.js'
import type { Sink } from './report.js'

/**
 * What stands where. Buffers (L3), lanes (L7) and nodes (L1) have the ids that commands call them by; a buffer and its home are of one device; a view lies inside its root.
 * A run reads (L1) and writes (L2) memory that its lane's device can address: its own, pinned memory, and that of other devices only where it is a copy
 * of one source or its node says `peerAccess`. Commands of different devices are ordered by the same events as any others.
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
        `${quotedBuffer(table.plan, inexact)} is written, a part of a buffer that has too many views for what reads see to be judged by bytes`,
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
    const sound =
      buffer.id === b && isIn(device, devices) && isIn(home, lanes.length) && buffer.alias === undefined
    if (!sound || (buffer.space === 'device' && lanes[home]!.device !== device)) checkBuffer(plan, b, sink)
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
  const say = (said: string, place: { lane?: number } = {}) =>
    sink.add('L3', -1, { buffer: b, ...place }, () => `${quotedBuffer(plan, b)} ${said}`)
  if (id !== b) say(`is number ${b} of its buffers and says id ${id}`)
  if (!isIn(device, devices)) say(`is on device ${device}, and the plan has ${devices}`)
  if (!isIn(home, lanes.length)) say(`has lane ${home} for a home, and the plan has ${lanes.length}`)
  else if (space === 'device' && lanes[home]!.device !== device)
    say(
      `is on device ${device}, and its home ${quotedLane(plan, home)} is of device ${lanes[home]!.device}, whose order its memory cannot follow`,
      { lane: home },
    )
  if (alias !== undefined) checkView(plan, b, sink)
}

const checkView = (plan: Plan, b: number, sink: Sink): void => {
  const { alias, aliasOffset = 0, bytes, space, device } = plan.buffers[b]!
  const say = (said: () => string) =>
    sink.add('L3', -1, { buffer: b }, () => `${quotedBuffer(plan, b)} is a view ${said()}`)
  const root = plan.buffers[alias!]
  if (root === undefined || alias === b)
    say(() => `of ${alias === b ? 'itself' : `buffer ${alias}, which the plan does not have`}`)
  else if (root.alias !== undefined) say(() => `of ${quotedBuffer(plan, alias!)}, which is a view itself`)
  else if (!(aliasOffset >= 0 && aliasOffset + bytes <= root.bytes))
    say(
      () =>
        `of bytes ${aliasOffset} to ${aliasOffset + bytes} of ${quotedBuffer(plan, alias!)}, which has ${root.bytes}`,
    )
  else if (root.space !== space || root.device !== device)
    say(
      () =>
        `in other memory (${space} ${device}) than ${quotedBuffer(plan, alias!)} (${root.space} ${root.device})`,
    )
}

const checkReach = (table: CommandTable, sink: Sink): void => {
  const { plan, op, lane, subject, accessStart, accessNamed, accessMode } = table
  for (let c = 0; c < table.commands && !sink.full; c++) {
    if (op[c] !== Op.run) continue
    const node = plan.nodes[subject[c]!]!
    // What gathers several parts stays on one device.
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
          `it runs on device ${device} and ${reads ? 'reads' : 'writes'} ${quotedBuffer(plan, accessNamed[a]!)} on device ${buffer.device}: only a copy of one source may, or a node that says peerAccess`,
      )
    }
  }
}
