import type { ArrayAllocator } from '../../collections/scratch-arena.js'
import type { Where } from '../../ir/graph.js'
import type { Plan, PlanBuffer, PlanNode } from '../../ir/plan.js'
import type { BoundKernel } from '../../language/bound-kernel.js'
import { compiledPlan, type Listing, type Outline } from '../../order/compiled-plan.js'
import type { FlatCommands } from '../../order/flat-commands.js'
import { devicesOf } from '../analysis/device-of.js'
import type { Bounded, Lifetimes, Ordered } from '../analysis/ir.js'
import { type Work, workOf } from '../analysis/operations.js'
import type { Settings } from '../analysis/options.js'
import { pass } from '../analysis/pass.js'
import type { Provenance } from '../analysis/provenance.js'
import { commandsOf, type Issued, issuedOf } from './emit/commands.js'
import { decisionsOf } from './emit/decisions.js'
import { graphsOf } from './emit/graphs.js'

//   Bounded: operations, lanes, waits, uses, spans of buffers
//   → Plan: lanes, buffers, nodes, and commands alloc, wait, run, record, use, free
//
// After this pass there is the plan: data, all of it frozen, so that what is proved for it stays true.

/** The facts that buffers of the plan are made of. */
type Buffers = Pick<Lifetimes, 'buffers' | 'home'> & { readonly arena: Lifetimes['arena'] | undefined }

const bufferOf = (ir: Buffers, id: number): PlanBuffer => {
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

/**
 * The facts of operations that commands do not have, in columns, so that the operations themselves are freed.
 */
export class Nodes implements Listing<PlanNode> {
  private readonly name: string[]
  private readonly where: Where[]
  private readonly work: Work[]
  private readonly shared = new Map<number, PlanNode['collective']>()
  private readonly donates = new Map<number, NonNullable<PlanNode['donates']>>()
  private readonly after = new Map<number, NonNullable<PlanNode['after']>[number][]>()
  /** The largest relative error that any operation may have. */
  readonly tolerance: number
  /** By node: the user's kernel. */
  readonly kernels: ReadonlyMap<number, BoundKernel>

  constructor({ operations, control }: Ordered) {
    this.name = new Array<string>(operations.length)
    this.where = new Array<Where>(operations.length)
    this.work = new Array<Work>(operations.length)
    const kernels = new Map<number, BoundKernel>()
    let tolerance = 0
    // One pass: operations in issue order are scattered in memory.
    for (let i = 0; i < operations.length; i++) {
      const operation = operations[i]!
      this.name[i] = operation.name
      this.where[i] = operation.at
      this.work[i] = workOf(operation)
      if (operation.tolerance > tolerance) tolerance = operation.tolerance
      if (operation.user !== undefined) {
        kernels.set(i, operation.user)
        const pairs = operation.user.donates.flatMap((read, write) =>
          read === undefined ? [] : [[write, read] as const],
        )
        if (pairs.length > 0) this.donates.set(i, pairs)
      }
      const { collective } = operation
      if (collective === undefined) continue
      const { ranks: _, ...said } = collective
      this.shared.set(i, said)
    }
    for (const { later, earlier, when } of control ?? []) {
      const orders = this.after.get(later)
      if (orders === undefined) this.after.set(later, [[earlier, when]])
      else orders.push([earlier, when])
    }
    this.tolerance = tolerance
    this.kernels = kernels
  }

  get length(): number {
    return this.name.length
  }

  at(id: number): PlanNode {
    const { op, kernel, flops, movedBytes } = this.work[id]!
    const name = this.name[id]!
    const at = String(this.where[id]!)
    if (kernel !== undefined && this.after.size === 0 && this.donates.size === 0)
      return { id, op, name, at, kernel, flops, movedBytes }
    const collective = this.shared.get(id)
    const donates = this.donates.get(id)
    const after = this.after.get(id)
    return {
      ...{ id, op, name, at },
      ...(kernel === undefined ? {} : { kernel }),
      ...(collective === undefined ? {} : { collective }),
      ...(donates === undefined ? {} : { donates }),
      ...{ flops, movedBytes },
      ...(after === undefined ? {} : { after }),
    }
  }
}

/** The buffers of the plan. */
const buffersOf = (ir: Lifetimes): Listing<PlanBuffer> => {
  const { buffers, home, arena } = ir
  return { length: buffers.length, at: id => bufferOf({ buffers, home, arena }, id) }
}

/** Passes before `bound` know no kind yet. */
type Unbounded = Lifetimes & Partial<Pick<Bounded, 'boundKind'>>

const outlined = (ir: Unbounded, nodes: Listing<PlanNode>): Outline => ({
  plan: 1,
  name: ir.settings.name,
  devices: devicesOf(ir),
  inFlight: ir.settings.inFlight,
  storage: ir.arena === undefined ? 'pooled' : 'planned',
  bound: { device: [Number.MAX_SAFE_INTEGER], pinned: Number.MAX_SAFE_INTEGER },
  ...(ir.boundKind === undefined ? {} : { boundKind: ir.boundKind }),
  ...(ir.arena === undefined ? {} : { arena: ir.arena.bytes }),
  ...(ir.settings.arenas === 1 ? {} : { arenas: ir.settings.arenas }),
  lanes: ir.lanes,
  buffers: buffersOf(ir),
  nodes,
  ...(ir.communicators === undefined ? {} : { communicators: ir.communicators }),
})

/** The nodes of a plan whose nodes are seldom read. */
const nodesWhenRead = (ir: Ordered): Listing<PlanNode> => {
  let nodes: Nodes | undefined
  return {
    length: ir.operations.length,
    at: id => {
      nodes ??= new Nodes(ir)
      return nodes.at(id)
    },
  }
}

/** The plan but for its bound: all that its peak follows from. Its commands may be a scratch arena's. */
export const outlineOf = (ir: Unbounded, allocator?: ArrayAllocator): Plan =>
  compiledPlan(outlined(ir, nodesWhenRead(ir)), commandsOf(issuedOf(ir), allocator))

/** All of a plan but its commands. */
export interface Draft extends Pick<Provenance, 'kernels' | 'inits' | 'decisions'> {
  readonly outline: Outline
  readonly issued: Issued
  readonly flat: FlatCommands | undefined
  readonly mode: Settings['mode']
}

/**
 * Takes from the operations all that the plan needs, so that they are freed before the commands take their
 * memory.
 */
export const draft = pass('draft', (ir: Bounded): Draft => {
  const nodes = new Nodes(ir)
  const { device, pinned } = ir.bound
  const outline = {
    ...outlined(ir, nodes),
    bound: { device: [...device], pinned },
    tolerance: nodes.tolerance,
  }
  const { flat, settings } = ir
  const issued = issuedOf(ir)
  const { kernels } = nodes
  const { inits = new Map() } = ir
  return { outline, issued, flat, mode: settings.mode, kernels, inits, decisions: decisionsOf(ir) }
})

const freeze = <A extends object>(items: readonly A[]): readonly A[] => {
  for (const item of items) Object.freeze(item)
  return Object.freeze(items)
}

export const emit = pass('emit', ({ outline, issued, flat, mode }: Draft): Plan => {
  const { bound, arena, lanes, communicators } = outline
  const frozen = {
    ...outline,
    bound: Object.freeze({ device: Object.freeze(bound.device), pinned: bound.pinned }),
    lanes: freeze(lanes),
    ...(communicators === undefined ? {} : { communicators: freeze(communicators) }),
  }
  const commands = flat ?? commandsOf(issued)
  return compiledPlan(
    arena === undefined ? frozen : { ...frozen, arena: Object.freeze([...arena]) },
    commands,
    mode === 'graph' ? graphsOf(frozen, commands) : undefined,
  )
})
