import { heap } from '../../collections/scratch-arena.js'
import { accessesOf, rootsOf } from './accesses.js'
import type { Buffer, Collective, Lowered, Operation } from './ir.js'

// Lists of reads, writes and predecessors of a million operations would take half of the compiler's memory.
// They are kept in flat columns, and a list is made each time when one is read.

/** A growing column of numbers. */
class Column {
  length = 0
  private items: Int32Array

  constructor(capacity: number) {
    this.items = heap.int32(Math.max(16, capacity))
  }

  put(item: number): void {
    if (this.length === this.items.length) {
      const longer = heap.int32(2 * this.length)
      longer.set(this.items)
      this.items = longer
    }
    this.items[this.length++] = item
  }

  at(i: number): number {
    return this.items[i]!
  }

  list(from: number, end: number): number[] {
    const list = new Array<number>(end - from)
    for (let i = 0; i < list.length; i++) list[i] = this.items[from + i]!
    return list
  }

  get all(): Int32Array {
    return this.items.subarray(0, this.length)
  }
}

/** An operation without its lists. */
export type Own = Omit<Operation, 'reads' | 'writes' | 'after'>

/** The part of an operation that all operations share that do the same. */
export type Work = Pick<
  Operation,
  'op' | 'kernel' | 'flops' | 'movedBytes' | 'kind' | 'workspace' | 'ahead' | 'tolerance' | 'user'
>

const isOf = (work: Work, own: Own): boolean =>
  work.op === own.op &&
  work.kernel === own.kernel &&
  work.flops === own.flops &&
  work.movedBytes === own.movedBytes &&
  work.kind === own.kind &&
  work.workspace === own.workspace &&
  work.ahead === own.ahead &&
  work.tolerance === own.tolerance &&
  work.user === own.user

/** Kernels whose latest work is kept: large graphs repeat few. */
const mostKernels = 1024

/** One `Work` object for successive operations over one kernel that do the same. */
class Works {
  private readonly latest = new Map<Operation['kernel'], Work>()

  of(own: Own): Work {
    const known = this.latest.get(own.kernel)
    if (known !== undefined && isOf(known, own)) return known
    const { op, kernel, flops, movedBytes, kind, workspace, ahead, tolerance, user } = own
    const work = { op, kernel, flops, movedBytes, kind, workspace, ahead, tolerance, user }
    if (this.latest.size >= mostKernels) this.latest.clear()
    this.latest.set(kernel, work)
    return work
  }
}

/** Builds the list of operations; each is added after those that it needs. */
export class Operations {
  /** As long as was asked for at first: a list that grows leaves copies of itself behind. */
  private readonly list: Recorded[]
  private count = 0
  private readonly start: Column
  private readonly written: Column
  private readonly named: Column
  private readonly afterStart: Column
  private readonly before: Column
  private readonly late = new Map<number, number[]>()
  private readonly shared = new Map<number, Collective>()
  private readonly works = new Works()

  /** Capacities: operations, and values that they read. */
  constructor(operations: number, reads: number) {
    this.list = new Array<Recorded>(operations)
    this.start = new Column(operations + 1)
    this.written = new Column(operations)
    this.named = new Column(operations + reads)
    this.afterStart = new Column(operations + 1)
    this.before = new Column(reads)
    this.start.put(0)
    this.afterStart.put(0)
  }

  get length(): number {
    return this.count
  }

  get(id: number): Operation | undefined {
    return this.list[id]
  }

  add(own: Own, reads: readonly number[], writes: readonly number[], after: readonly number[]): number {
    for (let r = 0; r < reads.length; r++) this.named.put(reads[r]!)
    this.written.put(this.named.length)
    for (let w = 0; w < writes.length; w++) this.named.put(writes[w]!)
    this.start.put(this.named.length)
    for (let a = 0; a < after.length; a++) this.before.put(after[a]!)
    this.afterStart.put(this.before.length)
    const id = this.count++
    if (own.collective !== undefined) this.shared.set(id, own.collective)
    this.list[id] = new Recorded(own, this.works.of(own), this, id)
    return id
  }

  /** Adds predecessors that became known after the operation was added. */
  delay(id: number, after: readonly number[]): void {
    const late = this.late.get(id)
    if (late === undefined) this.late.set(id, [...after])
    else for (const before of after) late.push(before)
  }

  reads(id: number): number[] {
    return this.named.list(this.start.at(id), this.written.at(id))
  }

  writes(id: number): number[] {
    return this.named.list(this.written.at(id), this.start.at(id + 1))
  }

  after(id: number): number[] {
    const after = this.before.list(this.afterStart.at(id), this.afterStart.at(id + 1))
    const late = this.late.get(id)
    return late === undefined ? after : [...after, ...late]
  }

  collective(id: number): Collective | undefined {
    return this.shared.get(id)
  }

  /** All operations, and their accesses to these buffers. */
  done(buffers: readonly Buffer[]): Pick<Lowered, 'operations' | 'accesses'> {
    const named = this.named.all
    const { start, written } = this
    this.list.length = this.count
    return {
      operations: this.list,
      accesses: { start: start.all, written: written.all, named, root: rootsOf(named, buffers) },
    }
  }
}

class Recorded implements Operation {
  readonly name: Operation['name']
  readonly at: Operation['at']
  readonly lane: Operation['lane']
  readonly device: NonNullable<Operation['device']>
  readonly #work: Work
  readonly #lists: Operations
  readonly #id: number

  constructor(own: Own, work: Work, lists: Operations, id: number) {
    this.name = own.name
    this.at = own.at
    this.lane = own.lane
    this.device = own.device ?? 0
    this.#work = work
    this.#lists = lists
    this.#id = id
  }

  static workOf(operation: Operation): Work {
    return #work in operation ? operation.#work : operation
  }

  get op(): Operation['op'] {
    return this.#work.op
  }

  get kernel(): Operation['kernel'] {
    return this.#work.kernel
  }

  get flops(): Operation['flops'] {
    return this.#work.flops
  }

  get movedBytes(): Operation['movedBytes'] {
    return this.#work.movedBytes
  }

  get kind(): Operation['kind'] {
    return this.#work.kind
  }

  get workspace(): Operation['workspace'] {
    return this.#work.workspace
  }

  get ahead(): Operation['ahead'] {
    return this.#work.ahead
  }

  get tolerance(): Operation['tolerance'] {
    return this.#work.tolerance
  }

  get user(): Operation['user'] {
    return this.#work.user
  }

  get reads(): readonly number[] {
    return this.#lists.reads(this.#id)
  }

  get writes(): readonly number[] {
    return this.#lists.writes(this.#id)
  }

  get after(): readonly number[] {
    return this.#lists.after(this.#id)
  }

  get collective(): Collective | undefined {
    return this.#lists.collective(this.#id)
  }
}

/** The work of an operation; operations that do the same mostly have one and the same object. */
export const workOf = (operation: Operation): Work => Recorded.workOf(operation)

/** A copy of the operation with some fields replaced. (Its fields are getters, which a spread would lose.) */
export const changed = (operation: Operation, more: Partial<Operation>): Operation => {
  const { op, kernel, flops, movedBytes, kind, workspace, ahead, tolerance, user } = workOf(operation)
  const { name, at, lane, device = 0, reads, writes, after, collective } = operation
  const work = { op, kernel, flops, movedBytes, kind, workspace, ahead, tolerance, user }
  return { name, at, lane, device, ...work, reads, writes, after, collective, ...more }
}

/**
 * The graph of these operations, one for each that it has: undefined removes it. What comes after a removed
 * operation comes after its stand-ins; no control edge names one.
 */
export const withoutOperations = <IR extends Lowered>(
  ir: IR,
  operations: readonly (Operation | undefined)[],
  buffers: readonly Buffer[],
  standInsOf: (id: number) => readonly number[],
): IR => {
  let count = 0
  const now = Int32Array.from(operations, operation => (operation === undefined ? -1 : count++))
  const standing = (id: number): readonly number[] =>
    operations[id] === undefined ? standInsOf(id).flatMap(standing) : [now[id]!]
  const kept = operations.flatMap(operation =>
    operation === undefined
      ? []
      : [changed(operation, { after: [...new Set(operation.after.flatMap(standing))] })],
  )
  const control = ir.control?.map(edge => ({ ...edge, later: now[edge.later]!, earlier: now[edge.earlier]! }))
  return {
    ...ir,
    buffers,
    operations: kept,
    accesses: accessesOf(kept, buffers),
    ...(control === undefined ? {} : { control }),
  }
}
