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

class Unrolling {
  readonly nodes: GraphNode[] = []
  readonly specs: BoundSpec[] = []
  private readonly copies: Instances
  /** By key: the node of the unrolled graph; -1: not made, or not needed. */
  private readonly made: Int32Array
  private readonly parts = new Map<string, number>()

  constructor(
    private readonly ir: Rated,
    private readonly rates: Rates,
  ) {
    this.copies = new Instances(ir, rates)
    this.made = new Int32Array(this.copies.live.length).fill(-1)
  }

  /** The whole unrolled graph: inputs, states and what is constant first, then all else as it comes. */
  outputs(): readonly Output[] {
    const { ir, rates, copies } = this
    const { live, base, total } = copies
    for (const node of ir.nodes) if (node.op === 'input') this.input(node)
    for (const { id } of ir.nodes) if (live[total + id]) this.state(id)
    for (const { id } of ir.nodes) if (rates.constant[id] && live[base[id]!]) this.copy(id, 0)
    const often = new Map<number, number[]>()
    for (const { id, op } of ir.nodes) {
      if (rates.constant[id] || op === 'input') continue
      const others = often.get(rates.fires[id]!)
      if (others === undefined) often.set(rates.fires[id]!, [id])
      else others.push(id)
    }
    for (const coming of instantsOf(often.keys())) {
      const numbers = new Map(coming.map(({ fires, copy }) => [fires, copy]))
      const now = Int32Array.from(coming.flatMap(({ fires }) => often.get(fires)!))
      if (coming.length > 1) now.sort()
      for (const id of now) {
        const copy = numbers.get(rates.fires[id]!)!
        if (live[base[id]! + copy]) this.copy(id, copy)
      }
    }
    for (const { id } of ir.nodes)
      if (live[total + id]) {
        const state = this.made[total + id]!
        this.nodes[state] = { ...this.nodes[state]!, inputs: [this.made[copies.source(id)]!] }
      }
    return ir.outputs.map(output => this.output(output))
  }

  private push(node: Omit<GraphNode, 'id'>, spec: BoundSpec): number {
    this.specs.push(spec)
    return this.nodes.push({ ...node, id: this.nodes.length, spec }) - 1
  }

  /** An input stays one: its values of a tick lie one after the other, and each is a part of it. */
  private input(node: GraphNode): void {
    const rate = this.rates.fires[node.id]!
    const spec = this.ir.specs[node.id]!
    const made =
      rate === 1
        ? this.push(node, spec)
        : this.push({ ...node, attrs: { ...node.attrs, rate } }, windowed(spec, rate) as BoundSpec)
    this.made.fill(made, this.copies.base[node.id]!, this.copies.base[node.id]! + rate)
  }

  private state(id: number): void {
    const { name, attrs, place, lane, at } = this.ir.nodes[id]!
    const node = { op: 'delay', name, inputs: [], attrs: { init: attrs['init'] }, place, lane, at }
    const spec = this.ir.specs[id]!
    this.made[this.copies.total + id] = this.push({ ...node, spec }, spec)
  }

  private copy(id: number, copy: number): void {
    const node = this.ir.nodes[id]!
    // Made where it is read.
    if (node.op === 'after' && node.place === 'host') return
    const spec = this.ir.specs[id]!
    const key = this.copies.base[id]! + copy
    const given = node.op === 'upload' ? this.host(node.inputs[0]!, copy) : this.inputs(node, key)
    const name = this.rates.fires[id] === 1 ? node.name : `${node.name}[${copy}]`
    const look = isAlone(node) ? { op: 'reshape', attrs: { shape: spec.shape } } : undefined
    this.made[key] = this.push({ ...node, ...look, name, inputs: given }, spec)
  }

  private inputs(node: GraphNode, key: number): readonly number[] {
    const inputs = this.copies.readsOf(key).map(read => this.made[read]!)
    if (node.op !== 'kernel') return inputs
    for (const index of donatedReads(node)) {
      if (this.copies.shared[this.copies.owner(node.inputs[index]!)] === 0) continue
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

  /** A host value: one node where its bytes lie in a row, else one for each of what it is made of. */
  private host(id: number, copy: number): readonly number[] {
    const leaves = this.copies.leaves(id, copy)
    const of = this.copies.nodeOf(leaves[0]!)
    if (this.ir.nodes[of]!.op === 'after')
      return leaves.flatMap(leaf => this.later(of, leaf - this.copies.base[of]!))
    if (this.ir.nodes[of]!.op !== 'input' || this.rates.fires[of] === 1)
      return leaves.map(leaf => this.made[leaf]!)
    const inRow = leaves.every((leaf, i) => leaf === leaves[0]! + i)
    return inRow
      ? [this.part(of, leaves[0]! - this.copies.base[of]!, leaves.length, this.ir.specs[id]!)]
      : leaves.map(leaf => this.part(of, leaf - this.copies.base[of]!, 1, this.ir.specs[of]!))
  }

  /** A host value that comes after something: so does each of what it is made of. */
  private later(id: number, copy: number): readonly number[] {
    const node = this.ir.nodes[id]!
    const [value, whom] = node.inputs as readonly [number, number]
    const other = this.made[this.copies.resolve(whom, copy)]!
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
    const inputs = [this.made[this.copies.base[of]!]!]
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
    const nodes = Array.from({ length: rate }, (_, copy) => this.host(node, copy)).flat()
    if (rate === 1 && nodes.length === 1 && this.specs[nodes[0]!]!.shape.length === spec.shape.length)
      return { name, node: nodes[0]! }
    const parts = { nodes, spec: rate === 1 ? spec : (windowed(spec, rate) as BoundSpec), rate }
    return { name, node: nodes[0]!, parts }
  }
}

/**
 * After this pass every node comes once a tick. A node that came r times is its copies `name[0]` to `name[r - 1]`, those that something needs. Values
 * of a window are gathered by a `window` with as many inputs; a value that a feed gives is a `part` of its input; every, hold and delay are the copies
 * that they stand for, and where that is one of the tick before, a `delay`.
 *
 *     x → relu → window(2) → y        x → x[0] → relu[0] ┬→ window → y
 *                                       ↘ x[1] → relu[1] ┘
 */
export const unroll = pass('unroll', (ir: Rated): Passed<Checked> => {
  if (ir.rates === undefined) return E.right(ir)
  const unrolling = new Unrolling(ir, ir.rates)
  const outputs = unrolling.outputs()
  const { nodes, specs } = unrolling
  const total = specs.reduce((sum, spec) => sum + tensorBytes(spec), 0)
  if (total < Number.MAX_SAFE_INTEGER)
    return E.right({ settings: ir.settings, nodes, specs, outputs, unrolled: true })
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
