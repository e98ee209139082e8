import * as E from 'fp-ts/lib/Either.js'
import { type ArrayAllocator, withScratchArena } from '../../collections/scratch-arena.js'
import type { GraphNode } from '../../ir/graph.js'
import { isShared } from '../../language/communicator.js'
import { markLive } from '../../language/live.js'
import type { Checked } from '../analysis/ir.js'
import { donatedReads, isView } from '../analysis/operators.js'
import { type Passed, pass } from '../analysis/pass.js'

//   a = relu(x) · b = relu(x) · c = exp(x) · y = a + b
//   → a = relu(x) · y = a + a
//
// After this pass no node is dead, and no two pure nodes do the same to the same values on the same lane.

const identities = new WeakMap<object, number>()
let nextIdentity = 0

/** A key under which equal attributes are equal: -0 is not 0, and functions are equal only to themselves. */
const keyOf = (value: unknown): string => {
  if (typeof value === 'number') return Object.is(value, -0) ? '-0' : String(value)
  if (typeof value === 'string') return JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map(keyOf).join(',')}]`
  if (typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype)
    return `{${Object.keys(value)
      .sort()
      .map(key => `${key}:${keyOf((value as Record<string, unknown>)[key])}`)
      .join(',')}}`
  if ((typeof value === 'object' && value !== null) || typeof value === 'function') {
    let identity = identities.get(value)
    if (identity === undefined) {
      identity = nextIdentity++
      identities.set(value, identity)
    }
    return `#${identity}`
  }
  return String(value)
}

// Two sources or two states are never the same, and a hold or a repeat takes its rate from its
// readers. Merging two
// streamed uploads, or two gathers of the same shards, would hold the first in memory until the second's
// reader. A kernel that donates changes memory.
const isPure = (node: GraphNode, nodes: readonly GraphNode[]): boolean => {
  switch (node.op) {
    case 'input':
    case 'param':
    case 'delay':
    case 'hold':
    case 'repeat':
      return false
    case 'upload':
      return node.attrs['ahead'] === undefined && nodes[node.inputs[0]!]!.op !== 'param'
    case 'kernel':
      return donatedReads(node).length === 0
    default:
      return !isShared(node)
  }
}

/**
 * Values whose memory a kernel takes, and the values that they are views of: each duplicate has memory of its
 * own to give.
 */
const givenAway = (nodes: readonly GraphNode[]): Uint8Array => {
  const given = new Uint8Array(nodes.length)
  for (const kernel of nodes) {
    if (kernel.op !== 'kernel') continue
    for (const index of donatedReads(kernel))
      for (let node = nodes[kernel.inputs[index]!]!; ; node = nodes[node.inputs[0]!]!) {
        given[node.id] = 1
        if (!isView(node)) break
      }
  }
  return given
}

/**
 * A hash table from two small numbers to a node, with open addressing: a Map of a million keys costs more
 * than the whole pass.
 */
class Pairs {
  static readonly none = -1
  static readonly several = -2
  private readonly mask: number
  private readonly keys: Int32Array
  private readonly nodes: Int32Array

  constructor(capacity: number, allocator: ArrayAllocator) {
    const size = 2 ** Math.ceil(Math.log2(2 * capacity + 2))
    this.mask = size - 1
    this.keys = allocator.int32(2 * size)
    this.nodes = allocator.int32(size).fill(Pairs.none)
  }

  /** Enters a node and returns the entry before: `none`, then the first node, then always `several`. */
  swap(a: number, b: number, node: number): number {
    const { mask, keys, nodes } = this
    let at = (Math.imul(a, 0x9e3779b1) ^ Math.imul(b, 0x85ebca6b)) >>> 0
    for (at = (at ^ (at >>> 15)) & mask; nodes[at] !== Pairs.none; at = (at + 1) & mask) {
      if (keys[2 * at] !== a || keys[2 * at + 1] !== b) continue
      const before = nodes[at]!
      nodes[at] = Pairs.several
      return before
    }
    keys[2 * at] = a
    keys[2 * at + 1] = b
    nodes[at] = node
    return Pairs.none
  }
}

/** By node: the node that replaces it, itself or an earlier one of the same meaning. */
const merge = (nodes: readonly GraphNode[], allocator: ArrayAllocator): Int32Array => {
  const stands = allocator.int32(nodes.length)
  for (let id = 0; id < stands.length; id++) stands[id] = id
  // The text of a meaning is costly, so it is made only for nodes that share their first two inputs.
  const alone = new Pairs(nodes.length, allocator)
  const met = new Map<string, number>()
  const given = givenAway(nodes)
  // Nodes of equal attributes mostly share one object.
  const texts = new Map<GraphNode['attrs'], string>()
  const textOf = (attrs: GraphNode['attrs']): string => {
    const text = texts.get(attrs) ?? keyOf(attrs)
    texts.set(attrs, text)
    return text
  }
  const meaningOf = ({ op, inputs, lane, attrs, spec }: GraphNode): string => {
    const values = inputs.map(input => stands[input]).join(' ')
    const where = `${lane?.name ?? ''} ${lane?.device ?? 0}`
    return `${op} ${values} ${where} ${textOf(attrs)} ${spec.dtype}[${spec.shape}]`
  }
  const rank = (input: number | undefined): number => (input === undefined ? 0 : stands[input]! + 1)
  for (let id = 0; id < nodes.length; id++) {
    const node = nodes[id]!
    if (given[id] === 1 || !isPure(node, nodes)) continue
    const first = alone.swap(rank(node.inputs[0]), rank(node.inputs[1]), node.id)
    if (first === Pairs.none) continue
    if (first !== Pairs.several) met.set(meaningOf(nodes[first]!), first)
    const meaning = meaningOf(node)
    const duplicate = met.get(meaning)
    if (duplicate === undefined) met.set(meaning, node.id)
    else stands[node.id] = duplicate
  }
  return stands
}

export const simplify = pass(
  'simplify',
  (ir: Checked): Passed<Checked> => withScratchArena(allocator => E.right(simplified(ir, allocator))),
)

const simplified = (ir: Checked, allocator: ArrayAllocator): Checked => {
  const stands = merge(ir.nodes, allocator)
  const alive = markLive(ir, id => stands[id]!)
  const renumbered = new Int32Array(ir.nodes.length).fill(-1)
  let count = 0
  for (const node of ir.nodes) if (alive[node.id]) renumbered[node.id] = count++
  if (count === ir.nodes.length) return ir
  const renumber = (id: number): number => renumbered[stands[id]!]!
  // Made at their lengths: a list that grows to a million leaves several of itself behind.
  const nodes = new Array<GraphNode>(count)
  const specs = new Array<Checked['specs'][number]>(count)
  for (const node of ir.nodes) {
    const id = renumbered[node.id]!
    if (id < 0) continue
    nodes[id] = { ...node, id, inputs: node.inputs.map(renumber) }
    specs[id] = ir.specs[node.id]!
  }
  return {
    settings: ir.settings,
    nodes,
    specs,
    outputs: ir.outputs.map(output => ({ name: output.name, node: renumber(output.node) })),
  }
}
