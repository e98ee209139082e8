import type { MapIndex, MapInstruction, MapOperand, MapRounding, MapSpec } from '../../../ir/kernel-spec.js'
import { elementBytes as bytesOf, type DType, elements, tensorBytes } from '../../../ir/tensor.js'
import { mapFlops } from '../../../language/operators/elementwise.js'
import { coalesce, denseStrides } from '../../../language/operators/shapes.js'
import type { Checked } from '../../analysis/ir.js'
import { type Access, type Composed, isEqual, reachedBy, rowDim, sizeOf } from './access.js'
import type { Region, Regions } from './regions.js'
import { anIndex, isExact } from './values.js'

/** A region as one kernel. */
export interface Fused {
  readonly kernel: MapSpec
  readonly flops: number
  readonly movedBytes: number
  readonly tolerance: number
}

/** The instructions of all kernels: equal ones are one object, and have one number. -0 is not 0. */
class Instructions {
  readonly list: MapInstruction[] = []
  private readonly known = new Map<string, number>()

  numberOf(instruction: MapInstruction): number {
    let key: string = instruction[0]
    for (let i = 1; i < instruction.length; i++)
      key += Object.is(instruction[i], -0) ? ' -0' : ` ${instruction[i]}`
    let number = this.known.get(key)
    if (number === undefined) this.known.set(key, (number = this.list.push(instruction) - 1))
    return number
  }
}

/** The instructions of a kernel by their numbers, in single assignment: equal ones are one. */
class Code {
  readonly numbers: number[] = []

  constructor(private readonly all: Instructions) {}

  put(instruction: MapInstruction): number {
    const number = this.all.numberOf(instruction)
    const at = this.numbers.indexOf(number)
    return at < 0 ? this.numbers.push(number) - 1 : at
  }

  get list(): readonly MapInstruction[] {
    return this.numbers.map(number => this.all.list[number]!)
  }
}

const isSameIndex = (a: MapIndex | undefined, b: MapIndex | undefined): boolean =>
  a?.by === b?.by && a?.length === b?.length && a?.step === b?.step

interface Operand extends Access {
  readonly dtype: DType
  readonly indexed: MapIndex | undefined
}

/** The operands of a kernel, indices included: what it reads of which nodes; the same of one node is one. */
class Operands {
  /** By operand: the node, or `anIndex`. */
  readonly reads: number[] = []
  readonly list: Operand[] = []

  constructor(private readonly shape: readonly number[]) {}

  put(node: number, operand: MapOperand): number {
    const { dtype, offset, strides, indexed } = operand
    for (let at = this.reads.indexOf(node); at >= 0; at = this.reads.indexOf(node, at + 1)) {
      const known = this.list[at]!
      if (known.offset === offset && isEqual(known.strides, strides) && isSameIndex(known.indexed, indexed))
        return at
    }
    this.list.push({ shape: this.shape, dtype, offset, strides, indexed })
    return this.reads.push(node) - 1
  }

  get bytes(): number {
    return this.list.reduce(
      (sum, { dtype }, i) => sum + (this.reads[i] === anIndex ? 0 : reachedBy(this.list, i) * bytesOf[dtype]),
      0,
    )
  }

  /** Those that are memory. */
  get nodes(): readonly number[] {
    return this.reads.includes(anIndex) ? this.reads.filter(node => node !== anIndex) : this.reads
  }
}

/** The node behind views that a region reads through, and the element of it that is their first. */
const behind = ({ values }: Regions, { nodes }: Checked, region: Region, id: number) => {
  let at = id
  let from = 0
  while (values.viewFrom[at]! >= 0 && !region.sources.has(at)) {
    from += values.viewFrom[at]!
    at = nodes[at]!.inputs[0]!
  }
  return { at, from }
}

/** Puts what a member reads of its input i, and what that is indexed by, among the operands of a kernel. */
const putRead = (
  regions: Regions,
  ir: Checked,
  region: Region,
  operands: Operands,
  id: number,
  inside: Composed,
  i: number,
): number => {
  const { dtype, indexed } = regions.values.elementwise[id]!.kernel.operands[i]!
  const { at, from } = behind(regions, ir, region, regions.values.readsOf(id)[i]!)
  const { offset, strides } = inside.operands[i]!
  const read = { dtype, offset: offset + from, strides }
  if (indexed === undefined) return operands.put(at, read)
  const by = putRead(regions, ir, region, operands, id, inside, indexed.by)
  return operands.put(at, { ...read, indexed: { ...indexed, by } })
}

/** A number for each access, the same for equal ones. */
class Accesses {
  private readonly numbers = new Map<Access, number>()
  private readonly known = new Map<string, number>()

  numberOf(access: Access): number {
    let number = this.numbers.get(access)
    if (number !== undefined) return number
    const { shape, offset, strides } = access
    const text = `${shape} ${offset} ${strides}`
    number = this.known.get(text) ?? this.known.size
    this.known.set(text, number)
    this.numbers.set(access, number)
    return number
  }
}

/** The description of a region as numbers, which are equal for regions of equal kernels, and its kernel. */
interface Form {
  readonly words: readonly number[]
  readonly fused: Fused
  /** The operands of the kernel, by their places in `reads` of the region. */
  readonly order: readonly number[]
}

/** Forms are looked up by this hash, which costs less than a text of the numbers for each region. */
const hashOf = (words: readonly number[]): number => {
  let hash = words.length
  for (const word of words) hash = (Math.imul(hash, 31) + word) | 0
  return hash
}

const isSameForm = (a: readonly number[], b: readonly number[]): boolean => {
  if (a.length !== b.length) return false
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false
  return true
}

/** The kernels of regions. A large graph repeats few forms, and each has one kernel. */
export class FusedKernels {
  private readonly known = new Map<number, Form[]>()
  private readonly accesses = new Accesses()
  private readonly instructions = new Instructions()
  /** By node: its place in the form of the region that `placedBy` numbers. */
  private readonly places: Int32Array
  private readonly placedBy: Int32Array
  private forms = 0

  constructor(
    private readonly regions: Regions,
    private readonly ir: Checked,
  ) {
    this.places = new Int32Array(ir.nodes.length)
    this.placedBy = new Int32Array(ir.nodes.length)
  }

  /** The kernel of a region, and the nodes whose values are its operands. */
  of(region: Region): { readonly fused: Fused; readonly reads: readonly number[] } {
    const { words, reads } = this.formOf(region)
    const hash = hashOf(words)
    let alike = this.known.get(hash)
    if (alike === undefined) this.known.set(hash, (alike = []))
    let form = alike.find(other => isSameForm(other.words, words))
    if (form === undefined) {
      const code = new Code(this.instructions)
      const made = fusedKernel(this.regions, this.ir, region, code)
      form = { words, fused: made.fused, order: made.reads.map(read => reads.indexOf(read)) }
      alike.push(form)
    }
    return { fused: form.fused, reads: form.order.map(place => reads[place]!) }
  }

  /** The words of a region's form, and the nodes that the region reads. */
  private formOf(region: Region): { readonly words: readonly number[]; readonly reads: readonly number[] } {
    const { places, placedBy, regions, ir } = this
    const { values, access } = regions
    const { members, shape, length, inner, isRow, results } = region
    const form = ++this.forms
    // Sources are numbered where they are read first, members where they are computed.
    let count = 0
    const reads: number[] = []
    const words = [shape.length, ...shape, length, inner, Number(isRow), members.length]
    for (let m = members.length - 1; m >= 0; m--) {
      const id = members[m]!
      words.push(values.elementwise[id]!.number, this.accesses.numberOf(access[id]!))
      for (const input of values.readsOf(id)) {
        if (input === anIndex) continue
        const { at, from } = behind(regions, ir, region, input)
        if (placedBy[at] !== form) {
          placedBy[at] = form
          places[at] = count++
          reads.push(at)
        }
        words.push(places[at]!, from)
      }
      placedBy[id] = form
      places[id] = count++
    }
    for (const id of results) words.push(places[id]!)
    return { words, reads }
  }
}

const movedOf = (region: Region, operands: Operands, { specs }: Checked): number =>
  operands.bytes + tensorBytes(specs[region.members[0]!]!) + region.resultBytes

/** The bytes that the kernel of a region moves, and how many operands it has, without making the kernel. */
export const trafficOf = (
  regions: Regions,
  ir: Checked,
  region: Region,
): { readonly movedBytes: number; readonly operands: number } => {
  const { values, access, of } = regions
  const operands = new Operands(region.shape)
  for (let m = region.members.length - 1; m >= 0; m--) {
    const id = region.members[m]!
    const inside = regions.inside(region, values.elementwise[id]!, access[id]!)!
    const reads = values.readsOf(id)
    for (let i = 0; i < reads.length; i++)
      if (of[behind(regions, ir, region, reads[i]!).at] !== region)
        putRead(regions, ir, region, operands, id, inside, i)
  }
  return { movedBytes: movedOf(region, operands, ir), operands: operands.nodes.length }
}

const fusedKernel = (
  regions: Regions,
  ir: Checked,
  region: Region,
  code: Code,
): { readonly fused: Fused; readonly reads: readonly number[] } => {
  const { values, access } = regions
  const operands = new Operands(region.shape)
  const made = new Map<number, number>()
  let tolerance = 0
  for (let m = region.members.length - 1; m >= 0; m--) {
    const id = region.members[m]!
    const own = values.elementwise[id]!
    tolerance += own.tolerance
    const inside = regions.inside(region, own, access[id]!)!
    const reads = values.readsOf(id)
    const given: number[] = []
    // What a table is read by is no value of the kernel.
    for (let i = 0; i < (own.isIndexed ? 1 : reads.length); i++)
      given[i] =
        made.get(behind(regions, ir, region, reads[i]!).at) ??
        code.put(['operand', putRead(regions, ir, region, operands, id, inside, i)])
    const { kernel } = own
    const place: number[] = []
    for (const instruction of kernel.code) place.push(at(code, instruction, given, place))
    const { dtype, value: result } = kernel.results[0]!
    const value = place[result]!
    // What another member reads of it is what it would have loaded.
    made.set(id, m === 0 || isExact(kernel) ? value : code.put([dtype as MapRounding, value]))
  }
  const last = region.members[0]!
  const merged = mergedOf(region, operands.list)
  const { length, isRow } = region
  const output = ir.specs[last]!
  const kernel = withIndices(operands.reads, {
    kind: 'map',
    shape: merged.shape,
    ...(merged.axis === undefined ? {} : { axis: merged.axis }),
    compute: values.elementwise[last]!.kernel.compute,
    operands: operands.list.map(({ dtype, offset, indexed }, i) => ({
      dtype,
      offset,
      strides: merged.strides[i]!,
      ...(indexed === undefined ? {} : { indexed }),
    })),
    code: code.list,
    results: [last, ...region.results].map(id => ({
      value: made.get(id)!,
      dtype: ir.specs[id]!.dtype,
      ...(isRowOf(region, regions, id) ? { row: true as const } : {}),
    })),
  })
  const flops = mapFlops(kernel.code, elements(output.shape) * (isRow ? length : 1))
  const fused = { kernel, flops, movedBytes: movedOf(region, operands, ir), tolerance }
  return { fused, reads: operands.nodes }
}

/** A kernel some of whose operands are indices, which it computes instead from those of its own dimensions. */
const withIndices = (reads: readonly number[], kernel: MapSpec): MapSpec => {
  if (!reads.includes(anIndex)) return kernel
  const { shape, operands } = kernel
  const code = new Code(new Instructions())
  const sum = (a: number | undefined, b: number) => (a === undefined ? b : code.put(['add', a, b]))
  const indexOf = ({ offset, strides }: MapOperand): number => {
    let index: number | undefined
    strides.forEach((step, d) => {
      if (step === 0 || shape[d] === 1) return
      const along = code.put(['index', d])
      index = sum(index, step === 1 ? along : code.put(['mul', along, code.put(['const', step])]))
    })
    return index !== undefined && offset === 0 ? index : sum(index, code.put(['const', offset]))
  }
  const numbers: number[] = []
  for (const node of reads)
    numbers.push(node === anIndex ? anIndex : numbers.filter(n => n !== anIndex).length)
  const place: number[] = []
  for (const instruction of kernel.code) {
    const [what, of] = instruction
    if (what !== 'operand') place.push(at(code, instruction, [], place))
    else if (numbers[of] === anIndex) place.push(indexOf(operands[of]!))
    else place.push(code.put(['operand', numbers[of]!]))
  }
  return {
    ...kernel,
    operands: operands.flatMap(({ indexed, ...operand }, i) => {
      if (numbers[i] === anIndex) return []
      return indexed ? [{ ...operand, indexed: { ...indexed, by: numbers[indexed.by]! } }] : [operand]
    }),
    code: code.list,
    results: kernel.results.map(result => ({ ...result, value: place[result.value]! })),
  }
}

/** Whether the value of a member is one number a row. */
const isRowOf = (region: Region, regions: Regions, id: number): boolean => {
  if (region.length === 0) return false
  const own = regions.access[id]!
  if (region.members[0] === id) return region.isRow
  return sizeOf(own.shape) < sizeOf(region.shape) || regions.isAlongRow(region, own)
}

/** The dimensions of a region in as few as possible; a row stays one of its own. */
const mergedOf = (
  { shape, length, inner }: Region,
  operands: readonly Access[],
): { readonly shape: number[]; readonly strides: number[][]; readonly axis?: number } => {
  if (shape.length < 2) return { shape: [...shape], strides: operands.map(({ strides }) => [...strides]) }
  const part = (from: number, to: number) => {
    const own = shape.slice(from, to)
    return coalesce(own, [...operands.map(({ strides }) => strides.slice(from, to)), denseStrides(own)])
  }
  if (length === 0) return part(0, shape.length)
  const row = rowDim(shape, inner)!
  const [outer, after] = [part(0, row), part(row + 1, shape.length)]
  return {
    shape: [...outer.shape, length, ...after.shape],
    strides: operands.map(({ strides }, i) => [...outer.strides[i]!, strides[row]!, ...after.strides[i]!]),
    ...(inner === 1 ? {} : { axis: outer.shape.length }),
  }
}

const at = (
  code: Code,
  instruction: MapInstruction,
  given: readonly number[],
  place: readonly number[],
): number => {
  if (instruction[0] === 'operand') return given[instruction[1]]!
  if (instruction[0] === 'const') return code.put(instruction)
  return code.put(
    instruction.map((word, i) => (i === 0 ? word : place[word as number]!)) as unknown as MapInstruction,
  )
}
