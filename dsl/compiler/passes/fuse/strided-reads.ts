import type { GraphNode } from '../../../ir/graph.js'
import { type AttentionOperand, attentionYields, type MapSpec } from '../../../ir/kernel-spec.js'
import { type BoundSpec, type DType, elementBytes, elements, tensorBytes } from '../../../ir/tensor.js'
import { attentionSpec } from '../../../language/operators/attention.js'
import { type MatmulRead, matmulSpec } from '../../../language/operators/matmul.js'
import type { RunLowering } from '../../../language/operators/operator.js'
import { operators } from '../../../language/operators/registry.js'
import { denseStrides } from '../../../language/operators/shapes.js'
import type { FusedAttrs } from '../../analysis/fused.js'
import type { Checked } from '../../analysis/ir.js'
import type { Fusion } from '../../analysis/provenance.js'
import { rewritten } from '../../analysis/rewritten.js'
import { type Access, composed, inOrder, refined, sizeOf } from './access.js'
import { apartBy, readersOf } from './readers.js'
import { type Elementwise, Values } from './values.js'

//   q = transpose(slice(all)) · y = attention(q, k, v) · z = transpose(y)
//   → z = attention(all, k, v): it reads the rows of q where they lie in `all`, and writes y in the order of z
//
//   a, b = split(all) · y = matmul(a, w) · z = matmul(b, w)
//   → y = matmul(all, w), z = matmul(all, w): each reads its rows at the row stride of `all`
//
// After this step attention reads no copy of rows that it could read itself, and neither does a product of a
// matrix, where all readers of the copy do without it, memory is held no longer for it, and the addresses are
// as well aligned.

/** Operators whose kernels are of attention. */
const ofAttention: ReadonlySet<string> = new Set(['attention', 'attentionGradient'])

/** Batch, heads, rows, and the elements of a row. */
type Sizes = readonly [number, number, number, number]

/** Whether a product reads an operand with its last two axes in the other order. */
const isTransposed = ({ attrs }: GraphNode, index: number): boolean =>
  attrs[index === 0 ? 'transposeX' : 'transpose'] === true

/** The kernel of a node where it copies its input. */
const copyOf = (own: Elementwise | undefined): MapSpec | undefined => {
  if (own === undefined || own.given !== undefined) return undefined
  const { code, operands, results } = own.kernel
  const [operand] = operands
  if (code.length !== 1 || code[0]![0] !== 'operand' || results[0]!.row) return undefined
  return operand?.dtype === results[0]!.dtype && operand.indexed === undefined ? own.kernel : undefined
}

/** The strides of an access over sizes that its shape refines. */
const stridesOver = ({ shape, strides }: Access, sizes: readonly number[]): readonly number[] | undefined => {
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
  return d < 0 ? steps : undefined
}

/** Where rows lie whose elements follow one another. */
const rowsOf = (access: Access, sizes: Sizes): AttentionOperand | undefined => {
  const steps = stridesOver(access, sizes)
  if (steps === undefined || (sizes[3] !== 1 && steps[3] !== 1)) return undefined
  return { offset: access.offset, strides: [steps[0]!, steps[1]!, steps[2]!] }
}

/** Bytes that the fast kernels of products want addresses and strides to be multiples of. */
const aligned = 16

/** Where matrices lie whose rows or columns are dense, as well aligned as a copy of them would be. */
const matrixOf = (
  access: Access,
  sizes: readonly [batch: number, rows: number, columns: number],
  dtype: DType,
): Omit<MatmulRead, 'shape'> | undefined => {
  const steps = stridesOver(access, sizes)
  if (steps === undefined) return undefined
  const [, rows, columns] = sizes
  const [batchStride, row, element] = steps as [number, number, number]
  const lies = (transposed: boolean, count: number, length: number, step: number, within: number) => {
    const rowStride = count === 1 ? length : step
    if ((length > 1 && within !== 1) || rowStride < length) return undefined
    const isAligned = (...all: readonly number[]) =>
      all.every(one => (one * elementBytes[dtype]) % aligned === 0)
    if (!isAligned(access.offset, rowStride, batchStride) && isAligned(columns)) return undefined
    const stride = rowStride === length ? {} : { rowStride }
    return {
      transposed,
      lies: { batchStride, ...stride, ...(access.offset === 0 ? {} : { offset: access.offset }) },
    }
  }
  return lies(false, rows, columns, row, element) ?? lies(true, columns, rows, element, row)
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

/** A value that a kernel reads, how it lies there, and the nodes between that nothing else may need. */
interface Read<Lies> {
  readonly node: number
  readonly lies?: Lies
  readonly passed: readonly number[]
}

/** An operand of a product that lies in another value. */
interface Operand extends Read<Omit<MatmulRead, 'shape'>> {
  readonly product: number
  readonly index: number
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
    for (const node of ir.nodes) if (ofAttention.has(node.op)) this.meet(node)
    this.readMatrices(ir.nodes.flatMap(node => (node.op === 'matmul' ? this.operandsOf(node) : [])))
  }

  private meet(node: GraphNode): void {
    const { nodes, specs } = this.ir
    const inputs = node.inputs.map(input => specs[input]!)
    const spec = attentionSpec(inputs, node.attrs)
    const { batch, heads, groups, queries, keys, size, valueSize } = spec
    const sizes: readonly (readonly [place: number, sizes: Sizes])[] = [
      [0, [batch, heads, queries, size]],
      [1, [batch, groups, keys, size]],
      [2, [batch, groups, keys, valueSize]],
      ...(spec.dy === undefined
        ? []
        : [[node.inputs.length - 3, [batch, heads, queries, valueSize]] as const]),
    ]
    const reads = sizes.map(([place, each]) =>
      this.read(node, node.inputs[place]!, each, access => rowsOf(access, each)),
    )
    const written = this.written(node, [batch, ...attentionYields(spec)])
    const members = [...reads.flatMap(({ passed }) => passed).reverse(), node.id]
    if (written !== undefined) members.push(...written.passed, written.node)
    if (members.length === 1) return
    const last = nodes[written?.node ?? node.id]!
    const [q, k, v, dy] = reads as [
      Read<AttentionOperand>,
      Read<AttentionOperand>,
      Read<AttentionOperand>,
      Read<AttentionOperand>?,
    ]
    const operator = operators[node.op]!
    const { flops, movedBytes, workspace } = operator.lower(
      inputs,
      specs[node.id]!,
      node.attrs,
    ) as RunLowering
    const attrs: FusedAttrs = {
      kernel: {
        ...spec,
        q: q.lies ?? spec.q,
        k: k.lies ?? spec.k,
        v: v.lies ?? spec.v,
        y: written?.lies ?? spec.y,
        ...(dy?.lies === undefined ? {} : { dy: dy.lies }),
      },
      flops,
      movedBytes,
      workspace,
      results: [],
      tolerance: operator.tolerance(specs[node.id]!, inputs, node.attrs),
      members: members.map(id => nodes[id]!.name),
    }
    for (const id of members) if (id !== last.id) this.passed.add(id)
    this.made.set(last.id, {
      ...last,
      op: 'fused',
      inputs: node.inputs.map((input, i) => reads[sizes.findIndex(([place]) => place === i)]?.node ?? input),
      attrs: attrs as unknown as GraphNode['attrs'],
    })
    this.regions.push({ name: last.name, members: attrs.members, at: last.at })
  }

  /** The operands of a product that are copies of what it could read where it lies. */
  private operandsOf(node: GraphNode): readonly Operand[] {
    const { specs } = this.ir
    const [x, w] = node.inputs.map(input => specs[input]!) as [BoundSpec, BoundSpec]
    const { m, batch, a, b } = matmulSpec(x, w, node.attrs)
    return [x, w].flatMap(({ shape, dtype }, index) => {
      const [rows, columns] = shape.slice(-2) as [number, number]
      const isTall = index === 0 && node.attrs['transposeX'] !== true && a.batchStride === 0
      const count = (index === 0 ? a : b).batchStride === 0 ? 1 : batch
      const sizes = [count, isTall ? m : rows, columns] as const
      const input = node.inputs[index]!
      const read = this.read(node, input, sizes, access => matrixOf(access, sizes, dtype))
      return read.lies === undefined ? [] : [{ ...read, product: node.id, index }]
    })
  }

  /** Products read the operands where they lie for which no copy stays and nothing is held longer. */
  private readMatrices(operands: readonly Operand[]): void {
    if (operands.length === 0) return
    const { nodes } = this.ir
    const goes = this.goingWith(operands)
    const isHeld = this.heldAnyway(goes)
    const taken = new Map<number, Operand[]>()
    for (const operand of operands) {
      const { product, index, node } = operand
      if (goes.has(nodes[product]!.inputs[index]!) && isHeld(node, product))
        taken.set(product, [...(taken.get(product) ?? []), operand])
    }
    for (const [product, own] of taken) {
      const node = nodes[product]!
      const inputs = [...node.inputs]
      const reads: (MatmulRead | null)[] = [null, null]
      for (const { index, lies, node: source } of own) {
        reads[index] = { shape: this.ir.specs[node.inputs[index]!]!.shape, ...lies! }
        // What the product reads transposed of a copy, it reads as it lies where the copy transposed it.
        if (isTransposed(node, index)) reads[index] = { ...reads[index]!, transposed: !lies!.transposed }
        inputs[index] = source
      }
      this.made.set(product, {
        ...node,
        inputs,
        attrs: { ...node.attrs, reads } as unknown as GraphNode['attrs'],
      })
      const passed = [...new Set(own.flatMap(({ passed }) => passed))].sort((a, b) => a - b)
      for (const id of passed) this.passed.add(id)
      const members = [...passed, product].map(id => nodes[id]!.name)
      this.regions.push({ name: node.name, members, at: node.at })
    }
  }

  /** The copies and views that nothing reads any more once these operands are read where they lie. */
  private goingWith(operands: readonly Operand[]): ReadonlySet<number> {
    const { nodes, outputs } = this.ir
    const passed = new Set(operands.flatMap(({ passed }) => passed))
    const direct = new Set(operands.map(({ product, index }) => `${product} ${index}`))
    const read = new Set(outputs.flatMap(({ node, parts }) => parts?.nodes ?? [node]))
    const goes = new Set<number>()
    for (let id = nodes.length - 1; id >= 0; id--) {
      const node = this.made.get(id) ?? nodes[id]!
      if (passed.has(id) && !read.has(id)) goes.add(id)
      else for (const [i, input] of node.inputs.entries()) if (!direct.has(`${id} ${i}`)) read.add(input)
    }
    return goes
  }

  /**
   * Whether reading a value in place holds no more memory than reading its copies: it is a parameter or a
   * state, something reads it at or after the product anyway, or the copies that go away are at least as
   * large.
   */
  private heldAnyway(goes: ReadonlySet<number>): (id: number, product: number) => boolean {
    const { nodes, specs, outputs } = this.ir
    const root = Int32Array.from(nodes, ({ id }) => id)
    const last = new Int32Array(nodes.length).fill(-1)
    const saved = new Float64Array(nodes.length)
    for (const { id, op, inputs } of nodes) {
      const isView = this.values.viewFrom[id]! >= 0
      if (isView) root[id] = root[inputs[0]!]!
      if (isView || op === 'delay') continue
      const of = goes.has(id) ? [] : inputs
      for (const input of of) last[root[input]!] = id
      if (goes.has(id)) saved[root[inputs[0]!]!]! += tensorBytes(specs[id]!)
    }
    for (const { node, parts } of outputs)
      for (const id of parts?.nodes ?? [node]) last[root[id]!] = nodes.length
    return (id, product) => {
      const of = root[id]!
      return (
        nodes[of]!.op === 'param' ||
        nodes[of]!.op === 'delay' ||
        last[of]! >= product ||
        saved[of]! >= tensorBytes(specs[of]!)
      )
    }
  }

  /** The value behind an input's copies and views, as far back as the kernel can read it in place. */
  private read<Lies>(
    node: GraphNode,
    input: number,
    sizes: readonly number[],
    liesIn: (access: Access) => Lies | undefined,
  ): Read<Lies> {
    const { nodes } = this.ir
    const { viewFrom, elementwise } = this.values
    let found: Read<Lies> = { node: input, passed: [] }
    let access = inOrder(sizes.filter(size => size !== 1))
    const passed: number[] = []
    for (let at = input; ; at = nodes[at]!.inputs[0]!) {
      const kernel = copyOf(elementwise[at])
      if (viewFrom[at]! >= 0) access = { ...access, offset: access.offset + viewFrom[at]! }
      else {
        if (kernel === undefined || apartBy(this.ir, at, node.id) !== undefined) return found
        const inside = composed(kernel.shape, kernel.operands, access)
        if (inside === undefined) return found
        access = inside.operands[0]!
      }
      passed.push(at)
      const lies = liesIn(access)
      if (kernel !== undefined && lies !== undefined)
        found = { node: nodes[at]!.inputs[0]!, lies, passed: [...passed] }
    }
  }

  /** The copy that alone reads the result, in which each element has one place. */
  private written(node: GraphNode, sizes: Sizes): Read<AttentionOperand> | undefined {
    const { viewFrom, elementwise } = this.values
    const count = sizeOf(sizes)
    const passed: number[] = []
    for (let at = this.reader[node.id]!; at >= 0; at = this.reader[at]!) {
      if (elements(this.ir.specs[at]!.shape) !== count) return undefined
      if (viewFrom[at] !== 0) {
        const kernel = copyOf(elementwise[at])
        if (kernel === undefined || apartBy(this.ir, at, node.id) !== undefined) return undefined
        const access = placed(kernel)
        const fine =
          access &&
          (refined(
            access,
            sizes.filter(size => size !== 1),
          ) ??
            access)
        const rows = fine && rowsOf(fine, sizes)
        return rows && { node: at, lies: rows, passed }
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

/** Operators whose kernel may be a copy that a product can do without. */
const copies: ReadonlySet<string> = new Set(['slice', 'transpose', 'expand'])

/** The graph whose attention and products read what they read where it lies. */
export const withStridedReads = (
  ir: Checked,
): { readonly ir: Checked; readonly regions: Fusion['regions'] } => {
  const ops = new Set(ir.nodes.map(({ op }) => op))
  const copied = ops.has('matmul') && [...copies].some(op => ops.has(op))
  if (![...ofAttention].some(op => ops.has(op)) && !copied) return { ir, regions: [] }
  const reads = new StridedReads(ir)
  if (reads.made.size === 0) return { ir, regions: [] }
  return {
    ir: rewritten(ir, reads.kept(), id => reads.made.get(id) ?? ir.nodes[id]!),
    regions: reads.regions,
  }
}
