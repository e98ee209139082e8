import type { GraphNode } from '../../../ir/graph.js'
import type { MapInstruction, MapSpec, MatmulEpilogue, MatmulSpec } from '../../../ir/kernel-spec.js'
import { type DType, tensorBytes } from '../../../ir/tensor.js'
import { tanhGelu } from '../../../language/operators/gelu.js'
import { matmulOperator, matmulSpec } from '../../../language/operators/matmul.js'
import type { RunLowering } from '../../../language/operators/operator.js'
import { reluCode } from '../../../language/operators/relu.js'
import type { FusedAttrs } from '../../analysis/fused.js'
import type { Checked } from '../../analysis/ir.js'
import type { BesideProduct, Fusion, WhyStored } from '../../analysis/provenance.js'
import { rewritten } from '../../analysis/rewritten.js'
import { sizeOf } from './access.js'
import { apartBy, readersOf } from './readers.js'
import type { Effort } from './regions.js'
import { changedMemory, Values } from './values.js'

//   p = matmul(x, w) · s = p + b · y = gelu(s)
//   → y = matmul(x, w, b) with the epilogue { bias, gelu }
//
//   the same, where something else reads s too, as the backward pass does
//   → y, s = matmul(x, w, b) with the epilogue { bias, gelu, auxiliary }, in the place of s
//
// After this step an elementwise value of a product is computed by the product's own kernel, which has the
// sums in registers, where nothing else reads what lies between and both are on one lane and device, at one
// rate. Regions are found in what remains.

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

/** The chain with one more operation, or why the kernel of a product cannot do it. */
const extended = (
  ir: Checked,
  chain: Chain,
  { id, inputs }: GraphNode,
  kernel: MapSpec,
  { n }: Pick<MatmulSpec, 'n'>,
): Chain | BesideProduct | 'whole numbers and floats' | 'order of elements' => {
  const { epilogue, to, members } = chain
  const { activation, residual, bias, scale = 1 } = epilogue
  const { code, results } = kernel
  const { dtype } = results[0]!
  const own = inputs.indexOf(members.at(-1)!)
  const made = { ...chain, members: [...members, id], to: dtype }
  if (kernel.compute !== 'f32') return 'whole numbers and floats'
  if (residual) return 'after a residual'
  if (results.length !== 1) return 'no such function'
  if (!isInPlace(kernel, own)) return 'order of elements'
  if (isEqual(code, [['operand', 0]])) return bias || activation ? 'late cast' : made
  if (activation) return 'after an activation'
  if (dtype !== to) return 'another type'
  const [first, second, last] = code
  if (isEqual(code.slice(2), [['mul', 0, 1]]) && first![0] === 'operand' && second![0] === 'const') {
    // Two scales are one rounding less, which would change the bits of f32.
    if (to === 'f32' && scale !== 1) return 'two scales'
    const whole = scale * (second as [string, number])[1]
    // A library does not read the operands of a product that is scaled by 0, and some of them may be NaN.
    if (Math.fround(whole) === 0) return 'scale of 0'
    return bias ? 'late scale' : { ...made, epilogue: { ...epilogue, scale: whole } }
  }
  if (code.length === 3 && last![0] === 'add' && first![0] === 'operand' && second![0] === 'operand') {
    const other = 1 - own
    const { dtype: type } = ir.specs[inputs[other]!]!
    if (inputs.length !== 2 || inputs[other] === inputs[own]) return 'no such function'
    if (type !== to) return 'another type'
    if (!bias && isRow(kernel, other, n))
      return { ...made, epilogue: { ...epilogue, bias: true }, bias: inputs[other]! }
    return isInPlace(kernel, other)
      ? { ...made, epilogue: { ...epilogue, residual: true }, residual: inputs[other]! }
      : 'neither bias nor residual'
  }
  const found = activations.find(each => each.types.includes(to) && isEqual(each.code, code))
  return found === undefined
    ? 'no such function'
    : { ...made, epilogue: { ...epilogue, activation: found.name } }
}

/** Products with what follows them. */
class Epilogues {
  readonly chains: Chain[] = []
  /** By value of a product's kernel: why that does not compute what reads the value. */
  readonly apart = new Map<number, WhyStored>()
  private readonly reader: Int32Array
  private readonly values: Values
  private readonly changed: Uint8Array | undefined
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
    this.changed = changedMemory(ir)
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
    const { specs } = this.ir
    if (inputs.some(input => this.changed?.[input] === 1)) {
      this.apart.set(id, 'changed memory')
      return
    }
    const [x, w] = inputs.map(input => specs[input]!) as [Checked['specs'][number], Checked['specs'][number]]
    const spec = matmulSpec(x, w, attrs)
    let chain: Chain = { product: id, members: [id], epilogue: {}, to: specs[id]!.dtype }
    for (;;) {
      const longer = this.longer(chain, spec)
      if (longer === undefined || typeof longer === 'string') {
        if (longer !== undefined) this.apart.set(chain.members.at(-1)!, longer)
        break
      }
      chain = longer
    }
    if (chain.auxiliary !== undefined) this.apart.set(chain.auxiliary, 'read by several')
    if (chain.members.length === 1) return
    if (chain.to !== x.dtype) {
      this.apart.set(id, 'another type')
      return
    }
    this.chains.push(chain)
    for (const member of chain.members) this.members.add(member)
  }

  /**
   * The chain with the operation that reads it, or why that is not part of it; undefined where nothing does.
   */
  private longer(chain: Chain, spec: MatmulSpec): Chain | WhyStored | undefined {
    const { nodes } = this.ir
    if (chain.auxiliary !== undefined) return 'after an activation'
    const last = chain.members.at(-1)!
    const alone = this.reader[last]!
    const next = nodes[alone === -2 ? (this.activated.get(last) ?? -1) : alone]
    if (next === undefined) return alone === -2 ? 'read by several' : undefined
    const own = this.values.elementwise[next.id]
    if (own === undefined) {
      const is = this.values.apart[next.id]
      if (is === undefined) return next.op === 'keep' || next.op === 'after' ? next.op : 'view of a product'
      return is === 'changed memory' ? is : `read by: ${is}`
    }
    if (own.isIndexed) return 'indexed'
    // Its operands are not its inputs.
    if (own.given !== undefined) return 'no such function'
    if (this.members.has(next.id)) return 'another product'
    const apart = apartBy(this.ir, next.id, chain.product)
    if (apart !== undefined) return apart
    if (sizeOf(own.kernel.shape) !== spec.batch * spec.m * spec.n) return 'another size'
    if (this.isWorse(chain, next)) return 'waits for others'
    const longer = extended(this.ir, chain, next, own.kernel, spec)
    return typeof longer === 'object' && alone === -2 ? { ...longer, auxiliary: last } : longer
  }

  /**
   * Whether the product would wait for what its epilogue reads, and so end later, or hold its operands
   * longer.
   */
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

interface WithEpilogues {
  readonly ir: Checked
  readonly regions: Fusion['regions']
  /** By name of a value of a product's kernel: why that does not compute what reads the value. */
  readonly apart: ReadonlyMap<string, WhyStored>
}

/** The graph whose products compute what follows them. */
export const withEpilogues = (ir: Checked, effort: Effort): WithEpilogues => {
  if (!ir.nodes.some(({ op }) => op === 'matmul')) return { ir, regions: [], apart: new Map() }
  const { chains, apart: found } = new Epilogues(ir, effort)
  const apart = new Map([...found].map(([id, why]) => [ir.nodes[id]!.name, why]))
  if (chains.length === 0) return { ir, regions: [], apart }
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
  return {
    ir: rewritten(ir, order, id => made.get(id) ?? ir.nodes[id]!),
    regions,
    apart,
  }
}
