import type { GraphNode } from '../../../ir/graph.js'
import type { GatherSpec, KernelSpec, MapInstruction, MapSpec, ReduceSpec } from '../../../ir/kernel-spec.js'
import { isRowReduction } from '../../../ir/map-rows.js'
import { elementBytes, isFloat, tensorBytes } from '../../../ir/tensor.js'
import { coalesce, denseStrides } from '../../../language/operators/shapes.js'
import { costOf, type Work } from '../../../machine/cost.js'
import { slotsOf } from '../../../machine/map-cost.js'
import { fusedAttrs } from '../../analysis/fused.js'
import type { Checked } from '../../analysis/ir.js'
import { donatedReads, isView, operatorOf } from '../../analysis/operators.js'
import type { OwnKernel, WhyStored } from '../../analysis/provenance.js'
import { takesMemory } from '../../analysis/taken-memory.js'
import {
  type Access,
  alongRow,
  type Composed,
  inOrder,
  type RowsOf,
  reachedBy,
  withoutRow,
} from './access.js'
import { inFloats, largest, type Range, wholeNumbers } from './whole-numbers.js'

/** The bytes of each operand of a kernel that these accesses reach. */
export const bytesOf = ({ operands }: MapSpec, accesses: readonly Access[]): readonly number[] => {
  const reads = accesses.map((access, i) => ({ ...access, indexed: operands[i]!.indexed }))
  return operands.map(({ dtype }, i) => reachedBy(reads, i) * elementBytes[dtype])
}

/** Whether a value is the same after it was stored in memory and loaded again. */
export const isExact = ({ code, compute, results }: MapSpec): boolean => {
  const { dtype, value } = results[0]!
  if (dtype === compute) return true
  const [made] = code[value]!
  // Every element type holds the 0 and 1 of a comparison.
  return made === 'lt' || made === 'le' || made === 'eq'
}

/** Views whose source may be read in their place. `keep` and `after` are views that mean something. */
const plainViews: ReadonlySet<string> = new Set(['reshape', 'slice', 'transpose'])

/** In place of an input: the operand is an index, whose element i is i (`indicesAsOperands`). */
export const anIndex = -1

/** The kernel of a node that a region may have: elementwise, or a reduction or a gather as a map. */
export interface Elementwise {
  /** Different in each. */
  readonly number: number
  /** No instruction is an index. */
  readonly kernel: MapSpec
  /** By operand of the kernel: the input of the node that it is, or `anIndex`; absent: the same input. */
  readonly given?: readonly number[]
  /** What it adds to a kernel that it is a part of, at most. */
  readonly instructions: number
  readonly reductions: number
  /** The elements of a row that is reduced; 0: the kernel is elementwise. */
  readonly length: number
  /** The rows that lie side by side: 1 where the elements of a row do. */
  readonly inner: number
  /** What it reads lies in memory: a table and its indices. */
  readonly isIndexed: boolean
  /** The cost of one element, in instructions of one cycle. */
  readonly slots: number
  readonly tolerance: number
  /** Its value at its own points, in order; of a reduction all along each row. */
  readonly whole: Access
  /** What it reads at these points, and the bytes of each operand that it reaches. */
  readonly inside: Composed
  readonly bytes: readonly number[]
}

const rowReductions = { sum: 'rowSum', mean: 'rowMean', max: 'rowMax', min: 'rowMin' } as const

/** The first place along dimension `axis` of the largest element of a row, or of a NaN. */
const firstOf = (reduction: 'rowMax' | 'rowMin', axis: number, length: number): readonly MapInstruction[] => [
  ['operand', 0],
  [reduction, 0],
  ['eq', 0, 1],
  // A NaN is equal to nothing, and where there is one it is what the reduction yields.
  ['eq', 0, 0],
  ['const', 1],
  ['select', 3, 2, 4],
  ['index', axis],
  ['const', length],
  ['select', 5, 6, 7],
  ['rowMin', 8],
]

/**
 * A reduction as a map of rows; undefined of several places of elements, of places that f32 rounds, and of rows
 * of one.
 */
const asRows = ({ how, outer, length, inner, input, output, count }: ReduceSpec): MapSpec | undefined => {
  const isPlace = how === 'argmax' || how === 'argmin'
  if (length === 1 || (count ?? 1) > 1 || (isPlace && isFloat(input) && length > largest)) return undefined
  const shape = [...(outer === 1 ? [] : [outer]), length, ...(inner === 1 ? [] : [inner])]
  const axis = shape.length - (inner === 1 ? 1 : 2)
  const code: readonly MapInstruction[] = isPlace
    ? firstOf(how === 'argmax' ? 'rowMax' : 'rowMin', axis, length)
    : [
        ['operand', 0],
        [rowReductions[how], 0],
      ]
  return {
    kind: 'map',
    shape,
    ...(inner === 1 ? {} : { axis }),
    compute: isFloat(input) ? 'f32' : 'i32',
    operands: [{ dtype: input, offset: 0, strides: denseStrides(shape) }],
    code,
    results: [{ value: code.length - 1, dtype: output, row: true }],
  }
}

/** Instructions that an index adds to a kernel; one that spans several of its dimensions adds a few more. */
const indexInstructions = 4

/**
 * The kernel with each index as an operand, so that what a region does with operands holds for indices too:
 * where it is computed at other points, or in other dimensions, its strides say what it is. Undefined where f32
 * might round an index.
 */
const indicesAsOperands = (spec: MapSpec): Pick<Elementwise, 'kernel' | 'given'> | undefined => {
  const { shape, compute } = spec
  if (!spec.code.some(([what]) => what === 'index')) return { kernel: spec }
  if (compute === 'f32' && spec.code.some(([what, d]) => what === 'index' && shape[d]! > largest))
    return undefined
  const operands = [...spec.operands]
  const given = [...operands.keys()]
  const along = new Map<number, number>()
  const code = spec.code.map((instruction): MapInstruction => {
    const [what, of] = instruction
    if (what !== 'index') return instruction
    if (!along.has(of)) {
      along.set(of, operands.length)
      operands.push({ dtype: 'i32', offset: 0, strides: shape.map((_, d) => (d === of ? 1 : 0)) })
      given.push(anIndex)
    }
    return ['operand', along.get(of)!]
  })
  return { kernel: { ...spec, operands, code }, given }
}

/** What a kernel is that no region may have. */
const ownKernelOf = (spec: KernelSpec): OwnKernel => {
  switch (spec.kind) {
    case 'matmul':
      return 'product'
    case 'attention':
      return 'attention'
    case 'conv':
      return 'convolution'
    case 'scan':
      return 'running sum'
    case 'reduce':
      return spec.how === 'argmax' || spec.how === 'argmin' ? 'largest' : 'rows of one'
    case 'append':
      return 'append'
    case 'join':
      return 'concatenation'
    case 'random':
      return 'random numbers'
    case 'map':
      return 'indices'
    default:
      return 'kernel of the program'
  }
}

/** Elements by their indices as a map of [outer, count, inner]. */
const asIndexed = ({ outer, length, inner, count, dtype, along }: GatherSpec): MapSpec => {
  const { shape, strides } = coalesce(
    [outer, count, inner],
    [[length * inner, 0, 1], along ? [count * inner, inner, 1] : [0, 1, 0]],
  )
  return {
    kind: 'map',
    shape,
    compute: isFloat(dtype) ? 'f32' : 'i32',
    operands: [
      { dtype, offset: 0, strides: strides[0]!, indexed: { by: 1, length, step: inner } },
      { dtype: 'i32', offset: 0, strides: strides[1]! },
    ],
    code: [['operand', 0]],
    results: [{ value: 0, dtype }],
  }
}

/**
 * By node: whether a kernel changes the memory of its value, be it one that donates or one that takes memory
 * (analysis/taken-memory.ts): its readers have an order to keep. Undefined where none is changed.
 */
export const changedMemory = ({ nodes }: Checked): Uint8Array | undefined => {
  const root = new Int32Array(nodes.length)
  const changed = new Set<number>()
  for (const node of nodes) {
    root[node.id] = isView(node) || node.op === 'after' ? root[node.inputs[0]!]! : node.id
    if (node.op === 'kernel')
      for (const index of donatedReads(node)) {
        changed.add(root[node.inputs[index]!]!)
        changed.add(node.id)
      }
    // A reader that joins a later kernel would make the value be copied.
    if (takesMemory(node)) changed.add(root[node.inputs[0]!]!)
    if (node.op === 'port' && changed.has(node.inputs[0]!)) changed.add(node.id)
  }
  return changed.size === 0 ? undefined : Uint8Array.from(root, of => (changed.has(of) ? 1 : 0))
}

/** What the pass knows of every node's value before it joins any: its kernel or view, and its time. */
export class Values {
  readonly elementwise: (Elementwise | undefined)[]
  /**
   * By node: what its kernel is, where that is no candidate; absent where it is one, and of nodes without a
   * kernel.
   */
  readonly apart: (OwnKernel | Extract<WhyStored, 'changed memory'> | undefined)[]
  /**
   * By node: the first element of its source that it has; -1 where it is no view that can be read through.
   */
  readonly viewFrom: Float64Array
  /** By node: nanoseconds from the start of the tick to its end, were there a lane for everything. */
  readonly end: Float64Array
  /** By node: bytes that its memory adds to those that are held anyway. */
  readonly bytes: Float64Array
  /**
   * By node: the rows of the reductions that it is made of, where between it and them only operations are that
   * one kernel may have.
   */
  readonly rows: (RowsOf | undefined)[]
  /** By node, of whole numbers: how large they can be. */
  private readonly ranges: Range[]
  /** Nodes whose kernel of i32 yields the same in f32. */
  private readonly eithers: number[] = []
  private readonly floating = new Map<Elementwise, Elementwise>()
  private readonly known = new Map<KernelSpec, Elementwise>()
  private readonly specs = new Map<string, ReduceSpec | GatherSpec>()
  private readonly accesses = new Map<string, Access>()
  private readonly times = new Map<object, number>()

  constructor(readonly ir: Checked) {
    const { nodes } = ir
    this.elementwise = new Array(nodes.length)
    this.apart = new Array(nodes.length)
    this.viewFrom = new Float64Array(nodes.length).fill(-1)
    this.end = new Float64Array(nodes.length)
    this.bytes = new Float64Array(nodes.length)
    this.rows = new Array(nodes.length)
    this.ranges = new Array(nodes.length)
    const changed = changedMemory(ir)
    for (const node of nodes) {
      const { id, inputs } = node
      const time = this.meet(node, changed !== undefined && inputs.some(input => changed[input] === 1))
      let ready = 0
      if (node.op !== 'delay') for (const input of inputs) ready = Math.max(ready, this.end[input]!)
      this.end[id] = ready + time
      this.rows[id] = this.rowsOf(node)
    }
    if (this.eithers.length > 0) this.joinFloats()
  }

  /** The nodes that the kernel of a member of a region reads, by operand, or `anIndex`. */
  readsOf(id: number): readonly number[] {
    const { inputs } = this.ir.nodes[id]!
    const given = this.elementwise[id]!.given
    return given === undefined ? inputs : given.map(i => (i === anIndex ? anIndex : inputs[i]!))
  }

  private rowsOf({ id, inputs }: GraphNode): RowsOf | undefined {
    const own = this.elementwise[id]
    if (own !== undefined && own.length > 0) return own
    if (own?.isIndexed === true || (own === undefined && this.viewFrom[id]! < 0)) return undefined
    for (const input of inputs) if (this.rows[input] !== undefined) return this.rows[input]
    return undefined
  }

  /** When everything that a node reads is there. */
  ready(id: number): number {
    let ready = 0
    for (const input of this.ir.nodes[id]!.inputs) ready = Math.max(ready, this.end[input]!)
    return ready
  }

  /** Notes what a node is, and yields its time. A node with an order of its own is no candidate. */
  private meet(node: GraphNode, hasOrder: boolean): number {
    const { specs } = this.ir
    const { id, op, inputs } = node
    const output = specs[id]!
    const operator = node.place === 'device' ? operatorOf(op) : undefined
    if (op === 'kernel') this.apart[id] = 'kernel of the program'
    if (op === 'fused') this.apart[id] = ownKernelOf(fusedAttrs(node).kernel)
    if (operator === undefined || op === 'after') return this.timeOf(node)
    const given = inputs.map(input => specs[input]!)
    const lowered = operator.lower(given, output, node.attrs)
    if (lowered.as === 'view') {
      if (plainViews.has(op) && !hasOrder)
        this.viewFrom[id] = lowered.offsetBytes / elementBytes[output.dtype]
      this.ranges[id] = this.ranges[inputs[0]!]
      return 0
    }
    this.bytes[id] = tensorBytes(output)
    if (lowered.as === 'collective') {
      const { movedBytes } = lowered
      return this.measured(node, { op, kind: 'collective', collective: lowered, movedBytes })
    }
    const { kernel, flops, movedBytes } = lowered
    if (!hasOrder)
      this.elementwise[id] = this.elementwiseOf(kernel, () => operator.tolerance(output, given, node.attrs))
    if (!isFloat(output.dtype)) this.measureNumbers(node, kernel)
    if (this.elementwise[id] === undefined) {
      const mayJoin = hasOrder && (kernel.kind === 'map' || kernel.kind === 'gather')
      this.apart[id] = mayJoin ? 'changed memory' : ownKernelOf(kernel)
    }
    return this.measured(node, { op, kernel, flops, movedBytes })
  }

  private elementwiseOf(spec: KernelSpec, tolerance: () => number): Elementwise | undefined {
    const key = spec.kind === 'reduce' || spec.kind === 'gather' ? this.oneOf(spec) : spec
    const known = this.known.get(key)
    if (known !== undefined) return known
    if (spec.kind !== 'map' && spec.kind !== 'reduce' && spec.kind !== 'gather') return undefined
    const map = spec.kind === 'map' ? spec : spec.kind === 'gather' ? asIndexed(spec) : asRows(spec)
    const found = map && indicesAsOperands(map)
    if (map === undefined || found === undefined) return undefined
    const { kernel, given } = found
    const { length, inner } = spec.kind === 'reduce' ? spec : { length: 0, inner: 1 }
    const { shape, operands } = kernel
    const rows = { length, inner }
    const whole = length > 0 ? alongRow(inOrder(withoutRow(shape, rows)), rows)! : inOrder(shape)
    const reads = operands.map(({ offset, strides }) => this.one({ shape, offset, strides }))
    const indices = given?.filter(input => input === anIndex).length ?? 0
    const made = {
      number: this.known.size,
      ...found,
      instructions: kernel.code.length + (isExact(kernel) ? 0 : 1) + indexInstructions * indices,
      reductions: kernel.code.filter(isRowReduction).length,
      length,
      inner,
      isIndexed: spec.kind === 'gather',
      slots: slotsOf(map),
      tolerance: tolerance(),
      whole: this.one(whole),
      inside: { shape, operands: reads },
      bytes: bytesOf(kernel, reads),
    }
    this.known.set(key, made)
    return made
  }

  /** Notes how large the whole numbers of a node can be, and whether its kernel may compute in f32. */
  private measureNumbers({ id, inputs }: GraphNode, spec: KernelSpec): void {
    const own = this.elementwise[id]
    const kernel = own?.kernel ?? spec
    if (kernel.kind === 'map' && kernel.compute === 'i32') {
      const { range, inFloats } = wholeNumbers(
        kernel,
        kernel.operands.map(({ strides }, i) => {
          const input = own?.given === undefined ? i : own.given[i]!
          if (input !== anIndex) return this.ranges[inputs[input]!]
          return {
            least: 0,
            most: strides.reduce((most, step, d) => most + step * (kernel.shape[d]! - 1), 0),
          }
        }),
      )
      this.ranges[id] = range
      if (inFloats && own !== undefined) this.eithers.push(id)
    }
    if (spec.kind === 'reduce' && (spec.how === 'argmax' || spec.how === 'argmin'))
      this.ranges[id] = { least: 0, most: spec.length - 1 }
  }

  /** The node whose memory an input is, with the views in between left out. */
  behind(id: number): number {
    let at = id
    while (this.viewFrom[at]! >= 0) at = this.ir.nodes[at]!.inputs[0]!
    return at
  }

  /**
   * Kernels of whole numbers that yield the same in f32, and are beside kernels of floats, compute in f32:
   * then they can be one kernel with these. Not what a kernel that has to compute in i32 reads.
   */
  private joinFloats(): void {
    const { nodes } = this.ir
    const either = new Set(this.eithers)
    const computes = (id: number) => this.elementwise[id]?.kernel.compute
    for (let id = nodes.length - 1; id >= 0; id--)
      if (computes(id) === 'i32' && !either.has(id))
        for (const input of nodes[id]!.inputs) either.delete(this.behind(input))
    const beside = new Map<number, number[]>([...either].map(id => [id, []]))
    const found: number[] = []
    for (const { id, inputs } of nodes) {
      const own = computes(id)
      if (own === undefined) continue
      for (const input of inputs) {
        const source = this.behind(input)
        if (either.has(id) && either.has(source)) {
          beside.get(id)!.push(source)
          beside.get(source)!.push(id)
        } else if (own === 'f32' && either.has(source)) found.push(source)
        else if (computes(source) === 'f32' && either.has(id)) found.push(id)
      }
    }
    const floats = new Set(found)
    for (const id of floats) for (const other of beside.get(id)!) floats.add(other)
    for (const id of floats) {
      const own = this.elementwise[id]!
      let made = this.floating.get(own)
      if (made === undefined) {
        made = { ...own, number: this.known.size, kernel: inFloats(own.kernel) }
        this.known.set(made.kernel, made)
        this.floating.set(own, made)
      }
      this.elementwise[id] = made
    }
  }

  /** Equal accesses are one object, so that most comparisons of them end at once. */
  private one(access: Access): Access {
    const { shape, offset, strides } = access
    const key = `${shape}|${offset}|${strides}`
    const one = this.accesses.get(key)
    if (one === undefined) this.accesses.set(key, access)
    return one ?? access
  }

  /** Equal reductions and gathers are one object: each node has its own, and a large graph repeats few. */
  private oneOf(spec: ReduceSpec | GatherSpec): ReduceSpec | GatherSpec {
    const key = Object.values(spec).join(' ')
    const one = this.specs.get(key)
    if (one === undefined) this.specs.set(key, spec)
    return one ?? spec
  }

  private timeOf(node: GraphNode): number {
    const { op, id, place } = node
    const bytes = tensorBytes(this.ir.specs[id]!)
    if (op === 'upload' || op === 'download' || op === 'peer') {
      this.bytes[id] = place === 'device' ? bytes : 0
      return this.measured(node, { op, kind: op, movedBytes: 2 * bytes })
    }
    if (op === 'fused') {
      const { kernel, flops, movedBytes } = fusedAttrs(node)
      this.bytes[id] = bytes
      return this.measured(node, { op, kernel, flops, movedBytes })
    }
    if (op !== 'kernel' && op !== 'window') return 0
    this.bytes[id] = bytes
    const read = node.inputs.reduce((sum, input) => sum + tensorBytes(this.ir.specs[input]!), bytes)
    return this.measured(node, { op, movedBytes: read })
  }

  private measured({ name }: GraphNode, work: Omit<Work, 'name'>): number {
    const { machine, profile } = this.ir.settings
    if (profile.has(name)) return costOf({ ...work, name }, machine, profile).nanoseconds
    const { kernel } = work
    if (kernel === undefined) return costOf(work, machine).nanoseconds
    let time = this.times.get(kernel)
    if (time === undefined) this.times.set(kernel, (time = costOf(work, machine).nanoseconds))
    return time
  }
}
