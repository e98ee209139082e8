import type { GraphNode } from '../../../ir/graph.js'
import type { MapInstruction, MapSpec, MatmulEpilogue, MatmulSpec } from '../../../ir/kernel-spec.js'
import type { DType } from '../../../ir/tensor.js'
import { tanhGelu } from '../../../language/operators/gelu.js'
import { matmulSpec } from '../../../language/operators/matmul.js'
import { reluCode } from '../../../language/operators/relu.js'
import type { Checked } from '../../analysis/ir.js'
import type { Fusion } from '../../analysis/provenance.js'
import { sizeOf } from './access.js'
import { apartBy, readersOf } from './readers.js'
import type { Effort } from './regions.js'
import { rewritten } from './rewritten.js'
import { takenMemory, Values } from './values.js'

//   p = matmul(x, w) · s = p + b · y = gelu(s)
//   → y = matmul(x, w, b) with the epilogue { bias, gelu }
//
// After this step an elementwise value of a product is computed by the product's own kernel, which has the sums in
// registers, where nothing else reads what lies between and both are on one lane and device, at one rate. Regions
// are found in what remains.

interface Activation {
  readonly name: NonNullable<MatmulEpilogue['activation']>
  readonly code: readonly MapInstruction[]
  /** The element types of products that compute it: the library's gelu is near enough in bf16 alone. */
  readonly types: readonly DType[]
  /** Products of several layers compute it too. */
  readonly layers: boolean
}

const activations: readonly Activation[] = [
  { name: 'gelu', code: tanhGelu, types: ['bf16'], layers: false },
  { name: 'relu', code: reluCode, types: ['bf16', 'f16', 'f32'], layers: true },
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
  { n, batch }: Pick<MatmulSpec, 'n' | 'batch'>,
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
    if (inputs.length !== 2 || inputs[other] === inputs[own] || type !== to || batch !== 1) return undefined
    if (!bias && isRow(kernel, other, n))
      return { ...made, epilogue: { ...epilogue, bias: true }, bias: inputs[other]! }
    return isInPlace(kernel, other)
      ? { ...made, epilogue: { ...epilogue, residual: true }, residual: inputs[other]! }
      : undefined
  }
  const found = activations.find(
    each => each.types.includes(to) && (batch === 1 || each.layers) && isEqual(each.code, code),
  )
  return found === undefined ? undefined : { ...made, epilogue: { ...epilogue, activation: found.name } }
}

/** Products with what follows them. */
class Epilogues {
  readonly chains: Chain[] = []
  private readonly reader: Int32Array
  private readonly values: Values
  private readonly taken: Uint8Array | undefined
  /** Members of chains: what adds two products is part of one of them. */
  private readonly members = new Set<number>()

  constructor(
    private readonly ir: Checked,
    private readonly effort: Effort,
  ) {
    this.reader = readersOf(ir)
    this.values = new Values(ir)
    this.taken = takenMemory(ir)
    for (const node of ir.nodes) if (node.op === 'matmul') this.follow(node)
  }

  private follow({ id, inputs, attrs }: GraphNode): void {
    const { nodes, specs } = this.ir
    if (inputs.some(input => this.taken?.[input] === 1)) return
    const [x, w] = inputs.map(input => specs[input]!) as [Checked['specs'][number], Checked['specs'][number]]
    const spec = matmulSpec(x, w, attrs)
    let chain: Chain = { product: id, members: [id], epilogue: {}, to: specs[id]!.dtype }
    for (;;) {
      const next = nodes[this.reader[chain.members.at(-1)!]!]
      const own = next && this.values.elementwise[next.id]
      if (next === undefined || own === undefined || this.members.has(next.id)) break
      if (apartBy(this.ir, next.id, id) !== undefined) break
      if (sizeOf(own.kernel.shape) !== spec.batch * spec.m * spec.n || this.isWorse(chain, next)) break
      const longer = extended(this.ir, chain, next, own.kernel, spec)
      if (longer === undefined) break
      chain = longer
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

const nodeOf = ({ nodes }: Checked, { product, members, epilogue, to, bias, residual }: Chain): GraphNode => {
  const { inputs, attrs } = nodes[product]!
  const more = [bias, residual].filter(input => input !== undefined)
  return {
    ...nodes[members.at(-1)!]!,
    op: 'matmul',
    inputs: [...inputs, ...more],
    attrs: { ...attrs, to, epilogue: epilogue as GraphNode['attrs'] },
  }
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
  const regions = chains.map(chain => {
    const last = chain.members.at(-1)!
    for (const id of chain.members) if (id !== last) inner.add(id)
    made.set(last, nodeOf(ir, chain))
    const { name, at } = ir.nodes[last]!
    return { name, members: chain.members.map(id => ir.nodes[id]!.name), at }
  })
  const order = ir.nodes.flatMap(({ id }) => (inner.has(id) ? [] : [id]))
  return { ir: rewritten(ir, order, id => made.get(id) ?? ir.nodes[id]!), regions }
}
