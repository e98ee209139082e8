import { listed, planOf } from '../ir/packed.js'
import type { Peak } from '../ir/peak.js'
import type { Plan, PlanBuffer, PlanNode } from '../ir/plan.js'
import { commandsOf, type Issued, issuedOf } from './commands.js'
import { devicesOf } from './device-of.js'
import type { Bounded, Lifetimes, Operation, Ordered } from './ir.js'
import type { BoundKernel } from './vocabulary.js'
import { watched } from './watch.js'

const bufferOf = (ir: Lifetimes, id: number): PlanBuffer => {
  const { name, bytes, space, life, root, offset, device = 0, dtype, shape, init, rate } = ir.buffers[id]!
  const home = ir.home[id]!
  const place = ir.arena?.offset[id] ?? -1
  if (
    root === id &&
    place < 0 &&
    dtype !== undefined &&
    shape !== undefined &&
    init === undefined &&
    rate === undefined
  )
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
    ...(rate === undefined ? {} : { rate }),
  }
}

const nodeOf = (operation: Operation, id: number): PlanNode => {
  const { op, name, at, kernel, flops, movedBytes } = operation
  if (kernel !== undefined) return { id, op, name, at: String(at), kernel, flops, movedBytes }
  const { collective } = operation
  if (collective === undefined) return { id, op, name, at: String(at), flops, movedBytes }
  const { ranks: _, ...said } = collective
  return { id, op, name, at: String(at), collective: Object.freeze(said), flops, movedBytes }
}

/** `seen` is told of each operation on the way: a million of them in issue order lie all over memory. */
export const nodesOf = (
  { operations, control }: Ordered,
  seen?: (operation: Operation, id: number) => void,
): PlanNode[] => {
  const nodes = new Array<PlanNode>(operations.length)
  for (let i = 0; i < nodes.length; i++) {
    nodes[i] = nodeOf(operations[i]!, i)
    seen?.(operations[i]!, i)
  }
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
  ...(ir.communicators === undefined ? {} : { communicators: ir.communicators }),
})

/** The plan but for its bound: all that memory and order ask. */
export const outlineOf = (ir: Lifetimes, nodes: readonly PlanNode[]): Plan => ({
  ...partsOf(ir, nodes),
  commands: listed(commandsOf(issuedOf(ir))),
})

/** A plan whose commands are still to be made. */
export interface Draft {
  readonly parts: Outline
  readonly issued: Issued
  readonly peak: Peak
  /** The user's kernels, by node. */
  readonly users: ReadonlyMap<number, BoundKernel>
}

/** All of the plan but its commands: from here on operations are done with, whose millions would not go into memory beside those of commands. */
export const draft = watched('draft', (ir: Bounded): Draft => {
  let tolerance = 0
  const users = new Map<number, BoundKernel>()
  const nodes = nodesOf(ir, (operation, id) => {
    if (operation.tolerance > tolerance) tolerance = operation.tolerance
    if (operation.user !== undefined) users.set(id, operation.user)
  })
  const { device, pinned } = ir.bound
  const parts = { ...partsOf(ir, nodes), bound: { device: [...device], pinned }, tolerance }
  return { parts, issued: issuedOf(ir), peak: ir.peak, users }
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
  const { bound, arena, lanes, buffers, nodes, communicators } = parts
  const frozen = {
    ...parts,
    bound: Object.freeze({ device: Object.freeze(bound.device), pinned: bound.pinned }),
    lanes: freeze(lanes),
    buffers: freeze(buffers),
    nodes: freeze(nodes),
    ...(communicators === undefined ? {} : { communicators: freeze(communicators) }),
  }
  return planOf(arena === undefined ? frozen : { ...frozen, arena: Object.freeze([...arena]) }, commandsOf(issued))
})
