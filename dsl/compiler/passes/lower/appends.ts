import {
  type AppendSpec,
  type AttentionOperand,
  type AttentionSpec,
  canAppend,
} from '../../../ir/kernel-spec.js'
import { accessesOf } from '../../analysis/accesses.js'
import type { Lowered, Operation } from '../../analysis/ir.js'
import { changed } from '../../analysis/operations.js'

//   append k, r, at → k' · append v, s, at → v' · attention q, k', v' → y
//   → attention q, k, v, r, s, at → y, k', v'
//
// Rows that are appended to keys and values are written by the kernel of the attention that reads these: one
// kernel instead of three. Only where nothing else reads the new keys and values before it, nor what it is
// read from changes until then.

/** Operations from an append to the attention, at most: they are looked through for each. */
const mostBetween = 64

const isDense = ({ offset, strides }: AttentionOperand, groups: number, keys: number, row: number): boolean =>
  offset === 0 && strides[0] === groups * keys * row && strides[1] === keys * row && strides[2] === row

class Appends {
  /** By buffer: the append that yields it. */
  private readonly by = new Map<number, number>()
  private readonly controlled: ReadonlySet<number>
  /** By attention: the appends to its keys and to its values. */
  readonly joined = new Map<number, readonly [number, number]>()

  constructor(private readonly ir: Lowered) {
    this.controlled = new Set((ir.control ?? []).flatMap(({ later, earlier }) => [later, earlier]))
    // An order against that of the program, which donations make, could close a circle with a kernel that is
    // later.
    if (ir.operations.some(({ after }, i) => after.some(earlier => earlier > i))) return
    ir.operations.forEach((operation, i) => {
      if (operation.kernel?.kind === 'append') this.by.set(operation.writes[0]!, i)
      else if (operation.kernel?.kind === 'attention') this.meet(i, operation, operation.kernel)
    })
  }

  private root(buffer: number): number {
    return this.ir.buffers[buffer]!.root
  }

  private meet(i: number, attention: Operation, spec: AttentionSpec): void {
    const [, k, v] = attention.reads as readonly [number, number, number]
    const both = [this.by.get(k), this.by.get(v)]
    const [first, second] = both
    if (first === undefined || second === undefined || first === second) return
    const appends = [this.ir.operations[first]!, this.ir.operations[second]!] as const
    const fits =
      this.isOfCache(spec, appends) &&
      [first, second, i].every(each => !this.controlled.has(each)) &&
      appends.every(
        ({ lane, device }) => lane?.name === attention.lane?.name && device === attention.device,
      ) &&
      this.isApart(attention, appends) &&
      this.isFree(i, [first, second], appends)
    if (fits) this.joined.set(i, [first, second])
  }

  /**
   * Whether the same number of rows is appended at the same position of the keys and values, as attention has
   * them.
   */
  private isOfCache(spec: AttentionSpec, appends: readonly [Operation, Operation]): boolean {
    const { batch, groups, keys, size, valueSize, k, v } = spec
    const [first, second] = appends.map(({ kernel }) => kernel as AppendSpec) as [AppendSpec, AppendSpec]
    const [at, other] = appends.map(({ reads }) => this.ir.buffers[reads[2]!]!)
    const rows: readonly (readonly [AppendSpec, AttentionOperand, number])[] = [
      [first, k, size],
      [second, v, valueSize],
    ]
    return (
      first.count === second.count &&
      canAppend(spec, first.count) &&
      at!.root === other!.root &&
      at!.offset === other!.offset &&
      rows.every(
        ([append, operand, row]) =>
          append.outer === batch * groups &&
          append.length === keys &&
          append.inner === row &&
          isDense(operand, groups, keys, row),
      )
    )
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

  /** Whether the appends may come as late as the attention. */
  private isFree(
    attention: number,
    both: readonly [number, number],
    appends: readonly [Operation, Operation],
  ): boolean {
    const from = Math.min(...both)
    if (attention - from > mostBetween) return false
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
        return false
    }
    return true
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
  const { joined } = new Appends(ir)
  if (joined.size === 0) return ir
  const { operations, buffers, control, changes } = ir
  const into = new Map([...joined].flatMap(([i, both]) => both.map(each => [each, i] as const)))
  let count = 0
  const now = operations.map((_, i) => (into.has(i) ? -1 : count++))
  for (const [append, attention] of into) now[append] = now[attention]!
  const kept = operations.flatMap((operation, i) => {
    if (into.has(i)) return []
    const both = joined.get(i)
    const own = both === undefined ? operation : joinedOf(ir, i, both)
    return [changed(own, { after: [...new Set(own.after.map(earlier => now[earlier]!))] })]
  })
  const by = new Map([...into].map(([i, to]) => [operations[i]!.name, operations[to]!.name]))
  return {
    ...ir,
    operations: kept,
    accesses: accessesOf(kept, buffers),
    ...(control === undefined
      ? {}
      : {
          control: control.map(edge => ({ ...edge, later: now[edge.later]!, earlier: now[edge.earlier]! })),
        }),
    ...(changes === undefined
      ? {}
      : {
          changes: changes.map(change => {
            const kernel = change.state ? undefined : by.get(change.name)
            return kernel === undefined ? change : { ...change, by: kernel }
          }),
        }),
  }
}
