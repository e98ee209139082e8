import * as E from 'fp-ts/lib/Either.js'
import type { CompileError, GraphNode, LaneSpec } from '../../ir/graph.js'
import { type BoundSpec, tensorBytes } from '../../ir/tensor.js'
import { type Communicator, isShared, showCommunicator } from '../../language/communicator.js'
import { fault, unless } from '../analysis/faults.js'
import { GraphRebuild } from '../analysis/graph-rebuild.js'
import type { Checked } from '../analysis/ir.js'
import { operatorOf } from '../analysis/operators.js'
import { type Passed, pass } from '../analysis/pass.js'

//   a = relu(x) on device 0 · b = exp(a) on device 1
//   → a = relu(x) on device 0 · a@1 = peer copy of a · b = exp(a@1) on device 1
//
// After this pass every value of a graph for several devices is on one of them, and each reader reads it
// there: between two devices stands one peer copy for all readers of a value on a device, and a parameter is
// resident on every device that reads it. The user places values by `on`, a lane or a device. An operator
// without a place goes where most of the bytes are that it reads, an upload or a state where it is read most.
// A graph that names no device but 0 is unchanged.

const unknown = -1

/** Rounds of placing: a chain of states, each of which follows from the next, may take a round each. */
const maxRounds = 16

const givenBy = ({ lane }: GraphNode): number => (lane === undefined ? unknown : (lane.device ?? 0))

const laneOn = (device: number): LaneSpec => ({ name: '', priority: 'normal', device })

/**
 * The role of a node: a value on the host, a value with bytes of its own on a device, or a view of another's.
 */
type Part = 'host' | 'upload' | 'param' | 'state' | 'view' | 'work' | 'download'

const partOf = (node: GraphNode, specs: readonly BoundSpec[]): Part => {
  switch (node.op) {
    case 'download':
    case 'upload':
      return node.op
    case 'param':
      return node.place === 'host' ? 'host' : 'param'
    case 'delay':
      return 'state'
    case 'kernel':
      return 'work'
    case 'port':
    case 'after':
      return node.place === 'host' ? 'host' : 'view'
  }
  if (node.place === 'host') return 'host'
  const operator = operatorOf(node.op)
  const inputs = node.inputs.map(input => specs[input]!)
  return operator?.lower(inputs, specs[node.id]!, node.attrs).as === 'view' ? 'view' : 'work'
}

/** The inputs whose bytes a node reads: `after` only waits for its second one. */
const dataOf = ({ op, inputs }: GraphNode): readonly number[] =>
  op === 'after' ? inputs.slice(0, 1) : inputs

/** The device of every value and of each download; `unknown` for values that are resident on every device. */
class Places {
  readonly part: readonly Part[]
  readonly device: Int32Array
  /** 1 for parameters and views of them: one is resident on each device that reads it. */
  readonly anywhere: Uint8Array

  constructor(private readonly ir: Checked) {
    const { nodes, specs } = ir
    this.part = nodes.map(node => partOf(node, specs))
    this.anywhere = Uint8Array.from(nodes, () => 0)
    for (const { id, inputs } of nodes) {
      const part = this.part[id]!
      this.anywhere[id] = part === 'param' || (part === 'view' && this.anywhere[inputs[0]!] === 1) ? 1 : 0
    }
    this.device = new Int32Array(nodes.length).fill(unknown)
    for (let round = 0; !this.resolve(round >= maxRounds); round++);
  }

  /** One round: by what is known already; else by readers; else device 0. Whether all are known after it. */
  private resolve(last: boolean): boolean {
    this.follow()
    const { part, device } = this
    const { nodes } = this.ir
    const wanted = this.demand()
    let left = false
    let found = false
    const assign = (id: number, where: number): void => {
      left = true
      if (where === unknown) return
      device[id] = where
      found = true
    }
    for (const { id, inputs } of nodes)
      if (device[id] === unknown && part[id] === 'state') assign(id, device[inputs[0]!]!)
    for (const { id } of nodes) if (device[id] === unknown && part[id] === 'upload') assign(id, wanted[id]!)
    if (!found)
      for (const { id } of nodes) if (device[id] === unknown && part[id] === 'state') assign(id, wanted[id]!)
    if (left && (!found || last))
      for (const { id } of nodes)
        if (device[id] === unknown && (part[id] === 'state' || part[id] === 'upload')) device[id] = 0
    if (left) return false
    // A node that reads only parameters goes to its own readers.
    for (const { id } of nodes)
      if (device[id] === unknown && this.anywhere[id] === 0 && part[id] !== 'host')
        device[id] = Math.max(0, wanted[id]!)
    this.follow()
    return true
  }

  /**
   * Forward: the device that the user gave, else that of most of the bytes that a node reads (of equals the
   * first).
   */
  private follow(): void {
    const { part, device, anywhere } = this
    const { nodes, specs } = this.ir
    const bytes = new Map<number, number>()
    for (const node of nodes) {
      const { id, inputs } = node
      const own = part[id]!
      if (own === 'view') device[id] = device[inputs[0]!]!
      if (own === 'host' || own === 'view' || own === 'param') continue
      const given = givenBy(node)
      if (given !== unknown) device[id] = given
      if (given !== unknown || own === 'state' || own === 'upload') continue
      bytes.clear()
      for (const input of inputs) {
        const on = device[input]!
        if (on !== unknown && anywhere[input] === 0)
          bytes.set(on, (bytes.get(on) ?? 0) + tensorBytes(specs[input]!))
      }
      let most = 0
      for (const [on, weight] of bytes) {
        if (weight <= most) continue
        most = weight
        device[id] = on
      }
    }
  }

  /** Backward: by node, the device of most of its readers (of equals the first). */
  private demand(): Int32Array {
    const { part, device } = this
    const { nodes } = this.ir
    const wanted = device.slice()
    const votes: (Map<number, number> | undefined)[] = new Array(nodes.length)
    for (let id = nodes.length - 1; id >= 0; id--) {
      if (wanted[id] === unknown) {
        let most = 0
        for (const [on, count] of votes[id] ?? [])
          if (count > most || (count === most && on < wanted[id]!)) {
            most = count
            wanted[id] = on
          }
      }
      if (wanted[id] === unknown || part[id] === 'host') continue
      for (const input of dataOf(nodes[id]!)) {
        if (wanted[input] !== unknown) continue
        votes[input] ??= new Map()
        votes[input].set(wanted[id]!, (votes[input].get(wanted[id]!) ?? 0) + 1)
      }
    }
    return wanted
  }
}

/** Rebuilds the graph with peer copies. */
class Crossing {
  private readonly rebuild: GraphRebuild
  /** By `node device`: the copy of a value there. */
  private readonly copies = new Map<string, number>()

  constructor(
    private readonly ir: Checked,
    private readonly places: Places,
  ) {
    this.rebuild = new GraphRebuild(ir)
    const { renumbered } = this.rebuild
    const states: GraphNode[] = []
    for (const node of ir.nodes) {
      const part = places.part[node.id]!
      if (places.anywhere[node.id] === 1) continue
      if (part === 'state') states.push(node)
      const inputs = part === 'state' ? [] : this.inputs(node)
      renumbered[node.id] = this.push(node, inputs, part === 'host' ? 0 : places.device[node.id]!)
    }
    for (const { id, inputs } of states)
      this.rebuild.close(renumbered[id]!, this.on(inputs[0]!, places.device[id]!))
  }

  result(): Checked {
    return { ...this.rebuild.result(node => this.wherever(node)), deviceOf: this.rebuild.deviceOf }
  }

  private push(node: GraphNode, inputs: readonly number[], device: number): number {
    return this.rebuild.add(node, inputs, this.ir.specs[node.id]!, node.id, device)
  }

  private inputs(node: GraphNode): readonly number[] {
    const { part, device } = this.places
    const read = dataOf(node).length
    return node.inputs.map((input, i) => {
      const theirs = part[input]! === 'host' || part[input] === 'download' || i >= read
      return theirs ? this.wherever(input) : this.on(input, device[node.id]!)
    })
  }

  /** A value on the host, or one that is only waited for. */
  private wherever(input: number): number {
    return this.places.anywhere[input] === 1 ? this.on(input, 0) : this.rebuild.renumbered[input]!
  }

  /**
   * An old node's value on a device: itself if it is there, a parameter of the device, or one peer copy for
   * all readers there.
   */
  private on(old: number, device: number): number {
    const { anywhere, device: where } = this.places
    if (anywhere[old] === 0 && where[old] === device) return this.rebuild.renumbered[old]!
    const key = `${old} ${device}`
    const known = this.copies.get(key)
    if (known !== undefined) return known
    const isMadeThere = anywhere[old] === 1 || this.isWholeView(old)
    const made = isMadeThere ? this.resident(old, device) : this.peer(old, device)
    this.copies.set(key, made)
    return made
  }

  /**
   * A view of all bytes of its source: the source crosses, once for both, and the view is of its copy.
   * A port is a buffer of its own beside its kernel's first.
   */
  private isWholeView(old: number): boolean {
    const { nodes, specs } = this.ir
    if (this.places.part[old] !== 'view' || nodes[old]!.op === 'port') return false
    const [source] = dataOf(nodes[old]!)
    return source !== undefined && tensorBytes(specs[source]!) === tensorBytes(specs[old]!)
  }

  private resident(old: number, device: number): number {
    const node = this.ir.nodes[old]!
    const data = dataOf(node).length
    const inputs = node.inputs.map((input, i) => (i < data ? this.on(input, device) : this.wherever(input)))
    const lane = node.lane === undefined ? {} : { lane: laneOn(device) }
    return this.push({ ...node, ...lane }, inputs, device)
  }

  private peer(old: number, device: number): number {
    const { name, at, spec } = this.ir.nodes[old]!
    const node = { id: old, op: 'peer', name: `${name}@${device}`, inputs: [], attrs: {}, spec, at }
    return this.push(
      { ...node, place: 'device', lane: laneOn(device) },
      [this.rebuild.renumbered[old]!],
      device,
    )
  }
}

/** A rank is one device, so a graph for several devices cannot be one rank. */
const ofSeveral = ({ at, name, attrs }: GraphNode): CompileError =>
  fault(
    'Unsupported',
    at,
    name,
    'a graph for one device, since each rank of a communicator is one process with one GPU',
    `a collective over ${showCommunicator(attrs['communicator'] as Communicator)} in a graph for several devices`,
    'start one process for each GPU, or move values between the devices of one process with on(device(1))',
  )

export const devices = pass('devices', (ir: Checked): Passed<Checked> => {
  if (ir.nodes.every(({ lane }) => lane === undefined || (lane.device ?? 0) === 0)) return E.right(ir)
  const shared = ir.nodes.filter(isShared)
  if (shared.length > 0) return unless(shared.map(ofSeveral), () => ir)
  return E.right(new Crossing(ir, new Places(ir)).result())
})
