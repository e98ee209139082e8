import type { GraphNode } from '../../../ir/graph.js'
import type { MapInstruction, MapSpec, MatmulEpilogue, MatmulSpec } from '../../../ir/kernel-spec.js'
import { type DType, tensorBytes } from '../../../ir/tensor.js'
import { tanhGelu } from '../../../language/operators/gelu.js'
import { matmulOperator, matmulSpec } from '../../../language/operators/matmul.js'
import type { RunLowering } from '../../../language/operators/operator.js'
import { reluCode } from '../../../language/operators/relu.js'
import type { FusedAttrs } from '../../analysis/fused.js'
import type { Checked } from '../../analysis/ir.js'
import type { Fusion } from '../../analysis/provenance.js'
import { rewritten } from '../../analysis/rewritten.js'
import { sizeOf } from './access.js'
import { apartBy, readersOf } from './readers.js'
import type { Effort } from './regions.js'
import { takenMemory, Values } from './values.js'

//   p = matmul(x, w) · s = p + b · y = gelu(s)
//   → y = matmul(x, w, b) with the epilogue { bias, gelu }
//
//   the same, where something else reads s too, as the backward pass does
//   → y, s = matmul(x, w, b) with the epilogue { bias, gelu, auxiliary }, in the place of s
//
// After this step an elementwise value of a product is computed by the product's own kernel, which has the sums in
// registers, where nothing else reads what lies between and both are on one lane and device, at one rate. Regions
// are found in what remains.

interface Activation {
  readonly name: NonNullable<MatmulEpilogue['activation']>
  readonly code: readonly MapInstruction[]
  /** The element types of products that compute it: the library's gelu is near enough in bf16 alone. */
  readonly types: readonly DType[]
  /** What it is computed of can be written too: of relu the library writes a mask. */
  readonly auxiliary: boolean
}

const activations: readonly Activation[] = [
  { name: 'gelu', code: tanhGelu, types: ['bf16'], auxiliary: true },
  { name: 'relu', code: reluCode, types: ['bf16', 'f16', 'f32'], auxiliary: false },
]

/** A product with the elementwise operations after it that it computes itself, so far. */
interface Chain {
  readonly product: number
  /** In the order of the graph; the last one's value is what the kernel writes. */
  readonly members: readonly number[]
  readonly epilogue: MatmulEpilogue
  /** The element type of the result. */
  readonly to: DType
  readonly bias?: number
  readonly residual?: number
  /** A member before the last one whose value is a result too. */
  readonly auxiliary?: number
}

const isEqual = (a: readonly MapInstruction[], b: readonly MapInstruction[]): boolean =>
  a.length === b.length && a.every((each, i) => each.every((word, j) => Object.is(word, b[i]![j])))

/** Whether a kernel reads every element of an operand in its own place. */
const isInPlace = ({ shape, operands }: MapSpec, i: number): boolean => {
  const { offset, strides } = operands[i]!
  let step = 1
  for (let d = shape.length - 1; d >= 0; d--) {
    if (shape[d] !== 1 && strides[d] !== step) return false
    step *= shape[d]!
  }
  return offset === 0
}

/** Whether a kernel reads the same row of n elements in each row. */
const isRow = ({ shape, operands }: MapSpec, i: number, n: number): boolean => {
  const { offset, strides } = operands[i]!
  const last = shape.length - 1
  return offset === 0 && shape[last] === n && strides.every((step, d) => step === (d === last ? 1 : 0))
}

/** The chain with one more operation; undefined where the kernel of a product cannot do it. */
const extended = (
  ir: Checked,
  chain: Chain,
  { id, inputs }: GraphNode,
  kernel: MapSpec,
  { n }: Pick<MatmulSpec, 'n'>,
): Chain | undefined => {
  const { epilogue, to, members } = chain
  const { activation, residual, bias, scale = 1 } = epilogue
  const { code, results } = kernel
  const { dtype } = results[0]!
  const own = inputs.indexOf(members.at(-1)!)
  const made = { ...chain, members: [...members, id], to: dtype }
  if (kernel.compute !== 'f32' || residual || results.length !== 1 || !isInPlace(kernel, own))
    return undefined
  if (isEqual(code, [['operand', 0]])) return bias || activation ? undefined : made
  if (dtype !== to || activation) return undefined
  const [first, second, last] = code
  if (isEqual(code.slice(2), [['mul', 0, 1]]) && first![0] === 'operand' && second![0] === 'const') {
    // Two scales are one rounding less, which would change the bits of f32.
    if (to === 'f32' && scale !== 1) return undefined
    const whole = scale * (second as [string, number])[1]
    // A library does not read the operands of a product that is scaled by 0, and some of them may be NaN.
    return bias || Math.fround(whole) === 0 ? undefined : { ...made, epilogue: { ...epilogue, scale: whole } }
  }
  if (code.length === 3 && last![0] === 'add' && first![0] === 'operand' && second![0] === 'operand') {
    const other = 1 - own
    const { dtype: type } = ir.specs[inputs[other]!]!
    if (inputs.length !== 2 || inputs[other] === inputs[own] || type !== to) return undefined
    if (!bias && isRow(kernel, other, n))
      return { ...made, epilogue: { ...epilogue, bias: true }, bias: inputs[other]! }
    return isInPlace(kernel, other)
      ? { ...made, epilogue: { ...epilogue, residual: true }, residual: inputs[other]! }
      : undefined
  }
  const found = activations.find(each => each.types.includes(to) && isEqual(each.code, code))
  return found === undefined ? undefined : { ...made, epilogue: { ...epilogue, activation: found.name } }
}

/** Products with what follows them. */
class Epilogues {
  readonly chains: Chain[] = []
  private readonly reader: Int32Array
  private readonly values: Values
  private readonly taken: Uint8Array | undefined
  /** By node: the first activation of its value that can be a result beside it. */
  private readonly activated = new Map<number, number>()
  /** Members of chains: what adds two products is part of one of them. */
  private readonly members = new Set<number>()

  constructor(
    private readonly ir: Checked,
    private readonly effort: Effort,
  ) {
    this.reader = readersOf(ir)
    this.values = new Values(ir)
    this.taken = takenMemory(ir)
    if (effort !== 'lean') this.findActivations()
    for (const node of ir.nodes) if (node.op === 'matmul') this.follow(node)
  }

  private findActivations(): void {
    const { elementwise } = this.values
    for (const { id, inputs } of this.ir.nodes) {
      const code = elementwise[id]?.kernel.code
      const isOne = activations.some(each => each.auxiliary && code !== undefined && isEqual(each.code, code))
      if (isOne && !this.activated.has(inputs[0]!)) this.activated.set(inputs[0]!, id)
    }
  }

  private follow({ id, inputs, attrs }: GraphNode): void {
    const { nodes, specs } = this.ir
    if (inputs.some(input => this.taken?.[input] === 1)) return
    const [x, w] = inputs.map(input => specs[input]!) as [Checked['specs'][number], Checked['specs'][number]]
    const spec = matmulSpec(x, w, attrs)
    let chain: Chain = { product: id, members: [id], epilogue: {}, to: specs[id]!.dtype }
    while (chain.auxiliary === undefined) {
      const last = chain.members.at(-1)!
      const alone = this.reader[last]!
      const next = nodes[alone === -2 ? (this.activated.get(last) ?? -1) : alone]
      const own = next && this.values.elementwise[next.id]
      if (next === undefined || own === undefined || own.isIndexed || this.members.has(next.id)) break
      if (apartBy(this.ir, next.id, id) !== undefined) break
      if (sizeOf(own.kernel.shape) !== spec.batch * spec.m * spec.n || this.isWorse(chain, next)) break
      const longer = extended(this.ir, chain, next, own.kernel, spec)
      if (longer === undefined) break
      chain = alone === -2 ? { ...longer, auxiliary: last } : longer
    }
    if (chain.members.length === 1 || chain.to !== x.dtype) return
    this.chains.push(chain)
    for (const member of chain.members) this.members.add(member)
  }

  /** Whether the product would wait for what its epilogue reads, and so end later, or hold its operands longer. */
  private isWorse({ product, members }: Chain, next: GraphNode): boolean {
    const { values, effort } = this
    const start = values.ready(product)
    const time = values.end[product]! - start
    const last = members.at(-1)!
    let others = 0
    for (const input of next.inputs) if (input !== last) others = Math.max(others, values.end[input]!)
    if (others <= start) return false
    return effort === 'lean' || others + time > values.end[next.id]!
  }
}

const nodeOf = ({ nodes, specs }: Checked, chain: Chain): GraphNode => {
  const { product, members, epilogue, to, bias, residual, auxiliary } = chain
  const last = nodes[members.at(-1)!]!
  const inputs = [...nodes[product]!.inputs, ...[bias, residual].filter(input => input !== undefined)]
  const attrs = { ...nodes[product]!.attrs, to, epilogue: epilogue as GraphNode['attrs'] }
  if (auxiliary === undefined) return { ...last, op: 'matmul', inputs, attrs }
  const given = inputs.map(input => specs[input]!)
  const output = specs[last.id]!
  const { kernel, flops, movedBytes, workspace } = matmulOperator.lower(given, output, attrs) as RunLowering
  const fused: FusedAttrs = {
    kernel: { ...(kernel as MatmulSpec), epilogue: { ...epilogue, auxiliary: true } },
    flops,
    movedBytes: movedBytes + tensorBytes(output),
    workspace,
    tolerance: matmulOperator.tolerance(output, given, attrs),
    results: [{ name: nodes[auxiliary]!.name, spec: specs[auxiliary]! }],
    members: members.map(id => nodes[id]!.name),
  }
  return { ...last, op: 'fused', inputs, attrs: fused as unknown as GraphNode['attrs'] }
}

/** The graph whose products compute what follows them. */
export const withEpilogues = (
  ir: Checked,
  effort: Effort,
): { readonly ir: Checked; readonly regions: Fusion['regions'] } => {
  if (!ir.nodes.some(({ op }) => op === 'matmul')) return { ir, regions: [] }
  const { chains } = new Epilogues(ir, effort)
  if (chains.length === 0) return { ir, regions: [] }
  const inner = new Set<number>()
  const made = new Map<number, GraphNode>()
  /** By the value that is an auxiliary output: the node of its kernel, which stands right before it. */
  const before = new Map<number, number>()
  const regions = chains.map(chain => {
    const last = chain.members.at(-1)!
    for (const id of chain.members) if (id !== last && id !== chain.auxiliary) inner.add(id)
    made.set(last, nodeOf(ir, chain))
    if (chain.auxiliary !== undefined) {
      const { auxiliary } = chain
      inner.add(last)
      before.set(auxiliary, last)
      made.set(auxiliary, { ...ir.nodes[auxiliary]!, op: 'port', inputs: [last], attrs: { index: 1 } })
    }
    const { name, at } = ir.nodes[last]!
    return { name, members: chain.members.map(id => ir.nodes[id]!.name), at }
  })
  const order = ir.nodes.flatMap(({ id }) => {
    const kernel = before.get(id)
    return inner.has(id) ? [] : kernel === undefined ? [id] : [kernel, id]
  })
  return { ir: rewritten(ir, order, id => made.get(id) ?? ir.nodes[id]!), regions }
}
