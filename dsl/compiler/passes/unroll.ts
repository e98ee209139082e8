import * as E from 'fp-ts/lib/Either.js'
import type { GraphNode } from '../../ir/graph.js'
import { type BoundSpec, tensorBytes } from '../../ir/tensor.js'
import { instantsOf } from '../../language/instants.js'
import { windowed } from '../../language/operators/window.js'
import type { Rates } from '../../language/rates.js'
import { fail, fault } from '../analysis/faults.js'
import type { Checked, Output } from '../analysis/ir.js'
import { donatedReads } from '../analysis/operators.js'
import { type Passed, pass } from '../analysis/pass.js'
import type { Rated } from './rates.js'
import { Instances, isAlone } from './unroll/instances.js'

//     x → relu → window(2) → y      becomes      x → x[0] → relu[0] ┬→ window → y
//                                                  ↘ x[1] → relu[1] ┘
//
// After this pass every node comes once a tick. A node that came r times a tick is unrolled into its
// instances `name[0]` to `name[r - 1]`, as far as something needs them. A `window` gathers as many inputs as
// it has values; a value that is fed is a `part` of its input; every, hold, repeat and delay are replaced by the
// instances that they stand for, and where that is an instance of the tick before, by a `delay`.

class Unrolling {
  readonly nodes: GraphNode[] = []
  readonly specs: BoundSpec[] = []
  readonly turnOf: number[] = []
  /** The turn of the nodes that are being made, and all that there are. */
  private turn = 0
  private readonly turns = new Map<string, number>()
  private readonly instances: Instances
  /** By key: the node of the unrolled graph; -1: not made yet, or not needed. */
  private readonly made: Int32Array
  private readonly parts = new Map<string, number>()

  constructor(
    private readonly ir: Rated,
    private readonly rates: Rates,
  ) {
    this.instances = new Instances(ir, rates)
    this.made = new Int32Array(this.instances.live.length).fill(-1)
  }

  /**
   * Makes the unrolled graph: inputs, states and constants first, then all other nodes instant by instant.
   */
  outputs(): readonly Output[] {
    const { ir, rates, instances } = this
    const { live, base, total } = instances
    for (const node of ir.nodes) if (node.op === 'input') this.input(node)
    for (const { id } of ir.nodes) if (live[total + id]) this.state(id)
    for (const { id } of ir.nodes) if (rates.constant[id] && live[base[id]!]) this.instance(id, 0)
    const often = new Map<number, number[]>()
    for (const { id, op } of ir.nodes) {
      if (rates.constant[id] || op === 'input') continue
      const others = often.get(rates.fires[id]!)
      if (others === undefined) often.set(rates.fires[id]!, [id])
      else others.push(id)
    }
    const begun = ir.nodes.filter(({ id }) => rates.early[id] === 1).map(({ id }) => rates.fires[id]!)
    for (const { coming, early } of instantsOf(often.keys(), begun)) {
      const numbers = new Map(coming.map(({ fires, copy }) => [fires, copy]))
      const now = Int32Array.from(coming.flatMap(({ fires }) => often.get(fires)!))
      if (coming.length > 1) now.sort()
      for (const id of now) {
        const copy = numbers.get(rates.fires[id]!)!
        if (live[base[id]! + copy] && (rates.early[id] === 1) === early) this.instance(id, copy)
      }
    }
    for (const { id } of ir.nodes)
      if (live[total + id]) {
        const state = this.made[total + id]!
        this.nodes[state] = { ...this.nodes[state]!, inputs: [this.made[instances.source(id)]!] }
      }
    return ir.outputs.map(output => this.output(output))
  }

  private push(node: Omit<GraphNode, 'id'>, spec: BoundSpec): number {
    this.specs.push(spec)
    this.turnOf.push(this.turn)
    return this.nodes.push({ ...node, id: this.nodes.length, spec }) - 1
  }

  /** An input stays one node: the values of a tick lie in it one after the other. */
  private input(node: GraphNode): void {
    const rate = this.rates.fires[node.id]!
    const spec = this.ir.specs[node.id]!
    const made =
      rate === 1
        ? this.push(node, spec)
        : this.push({ ...node, attrs: { ...node.attrs, rate } }, windowed(spec, rate) as BoundSpec)
    this.made.fill(made, this.instances.base[node.id]!, this.instances.base[node.id]! + rate)
  }

  private state(id: number): void {
    const { name, attrs, place, lane, at } = this.ir.nodes[id]!
    const node = { op: 'delay', name, inputs: [], attrs: { init: attrs['init'] }, place, lane, at }
    const spec = this.ir.specs[id]!
    this.made[this.instances.total + id] = this.push({ ...node, spec }, spec)
  }

  private instance(id: number, copy: number): void {
    const node = this.ir.nodes[id]!
    // An order on the host: made where its value is read.
    if (node.op === 'after' && node.place === 'host') return
    const spec = this.ir.specs[id]!
    const key = this.instances.base[id]! + copy
    this.turn = this.turnAt(id, copy)
    const given = node.op === 'upload' ? this.host(node.inputs[0]!, copy) : this.inputs(node, key)
    const name = this.rates.fires[id] === 1 ? node.name : `${node.name}[${copy}]`
    const look = isAlone(node) ? { op: 'reshape', attrs: { shape: spec.shape } } : undefined
    this.made[key] = this.push({ ...node, ...look, name, inputs: given }, spec)
  }

  private turnAt(id: number, copy: number): number {
    const { constant, fires, early } = this.rates
    const key = `${constant[id] ? 0 : fires[id]!} ${copy}${early[id] ? ' early' : ''}`
    let turn = this.turns.get(key)
    if (turn === undefined) this.turns.set(key, (turn = 1 + this.turns.size))
    return turn
  }

  private inputs(node: GraphNode, key: number): readonly number[] {
    const inputs = this.instances.readsOf(key).map(read => this.made[read]!)
    if (node.op !== 'kernel') return inputs
    for (const index of donatedReads(node)) {
      if (this.instances.shared[this.instances.owner(node.inputs[index]!)] === 0) continue
      const { name, spec } = this.nodes[inputs[index]!]!
      const own = {
        op: 'window',
        name: `copy(${name})`,
        inputs: [inputs[index]!],
        attrs: {},
        place: node.place,
      }
      inputs[index] = this.push({ ...own, spec, lane: node.lane, at: node.at }, this.specs[inputs[index]!]!)
    }
    return inputs
  }

  /**
   * The nodes of a host value: one where its bytes are contiguous, else one for each value that it is made
   * of.
   */
  private host(id: number, copy: number): readonly number[] {
    const leaves = this.instances.leaves(id, copy)
    const of = this.instances.nodeOf(leaves[0]!)
    if (this.ir.nodes[of]!.op === 'after')
      return leaves.flatMap(leaf => this.later(of, leaf - this.instances.base[of]!))
    if (this.ir.nodes[of]!.op !== 'input' || this.rates.fires[of] === 1)
      return leaves.map(leaf => this.made[leaf]!)
    const inRow = leaves.every((leaf, i) => leaf === leaves[0]! + i)
    return inRow
      ? [this.part(of, leaves[0]! - this.instances.base[of]!, leaves.length, this.ir.specs[id]!)]
      : leaves.map(leaf => this.part(of, leaf - this.instances.base[of]!, 1, this.ir.specs[of]!))
  }

  /** A host value that comes after another flow: each value that it is made of comes after that flow. */
  private later(id: number, copy: number): readonly number[] {
    const node = this.ir.nodes[id]!
    const [value, whom] = node.inputs as readonly [number, number]
    const other = this.made[this.instances.resolve(whom, copy)]!
    return this.host(value, copy).map(of =>
      this.push({ ...node, name: this.nodes[of]!.name, inputs: [of, other] }, this.specs[of]!),
    )
  }

  private part(of: number, index: number, count: number, spec: BoundSpec): number {
    const key = `${of} ${index} ${spec.shape}`
    const known = this.parts.get(key)
    if (known !== undefined) return known
    const { name, place, at } = this.ir.nodes[of]!
    const called = count === 1 ? `${name}[${index}]` : `${name}[${index}..${index + count - 1}]`
    const attrs = { offsetBytes: index * tensorBytes(this.ir.specs[of]!) }
    const inputs = [this.made[this.instances.base[of]!]!]
    const made = this.push(
      { op: 'part', name: called, inputs, attrs, spec, place, lane: undefined, at },
      spec,
    )
    this.parts.set(key, made)
    return made
  }

  private output({ name, node }: Output): Output {
    const rate = this.rates.fires[node]!
    const spec = this.ir.specs[node]!
    const nodes = Array.from({ length: rate }, (_, copy) =>
      this.ir.nodes[node]!.place === 'host'
        ? this.host(node, copy)
        : this.made[this.instances.resolve(node, copy)]!,
    ).flat()
    if (rate === 1 && nodes.length === 1 && this.specs[nodes[0]!]!.shape.length === spec.shape.length)
      return { name, node: nodes[0]! }
    const parts = { nodes, spec: rate === 1 ? spec : (windowed(spec, rate) as BoundSpec), rate }
    return { name, node: nodes[0]!, parts }
  }
}

export const unroll = pass('unroll', (ir: Rated): Passed<Checked> => {
  if (ir.rates === undefined) return E.right(ir)
  const unrolling = new Unrolling(ir, ir.rates)
  const outputs = unrolling.outputs()
  const { nodes, specs, turnOf } = unrolling
  const total = specs.reduce((sum, spec) => sum + tensorBytes(spec), 0)
  if (total < Number.MAX_SAFE_INTEGER)
    return E.right({ settings: ir.settings, nodes, specs, outputs, turnOf, unrolled: true })
  const at = ir.nodes[0]!
  return fail(
    fault(
      'BadDimension',
      at.at,
      at.name,
      'fewer than 2^53 bytes in a tick',
      `${total} bytes`,
      'make it smaller',
    ),
  )
})
