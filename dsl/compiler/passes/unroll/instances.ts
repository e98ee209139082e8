import type { GraphNode } from '../../../ir/graph.js'
import { current, newest } from '../../../language/instants.js'
import { isNamedState } from '../../../language/live.js'
import { countedBy, type Rates } from '../../../language/rates.js'
import { isView } from '../../analysis/operators.js'
import type { Rated } from '../rates.js'

// Instances are numbered by *key*: instance i of node v has the key `base[v] + i`, and behind all instances
// the state of node v has the key `total + v`. Instances of every, hold, repeat and delay are no nodes: each stands
// for an instance of another node, or for a state.

/** A window of one value: the same bytes. */
export const isAlone = ({ op, attrs }: GraphNode): boolean => op === 'window' && attrs['n'] === 1
const looksAcross: ReadonlySet<string> = new Set(['window', 'every', 'hold', 'repeat', 'delay'])

const isSameState = (a: GraphNode, b: GraphNode): boolean => {
  if (a.lane?.name !== b.lane?.name || a.attrs['name'] !== b.attrs['name']) return false
  const [x, y] = [a.attrs['init'], b.attrs['init']]
  if (!Array.isArray(x) || !Array.isArray(y)) return Object.is(x, y)
  return x.length === y.length && x.every((value, i) => Object.is(value, y[i]))
}

/**
 * The instances of all nodes of a graph with rates: which stand for which, what each reads, and which are
 * needed.
 */
export class Instances {
  readonly base: Int32Array
  readonly total: number
  /** By key: whether an output or a state with a name needs it, directly or through a state. */
  readonly live: Uint8Array
  /**
   * By node: whether instances read values of other numbers than their own, so that no kernel may take its
   * memory.
   */
  readonly shared: Uint8Array
  /** By node with a state: the node that has the same state. */
  private readonly same: Int32Array

  constructor(
    private readonly ir: Rated,
    private readonly rates: Rates,
  ) {
    const { nodes } = ir
    this.base = new Int32Array(nodes.length + 1)
    for (const { id } of nodes) this.base[id + 1] = this.base[id]! + rates.fires[id]!
    this.total = this.base[nodes.length]!
    this.same = Int32Array.from(nodes, ({ id }) => id)
    this.shareStates()
    this.shared = this.readAcross()
    this.live = new Uint8Array(this.total + nodes.length)
    this.mark()
  }

  /** The key that instance `copy` of a node stands for: its own, except for every, hold, repeat and delay. */
  resolve(node: number, copy: number): number {
    const { rates, base, total, same } = this
    const { fires, constant } = rates
    let id = node
    let at = copy
    for (;;) {
      const node = this.ir.nodes[id]!
      const { op, inputs, attrs } = node
      const [from] = inputs
      if (constant[id] === 1) at = 0
      if (op === 'every') at = (at + 1) * (attrs['n'] as number) - 1
      else if (op === 'hold' && constant[id] === 0)
        at = newest(at, fires[id]!, constant[from!] === 0 ? fires[from!]! : fires[id]! / countedBy(node)!)
      else if (op === 'repeat' && constant[id] === 0) at = current(at, fires[id]!, fires[from!]!)
      else if (op === 'delay') at--
      else if (op !== 'hold' && op !== 'repeat') return base[id]! + at
      if (at < 0) return total + same[id]!
      id = from!
    }
  }

  /**
   * The key of the value that a state holds for the next tick: the newest that its hold or delay has read.
   */
  source(id: number): number {
    const from = this.ir.nodes[id]!.inputs[0]!
    return this.resolve(from, this.rates.fires[from]! - 1)
  }

  /** Two states with one init that take over the same value are one, as of a delay behind a hold. */
  private shareStates(): void {
    const met = new Map<number, number[]>()
    for (const node of this.ir.nodes) {
      if ((node.op !== 'delay' && node.op !== 'hold') || this.rates.constant[node.id] === 1) continue
      const source = this.source(node.id)
      const others = met.get(source) ?? []
      const same = others.find(other => isSameState(this.ir.nodes[other]!, node))
      if (same === undefined) met.set(source, [...others, node.id])
      else this.same[node.id] = same
    }
  }

  /** The node whose memory a value may be, behind views. */
  owner(id: number): number {
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
    for (const node of nodes)
      if (node.op === 'window' ? isAlone(node) : looksAcross.has(node.op)) shared[node.id] = 1
    return shared
  }

  /**
   * The keys that a host value is made of, in order: of inputs, parameters, downloads and ordered host
   * values.
   */
  leaves(node: number, copy: number): readonly number[] {
    const key = this.resolve(node, copy)
    const id = this.nodeOf(key)
    const { op, place } = this.ir.nodes[id]!
    return op === 'window' && place === 'host'
      ? this.inputsOf(id, key - this.base[id]!).flatMap(([from, at]) => this.leaves(from, at))
      : [key]
  }

  /** The instances of its inputs that an instance reads. */
  private inputsOf(id: number, copy: number): readonly (readonly [node: number, copy: number])[] {
    const { op, inputs, attrs } = this.ir.nodes[id]!
    if (op !== 'window') return inputs.map(input => [input, copy] as const)
    const n = attrs['n'] as number
    return Array.from({ length: n }, (_, k) => [inputs[0]!, copy * n + k] as const)
  }

  /** The node of a key. */
  nodeOf(key: number): number {
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

  /** The keys that an instance reads, or that a state takes over. */
  readsOf(key: number): readonly number[] {
    if (key >= this.total) return [this.source(key - this.total)]
    const id = this.nodeOf(key)
    const copy = key - this.base[id]!
    const { op, place, inputs } = this.ir.nodes[id]!
    if (op === 'upload') return this.leaves(inputs[0]!, copy)
    if (op === 'after' && place === 'host')
      return [...this.leaves(inputs[0]!, copy), this.resolve(inputs[1]!, copy)]
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
      for (let copy = 0; copy < this.rates.fires[node]!; copy++)
        if (this.ir.nodes[node]!.place === 'host') this.leaves(node, copy).forEach(need)
        else need(this.resolve(node, copy))
    for (const node of this.ir.nodes) if (isNamedState(node)) need(this.total + this.same[node.id]!)
    for (let key = stack.pop(); key !== undefined; key = stack.pop()) this.readsOf(key).forEach(need)
  }
}
