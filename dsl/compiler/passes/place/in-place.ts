import type { Buffer, Operation, Placed } from '../../analysis/ir.js'
import { withoutOperations } from '../../analysis/operations.js'
import { pass } from '../../analysis/pass.js'

/** The alignment that libraries and vector loads of every device need. */
const alignment = 16

/** The operations that access a root, and those of them that write it. */
interface Touch {
  readonly by: readonly number[]
  readonly writers: readonly number[]
}

const untouched: Touch = { by: [], writers: [] }

const isGather = ({ kernel }: Operation): boolean => kernel?.kind === 'copy' && (kernel.parts ?? 1) > 1

class Gathers {
  /** By operation: whether it is a gather that is redundant now. */
  readonly gone: Uint8Array
  /** By root: the root that it became a view of, and its offset there. */
  private readonly moved = new Map<number, { readonly into: number; readonly offset: number }>()
  private readonly touches = new Map<number, Touch>()
  /** Windows that the makers of their values fill. */
  private readonly filled = new Set<number>()
  private readonly controlled: ReadonlySet<number>

  constructor(
    private readonly ir: Placed,
    gathers: readonly number[],
  ) {
    this.gone = new Uint8Array(ir.operations.length)
    this.controlled = new Set((ir.control ?? []).flatMap(({ later, earlier }) => [later, earlier]))
    this.look(gathers)
    for (const gather of gathers) this.consider(gather)
  }

  private root(buffer: number): number {
    return this.ir.buffers[buffer]!.root
  }

  private look(gathers: readonly number[]): void {
    const { operations } = this.ir
    const wanted = new Set<number>()
    for (const i of gathers)
      for (const id of [...operations[i]!.reads, ...operations[i]!.writes]) wanted.add(this.root(id))
    const found = new Map<number, { by: number[]; writers: number[] }>()
    const { start, written, root } = this.ir.accesses
    for (let i = 0; i < operations.length; i++)
      for (let a = start[i]!; a < start[i + 1]!; a++) {
        if (!wanted.has(root[a]!)) continue
        const touch = found.get(root[a]!) ?? { by: [], writers: [] }
        touch.by.push(i)
        if (a >= written[i]!) touch.writers.push(i)
        found.set(root[a]!, touch)
      }
    for (const [root, touch] of found) this.touches.set(root, touch)
  }

  private of(root: number): Touch {
    return this.touches.get(root) ?? untouched
  }

  private consider(gather: number): void {
    const { operations, buffers, laneOf } = this.ir
    const { reads, writes } = operations[gather]!
    const target = writes[0]!
    const bytes = buffers[target]!.bytes / reads.length
    const roots = reads.map(read => this.root(read))
    const others = roots.flatMap(root => this.of(root).by).filter(i => i !== gather)
    const fits =
      bytes % alignment === 0 &&
      this.root(target) === target &&
      this.of(target).writers.length === 1 &&
      !this.controlled.has(gather) &&
      new Set(roots).size === roots.length &&
      others.every(i => laneOf[i] === laneOf[others[0]!]) &&
      reads.every((read, i) => this.canMove(read, roots[i]!, buffers[target]!, bytes))
    if (!fits) return
    this.gone[gather] = 1
    roots.forEach((root, i) => {
      this.moved.set(root, { into: target, offset: i * bytes })
    })
    const before = this.of(target)
    this.touches.set(target, {
      by: [...others, ...before.by.filter(i => i !== gather)],
      writers: roots.flatMap(root => this.of(root).writers),
    })
    this.filled.add(target)
  }

  /**
   * Whether a value is a whole tick buffer on the window's device that is written once, so that it can be a
   * view of the window.
   */
  private canMove(read: number, root: number, target: Buffer, bytes: number): boolean {
    const { buffers, operations } = this.ir
    const own = buffers[root]!
    const { writers } = this.of(root)
    return (
      !this.moved.has(root) &&
      own.life === 'tick' &&
      own.space === 'device' &&
      own.bytes === bytes &&
      (own.device ?? 0) === (target.device ?? 0) &&
      buffers[read]!.offset === 0 &&
      (writers.length === 1 || this.filled.has(root)) &&
      writers.every(i => operations[i]!.ahead === undefined)
    )
  }

  /** The buffers, those that moved as views of their new place. */
  buffers(): readonly Buffer[] {
    return this.ir.buffers.map(buffer => {
      let { root, offset } = buffer
      for (let to = this.moved.get(root); to !== undefined; to = this.moved.get(root)) {
        root = to.into
        offset += to.offset
      }
      return root === buffer.root ? buffer : { ...buffer, root, offset }
    })
  }
}

/** The graph without these operations; what comes after one comes after its predecessors. */
const without = (ir: Placed, gone: Uint8Array, buffers: readonly Buffer[]): Placed =>
  withoutOperations(
    { ...ir, laneOf: ir.laneOf.filter((_, i) => !gone[i]) },
    ir.operations.map((operation, i) => (gone[i] ? undefined : operation)),
    buffers,
    id => ir.operations[id]!.after,
  )

/**
 * The values of a window are made in its buffer, and nothing gathers them: where all of them are made on one
 * lane, once each, and read there or by the gather alone. On other lanes each maker would have to wait for
 * the allocation of the buffer, and for readers of the values before its own.
 */
export const inPlace = pass('in-place', (ir: Placed): Placed => {
  if (ir.gathers !== true) return ir
  const gathers = [...ir.operations.keys()].filter(i => isGather(ir.operations[i]!))
  const found = new Gathers(ir, gathers)
  return found.gone.includes(1) ? without(ir, found.gone, found.buffers()) : ir
})
