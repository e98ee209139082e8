import * as E from 'fp-ts/lib/Either.js'
import type { GraphNode } from '../ir/graph.js'
import { type BoundSpec, tensorBytes } from '../ir/tensor.js'
import { windowed } from '../operators/window.js'
import { instantsOf, newest, type Rates } from '../rates.js'
import type { Clocked } from './clocks.js'
import { fail, fault } from './faults.js'
import type { Checked, Output, Passed } from './ir.js'
import { donatedReads } from './vocabulary.js'
import { watched } from './watch.js'

// The copies of a node are numbered in one row with those of all others: copy i of node v is the key `base[v] + i`, and after all of them the state
// of node v is `total + v`. Copies of every, hold and delay are no nodes: they stand for a copy of another node, or for a state.

const isView = ({ op }: GraphNode): boolean => op === 'reshape' || op === 'slice' || op === 'after'
/** A window of one value: the same bytes. */
const isAlone = ({ op, attrs }: GraphNode): boolean => op === 'window' && attrs['n'] === 1
const looksAcross: ReadonlySet<string> = new Set(['window', 'every', 'hold', 'delay'])

class Unrolling {
  readonly nodes: GraphNode[] = []
  readonly specs: BoundSpec[] = []
  private readonly base: Int32Array
  private readonly total: number
  /** By key: the node of the unrolled graph; -1: not made, or not needed. */
  private readonly made: Int32Array
  private readonly live: Uint8Array
  /** By node with a state: the node whose state is the same one. */
  private readonly same: Int32Array
  /** Values that are read by other copies than their own: a kernel cannot take their memory. */
  private readonly shared: Uint8Array
  private readonly parts = new Map<string, number>()

  constructor(
    private readonly ir: Clocked,
    private readonly rates: Rates,
  ) {
    const { nodes } = ir
    this.base = new Int32Array(nodes.length + 1)
    for (const { id } of nodes) this.base[id + 1] = this.base[id]! + rates.fires[id]!
    this.total = this.base[nodes.length]!
    this.made = new Int32Array(this.total + nodes.length).fill(-1)
    this.live = new Uint8Array(this.total + nodes.length)
    this.same = Int32Array.from(nodes, ({ id }) => id)
    this.shareStates()
    this.shared = this.readAcross()
  }

  /** The whole unrolled graph: inputs, states and what is constant first, then all else as it comes. */
  outputs(): readonly Output[] {
    const { ir, rates, live, base, total } = this
    this.mark()
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
      const copies = new Map(coming.map(({ fires, copy }) => [fires, copy]))
      const now = Int32Array.from(coming.flatMap(({ fires }) => often.get(fires)!))
      if (coming.length > 1) now.sort()
      for (const id of now) {
        const copy = copies.get(rates.fires[id]!)!
        if (live[base[id]! + copy]) this.copy(id, copy)
      }
    }
    for (const { id } of ir.nodes)
      if (live[total + id]) {
        const state = this.made[total + id]!
        this.nodes[state] = { ...this.nodes[state]!, inputs: [this.made[this.source(id)]!] }
      }
    return ir.outputs.map(output => this.output(output))
  }

  private push(node: Omit<GraphNode, 'id'>, spec: BoundSpec): number {
    this.specs.push(spec)
    return this.nodes.push({ ...node, id: this.nodes.length, spec }) - 1
  }

  /** The key that copy `copy` of a node stands for: its own, but for every, hold and delay. */
  private resolve(node: number, copy: number): number {
    const { rates, base, total, same } = this
    const { fires, constant } = rates
    let id = node
    let at = copy
    for (;;) {
      const { op, inputs, attrs } = this.ir.nodes[id]!
      const [from] = inputs
      if (constant[id] === 1) at = 0
      if (op === 'every') at = (at + 1) * (attrs['n'] as number) - 1
      else if (op === 'hold' && constant[id] === 0) at = newest(at, fires[id]!, fires[from!]!)
      else if (op === 'delay') at--
      else if (op !== 'hold') return base[id]! + at
      if (at < 0) return total + same[id]!
      id = from!
    }
  }

  /** What a state holds for the next tick: the newest value of what a hold holds, or a delay is behind. */
  private source(id: number): number {
    const from = this.ir.nodes[id]!.inputs[0]!
    return this.resolve(from, this.rates.fires[from]! - 1)
  }

  /** Two states of one init that take over the same value are one: so it is with a delay behind a hold. */
  private shareStates(): void {
    const met = new Map<number, number[]>()
    for (const node of this.ir.nodes) {
      if ((node.op !== 'delay' && node.op !== 'hold') || this.rates.constant[node.id] === 1) continue
      const source = this.source(node.id)
      const others = met.get(source) ?? []
      const twin = others.find(other => isTwin(this.ir.nodes[other]!, node))
      if (twin === undefined) met.set(source, [...others, node.id])
      else this.same[node.id] = twin
    }
  }

  private owner(id: number): number {
    let of = id
    while (isView(this.ir.nodes[of]!)) of = this.ir.nodes[of]!.inputs[0]!
    return of
  }

  private readAcross(): Uint8Array {
    const { nodes } = this.ir
    const { constant } = this.rates
    const shared = new Uint8Array(nodes.length)
    for (const { id, op, inputs } of nodes)
      for (const input of inputs)
        if (looksAcross.has(op) || constant[id] !== constant[input]) shared[this.owner(input)] = 1
    for (const node of nodes) if (node.op === 'window' ? isAlone(node) : looksAcross.has(node.op)) shared[node.id] = 1
    return shared
  }

  /** The keys of what a host value is made of, in order: inputs, parameters, downloads, and values that come after something. */
  private leaves(node: number, copy: number): readonly number[] {
    const key = this.resolve(node, copy)
    const id = this.nodeOf(key)
    const { op, place } = this.ir.nodes[id]!
    return op === 'window' && place === 'host'
      ? this.inputsOf(id, key - this.base[id]!).flatMap(([from, at]) => this.leaves(from, at))
      : [key]
  }

  /** Of a copy that is a node: which copies of its inputs it reads. */
  private inputsOf(id: number, copy: number): readonly (readonly [node: number, copy: number])[] {
    const { op, inputs, attrs } = this.ir.nodes[id]!
    if (op !== 'window') return inputs.map(input => [input, copy] as const)
    const n = attrs['n'] as number
    return Array.from({ length: n }, (_, k) => [inputs[0]!, copy * n + k] as const)
  }

  /** Whose copy a key is. */
  private nodeOf(key: number): number {
    const { base } = this
    let low = 0
    let high = this.ir.nodes.length - 1
    while (low < high) {
      const middle = (low + high + 1) >> 1
      if (base[middle]! <= key) low = middle
      else high = middle - 1
    }
    return low
  }

  private readsOf(key: number): readonly number[] {
    if (key >= this.total) return [this.source(key - this.total)]
    const id = this.nodeOf(key)
    const copy = key - this.base[id]!
    const { op, place, inputs } = this.ir.nodes[id]!
    if (op === 'upload') return this.leaves(inputs[0]!, copy)
    if (op === 'after' && place === 'host') return [...this.leaves(inputs[0]!, copy), this.resolve(inputs[1]!, copy)]
    return this.inputsOf(id, copy).map(([from, at]) => this.resolve(from, at))
  }

  private mark(): void {
    const stack: number[] = []
    const need = (key: number): void => {
      if (this.live[key]) return
      this.live[key] = 1
      stack.push(key)
    }
    for (const { node } of this.ir.outputs)
      for (let copy = 0; copy < this.rates.fires[node]!; copy++) this.leaves(node, copy).forEach(need)
    for (let key = stack.pop(); key !== undefined; key = stack.pop()) this.readsOf(key).forEach(need)
  }

  /** An input stays one: its values of a tick lie one after the other, and each is a part of it. */
  private input(node: GraphNode): void {
    const rate = this.rates.fires[node.id]!
    const spec = this.ir.specs[node.id]!
    const made =
      rate === 1
        ? this.push(node, spec)
        : this.push({ ...node, attrs: { ...node.attrs, rate } }, windowed(spec, rate) as BoundSpec)
    this.made.fill(made, this.base[node.id]!, this.base[node.id]! + rate)
  }

  private state(id: number): void {
    const { name, attrs, place, lane, at } = this.ir.nodes[id]!
    const node = { op: 'delay', name, inputs: [], attrs: { init: attrs['init'] }, place, lane, at }
    const spec = this.ir.specs[id]!
    this.made[this.total + id] = this.push({ ...node, spec }, spec)
  }

  private copy(id: number, copy: number): void {
    const node = this.ir.nodes[id]!
    // Made where it is read.
    if (node.op === 'after' && node.place === 'host') return
    const spec = this.ir.specs[id]!
    const key = this.base[id]! + copy
    const given = node.op === 'upload' ? this.host(node.inputs[0]!, copy) : this.inputs(node, key)
    const name = this.rates.fires[id] === 1 ? node.name : `${node.name}[${copy}]`
    const look = isAlone(node) ? { op: 'reshape', attrs: { shape: spec.shape } } : undefined
    this.made[key] = this.push({ ...node, ...look, name, inputs: given }, spec)
  }

  private inputs(node: GraphNode, key: number): readonly number[] {
    const inputs = this.readsOf(key).map(read => this.made[read]!)
    if (node.op !== 'kernel') return inputs
    for (const index of donatedReads(node)) {
      if (this.shared[this.owner(node.inputs[index]!)] === 0) continue
      const { name, spec } = this.nodes[inputs[index]!]!
      const own = { op: 'window', name: `copy(${name})`, inputs: [inputs[index]!], attrs: {}, place: node.place }
      inputs[index] = this.push({ ...own, spec, lane: node.lane, at: node.at }, this.specs[inputs[index]!]!)
    }
    return inputs
  }

  /** A host value: one node where its bytes lie in a row, else one for each of what it is made of. */
  private host(id: number, copy: number): readonly number[] {
    const leaves = this.leaves(id, copy)
    const of = this.nodeOf(leaves[0]!)
    if (this.ir.nodes[of]!.op === 'after') return leaves.flatMap(leaf => this.later(of, leaf - this.base[of]!))
    if (this.ir.nodes[of]!.op !== 'input' || this.rates.fires[of] === 1) return leaves.map(leaf => this.made[leaf]!)
    const inRow = leaves.every((leaf, i) => leaf === leaves[0]! + i)
    return inRow
      ? [this.part(of, leaves[0]! - this.base[of]!, leaves.length, this.ir.specs[id]!)]
      : leaves.map(leaf => this.part(of, leaf - this.base[of]!, 1, this.ir.specs[of]!))
  }

  /** A host value that comes after something: so does each of what it is made of. */
  private later(id: number, copy: number): readonly number[] {
    const node = this.ir.nodes[id]!
    const [value, whom] = node.inputs as readonly [number, number]
    const other = this.made[this.resolve(whom, copy)]!
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
    const inputs = [this.made[this.base[of]!]!]
    const made = this.push({ op: 'part', name: called, inputs, attrs, spec, place, lane: undefined, at }, spec)
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

const isTwin = (a: GraphNode, b: GraphNode): boolean => {
  if (a.lane?.name !== b.lane?.name) return false
  const [x, y] = [a.attrs['init'], b.attrs['init']]
  if (!Array.isArray(x) || !Array.isArray(y)) return Object.is(x, y)
  return x.length === y.length && x.every((value, i) => Object.is(value, y[i]))
}

/**
 * After this pass every node comes once a tick. A node that came r times is its copies `name[0]` to `name[r - 1]`, those that something needs. Values
 * of a window are gathered by a `window` with as many inputs; a value that a feed gives is a `part` of its input; every, hold and delay are the copies
 * that they stand for, and where that is one of the tick before, a `delay`.
 *
 *     x → relu → window(2) → y        x → x[0] → relu[0] ┬→ window → y
 *                                       ↘ x[1] → relu[1] ┘
 */
export const unroll = watched('unroll', (ir: Clocked): Passed<Checked> => {
  if (ir.rates === undefined) return E.right(ir)
  const unrolling = new Unrolling(ir, ir.rates)
  const outputs = unrolling.outputs()
  const { nodes, specs } = unrolling
  const total = specs.reduce((sum, spec) => sum + tensorBytes(spec), 0)
  if (total < Number.MAX_SAFE_INTEGER) return E.right({ settings: ir.settings, nodes, specs, outputs, unrolled: true })
  const at = ir.nodes[0]!
  return fail(
    fault('BadDimension', at.at, at.name, 'fewer than 2^53 bytes in a tick', `${total} bytes`, 'make it smaller'),
  )
})
