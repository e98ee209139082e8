import type { GraphNode } from '../../../ir/graph.js'
import type { AttentionOperand, MapSpec } from '../../../ir/kernel-spec.js'
import { elements } from '../../../ir/tensor.js'
import { attentionOperator, attentionSpec } from '../../../language/operators/attention.js'
import { denseStrides } from '../../../language/operators/shapes.js'
import type { FusedAttrs } from '../../analysis/fused.js'
import type { Checked } from '../../analysis/ir.js'
import type { Fusion } from '../../analysis/provenance.js'
import { type Access, composed, inOrder, refined, sizeOf } from './access.js'
import { apartBy, readersOf } from './readers.js'
import { rewritten } from './rewritten.js'
import { Values } from './values.js'

//   q = transpose(slice(all)) · y = attention(q, k, v) · z = transpose(y)
//   → z = attention(all, k, v): it reads the rows of q where they lie in `all`, and writes y in the order of z
//
// After this step attention reads no copy of rows that it could read itself.

/** Batch, heads, rows, and the elements of a row. */
type Sizes = readonly [number, number, number, number]

const isCopy = ({ code, operands, results }: MapSpec): boolean =>
  code.length === 1 &&
  code[0]![0] === 'operand' &&
  operands[0]!.dtype === results[0]!.dtype &&
  !results[0]!.row

/** The strides of an access over sizes that its shape refines, where the elements of a row follow one another. */
const rowsOf = ({ shape, offset, strides }: Access, sizes: Sizes): AttentionOperand | undefined => {
  const steps: number[] = []
  let d = shape.length - 1
  for (let own = sizes.length - 1; own >= 0; own--) {
    let left = sizes[own]!
    let step = 0
    let next: number | undefined
    for (; left > 1; d--) {
      const size = shape[d]
      if (size === undefined || left % size !== 0) return undefined
      if (next === undefined) step = strides[d]!
      else if (strides[d] !== next) return undefined
      next = strides[d]! * size
      left /= size
    }
    steps[own] = step
  }
  const [batch, head, row, element] = steps as [number, number, number, number]
  return d < 0 && (sizes[3] === 1 || element === 1) ? { offset, strides: [batch, head, row] } : undefined
}

/** Where a copy puts each element of what it reads: undefined where it leaves some out, or has some twice. */
const placed = ({ shape, operands: [read] }: MapSpec): Access | undefined => {
  const { strides, offset } = read!
  const order = shape.map((_, d) => d).sort((a, b) => strides[b]! - strides[a]!)
  const own = order.map(d => shape[d]!)
  const dense = denseStrides(own)
  const whole = offset === 0 && order.every((d, i) => strides[d] === dense[i])
  const to = denseStrides(shape)
  return whole ? { shape: own, offset: 0, strides: order.map(d => to[d]!) } : undefined
}

/** A value that attention reads, and the nodes between that nothing else may need. */
interface Read {
  readonly node: number
  readonly rows?: AttentionOperand
  readonly passed: readonly number[]
}

class StridedReads {
  readonly made = new Map<number, GraphNode>()
  readonly regions: Fusion['regions'][number][] = []
  /** Nodes that may have no reader any more. */
  private readonly passed = new Set<number>()
  private readonly values: Values
  private readonly reader: Int32Array

  constructor(private readonly ir: Checked) {
    this.values = new Values(ir)
    this.reader = readersOf(ir)
    for (const node of ir.nodes) if (node.op === 'attention') this.meet(node)
  }

  private meet(node: GraphNode): void {
    const { nodes, specs } = this.ir
    const inputs = node.inputs.map(input => specs[input]!)
    const spec = attentionSpec(inputs, node.attrs)
    const { batch, heads, groups, queries, keys, size, valueSize } = spec
    const sizes: readonly Sizes[] = [
      [batch, heads, queries, size],
      [batch, groups, keys, size],
      [batch, groups, keys, valueSize],
    ]
    const reads = sizes.map((each, i) => this.read(node, node.inputs[i]!, each))
    const written = this.written(node, [batch, heads, queries, valueSize])
    const members = [...reads.flatMap(({ passed }) => passed).reverse(), node.id]
    if (written !== undefined) members.push(...written.passed, written.node)
    if (members.length === 1) return
    const last = nodes[written?.node ?? node.id]!
    const [q, k, v] = reads as [Read, Read, Read]
    const { flops, movedBytes } = attentionOperator.lower(inputs, specs[node.id]!, node.attrs) as {
      readonly flops: number
      readonly movedBytes: number
    }
    const attrs: FusedAttrs = {
      kernel: {
        ...spec,
        q: q.rows ?? spec.q,
        k: k.rows ?? spec.k,
        v: v.rows ?? spec.v,
        y: written?.rows ?? spec.y,
      },
      flops,
      movedBytes,
      results: [],
      tolerance: attentionOperator.tolerance(specs[node.id]!, inputs, node.attrs),
      members: members.map(id => nodes[id]!.name),
    }
    for (const id of members) if (id !== last.id) this.passed.add(id)
    this.made.set(last.id, {
      ...last,
      op: 'fused',
      inputs: [q.node, k.node, v.node, ...node.inputs.slice(3)],
      attrs: attrs as unknown as GraphNode['attrs'],
    })
    this.regions.push({ name: last.name, members: attrs.members, at: last.at })
  }

  /** What lies behind copies and views of it, as far as its rows are dense there. */
  private read(node: GraphNode, input: number, sizes: Sizes): Read {
    const { nodes } = this.ir
    const { viewFrom, elementwise } = this.values
    let found: Read = { node: input, passed: [] }
    let access = inOrder(sizes.filter(size => size !== 1))
    const passed: number[] = []
    for (let at = input; ; at = nodes[at]!.inputs[0]!) {
      const kernel = elementwise[at]?.kernel
      if (viewFrom[at]! >= 0) access = { ...access, offset: access.offset + viewFrom[at]! }
      else {
        if (kernel === undefined || !isCopy(kernel) || apartBy(this.ir, at, node.id) !== undefined)
          return found
        const inside = composed(kernel.shape, kernel.operands, access)
        if (inside === undefined) return found
        access = inside.operands[0]!
      }
      passed.push(at)
      const rows = rowsOf(access, sizes)
      if (kernel !== undefined && rows !== undefined)
        found = { node: nodes[at]!.inputs[0]!, rows, passed: [...passed] }
    }
  }

  /** The copy that alone reads the result, in which each element has one place. */
  private written(node: GraphNode, sizes: Sizes): Read | undefined {
    const { viewFrom, elementwise } = this.values
    const count = sizeOf(sizes)
    const passed: number[] = []
    for (let at = this.reader[node.id]!; at >= 0; at = this.reader[at]!) {
      if (elements(this.ir.specs[at]!.shape) !== count) return undefined
      if (viewFrom[at] !== 0) {
        const kernel = elementwise[at]?.kernel
        if (kernel === undefined || !isCopy(kernel) || apartBy(this.ir, at, node.id) !== undefined)
          return undefined
        const access = placed(kernel)
        const fine =
          access &&
          (refined(
            access,
            sizes.filter(size => size !== 1),
          ) ??
            access)
        const rows = fine && rowsOf(fine, sizes)
        return rows && { node: at, rows, passed }
      }
      passed.push(at)
    }
    return undefined
  }

  /** All nodes but the copies and views that nothing reads any more. */
  kept(): readonly number[] {
    const { nodes, outputs } = this.ir
    const gone = new Set<number>()
    const read = new Int32Array(nodes.length)
    const inputsOf = (id: number) => (this.made.get(id) ?? nodes[id]!).inputs
    for (const { id } of nodes) for (const input of inputsOf(id)) read[input]!++
    for (const { node, parts } of outputs) for (const id of parts?.nodes ?? [node]) read[id]!++
    for (let id = nodes.length - 1; id >= 0; id--) {
      if (read[id] !== 0 || !this.passed.has(id)) continue
      gone.add(id)
      for (const input of inputsOf(id)) read[input]!--
    }
    return nodes.flatMap(({ id }) => (gone.has(id) ? [] : [id]))
  }
}

/** The graph whose attention reads and writes rows where they lie. */
export const withStridedReads = (
  ir: Checked,
): { readonly ir: Checked; readonly regions: Fusion['regions'] } => {
  if (!ir.nodes.some(({ op }) => op === 'attention')) return { ir, regions: [] }
  const reads = new StridedReads(ir)
  if (reads.made.size === 0) return { ir, regions: [] }
  return {
    ir: rewritten(ir, reads.kept(), id => reads.made.get(id) ?? ir.nodes[id]!),
    regions: reads.regions,
  }
}
