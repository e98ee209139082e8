import { GrowingRanges } from '../collections/growing-ranges.js'
import { type CollectiveReach, collectiveReach, type Seat } from './collective-extents.js'
import { needsOf, type Reach } from './extents.js'
import { mayOverwrite, mayReceiveOver, type Overlap } from './in-place.js'
import type { KernelSpec } from './kernel-spec.js'
import type { PlanNode } from './plan.js'

/*
 * The bytes of a run, by its kernel. Two faults are a matter of bytes, whatever the buffers are called that
 * have them: a run that writes over bytes which it reads, where its kernel cannot promise to have read them
 * first; and a read of bytes that a kernel left unwritten in a buffer which it writes.
 */

type Ids = ArrayLike<number>

/** The runs of a plan, and the buffers that they access. */
export interface Runs {
  /** By buffer: the buffer that it is a view of, or itself; and its bytes. */
  readonly root: Ids
  readonly bytes: Ids
  /** From the root's first byte to the buffer's. */
  readonly offset: (buffer: number) => number
  /** Whether a root has a value before the tick begins, and whether the host reads it when the tick ends. */
  readonly isFilled: (root: number) => boolean
  readonly isOutput: (root: number) => boolean
  readonly node: (node: number) => PlanNode
  /** Of a communicator: the rank's group, as far as it is known. */
  readonly seat: (communicator: number) => Seat
  /** In issue order. */
  readonly each: (visit: (command: number, node: number, reads: Ids, writes: Ids) => void) => void
}

export interface ByteFault {
  /** `Extent`: the kernel changes a read in its memory, and its write lies elsewhere. */
  readonly tag: 'Extent' | 'Overwrite' | 'Unwritten'
  readonly command: number
  readonly node: number
  readonly buffer: number
  readonly wanted: string
  readonly found: string
  readonly next: string
}

/** What one run reads and writes; an absent reach is the whole buffer. */
interface Accesses {
  /** What a fault calls the run. */
  readonly kind: string
  readonly reads: readonly (Reach | undefined)[]
  readonly writes: readonly (Reach | undefined)[]
  /** The writes that are the memory of a read. */
  readonly inPlace: readonly (readonly [write: number, read: number])[]
  readonly allows: (overlap: Overlap) => boolean
}

const none: readonly never[] = []
// Without a kernel, or with other operands than the kernel has, a node is never run: it has no form to open.
const never: Accesses = { kind: 'run', reads: none, writes: none, inPlace: none, allows: () => true }

/** Of user's kernels what they reach is not known. */
const accessesOfKernel = (kernel: KernelSpec): Accesses => {
  const { reads, writes, inPlace = [] } = needsOf(kernel) ?? { reads: none, writes: none }
  return {
    kind: kernel.kind,
    reads,
    writes,
    inPlace: inPlace.map(i => [i, i] as const),
    allows: overlap => mayOverwrite(kernel, overlap),
  }
}

/** Undefined: the whole buffer, since nothing says how many ranks there are. */
const reachOfCollective = ({ least, most }: CollectiveReach, bytes: number): Reach | undefined =>
  Number.isFinite(most) ? { first: 0, end: Math.min(most, bytes), align: 1, covers: least } : undefined

/** Bytes of a root that a run accesses, and which of its reads or writes does. */
interface Access {
  readonly root: number
  readonly from: number
  readonly to: number
  readonly buffer: number
  readonly index: number
}

const byPlace = (a: Access, b: Access): number => a.root - b.root || a.from - b.from

/** An access of a root that some run writes in part. */
interface Touch extends Access {
  readonly command: number
  readonly node: number
  readonly kind: string
  readonly isRead: boolean
}

class RunBytes {
  readonly faults: ByteFault[] = []
  /** By root: 1 + the last run that writes it; and whether some run leaves a part of a write unwritten. */
  private readonly writer: Int32Array
  private readonly isPart: Uint8Array
  private hasParts = false
  /** Many nodes of a large plan have one of few kernels. */
  private readonly known = new Map<KernelSpec, Accesses>()

  constructor(
    private readonly runs: Runs,
    private readonly most: number,
  ) {
    this.writer = new Int32Array(runs.root.length)
    this.isPart = new Uint8Array(runs.root.length)
  }

  judge(): readonly ByteFault[] {
    const { runs, faults, most } = this
    runs.each((command, node, reads, writes) => {
      const accesses = this.accessesOf(node, reads, writes)
      const sharesMemory = this.note(command, accesses, reads, writes)
      if (faults.length >= most) return
      this.misplaced(command, node, accesses, reads, writes)
      if (sharesMemory) this.overwrites(command, node, accesses, reads, writes)
    })
    if (this.hasParts) for (const touches of this.touched().values()) this.unwritten(touches)
    return faults.sort((a, b) => a.command - b.command).slice(0, most)
  }

  private accessesOf(node: number, reads: Ids, writes: Ids): Accesses {
    const { runs, known } = this
    const { kernel, collective, donates } = runs.node(node)
    if (collective !== undefined) {
      const reach = collectiveReach(collective, runs.seat(collective.communicator))
      const within = (of: CollectiveReach) => (buffer: number) => reachOfCollective(of, runs.bytes[buffer]!)
      return {
        kind: collective.kind,
        reads: Array.from(reads, within(reach.reads)),
        writes: Array.from(writes, within(reach.writes)),
        inPlace: none,
        allows: overlap => mayReceiveOver(collective, overlap),
      }
    }
    if (kernel === undefined) return never
    const found = known.get(kernel) ?? accessesOfKernel(kernel)
    known.set(kernel, found)
    const isWhole = found.reads.length === reads.length && found.writes.length === writes.length
    if (kernel.kind !== 'cuda') return isWhole ? found : never
    if (donates === undefined) return found
    const donations = new Map(donates)
    return { ...found, inPlace: donates, allows: overlap => mayOverwrite(kernel, overlap, donations) }
  }

  private access(buffer: number, index: number, reach: Reach | undefined, bytes?: number): Access {
    const { root, offset } = this.runs
    const from = offset(buffer) + (reach?.first ?? 0)
    const length = bytes ?? (reach === undefined ? this.runs.bytes[buffer]! : reach.end - reach.first)
    return { root: root[buffer]!, from, to: from + length, buffer, index }
  }

  /** Bytes that a write is sure to fill: none of its own where it only changes a read. */
  private filled(i: number, { writes, inPlace }: Accesses): number | undefined {
    const reach = writes[i]
    if (reach === undefined) return undefined
    return inPlace.some(([write]) => write === i) ? 0 : (reach.covers ?? reach.end - reach.first)
  }

  /** Whether a run reads memory that it writes. */
  private note(command: number, accesses: Accesses, reads: Ids, writes: Ids): boolean {
    const { writer, isPart } = this
    const { root, bytes, isFilled } = this.runs
    for (let i = 0; i < writes.length; i++) {
      const buffer = writes[i]!
      const memory = root[buffer]!
      writer[memory] = command + 1
      const filled = this.filled(i, accesses)
      if (filled === undefined || filled >= bytes[buffer]! || isFilled(memory)) continue
      isPart[memory] = 1
      this.hasParts = true
    }
    for (let i = 0; i < reads.length; i++) if (writer[root[reads[i]!]!] === command + 1) return true
    return false
  }

  /** Writes that are the memory of a read by what their kernel is, and lie elsewhere. */
  private misplaced(command: number, node: number, { inPlace }: Accesses, reads: Ids, writes: Ids): void {
    const { root, offset } = this.runs
    for (const [into, of] of inPlace) {
      const [read, write] = [reads[of], writes[into]]
      if (read === undefined || write === undefined) continue
      if (root[read] === root[write] && offset(read) === offset(write)) continue
      const place = (buffer: number) => `byte ${offset(buffer)} of buffer ${root[buffer]}`
      this.faults.push({
        ...{ tag: 'Extent', command, node, buffer: write },
        wanted: `write ${into} in the memory of read ${of}, ${place(read)}`,
        found: `it is ${place(write)}`,
        next: 'make the write a view of what it changes',
      })
    }
  }

  /**
   * Both lists go by place, so a write that ends before one read does so before all later ones. The writes of
   * one run share no bytes (L2). Only one can begin where a read does, so the second is refused at the latest.
   */
  private overwrites(
    command: number,
    node: number,
    { kind, reads: read, writes: write, allows }: Accesses,
    reads: Ids,
    writes: Ids,
  ): void {
    const { bytes, offset } = this.runs
    const into = Array.from(writes, (buffer, i) => this.access(buffer, i, write[i])).sort(byPlace)
    let first = 0
    const from = Array.from(reads, (buffer, i) => this.access(buffer, i, read[i])).sort(byPlace)
    for (const own of from) {
      const isPast = (other: Access): boolean =>
        other.root < own.root || (other.root === own.root && other.to <= own.from)
      while (first < into.length && isPast(into[first]!)) first++
      for (let w = first; w < into.length; w++) {
        const other = into[w]!
        if (other.root !== own.root || other.from >= own.to) break
        if (other.to <= own.from || own.to <= own.from || other.to <= other.from) continue
        const overlap: Overlap = {
          read: own.index,
          write: other.index,
          distance: offset(own.buffer) - offset(other.buffer),
          readBytes: bytes[own.buffer]!,
          writtenBytes: bytes[other.buffer]!,
        }
        if (allows(overlap)) continue
        const shared = `bytes ${Math.max(own.from, other.from)} to ${Math.min(own.to, other.to)}`
        this.faults.push({
          ...{ tag: 'Overwrite', command, node, buffer: other.buffer },
          wanted:
            kind === 'cuda'
              ? `write ${other.index} apart from read ${own.index}, which its kernel does not donate to it`
              : `write ${other.index} apart from read ${own.index}, which its ${kind} may read after it writes`,
          found: `both have ${shared} of buffer ${own.root}`,
          next: 'give the write memory of its own',
        })
        break
      }
    }
  }

  /** By root that is written in part: its accesses, in issue order. */
  private touched(): ReadonlyMap<number, Touch[]> {
    const { runs, isPart } = this
    const found = new Map<number, Touch[]>()
    runs.each((command, node, reads, writes) => {
      const isTouched = (buffer: number): boolean => isPart[runs.root[buffer]!] === 1
      let any = false
      for (let i = 0; i < reads.length; i++) any ||= isTouched(reads[i]!)
      for (let i = 0; i < writes.length; i++) any ||= isTouched(writes[i]!)
      if (!any) return
      const accesses = this.accessesOf(node, reads, writes)
      const put = (access: Access, isRead: boolean): void => {
        const touches = found.get(access.root) ?? []
        if (touches.length === 0) found.set(access.root, touches)
        touches.push({ ...access, command, node, kind: accesses.kind, isRead })
      }
      for (let i = 0; i < reads.length; i++)
        if (isTouched(reads[i]!)) put(this.access(reads[i]!, i, accesses.reads[i]), true)
      for (let i = 0; i < writes.length; i++)
        if (isTouched(writes[i]!))
          put(this.access(writes[i]!, i, accesses.writes[i], this.filled(i, accesses)), false)
    })
    return found
  }

  private unwritten(touches: readonly Touch[]): void {
    const { faults, runs } = this
    const { root } = touches[0]!
    const size = runs.bytes[root]!
    const written = new GrowingRanges([0, size, ...touches.flatMap(({ from, to }) => [from, to])])
    // One mistake is one fault: later runs are judged as if the bytes were there.
    let faulty: Touch[] = []
    for (const touch of touches) {
      const { isRead, from, to, command, node, kind, buffer, index } = touch
      if (faulty.length > 0 && faulty[0]!.command !== command) {
        for (const before of faulty) written.add(before.from, before.to)
        faulty = []
      }
      if (!isRead) written.add(from, to)
      const missing = isRead ? written.firstMissing(from, to) : -1
      if (missing < 0) continue
      faulty.push(touch)
      faults.push({
        ...{ tag: 'Unwritten', command, node, buffer },
        wanted: `read ${index} of bytes that have been written`,
        found: `its ${kind} reads bytes ${from} to ${to} of buffer ${root}, and nothing has written byte ${missing}`,
        next: 'let a kernel write them first, or read less',
      })
    }
    const missing = runs.isOutput(root) ? written.firstMissing(0, size) : -1
    if (missing < 0) return
    const { command, node, buffer } = touches.findLast(({ isRead }) => !isRead)!
    faults.push({
      ...{ tag: 'Unwritten', command, node, buffer },
      wanted: `all of the ${size} bytes of buffer ${root} written, since the host reads them`,
      found: `nothing has written byte ${missing}`,
      next: 'let kernels write the whole output',
    })
  }
}

/**
 * The faults of a plan's runs, at most so many, in issue order. The work is near-linear in accesses. Ids must
 * be in range.
 */
export const byteFaults = (runs: Runs, most: number): readonly ByteFault[] => new RunBytes(runs, most).judge()
