import type { GraphNode } from '../../../ir/graph.js'
import { elementBytes } from '../../../ir/tensor.js'
import { costOf, type Rows } from '../../../machine/cost.js'
import { operationsOf, slotsOf } from '../../../machine/map-cost.js'
import type { Checked } from '../../analysis/ir.js'
import type { WhyStored } from '../../analysis/provenance.js'
import {
  type Access,
  alongRow,
  type Composed,
  composed,
  inOrder,
  isOfRows,
  isSameAccess,
  type RowsOf,
  refined,
  repeatsAlongRow,
  rowDim,
  rowOf,
  sizeOf,
  withoutRow,
} from './access.js'
import { apartBy } from './readers.js'
import { anIndex, bytesOf, type Elementwise, Values } from './values.js'

/** What one kernel has at most. More instructions and operands would not stay in registers. */
export const most = { instructions: 256, operands: 24, reductions: 16, dimensions: 8, results: 8 } as const

/**
 * `wide`: kernels with several results too, and of several regions that read the same. `several`: without the
 * latter. `free`: one result each. `lean`: only what surely holds no more memory, and surely ends no later.
 */
export type Effort = 'wide' | 'several' | 'free' | 'lean'

const hasSeveral = (effort: Effort): boolean => effort === 'wide' || effort === 'several'

/**
 * Elementwise operations and reductions of the same rows that become one kernel. Its results are the value
 * of the last member, and those of others that something outside reads, which then comes after the last
 * member.
 */
export interface Region {
  /** Latest first. */
  members: number[]
  /** The points that are computed; each is an element of the result, or of the row that it is made of. */
  shape: readonly number[]
  /** The elements of a row, which are one dimension of the shape; 0: nothing is reduced. */
  length: number
  /** The points of the dimensions that follow it. */
  inner: number
  /** Whether the result is one number a row. */
  isRow: boolean
  /** Members beside the last one whose values are results. */
  results: number[]
  /** The bytes of these. */
  resultBytes: number
  /** What it reads of other nodes, a view read through or not. */
  sources: Sources
  /** The cost of a point, and of a row. */
  slots: number
  rowSlots: number
  instructions: number
  reductions: number
}

/** By node: bytes that are read of it. A region reads few nodes: searching a list takes less than a map. */
export class Sources {
  constructor(
    readonly ids: number[] = [],
    readonly bytes: number[] = [],
  ) {}

  get size(): number {
    return this.ids.length
  }

  has(id: number): boolean {
    return this.ids.includes(id)
  }

  get(id: number): number | undefined {
    return this.bytes[this.ids.indexOf(id)]
  }

  set(id: number, bytes: number): void {
    const at = this.ids.indexOf(id)
    if (at >= 0) this.bytes[at] = bytes
    else {
      this.ids.push(id)
      this.bytes.push(bytes)
    }
  }

  delete(id: number): void {
    const at = this.ids.indexOf(id)
    if (at < 0) return
    this.ids.splice(at, 1)
    this.bytes.splice(at, 1)
  }

  /** The union. For a node in both, the bytes are those of `others`. */
  with(others: Sources): Sources {
    const all = new Sources([...this.ids], [...this.bytes])
    for (let i = 0; i < others.ids.length; i++) all.set(others.ids[i]!, others.bytes[i]!)
    return all
  }
}

/** What a reader does no more for a value that is computed in its own kernel. */
const loaded = slotsOf({ shape: [], operands: [], code: [['operand', 0]] })

const noReader = -1
/** A region reads the node in several orders of its elements, so that it cannot be in one. */
const elsewhere = -2

const isEqualRows = (a: RowsOf, b: RowsOf): boolean => a.length === b.length && a.inner === b.inner

/** The elements of a member's value. */
const kernelElements = ({ kernel, length }: Elementwise): number => sizeOf(kernel.shape) / Math.max(1, length)

/**
 * Finds regions in one sweep from the last node to the first: when a node is met, all its readers are known.
 * A node joins a region where all its readers in the region read the same element of it at each point. If
 * nodes outside read it too, they must come after the region's last member, and its value is a result of the
 * region. So a region is never on a path from itself to itself, and the sweep takes time in proportion to the
 * graph.
 */
export class Regions {
  readonly values: Values
  readonly of: (Region | undefined)[]
  readonly all: Region[] = []
  /** By node: how its region, or the only region that reads it, reads its value. */
  readonly access: (Access | undefined)[]
  /** By node that a region reads but did not take in: the reason, and that region's last member. */
  readonly refused: ({ readonly because: WhyStored; readonly by: number } | undefined)[]
  /** By node: the number of the region that reads it; of several the one whose last member comes first. */
  private readonly reader: Int32Array
  /** By node: the first of the members that read it, and the first of all other readers. */
  private readonly inner: Float64Array
  private readonly outer: Float64Array
  /** By node: the first node whose readers come `after` it. */
  readonly awaited: Float64Array
  /** By node: whether something other than its region reads it. */
  private readonly stored: Uint8Array

  constructor(
    private readonly ir: Checked,
    private readonly effort: Effort,
  ) {
    const { nodes, outputs } = ir
    this.values = new Values(ir)
    this.of = new Array(nodes.length)
    this.access = new Array(nodes.length)
    this.refused = new Array(nodes.length)
    this.reader = new Int32Array(nodes.length).fill(noReader)
    this.inner = new Float64Array(nodes.length).fill(Number.POSITIVE_INFINITY)
    this.outer = new Float64Array(nodes.length).fill(Number.POSITIVE_INFINITY)
    this.awaited = new Float64Array(nodes.length).fill(Number.POSITIVE_INFINITY)
    this.stored = new Uint8Array(nodes.length)
    for (const { node, parts } of outputs) for (const id of parts?.nodes ?? [node]) this.stored[id] = 1
    for (const { op, inputs } of nodes) if (op === 'delay') this.stored[inputs[0]!] = 1
    for (let id = nodes.length - 1; id >= 0; id--) this.meet(nodes[id]!)
  }

  private meet(node: GraphNode): void {
    const { id, op, inputs } = node
    const { elementwise, viewFrom } = this.values
    const own = elementwise[id]
    const reader = this.reader[id]!
    if (own !== undefined) {
      if (reader >= 0) {
        const refusal = this.join(node, own, this.all[reader]!, reader)
        if (refusal === undefined) return
        this.refused[id] = { because: refusal, by: this.lastOf(reader) }
      }
      if (!this.joinSibling(node, own)) this.begin(node, own)
    } else if (viewFrom[id]! >= 0 && reader >= 0 && this.stored[id] === 0) {
      const region = this.all[reader]!
      const { shape, offset, strides } = this.access[id]!
      const source = inputs[0]!
      this.read(source, reader, { shape, offset: offset + viewFrom[id]!, strides }, this.inner[id]!)
      region.sources.set(source, region.sources.get(id)!)
      region.sources.delete(id)
    } else if (op === 'after') {
      // Of what comes before only the kernel counts, not the value.
      const first = this.values.behind(inputs[1]!)
      this.awaited[first] = Math.min(id, this.awaited[first]!)
      this.readOutside(inputs[0]!, id)
    } else if (op !== 'delay' && !this.isUnreadView(id))
      for (const input of inputs) this.readOutside(input, id)
  }

  /** Whether a node is a view that nothing reads, though others may come after it. */
  isUnreadView(id: number): boolean {
    return this.values.viewFrom[id]! >= 0 && this.reader[id] === noReader && this.stored[id] === 0
  }

  private readOutside(id: number, by: number): void {
    this.stored[id] = 1
    this.outer[id] = Math.min(by, this.outer[id]!)
  }

  /** A member of a region reads a node. */
  private read(id: number, region: number, access: Access, by: number): void {
    const known = this.reader[id]!
    if (known === region) {
      this.inner[id] = Math.min(by, this.inner[id]!)
      if (!this.isSame(this.all[region]!, this.access[id]!, access)) {
        this.refused[id] = { because: 'order of elements', by: this.lastOf(region) }
        this.reader[id] = elsewhere
        this.readOutside(id, this.inner[id]!)
      }
    } else if (known === elsewhere || (known >= 0 && this.lastOf(known) < this.lastOf(region))) {
      this.readOutside(id, by)
    } else {
      if (known >= 0) this.readOutside(id, this.inner[id]!)
      this.reader[id] = region
      this.access[id] = access
      this.inner[id] = by
    }
  }

  private lastOf(region: number): number {
    return this.all[region]!.members[0]!
  }

  /**
   * Joins a node that no member reads to a region that reads the same elements of the same value, so that
   * they are read once.
   */
  private joinSibling(node: GraphNode, own: Elementwise): boolean {
    const { id } = node
    if (!hasSeveral(this.effort) || own.isIndexed) return false
    const first = Math.min(this.inner[id]!, this.outer[id]!)
    const reads = this.values.readsOf(id)
    for (let i = 0; i < reads.length; i++) {
      if (reads[i] === anIndex) continue
      const number = this.reader[reads[i]!]!
      if (number < 0 || number === this.reader[id] || first <= this.lastOf(number)) continue
      const region = this.all[number]!
      if (!this.isSame(region, this.access[reads[i]!]!, own.inside.operands[i]!)) continue
      const before = this.access[id]
      this.access[id] = own.whole
      this.stored[id] = 1
      if (this.join(node, own, region, number) === undefined) return true
      this.access[id] = before
    }
    return false
  }

  private isSame(region: Region, a: Access, b: Access): boolean {
    if (a === b) return true
    const one = this.over(region, a)
    const other = this.over(region, b)
    return one !== undefined && other !== undefined && isSameAccess(one, other, region.shape)
  }

  private begin(node: GraphNode, own: Elementwise): void {
    const { kernel, length, inner, slots } = own
    const region: Region = {
      members: [node.id],
      shape: kernel.shape,
      length,
      inner,
      isRow: length > 0,
      results: [],
      resultBytes: 0,
      sources: new Sources(),
      slots,
      rowSlots: 0,
      instructions: own.instructions,
      reductions: own.reductions,
    }
    const number = this.all.push(region) - 1
    this.of[node.id] = region
    this.access[node.id] = own.whole
    this.readAll(node, own, number, own.inside, own.bytes)
  }

  private readAll(
    { id }: GraphNode,
    { isIndexed }: Elementwise,
    number: number,
    { operands }: Composed,
    bytes: readonly number[],
  ): void {
    const { sources } = this.all[number]!
    const reads = this.values.readsOf(id)
    for (let i = 0; i < reads.length; i++) {
      const input = reads[i]!
      if (input === anIndex) continue
      if (isIndexed) this.readOutside(input, id)
      else this.read(input, number, operands[i]!, id)
      sources.set(input, Math.max(bytes[i]!, sources.get(input) ?? 0))
    }
  }

  /** An access over the points of a region, whose shape may have been refined, or gained rows, since. */
  over(region: Region, access: Access): Access | undefined {
    const isOfResults = region.length > 0 && sizeOf(access.shape) < sizeOf(region.shape)
    const all = isOfResults ? alongRow(access, region) : access
    return all && refined(all, region.shape)
  }

  /** What a member reads of its operands at the points of its region, where `access` reads its value. */
  inside(region: Region, own: Elementwise, access: Access): Composed | undefined {
    const { kernel, length } = own
    const read = this.over(region, access)
    if (read === undefined) return undefined
    if (length === 0 && read === own.whole) return own.inside
    if (length === 0) return composed(kernel.shape, kernel.operands, read)
    return rowOf(read, own, kernel.shape, kernel.operands)
  }

  /** The region as it is with the rows that a reduction has; undefined where it has others. */
  private withRows(region: Region, own: RowsOf, access: Access): Region | undefined {
    const { length, inner } = own
    if (region.length > 0) return region.length === length && region.inner === inner ? region : undefined
    const over = refined(access, region.shape)
    if (over === undefined) return undefined
    const repeats = repeatsAlongRow(over, own)
    const all = repeats ? over : alongRow(over, own)
    if (all === undefined) return undefined
    const rows: Region = { ...region, shape: all.shape, length, inner, isRow: !repeats }
    this.countAll(rows)
    return rows
  }

  /**
   * The region with the rows that a node needs in it: those that a reduction has; and those of the reductions
   * that a result is made of, if it is one number of each row.
   */
  private rowsFor(
    { id }: GraphNode,
    own: Elementwise,
    region: Region,
    isResult: boolean,
  ): Region | undefined {
    const access = this.access[id]!
    if (own.length > 0) return this.withRows(region, own, access)
    const made = this.values.rows[id]
    if (!isResult || region.length > 0 || made === undefined) return region
    const over = refined(access, region.shape)
    return over !== undefined && repeatsAlongRow(over, made) ? this.withRows(region, made, access) : region
  }

  /** Counts the cost of all members anew. */
  countAll(region: Region): void {
    region.slots = 0
    region.rowSlots = 0
    for (const id of region.members)
      this.count(region, id, this.values.elementwise[id]!.slots - (id === region.members[0] ? 0 : loaded))
  }

  /** Counts the cost of a member: of a number a row it is small. */
  private count(region: Region, id: number, slots: number): void {
    const { access } = this
    const isRow = region.length > 0 && this.isAlongRow(region, access[id]!)
    if (isRow && this.values.elementwise[id]!.length === 0) region.rowSlots += slots
    else region.slots += slots
  }

  /** Whether an access reads the same all along each row of a region. */
  isAlongRow(region: Region, access: Access): boolean {
    return this.over(region, access)!.strides[rowDim(region.shape, region.inner)!] === 0
  }

  /** Joins a node to the region that reads it, or says why not. */
  private join(node: GraphNode, own: Elementwise, region: Region, number: number): WhyStored | undefined {
    const { id } = node
    const { values } = this
    const apart = this.isApart(node, own, region)
    if (apart !== undefined) return apart
    const isResult = this.stored[id] === 1
    const made = values.rows[id]
    // What is stored anyway is left to a kernel with the rows of what it is made of.
    if (isResult && made !== undefined && region.length > 0 && !isEqualRows(region, made)) return 'other rows'
    const rows = this.rowsFor(node, own, region, isResult)
    if (rows === undefined) return 'other rows'
    const inside = this.inside(rows, own, this.access[id]!)
    // A row is one dimension of the kernel.
    if (inside === undefined || (rows.length > 0 && !isOfRows(inside.shape, rows))) return 'order of elements'
    // Rows that lie side by side are read side by side.
    if (own.length > 0 && own.inner > 1 && inside.operands[0]!.strides.at(-1) !== 1)
      return 'order of elements'
    const instructions = region.instructions + own.instructions
    const reductions = region.reductions + own.reductions
    if (
      instructions > most.instructions ||
      reductions > most.reductions ||
      inside.shape.length > most.dimensions ||
      region.sources.size - 1 + node.inputs.length > most.operands
    )
      return 'too large'
    const bytes = inside === own.inside ? own.bytes : bytesOf(own.kernel, inside.operands)
    const read = this.over(rows, this.access[id]!)!
    const joined: Region = { ...rows, shape: inside.shape }
    if (isResult) {
      const first = this.reader[id] === number ? this.outer[id]! : Math.min(this.inner[id]!, this.outer[id]!)
      const refusal = this.isNoResult(rows, read, kernelElements(own), first)
      if (refusal !== undefined) return refusal
      joined.resultBytes += kernelElements(own) * elementBytes[own.kernel.results[0]!.dtype]
    }
    this.access[id] = read
    this.count(joined, id, own.slots - loaded)
    const worse = this.isWorse(node, own, region, joined, bytes)
    if (worse !== undefined) return worse
    region.members.push(id)
    region.shape = joined.shape
    region.length = joined.length
    region.inner = joined.inner
    region.isRow = joined.isRow
    region.resultBytes = joined.resultBytes
    region.slots = joined.slots
    region.rowSlots = joined.rowSlots
    region.instructions = instructions
    region.reductions = reductions
    region.sources.delete(id)
    if (isResult) region.results.push(id)
    this.of[id] = region
    this.readAll(node, own, number, inside, bytes)
    return undefined
  }

  /** Why a value that is read elsewhere cannot be a result of a region too. */
  private isNoResult(
    region: Region,
    read: Access,
    elements: number,
    firstReader: number,
  ): WhyStored | undefined {
    if (!hasSeveral(this.effort) || firstReader <= region.members[0]!) return 'read by several'
    if (region.results.length + 2 > most.results) return 'too large'
    // Results are written in order.
    const { shape } = read
    const isRow = region.length > 0 && elements < sizeOf(shape)
    const whole = isRow ? alongRow(inOrder(withoutRow(shape, region)), region) : inOrder(shape)
    if (sizeOf(shape) / (isRow ? region.length : 1) !== elements) return 'order of elements'
    if (whole === undefined || !isSameAccess(read, whole, shape)) return 'order of elements'
    return undefined
  }

  private isApart({ id }: GraphNode, { kernel }: Elementwise, region: Region): WhyStored | undefined {
    const last = region.members[0]!
    const apart = apartBy(this.ir, id, last)
    if (apart !== undefined) return apart
    // What comes after it waits for the whole kernel, as what reads a result does.
    if (this.awaited[id]! <= (hasSeveral(this.effort) ? last : this.ir.nodes.length)) return 'after'
    if (kernel.compute !== this.values.elementwise[last]!.kernel.compute) return 'whole numbers and floats'
    return undefined
  }

  /** Compares one kernel with two; all by the same figures. */
  private isWorse(
    { id }: GraphNode,
    { kernel, length, slots }: Elementwise,
    region: Region,
    joinedRegion: Region,
    bytes: readonly number[],
  ): WhyStored | undefined {
    const { values } = this
    let others = 0
    let ready = 0
    const { sources } = region
    for (let i = 0; i < sources.size; i++)
      if (sources.ids[i] !== id) {
        others += sources.bytes[i]!
        ready = Math.max(ready, values.end[sources.ids[i]!]!)
      }
    const last = values.elementwise[region.members[0]!]!.kernel
    const results = sizeOf(region.shape) / (region.isRow ? region.length : 1)
    const written = results * elementBytes[last.results[0]!.dtype] + region.resultBytes
    const more = joinedRegion.resultBytes - region.resultBytes
    const count = sizeOf(kernel.shape)
    const stored = (length > 0 ? count / length : count) * elementBytes[kernel.results[0]!.dtype]
    let given = 0
    let fresh = 0
    let held = 0
    values.readsOf(id).forEach((input, i, inputs) => {
      if (input === anIndex || inputs.indexOf(input) < i) return
      given += bytes[i]!
      if (region.sources.has(input)) return
      fresh += bytes[i]!
      let source = input
      while (values.viewFrom[source]! >= 0) source = this.ir.nodes[source]!.inputs[0]!
      held += values.bytes[source]!
    })
    const before = others + (region.sources.get(id) ?? 0) + written
    // What two kernels read and write after one another has to fit the cache as what one reads and writes.
    const apart = given + stored + before
    const alone = this.time({ points: count, slots }, given + stored, apart)
    // A reduction of rows that is alone is compared as if it filled the device: those that do not are in parts
    // already, where that is worth it (pass `split`).
    const isAlone = region.isRow && region.inner === 1 && region.members.length === 1
    const after = this.timeOf(isAlone ? { ...region, length: 0 } : region, before, apart)
    const joined = this.timeOf(joinedRegion, others + fresh + written + more, apart)
    if (joined > alone + after) return 'longer'
    if (this.effort !== 'lean') return undefined
    const start = values.ready(id)
    if (Math.max(ready, start) + joined > Math.max(ready, start + alone) + after) return 'longer'
    return held > stored && ready > start ? 'memory' : undefined
  }

  /** Nanoseconds of a region, where so many bytes are in use around it. */
  timeOf({ shape, length, inner, slots, rowSlots }: Region, movedBytes: number, inUse: number): number {
    const points = sizeOf(shape)
    if (length === 0) return this.time({ points, slots }, movedBytes, inUse)
    const rows = { count: points / length, length, inner }
    return this.time({ points, slots: slots + rowSlots / length, rows }, movedBytes, inUse)
  }

  private time(
    { points, slots, rows }: { points: number; slots: number; rows?: Rows },
    movedBytes: number,
    workingBytes: number,
  ): number {
    const work = { op: 'fused', flops: operationsOf(points, slots), movedBytes, workingBytes, rows }
    return costOf(work, this.ir.settings.machine).nanoseconds
  }
}
