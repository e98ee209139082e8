import type { Peak } from '../ir/peak.js'
import type { Command, Plan, PlanBuffer, PlanNode } from '../ir/plan.js'
import { devicesOf } from './device-of.js'
import type { Bounded, Lifetimes, Operation, Ordered } from './ir.js'
import { byOperation } from './lifetimes.js'
import { watched } from './watch.js'

/** What commands are made of: of the operations themselves only what they read and write. */
export interface Issued
  extends Pick<
    Lifetimes,
    'laneOf' | 'waitStart' | 'waitOn' | 'waitTick' | 'begins' | 'first' | 'last' | 'useStart' | 'useBuffer' | 'home'
  > {
  readonly reads: readonly (readonly number[])[]
  readonly writes: readonly (readonly number[])[]
}

const issuedOf = (ir: Lifetimes): Issued => {
  const { laneOf, waitStart, waitOn, waitTick, begins, first, last, useStart, useBuffer, home } = ir
  const reads = ir.operations.map(operation => operation.reads)
  const writes = ir.operations.map(operation => operation.writes)
  const issued = { reads, writes, laneOf, waitStart, waitOn, waitTick, first, last, useStart, useBuffer, home }
  return begins === undefined ? issued : { ...issued, begins }
}

/**
 * One event for each operation that a wait or a use names, numbered in the order of their records; -1: none. Behind them, where a wait is for a start, one for each
 * operation whose start it is.
 */
const eventsOf = ({ reads, waitOn, begins, useStart }: Issued): Int32Array => {
  const operations = reads.length
  const event = new Int32Array(begins === undefined ? operations : 2 * operations).fill(-1)
  for (let w = 0; w < waitOn.length; w++) event[begins?.[w] === 1 ? operations + waitOn[w]! : waitOn[w]!] = 0
  let count = 0
  for (let i = 0; i < operations; i++) {
    if (begins !== undefined && event[operations + i] === 0) event[operations + i] = count++
    if (event[i] === 0 || useStart[i + 1]! > useStart[i]!) event[i] = count++
  }
  return event
}

/**
 * The commands in issue order. Of each operation: its waits, the allocs of what it is the first to touch, the record of its start where somebody waits for it, the run, its
 * record, the uses that it marks, and the frees of what it is the last to touch.
 */
const commandsOf = (ir: Issued): Command[] => {
  const { laneOf, waitStart, waitOn, waitTick, begins, useStart, useBuffer, home } = ir
  const count = ir.reads.length
  const event = eventsOf(ir)
  const allocs = byOperation(ir.first, count)
  const frees = byOperation(ir.last, count)
  let records = 0
  for (let i = 0; i < event.length; i++) if (event[i]! >= 0) records++
  // As long as it will be, at once: grown by pushes, a list of millions is copied again and again.
  const commands = new Array<Command>(
    count + records + waitOn.length + useBuffer.length + allocs.items.length + frees.items.length,
  )
  let next = 0
  for (let i = 0; i < count; i++) {
    const lane = laneOf[i]!
    for (let w = waitStart[i]!; w < waitStart[i + 1]!; w++) {
      const on = event[begins?.[w] === 1 ? count + waitOn[w]! : waitOn[w]!]!
      commands[next++] = waitTick[w] === 0 ? ['wait', on, lane] : ['wait', on, lane, -1]
    }
    for (let a = allocs.start[i]!; a < allocs.start[i + 1]!; a++)
      commands[next++] = ['alloc', allocs.items[a]!, home[allocs.items[a]!]!]
    if (begins !== undefined && event[count + i]! >= 0) commands[next++] = ['record', event[count + i]!, lane]
    commands[next++] = ['run', i, lane, ir.reads[i]!, ir.writes[i]!]
    if (event[i]! >= 0) commands[next++] = ['record', event[i]!, lane]
    for (let u = useStart[i]!; u < useStart[i + 1]!; u++) commands[next++] = ['use', useBuffer[u]!, lane, event[i]!]
    for (let f = frees.start[i]!; f < frees.start[i + 1]!; f++) commands[next++] = ['free', frees.items[f]!]
  }
  return commands
}

const bufferOf = (ir: Lifetimes, id: number): PlanBuffer => {
  const { name, bytes, space, life, root, offset, device = 0, dtype, shape, init } = ir.buffers[id]!
  const home = ir.home[id]!
  const place = ir.arena?.offset[id] ?? -1
  if (root === id && place < 0 && dtype !== undefined && shape !== undefined && init === undefined)
    return { id, name, bytes, space, device, home, life, dtype, shape }
  return {
    id,
    name,
    bytes,
    space,
    device,
    home,
    life,
    ...(root === id ? {} : { alias: root, aliasOffset: offset }),
    ...(place < 0 ? {} : { offset: place }),
    ...(dtype === undefined ? {} : { dtype }),
    ...(shape === undefined ? {} : { shape }),
    ...(init === undefined ? {} : { init }),
  }
}

const nodeOf = ({ op, name, at, kernel, flops, movedBytes }: Operation, id: number): PlanNode =>
  kernel === undefined
    ? { id, op, name, at: String(at), flops, movedBytes }
    : { id, op, name, at: String(at), kernel, flops, movedBytes }

export const nodesOf = ({ operations, control }: Ordered): PlanNode[] => {
  const nodes = operations.map(nodeOf)
  for (const { later, earlier, when } of control ?? []) {
    const node = nodes[later]!
    nodes[later] = { ...node, after: [...(node.after ?? []), [earlier, when]] }
  }
  return nodes
}

type Outline = Omit<Plan, 'commands'>

const partsOf = (ir: Lifetimes, nodes: readonly PlanNode[]): Outline => ({
  plan: 1,
  name: ir.settings.name,
  devices: devicesOf(ir),
  inFlight: ir.settings.inFlight,
  storage: ir.arena === undefined ? 'pooled' : 'planned',
  bound: { device: [Number.MAX_SAFE_INTEGER], pinned: Number.MAX_SAFE_INTEGER },
  ...(ir.arena === undefined ? {} : { arena: ir.arena.bytes }),
  lanes: ir.lanes,
  buffers: ir.buffers.map((_, id) => bufferOf(ir, id)),
  nodes,
})

/** The plan but for its bound: all that memory and order ask. */
export const outlineOf = (ir: Lifetimes, nodes: readonly PlanNode[]): Plan => ({
  ...partsOf(ir, nodes),
  commands: commandsOf(issuedOf(ir)),
})

/** A plan whose commands are still to be made. */
export interface Draft {
  readonly parts: Outline
  readonly issued: Issued
  readonly peak: Peak
}

/** All of the plan but its commands: from here on operations are done with, whose millions would not go into memory beside those of commands. */
export const draft = watched('draft', (ir: Bounded): Draft => {
  let tolerance = 0
  for (const operation of ir.operations) if (operation.tolerance > tolerance) tolerance = operation.tolerance
  const { device, pinned } = ir.bound
  const parts = { ...partsOf(ir, nodesOf(ir)), bound: { device: [...device], pinned }, tolerance }
  return { parts, issued: issuedOf(ir), peak: ir.peak }
})

const freeze = <A extends object>(items: readonly A[]): readonly A[] => {
  for (const item of items) Object.freeze(item)
  return Object.freeze(items)
}

/**
 * After this pass there is the plan: data, frozen, so that what was proved of it stays true. Of commands there are too many to freeze each: who relies on the proof
 * compares their fingerprint.
 */
export const emit = watched('emit', ({ parts, issued }: Draft): Plan => {
  const { plan, name, devices, inFlight, storage, arena, bound, lanes, buffers, nodes, tolerance } = parts
  return Object.freeze({
    plan,
    name,
    devices,
    inFlight,
    storage,
    bound: Object.freeze({ device: Object.freeze(bound.device), pinned: bound.pinned }),
    ...(arena === undefined ? {} : { arena: Object.freeze([...arena]) }),
    lanes: freeze(lanes),
    buffers: freeze(buffers),
    nodes: freeze(nodes),
    commands: Object.freeze(commandsOf(issued)),
    ...(tolerance === undefined ? {} : { tolerance }),
  })
})
