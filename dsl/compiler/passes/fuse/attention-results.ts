import type { GraphNode } from '../../../ir/graph.js'
import { type AttentionSpec, attentionProducts } from '../../../ir/kernel-spec.js'
import { tensorBytes } from '../../../ir/tensor.js'
import { attentionSpec, scoresSeen } from '../../../language/operators/attention.js'
import type { RunLowering } from '../../../language/operators/operator.js'
import { operators } from '../../../language/operators/registry.js'
import { type FusedAttrs, fusedAttrs } from '../../analysis/fused.js'
import type { Checked } from '../../analysis/ir.js'
import type { Fusion } from '../../analysis/provenance.js'
import { rewritten } from '../../analysis/rewritten.js'
import { apartBy } from './readers.js'

//   y = attention(q, k, v) · l = logSumExp of the same      → y, l of one kernel
//   by k = gradient of the keys · by v = that of the values → by k, by v of one kernel
//
// After this step no two kernels of attention compute the same weights of the same operands, where one can
// write both results.

/** A node whose kernel is of attention, and that kernel. */
interface Computed {
  readonly node: GraphNode
  readonly kernel: AttentionSpec
  readonly fused: FusedAttrs | undefined
}

const computedBy = ({ specs }: Checked, node: GraphNode): Computed | undefined => {
  if (node.op === 'attention' || node.op === 'attentionGradient') {
    const inputs = node.inputs.map(input => specs[input]!)
    return { node, kernel: attentionSpec(inputs, node.attrs), fused: undefined }
  }
  if (node.op !== 'fused') return undefined
  const fused = fusedAttrs(node)
  return fused.kernel.kind === 'attention' ? { node, kernel: fused.kernel, fused } : undefined
}

/** What kernels have in common whose weights are the same. */
const keyOf = ({ node, kernel }: Computed): string => {
  const { result, y, workspace, ...rest } = kernel
  return JSON.stringify([node.inputs, rest])
}

/** The result that a kernel can write beside its own. */
const besides = new Map<AttentionSpec['result'], AttentionSpec['result']>([
  [undefined, 'logSumExp'],
  ['byKeys', 'byValues'],
])

const joined = ({ specs, nodes }: Checked, main: Computed, other: Computed): GraphNode => {
  const { node, fused } = main
  const kernel: AttentionSpec =
    other.kernel.result === 'byValues'
      ? { ...main.kernel, dv: other.kernel.y }
      : { ...main.kernel, logs: true }
  const given = node.inputs.map(input => specs[input]!)
  const own = fused ?? (operators[node.op]!.lower(given, specs[node.id]!, node.attrs) as RunLowering)
  const toleranceOf = (of: Computed): number =>
    of.fused?.tolerance ?? operators[of.node.op]!.tolerance(specs[of.node.id]!, given, of.node.attrs)
  const attrs: FusedAttrs = {
    kernel,
    flops: 2 * scoresSeen(kernel) * attentionProducts(kernel),
    movedBytes: own.movedBytes + tensorBytes(specs[other.node.id]!),
    workspace: own.workspace ?? 0,
    tolerance: Math.max(toleranceOf(main), toleranceOf(other)),
    results: [{ name: other.node.name, spec: specs[other.node.id]! }],
    members: [main, other].flatMap(of => of.fused?.members ?? [nodes[of.node.id]!.name]),
  }
  return { ...node, op: 'fused', attrs: attrs as unknown as GraphNode['attrs'] }
}

/** The graph whose kernels of attention write two results where another one would compute the same weights. */
export const withAttentionResults = (
  ir: Checked,
): { readonly ir: Checked; readonly regions: Fusion['regions'] } => {
  const none = { ir, regions: [] }
  if (!ir.nodes.some(({ op }) => op === 'attentionGradient' || op === 'fused')) return none
  const groups = new Map<string, Computed[]>()
  for (const node of ir.nodes) {
    const computed = computedBy(ir, node)
    if (computed === undefined) continue
    const key = keyOf(computed)
    groups.set(key, [...(groups.get(key) ?? []), computed])
  }
  const made = new Map<number, GraphNode>()
  /** By the other result, where it stands first: the node of the kernel, which then stands right before it. */
  const before = new Map<number, number>()
  const regions: Fusion['regions'][number][] = []
  for (const group of groups.values())
    for (const main of group) {
      const wanted = besides.get(main.kernel.result)
      const other = group.find(
        ({ kernel, node }) =>
          wanted !== undefined &&
          kernel.result === wanted &&
          !made.has(node.id) &&
          apartBy(ir, main.node.id, node.id) === undefined,
      )
      if (other === undefined) continue
      const kernel = joined(ir, main, other)
      made.set(main.node.id, kernel)
      made.set(other.node.id, { ...other.node, op: 'port', inputs: [main.node.id], attrs: { index: 1 } })
      if (other.node.id < main.node.id) before.set(other.node.id, main.node.id)
      regions.push({ name: main.node.name, members: fusedAttrs(kernel).members, at: main.node.at })
    }
  if (made.size === 0) return none
  const moved = new Set(before.values())
  const order = ir.nodes.flatMap(({ id }) => {
    const kernel = before.get(id)
    return moved.has(id) ? [] : kernel === undefined ? [id] : [kernel, id]
  })
  return { ir: rewritten(ir, order, id => made.get(id) ?? ir.nodes[id]!), regions }
}
