import {
  type AppendSpec,
  type AttentionOperand,
  type AttentionSpec,
  canAppend,
} from '../../../ir/kernel-spec.js'
import type { Change, Lowered, Operation, WhySeparate } from '../../analysis/ir.js'
import { changed, withoutOperations } from '../../analysis/operations.js'

//   append k, r, at → k' · append v, s, at → v' · attention q, k', v' → y
//   → attention q, k, v, r, s, at → y, k', v'
//
// Rows that are appended to keys and values are written by the kernel of the attention that reads these: one
// kernel instead of three. Only where nothing else reads the new keys and values before it, nor what it is
// read from changes until then.

/** Operations from an append to the attention, at most: they are looked through for each. */
const mostBetween = 64

/** Whether the attended values are all that it yields. */
const isPlain = ({ result, logs }: AttentionSpec): boolean => result === undefined && logs === undefined

const isDense = ({ offset, strides }: AttentionOperand, groups: number, keys: number, row: number): boolean =>
  offset === 0 && strides[0] === groups * keys * row && strides[1] === keys * row && strides[2] === row

class Appends {
  /** By buffer: the append that yields it. */
  private readonly by = new Map<number, number>()
  /** The last one so far that writes the memory of a buffer. */
  private readonly byRoot = new Map<number, number>()
  private readonly controlled: ReadonlySet<number>
  /** By attention: the appends to its keys and to its values. */
  readonly joined = new Map<number, readonly [number, number]>()
  /** By append that stays a kernel: the attention that reads what it yields, and why it does not append. */
  readonly whySeparate = new Map<number, NonNullable<Change['whySeparate']>>()

  constructor(private readonly ir: Lowered) {
    this.controlled = new Set((ir.control ?? []).flatMap(({ later, earlier }) => [later, earlier]))
    // An order against that of the program, which donations make, could close a circle with a kernel that is
    // later.
    const isTurned = ir.operations.some(({ after }, i) => after.some(earlier => earlier > i))
    ir.operations.forEach((operation, i) => {
      if (operation.kernel?.kind === 'append') {
        this.by.set(operation.writes[0]!, i)
        this.byRoot.set(this.root(operation.writes[0]!), i)
      } else if (operation.kernel?.kind === 'attention' && isPlain(operation.kernel))
        this.meet(i, operation, operation.kernel, isTurned)
    })
  }

  private root(buffer: number): number {
    return this.ir.buffers[buffer]!.root
  }

  private meet(i: number, attention: Operation, spec: AttentionSpec, isTurned: boolean): void {
    const [, k, v] = attention.reads as readonly [number, number, number]
    const [first, second] = [this.by.get(k), this.by.get(v)]
    const because =
      first === undefined || second === undefined || first === second
        ? this.oneAlone([k, v])
        : isTurned
          ? 'donations'
          : this.whySeparateIn(i, attention, spec, [first, second])
    if (because === undefined && first !== undefined && second !== undefined)
      this.joined.set(i, [first, second])
    else if (because !== undefined)
      for (const append of [first ?? this.byRoot.get(this.root(k)), second ?? this.byRoot.get(this.root(v))])
        if (append !== undefined && !this.whySeparate.has(append))
          this.whySeparate.set(append, { reader: attention.name, because })
  }

  /** Of keys and values, not both of which some append yields as attention reads them. */
  private oneAlone(both: readonly number[]): WhySeparate | undefined {
    const appended = both.filter(buffer => this.byRoot.has(this.root(buffer)))
    return appended.length === 0 ? undefined : appended.length === 1 ? 'keys or values alone' : 'other layout'
  }

  private whySeparateIn(
    i: number,
    attention: Operation,
    spec: AttentionSpec,
    both: readonly [number, number],
  ): WhySeparate | undefined {
    const appends = [this.ir.operations[both[0]]!, this.ir.operations[both[1]]!] as const
    const here = ({ lane, device }: Operation): boolean =>
      lane?.name === attention.lane?.name && device === attention.device
    return (
      this.notOfCache(spec, appends) ??
      ([...both, i].some(each => this.controlled.has(each))
        ? 'ordered by after'
        : !appends.every(here)
          ? 'another lane'
          : this.isApart(attention, appends)
            ? this.notFree(i, both, appends)
            : 'one memory')
    )
  }

  /**
   * Why not the same number of rows is appended at the same position of the keys and values, as attention has
   * them.
   */
  private notOfCache(spec: AttentionSpec, appends: readonly [Operation, Operation]): WhySeparate | undefined {
    const { batch, groups, keys, size, valueSize, k, v } = spec
    const [first, second] = appends.map(({ kernel }) => kernel as AppendSpec) as [AppendSpec, AppendSpec]
    const [at, other] = appends.map(({ reads }) => this.ir.buffers[reads[2]!]!)
    const rows: readonly (readonly [AppendSpec, AttentionOperand, number])[] = [
      [first, k, size],
      [second, v, valueSize],
    ]
    if (first.count !== second.count || at!.root !== other!.root || at!.offset !== other!.offset)
      return 'other rows'
    if (!canAppend(spec, first.count)) return 'many queries'
    const fits = rows.every(
      ([append, operand, row]) =>
        append.outer === batch * groups &&
        append.length === keys &&
        append.inner === row &&
        isDense(operand, groups, keys, row),
    )
    return fits ? undefined : 'other layout'
  }

  /**
   * Whether keys and values are two values, and nothing else that is read or written lies in their memory.
   */
  private isApart(attention: Operation, appends: readonly [Operation, Operation]): boolean {
    const caches = appends.map(({ writes }) => this.root(writes[0]!))
    const others = [
      ...attention.reads.filter((_, i) => i !== 1 && i !== 2),
      ...attention.writes,
      ...appends.flatMap(({ reads }) => reads.slice(1)),
    ]
    return caches[0] !== caches[1] && others.every(buffer => !caches.includes(this.root(buffer)))
  }

  /** Why the appends may not come as late as the attention. */
  private notFree(
    attention: number,
    both: readonly [number, number],
    appends: readonly [Operation, Operation],
  ): WhySeparate | undefined {
    const from = Math.min(...both)
    if (attention - from > mostBetween) return 'far apart'
    const caches = appends.map(({ writes }) => this.root(writes[0]!))
    const rows = appends.flatMap(({ reads }) => reads.slice(1).map(buffer => this.root(buffer)))
    for (let i = from + 1; i < attention; i++) {
      if (both.includes(i)) continue
      const { reads, writes, after } = this.ir.operations[i]!
      const touched = [...reads, ...writes].map(buffer => this.root(buffer))
      if (
        touched.some(root => caches.includes(root)) ||
        writes.some(buffer => rows.includes(this.root(buffer))) ||
        after.some(earlier => both.includes(earlier))
      )
        return 'touched between'
    }
    return undefined
  }
}

/** The attention that appends, before operations are renumbered. */
const joinedOf = (ir: Lowered, i: number, [first, second]: readonly [number, number]): Operation => {
  const attention = ir.operations[i]!
  const [keys, values] = [ir.operations[first]!, ir.operations[second]!]
  const [q, k, v, ...more] = attention.reads as [number, number, number, ...number[]]
  const [own, rows, at] = keys.reads as [number, number, number]
  const [ownValues, valueRows] = values.reads as [number, number]
  const after = [...attention.after, ...keys.after, ...values.after]
  return changed(attention, {
    kernel: { ...(attention.kernel as AttentionSpec), appended: (keys.kernel as AppendSpec).count },
    movedBytes: attention.movedBytes + keys.movedBytes + values.movedBytes,
    reads: [q, own, ownValues, ...more, rows, valueRows, at],
    writes: [...attention.writes, k, v],
    after: after.filter(earlier => earlier !== first && earlier !== second),
  })
}

/** Attention writes the rows that are appended to its keys and values, where `fuse` allows it. */
export const withAppends = (ir: Lowered): Lowered => {
  const { joined, whySeparate } = new Appends(ir)
  const why = new Map([...whySeparate].map(([append, found]) => [ir.operations[append]!.name, found]))
  const explained = ir.changes?.map(change => {
    const found = change.state ? undefined : why.get(change.name)
    return found === undefined ? change : { ...change, whySeparate: found }
  })
  if (joined.size === 0) return explained === undefined ? ir : { ...ir, changes: explained }
  const into = new Map([...joined].flatMap(([i, both]) => both.map(each => [each, i] as const)))
  const operations = ir.operations.map((operation, i) => {
    const both = joined.get(i)
    return into.has(i) ? undefined : both === undefined ? operation : joinedOf(ir, i, both)
  })
  const by = new Map([...into].map(([i, to]) => [ir.operations[i]!.name, ir.operations[to]!.name]))
  const changes = explained?.map(change => {
    const kernel = change.state ? undefined : by.get(change.name)
    return kernel === undefined ? change : { ...change, by: kernel }
  })
  return withoutOperations(
    { ...ir, ...(changes === undefined ? {} : { changes }) },
    operations,
    ir.buffers,
    append => [into.get(append)!],
  )
}
