import type { GraphNode } from '../../ir/graph.js'
import { isFloat, tensorBytes } from '../../ir/tensor.js'
import { addOperator } from '../../language/operators/add.js'
import { GraphRebuild } from '../analysis/graph-rebuild.js'
import type { Checked } from '../analysis/ir.js'
import { pass } from '../analysis/pass.js'
import { rewritten } from '../analysis/rewritten.js'
import { linesOf, partsOn, type Way } from './split/lines.js'
import { Repeated } from './split/repeated.js'

//   y = sum(x) of 2^25 elements
//   → y.rows = reshape(x) to [512, 2^16] · y.parts = sum(y.rows) of each row · y = sum(y.parts)
//
//   e = exp(x - m) · s = sum(e) · y = e / s
//   → e' = exp(x - m) · s.parts = sum(e') of each part · s = sum(s.parts) · e = exp(x - m) · y = e / s
//
// After this pass a sum, mean, maximum, minimum or running sum of few long lines is made of its parts, so
// that it fills the device: a line is the work of one block of threads. The parts of a sum or mean of f16 or
// bf16 are f32. Elementwise values that such a sum is made of are computed once more where something else
// reads them too.

/** Of smaller values nothing is split. */
const leastBytes = 2 ** 14

const ways: Readonly<Record<string, Way>> = {
  sum: 'reduce',
  mean: 'reduce',
  max: 'reduce',
  min: 'reduce',
  cumsum: 'scan',
}

/** By node: in how many parts the pass would make it. */
export type LongLines = ReadonlyMap<number, number>

/** The reductions and running sums of few long lines. */
export const longLinesOf = ({ nodes, specs, settings }: Checked): LongLines => {
  const found = new Map<number, number>()
  const { machine, memory } = settings
  for (const node of nodes) {
    const way = ways[node.op]
    if (way === undefined) continue
    const x = specs[node.inputs[0]!]!
    // The parts of a running sum are a value as large as it.
    if (tensorBytes(x) < leastBytes || (way === 'scan' && memory !== 'fast')) continue
    const parts = partsOn(linesOf(node, x), way, machine)
    if (parts > 1) found.set(node.id, parts)
  }
  return found
}

const sumOfTwo = {
  code: [
    ['operand', 0],
    ['operand', 1],
    ['add', 0, 1],
  ],
} as const

class Splitting {
  private readonly rebuild: GraphRebuild
  /** Nodes, numbered anew, that were computed again for a reader; nothing may read them any more. */
  private readonly perhapsUnread: number[] = []
  private readonly repeated: Repeated

  constructor(
    private readonly ir: Checked,
    found: LongLines,
  ) {
    this.rebuild = new GraphRebuild(ir)
    const { renumbered } = this.rebuild
    this.repeated = new Repeated(ir)
    for (const node of ir.nodes) {
      const inputs = node.inputs.map(input => renumbered[input]!)
      const parts = found.get(node.id)
      const now = parts === undefined ? { ...node, inputs } : this.inParts(node, inputs, parts)
      renumbered[node.id] = this.rebuild.add(now, now.inputs, ir.specs[node.id]!, node.id)
    }
    for (const { id, op, inputs } of ir.nodes)
      if (op === 'delay') this.rebuild.close(renumbered[id]!, renumbered[inputs[0]!]!)
  }

  result(): Checked {
    const made = this.rebuild.result()
    const unread = this.unreadIn(made)
    if (unread.size === 0) return made
    const order = made.nodes.map(({ id }) => id).filter(id => !unread.has(id))
    return rewritten(made, order, id => made.nodes[id]!)
  }

  /** Of the nodes that were computed again for a reader, those that nothing else reads. */
  private unreadIn({ nodes, outputs }: Checked): ReadonlySet<number> {
    const readers = new Int32Array(nodes.length)
    for (const { inputs } of nodes) for (const input of inputs) readers[input]! += 1
    for (const { node, parts } of outputs) for (const id of parts?.nodes ?? [node]) readers[id]! += 1
    const unread = new Set<number>()
    for (const id of [...new Set(this.perhapsUnread)].sort((a, b) => b - a)) {
      if (readers[id]! > 0) continue
      unread.add(id)
      for (const input of nodes[id]!.inputs) readers[input]! -= 1
    }
    return unread
  }

  /** The value that a reduction reads, computed for it alone where that is worth it. */
  private valueFor(reduction: GraphNode, input: number): number {
    const { renumbered } = this.rebuild
    const again = new Map<number, number>()
    for (const id of this.repeated.for(reduction)) {
      const node = this.ir.nodes[id]!
      const inputs = node.inputs.map(input => again.get(input) ?? renumbered[input]!)
      const name = `${reduction.name}.${node.name}`
      again.set(id, this.rebuild.add({ ...node, name }, inputs, this.ir.specs[id]!, id))
      this.perhapsUnread.push(renumbered[id]!)
    }
    return again.get(reduction.inputs[0]!) ?? input
  }

  /** Makes the nodes of the parts of a node; yields what it then is. */
  private inParts(node: GraphNode, inputs: readonly number[], parts: number): GraphNode {
    const { dtype, shape } = this.ir.specs[node.id]!
    const isScan = ways[node.op] === 'scan'
    const wide = isFloat(dtype) && node.op !== 'max' && node.op !== 'min' ? 'f32' : dtype
    const step = (
      part: string,
      op: string,
      inputs: readonly number[],
      attrs: GraphNode['attrs'],
      shape: readonly number[],
      type = wide,
    ): number => {
      const spec = { dtype: type, shape }
      const lane = op === 'reshape' ? undefined : node.lane
      const made = { ...node, op, name: `${node.name}.${part}`, attrs, spec, lane }
      return this.rebuild.add(made, inputs, spec, node.id)
    }
    const x = isScan ? inputs[0]! : this.valueFor(node, inputs[0]!)
    const { outer, length, inner } = linesOf(node, this.rebuild.specs[x]!)
    const rows = [outer, parts, length / parts, inner]
    const ofParts = [outer, parts, inner]
    const given = step('rows', 'reshape', [x], { shape: rows }, rows, this.rebuild.specs[x]!.dtype)
    const reduction = isScan ? 'sum' : node.op
    const reduced = step('parts', reduction, [given], { axis: 2, keepDims: false }, ofParts)
    if (!isScan) return { ...node, inputs: [reduced], attrs: { ...node.attrs, axis: 1, count: 1 } }
    // The sum of all parts before each one.
    const oneMore = [outer, parts + 1, inner]
    const padded = step('padded', 'pad', [reduced], { axis: 1, before: 1, after: 0, value: 0 }, oneMore)
    const ends = step('ends', 'cumsum', [padded], { axis: 1 }, oneMore)
    const before = step('before', 'slice', [ends], { axis: 1, from: 0, to: parts }, ofParts)
    const column = [outer, parts, 1, inner]
    const starts = step('starts', 'reshape', [before], { shape: column }, column)
    const within = step('within', 'cumsum', [given], { axis: 2 }, rows)
    const added = step('sums', addOperator.name, [within, starts], sumOfTwo, rows, dtype)
    return { ...node, op: 'reshape', inputs: [added], attrs: { shape }, lane: undefined }
  }
}

export const split = pass('split', ({ ir, lines }: { readonly ir: Checked; readonly lines: LongLines }) =>
  new Splitting(ir, lines).result(),
)
