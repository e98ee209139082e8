import type { GraphNode } from '../../../ir/graph.js'
import type { PlanCommunicator } from '../../../ir/plan.js'
import { type BoundSpec, elementBytes, isEmpty, tensorBytes } from '../../../ir/tensor.js'
import type { Communicator } from '../../../language/communicator.js'
import type { InitData } from '../../../language/initial-value.js'
import type { Buffer, Checked, ControlEdge, Operation } from '../../analysis/ir.js'
import { Operations } from '../../analysis/operations.js'
import { donatedReads } from '../../analysis/operators.js'
import { type TakenMemory, takenMemory } from '../../analysis/taken-memory.js'

/**
 * The bytes of a buffer. A value of the tick without elements, which only a user's kernel has, has room for
 * one, so that its address is an address; other values without elements have no bytes.
 */
const bytesOf = (spec: BoundSpec, life: Buffer['life']): number =>
  life === 'tick' && isEmpty(spec) ? elementBytes[spec.dtype] : tensorBytes(spec)

/** The state of lowering: the buffer, the maker and the readers of each node's value. */
export class Lowering {
  readonly operations: Operations
  readonly buffers: Buffer[] = []
  /**
   * By node: the buffer of its value, the operation that makes it (-1: none), and the version of the buffer's
   * bytes.
   */
  readonly buffer: Int32Array
  private readonly made: Int32Array
  private readonly version: Int32Array
  /** By version: its readers. Kept only where some kernel takes a read's memory. */
  private readonly readers = new Map<number, number[]>()
  private readonly donates: boolean
  /** The device of new buffers: that of the node that is being lowered. */
  private device = 0
  /** By node: the operations that readers of its value come after without data. */
  private readonly orders = new Map<number, readonly Omit<ControlEdge, 'later'>[]>()
  readonly control: ControlEdge[] = []
  readonly communicators: PlanCommunicator[] = []
  private readonly named = new Map<string, number>()

  /** By buffer: first values that the plan does not have. */
  readonly inits = new Map<number, InitData>()
  /** What is decided for nodes whose result is made in the memory of an input. */
  readonly taken: ReadonlyMap<number, TakenMemory>

  constructor(readonly ir: Checked) {
    let reads = 0
    for (const { inputs } of ir.nodes) reads += inputs.length
    this.operations = new Operations(ir.nodes.length, reads)
    this.buffer = new Int32Array(ir.nodes.length).fill(-1)
    this.made = new Int32Array(ir.nodes.length).fill(-1)
    this.version = Int32Array.from(ir.nodes, node => node.id)
    this.taken = takenMemory(ir)
    this.donates =
      this.taken.size > 0 || ir.nodes.some(node => node.op === 'kernel' && donatedReads(node).length > 0)
  }

  spec(node: number): BoundSpec {
    return this.ir.specs[node]!
  }

  /** New buffers are on the device of this node from now on. */
  begin(node: number): void {
    this.device = this.deviceOf(node)
  }

  private deviceOf(node: number): number {
    return this.ir.deviceOf?.[node] ?? 0
  }

  specs(nodes: readonly number[]): BoundSpec[] {
    const specs = new Array<BoundSpec>(nodes.length)
    for (let i = 0; i < specs.length; i++) specs[i] = this.ir.specs[nodes[i]!]!
    return specs
  }

  fresh(
    name: string,
    spec: BoundSpec,
    life: Buffer['life'],
    space: Buffer['space'],
    more?: Pick<Buffer, 'init' | 'rate' | 'at'>,
  ): number {
    const id = this.buffers.length
    const { dtype, shape } = spec
    const device = space === 'device' ? this.device : 0
    const made: Buffer = {
      name,
      bytes: bytesOf(spec, life),
      space,
      life,
      root: id,
      offset: 0,
      device,
      dtype,
      shape,
    }
    this.buffers.push(more === undefined ? made : { ...made, ...more })
    return id
  }

  view(name: string, spec: BoundSpec, of: number, offsetBytes: number): number {
    const { root, offset, space, life, device = 0 } = this.buffers[of]!
    const { dtype, shape } = spec
    const at = offset + offsetBytes
    this.buffers.push({
      name,
      bytes: bytesOf(spec, life),
      space,
      life,
      root,
      offset: at,
      device,
      dtype,
      shape,
    })
    return this.buffers.length - 1
  }

  /**
   * The value of `node` is `buffer`, made by `operation`. A view has the version of the node `like` that it
   * views.
   */
  yields(node: number, buffer: number, operation: number, like = node): void {
    this.buffer[node] = buffer
    this.made[node] = operation
    this.version[node] = this.version[like]!
  }

  maker(node: number): number {
    return this.made[node]!
  }

  readersOf(node: number): readonly number[] {
    return this.readers.get(this.version[node]!) ?? []
  }

  private note(reader: number, version: number): void {
    const readers = this.readers.get(version)
    if (readers === undefined) this.readers.set(version, [reader])
    else readers.push(reader)
  }

  /** Readers of `node` come after all operations that readers of `of` come after, and after `more`. */
  passOn(node: number, of: number, more: readonly Omit<ControlEdge, 'later'>[] = []): void {
    if (this.orders.size === 0 && more.length === 0) return
    const all = [...(this.orders.get(of) ?? []), ...more]
    if (all.length > 0) this.orders.set(node, all)
  }

  private ordered(later: number, inputs: readonly number[], after: number[]): void {
    const whole = new Map<number, ControlEdge['when']>()
    for (const input of inputs)
      for (const { earlier, when } of this.orders.get(input) ?? [])
        if (when === 'finish' || !whole.has(earlier)) whole.set(earlier, when)
    for (const [earlier, when] of whole) {
      // Data orders them already.
      if (after.includes(earlier)) continue
      after.push(earlier)
      this.control.push({ later, earlier, when })
    }
  }

  private placesOf(inputs: readonly number[]): number[] {
    const reads = new Array<number>(inputs.length)
    for (let i = 0; i < reads.length; i++) reads[i] = this.buffer[inputs[i]!]!
    return reads
  }

  /**
   * An operation that reads the values of `inputs`, after their makers. Loops instead of `map`: it runs a
   * million times.
   */
  operation(
    node: GraphNode,
    inputs: readonly number[],
    writes: readonly number[],
    more: Partial<Operation>,
  ): number {
    const id = this.operations.length
    let makers = 0
    for (let i = 0; i < inputs.length; i++) if (this.made[inputs[i]!]! >= 0) makers++
    const after = new Array<number>(makers)
    for (let i = inputs.length - 1; i >= 0; i--)
      if (this.made[inputs[i]!]! >= 0) after[--makers] = this.made[inputs[i]!]!
    if (this.donates) for (const input of inputs) this.note(id, this.version[input]!)
    if (this.orders.size > 0) this.ordered(id, inputs, after)
    const own = {
      op: more.op ?? node.op,
      name: more.name ?? node.name,
      at: node.at,
      kernel: more.kernel,
      flops: more.flops ?? 0,
      movedBytes: more.movedBytes ?? 0,
      kind: more.kind ?? 'compute',
      // A lane without a name only names a device.
      lane: node.lane?.name === '' ? undefined : node.lane,
      device: this.deviceOf(node.id),
      workspace: more.workspace ?? 0,
      ahead: more.ahead,
      collective: more.collective,
      tolerance: more.tolerance ?? 0,
      user: more.user,
    }
    return this.operations.add(own, more.reads ?? this.placesOf(inputs), writes, after)
  }

  /**
   * Communicators of one name are one. Groups are listed unless it is a single group of all ranks in order.
   */
  communicator({ name, size, groups }: Communicator): number {
    const known = this.named.get(name)
    if (known !== undefined) return known
    const id = this.communicators.length
    const own = groups?.map(group => Object.freeze([...group]))
    this.communicators.push(own === undefined ? { id, name, size } : { id, name, groups: Object.freeze(own) })
    this.named.set(name, id)
    return id
  }

  /** A copy of the values of `inputs`, one after the other. */
  copy(
    node: GraphNode,
    inputs: readonly number[],
    to: number,
    kind: Operation['kind'],
    more: Partial<Operation> = {},
  ): number {
    const { bytes } = this.buffers[to]!
    return this.operation(node, inputs, [to], {
      kind,
      kernel: inputs.length === 1 ? { kind: 'copy', bytes } : { kind: 'copy', bytes, parts: inputs.length },
      movedBytes: 2 * bytes,
      ...more,
    })
  }
}
