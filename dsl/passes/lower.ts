import * as E from 'fp-ts/lib/Either.js'
import type { GraphNode } from '../ir/graph.js'
import { type BoundSpec, tensorBytes } from '../ir/tensor.js'
import { rootsOf } from './accesses.js'
import type { Buffer, Checked, ControlEdge, Lowered, Operation, Output, Passed } from './ir.js'
import { Operations } from './operations.js'
import { boundKernel, donatedReads, operatorOf } from './vocabulary.js'
import { watched } from './watch.js'

/** A graph on its way to operations and buffers: what each node's value is, who made it, and who has read it. */
class Lowering {
  readonly operations: Operations
  readonly buffers: Buffer[] = []
  /** By node: the buffer of its value, the operation that makes it (-1: none), and the version of the memory that it is. */
  readonly buffer: Int32Array
  private readonly made: Int32Array
  private readonly version: Int32Array
  /** Who reads which version: asked for only where a kernel takes a read's memory. */
  private readonly readers = new Map<number, number[]>()
  private readonly donates: boolean
  /** Where new buffers in device memory are: with the node that is being lowered. */
  private device = 0
  /** By node: operations that whoever reads its value comes after, without data. */
  private readonly orders = new Map<number, readonly Omit<ControlEdge, 'later'>[]>()
  readonly control: ControlEdge[] = []

  constructor(readonly ir: Checked) {
    let reads = 0
    for (const { inputs } of ir.nodes) reads += inputs.length
    this.operations = new Operations(ir.nodes.length, reads)
    this.buffer = new Int32Array(ir.nodes.length).fill(-1)
    this.made = new Int32Array(ir.nodes.length).fill(-1)
    this.version = Int32Array.from(ir.nodes, node => node.id)
    this.donates = ir.nodes.some(node => node.op === 'kernel' && donatedReads(node).length > 0)
  }

  spec(node: number): BoundSpec {
    return this.ir.specs[node]!
  }

  /** From here on buffers are made for this node. */
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
    more?: Pick<Buffer, 'init' | 'rate'>,
  ): number {
    const id = this.buffers.length
    const { dtype, shape } = spec
    const device = space === 'device' ? this.device : 0
    const made: Buffer = { name, bytes: tensorBytes(spec), space, life, root: id, offset: 0, device, dtype, shape }
    this.buffers.push(more === undefined ? made : { ...made, ...more })
    return id
  }

  view(name: string, spec: BoundSpec, of: number, offsetBytes: number): number {
    const { root, offset, space, life, device = 0 } = this.buffers[of]!
    const { dtype, shape } = spec
    const at = offset + offsetBytes
    this.buffers.push({ name, bytes: tensorBytes(spec), space, life, root, offset: at, device, dtype, shape })
    return this.buffers.length - 1
  }

  /** The value of `node` is `buffer`, made by `operation`; of the same version as `like` where it only looks at that one's memory. */
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

  /** Whoever reads the value of `node` comes after all that a reader of `of` comes after, and after those who are `more`. */
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
      // Data says more.
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

  /** An operation that reads the values of `inputs`, after those who made them. Lists are made as long as they are: there are millions. */
  operation(node: GraphNode, inputs: readonly number[], writes: readonly number[], more: Partial<Operation>): number {
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
      // One without a name says no more than the device.
      lane: node.lane?.name === '' ? undefined : node.lane,
      device: this.deviceOf(node.id),
      workspace: more.workspace ?? 0,
      ahead: more.ahead,
      tolerance: more.tolerance ?? 0,
      user: more.user,
    }
    return this.operations.add(own, more.reads ?? this.placesOf(inputs), writes, after)
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

const compute = (low: Lowering, node: GraphNode): void => {
  const operator = operatorOf(node.op)!
  const inputs = low.specs(node.inputs)
  const output = low.spec(node.id)
  const lowered = operator.lower(inputs, output, node.attrs)
  if (lowered.as === 'view') {
    const [of] = node.inputs
    low.yields(node.id, low.view(node.name, output, low.buffer[of!]!, lowered.offsetBytes), low.maker(of!), of!)
    low.passOn(node.id, of!)
    return
  }
  const { kernel, flops, movedBytes, workspace } = lowered
  const target = low.fresh(node.name, output, 'tick', 'device')
  const tolerance = operator.tolerance(output, inputs, node.attrs)
  low.yields(
    node.id,
    target,
    low.operation(node, node.inputs, [target], { kernel, flops, movedBytes, workspace, tolerance }),
  )
}

/** The value itself. What nobody makes in this tick is over before it begins. */
const after = (low: Lowering, node: GraphNode): void => {
  const [value, whom] = node.inputs as readonly [number, number]
  low.yields(node.id, low.buffer[value]!, low.maker(value), value)
  const when = node.attrs['when'] as ControlEdge['when']
  const earlier = low.maker(whom)
  low.passOn(node.id, value, earlier < 0 ? [] : [{ earlier, when }])
}

/** By kernel node: the buffers of its writes, for its ports. */
type Writes = Map<number, readonly number[]>

const userKernel = (low: Lowering, node: GraphNode, writes: Writes): void => {
  const bound = boundKernel(
    node,
    node.inputs.map(input => low.spec(input)),
    low.ir.settings.dims,
  )
  const { kernel, writes: specs, donates, tolerance } = bound
  const targets = specs.map((spec, i) => {
    const name = i === 0 ? node.name : `${node.name}.${i}`
    const donated = donates[i]
    return donated === undefined
      ? low.fresh(name, spec, 'tick', 'device')
      : low.view(name, spec, low.buffer[node.inputs[donated]!]!, 0)
  })
  const movedBytes = [...node.inputs.map(input => tensorBytes(low.spec(input))), ...specs.map(tensorBytes)].reduce(
    (a, b) => a + b,
    0,
  )
  const id = low.operation(node, node.inputs, targets, { kernel, movedBytes, tolerance, user: bound })
  low.yields(node.id, targets[0]!, id)
  writes.set(node.id, targets)
}

/** A kernel that takes a read's memory comes after all its other readers; known only once every node is lowered. */
const donationHazards = (low: Lowering): void => {
  for (const node of low.ir.nodes) {
    if (node.op !== 'kernel') continue
    const donor = low.maker(node.id)
    for (const index of donatedReads(node))
      for (const reader of low.readersOf(node.inputs[index]!))
        if (reader !== donor) low.operations.delay(donor, [reader])
  }
}

/** Whose bytes a host value has: what a download brings is still on the device when it is asked for. */
const contentOf = (low: Lowering, id: number): number => {
  const { op, inputs } = low.ir.nodes[id]!
  return op === 'download' ? inputs[0]! : id
}

const outputs = (low: Lowering): void => {
  const byNode = new Map<number, string[]>()
  for (const { name, node, parts } of low.ir.outputs)
    if (parts === undefined) byNode.set(node, [...(byNode.get(node) ?? []), name])
    else stacked(low, name, parts)
  for (const [id, names] of byNode)
    for (const name of names) {
      const target = low.fresh(name, low.spec(id), 'output', 'pinned')
      low.copy(low.ir.nodes[id]!, [contentOf(low, id)], target, 'download', { op: 'download', name })
    }
}

/** An output of several values: each is copied to its own part when it is there. */
const stacked = (low: Lowering, name: string, { nodes, spec, rate }: NonNullable<Output['parts']>): void => {
  const whole = low.fresh(name, spec, 'output', 'pinned', rate === 1 ? undefined : { rate })
  let offset = 0
  nodes.forEach((id, i) => {
    const part = low.view(`${name}[${i}]`, low.spec(id), whole, offset)
    low.copy(low.ir.nodes[id]!, [contentOf(low, id)], part, 'download', { op: 'download', name: `${name}[${i}]` })
    offset += low.buffers[part]!.bytes
  })
}

/** One store of state: a copy of the next value, or of what it was read into where it is itself a state that this tick stores over. */
const store = (low: Lowering, delay: GraphNode, temporary: number | undefined, after: readonly number[]): void => {
  const state = low.buffer[delay.id]!
  const next = delay.inputs[0]!
  const { bytes } = low.buffers[state]!
  const lane = (delay.lane?.name === '' ? undefined : delay.lane) ?? low.operations.get(low.maker(next))?.lane
  const from = temporary === undefined ? low.buffer[next]! : low.operations.get(temporary)!.writes[0]!
  const id = low.operation(
    { ...delay, op: 'store', name: `store(${delay.name})`, lane },
    temporary === undefined ? [next] : [],
    [state],
    {
      kind: 'store',
      kernel: { kind: 'copy', bytes },
      movedBytes: 2 * bytes,
      reads: [from],
    },
  )
  low.operations.delay(id, temporary === undefined ? after : [temporary, ...after])
}

const states = (low: Lowering): void => {
  const delays = low.ir.nodes.filter(node => node.op === 'delay')
  if (delays.length === 0) return
  const root = (id: number): number => low.buffers[low.buffer[id]!]!.root
  const pending = delays.filter(delay => {
    const from = low.buffers[low.buffer[delay.inputs[0]!]!]!
    return !(from.root === low.buffer[delay.id] && from.offset === 0)
  })
  const temporaries = pending.map(delay => {
    const next = delay.inputs[0]!
    if (low.buffers[root(next)]!.life !== 'state') return undefined
    low.begin(delay.id)
    const target = low.fresh(`next(${delay.name})`, low.spec(next), 'tick', 'device')
    return low.copy(delay, [next], target, 'compute', { op: 'copy', name: `next(${delay.name})` })
  })
  const touching = new Map<number, number[]>()
  for (let id = 0; id < low.operations.length; id++)
    for (const buffer of [...low.operations.reads(id), ...low.operations.writes(id)]) {
      const { life, root: of } = low.buffers[buffer]!
      if (life !== 'state') continue
      const others = touching.get(of)
      if (others === undefined) touching.set(of, [id])
      else others.push(id)
    }
  pending.forEach((delay, i) => {
    store(low, delay, temporaries[i], touching.get(low.buffer[delay.id]!) ?? [])
  })
}

const source = (low: Lowering, node: GraphNode): void => {
  const spec = low.spec(node.id)
  const fresh = (): number => {
    const rate = node.attrs['rate'] as number | undefined
    if (node.op === 'input')
      return low.fresh(node.name, spec, 'input', 'pinned', rate === undefined ? undefined : { rate })
    if (node.op === 'param') return low.fresh(node.name, spec, 'param', node.place === 'host' ? 'pinned' : 'device')
    return low.fresh(node.name, spec, 'state', 'device', { init: node.attrs['init'] as number | readonly number[] })
  }
  low.yields(node.id, fresh(), -1)
}

const upload = (low: Lowering, node: GraphNode): void => {
  // What comes straight back from a download never left the device.
  const back = low.ir.nodes[node.inputs[0]!]!.op === 'download'
  const inputs = node.inputs.map(input => contentOf(low, input))
  const ahead = node.attrs['ahead'] as number | undefined
  const target = low.fresh(node.name, low.spec(node.id), 'tick', 'device')
  const across = (low.buffers[low.buffer[inputs[0]!]!]!.device ?? 0) !== (low.buffers[target]!.device ?? 0)
  const kind = !back ? 'upload' : across ? 'peer' : 'compute'
  low.yields(node.id, target, low.copy(node, inputs, target, kind, { ahead }))
}

const peer = (low: Lowering, node: GraphNode): void => {
  const target = low.fresh(node.name, low.spec(node.id), 'tick', 'device')
  low.yields(node.id, target, low.copy(node, node.inputs, target, 'peer'))
}

/** Values gathered in one buffer, by one copy of all of them. */
const window = (low: Lowering, node: GraphNode): void => {
  const target = low.fresh(node.name, low.spec(node.id), 'tick', 'device')
  low.yields(node.id, target, low.copy(node, node.inputs, target, 'compute'))
}

/** A part of a host value: some of its bytes, where they are. */
const part = (low: Lowering, node: GraphNode): void => {
  const [of] = node.inputs
  const offset = node.attrs['offsetBytes'] as number
  low.yields(node.id, low.view(node.name, low.spec(node.id), low.buffer[of!]!, offset), low.maker(of!), of!)
}

/**
 * After this pass the graph is operations over buffers: each value is a buffer or a view of one, each delay a state buffer that its
 * readers read in place and one store at the end writes, each output a pinned buffer with one copy of its own.
 */
export const lower = watched('lower', (ir: Checked): Passed<Lowered> => {
  const low = new Lowering(ir)
  const writes: Writes = new Map()
  for (const node of ir.nodes) {
    low.begin(node.id)
    switch (node.op) {
      case 'input':
      case 'param':
      case 'delay':
        source(low, node)
        break
      case 'upload':
        upload(low, node)
        break
      case 'peer':
        peer(low, node)
        break
      case 'download':
        break
      case 'after':
        after(low, node)
        break
      case 'window':
        window(low, node)
        break
      case 'part':
        part(low, node)
        break
      case 'kernel':
        userKernel(low, node, writes)
        break
      case 'port': {
        const kernel = node.inputs[0]!
        low.yields(node.id, writes.get(kernel)![node.attrs['index'] as number]!, low.maker(kernel))
        break
      }
      default:
        compute(low, node)
    }
  }
  outputs(low)
  states(low)
  donationHazards(low)
  const { buffers, control } = low
  const operations = low.operations.done(named => rootsOf(named, buffers))
  return E.right({
    settings: ir.settings,
    operations,
    buffers,
    ...(control.length === 0 ? {} : { control }),
    ...(ir.unrolled ? { gathers: true as const } : {}),
  })
})
