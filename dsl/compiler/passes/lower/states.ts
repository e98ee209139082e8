import type { GraphNode } from '../../../ir/graph.js'
import { mayOverwrite } from '../../../ir/in-place.js'
import type { Change, CopiedFor, Operation } from '../../analysis/ir.js'
import { donatesBackwards } from '../../analysis/taken-memory.js'
import type { Lowering } from './lowering.js'

//   acc' = acc + x, read by no output      →  add acc, x → acc
//   acc' = acc + x, and an output of acc'  →  add acc, x → t · copy t → output · store t → acc
//
// A state is made in its own memory where nothing reads the value before later in the program, and the new
// value stays in the tick: what copies an output reads it while the next tick would write it. Else it is made
// in memory of the tick, and stored at the end.

/** The operations that access a buffer or a view of it, in their order, and those that write it. */
interface Touch {
  readonly by: number[]
  readonly writers: number[]
}

type Decided = { readonly maker: number } | { readonly copied: CopiedFor; readonly reader?: number }

class States {
  private readonly touches = new Map<number, Touch>()
  /** States whose value before is the next value of some state. */
  private readonly passedOn: ReadonlySet<number>
  private readonly isBackwards: boolean
  /** By buffer: the state whose memory it is now. */
  private readonly placed = new Map<number, number>()

  constructor(
    private readonly low: Lowering,
    delays: readonly GraphNode[],
  ) {
    this.isBackwards = donatesBackwards(low.ir)
    const next = delays.map(({ inputs }) => this.root(inputs[0]!))
    this.passedOn = new Set(next)
    for (const root of [...next, ...delays.map(({ id }) => low.buffer[id]!)])
      this.touches.set(root, { by: [], writers: [] })
    const { operations, buffers } = low
    for (let id = 0; id < operations.length; id++) {
      for (const buffer of operations.reads(id)) this.note(buffers[buffer]!.root, id)
      for (const buffer of operations.writes(id)) {
        this.note(buffers[buffer]!.root, id)
        this.touches.get(buffers[buffer]!.root)?.writers.push(id)
      }
    }
  }

  private root(node: number): number {
    const { root } = this.low.buffers[this.low.buffer[node]!]!
    return this.placed.get(root) ?? root
  }

  private note(root: number, id: number): void {
    const by = this.touches.get(root)?.by
    if (by !== undefined && by.at(-1) !== id) by.push(id)
  }

  private operation(id: number): Operation {
    return this.low.operations.get(id)!
  }

  /** Whether the operation takes a value out of the tick, or to another device. */
  private leaves(id: number): boolean {
    const { kind, writes } = this.operation(id)
    return kind !== 'compute' || writes.some(buffer => this.low.buffers[buffer]!.life === 'output')
  }

  /** The operation that can make the next value of a state in its memory; or why there is none. */
  decide({ id, inputs }: GraphNode): Decided {
    const { buffers, buffer } = this.low
    const state = buffer[id]!
    const root = this.root(inputs[0]!)
    const [own, from] = [buffers[state]!, buffers[root]!]
    const { by, writers } = this.touches.get(root)!
    const [maker] = writers
    if (from.life === 'output') return { copied: 'output' }
    const isWhole =
      from.life === 'tick' &&
      from.bytes === own.bytes &&
      from.space === own.space &&
      from.device === own.device
    if (!isWhole || maker === undefined || writers.length > 1 || this.operation(maker).kind !== 'compute')
      return { copied: 'not a value of the tick' }
    if (this.isBackwards) return { copied: 'donations' }
    if (this.passedOn.has(state)) return { copied: 'state' }
    if (by.some(other => this.leaves(other))) return { copied: 'output' }
    const later = this.touches.get(state)!.by.find(other => other > maker)
    if (later !== undefined) return { copied: 'later reader', reader: later }
    const { reads, writes, kernel } = this.operation(maker)
    const write = writes.findIndex(id => buffers[id]!.root === root)
    for (const [read, id] of reads.entries()) {
      const { root: memory, offset, bytes } = buffers[id]!
      const overlap = { read, write, distance: offset, readBytes: bytes, writtenBytes: own.bytes }
      if (memory !== state || (kernel !== undefined && mayOverwrite(kernel, overlap))) continue
      const isReduced = kernel?.kind === 'map' && kernel.results[write]?.row === true
      return { copied: isReduced ? 'reduced rows' : 'order of elements' }
    }
    return { maker }
  }

  /** The next value is the state's memory, after all that reads the value before. */
  place({ id, inputs }: GraphNode, maker: number): void {
    const state = this.low.buffer[id]!
    this.placed.set(this.root(inputs[0]!), state)
    const before = this.touches.get(state)!.by.filter(other => other < maker)
    this.low.operations.delay(maker, before)
  }

  /** The values that were placed, and all views of them, are views of their states. */
  finish(): void {
    if (this.placed.size === 0) return
    const { buffers } = this.low
    for (const [id, buffer] of buffers.entries()) {
      const root = this.placed.get(buffer.root)
      if (root !== undefined) buffers[id] = { ...buffer, root, life: 'state' }
    }
  }
}

/**
 * One store of state: a copy of the next value, or of a temporary where that value is a state which this tick
 * overwrites.
 */
const store = (
  low: Lowering,
  delay: GraphNode,
  temporary: number | undefined,
  after: readonly number[],
): void => {
  const state = low.buffer[delay.id]!
  const next = delay.inputs[0]!
  const { bytes } = low.buffers[state]!
  const lane = (delay.lane?.name === '' ? undefined : delay.lane) ?? low.operations.get(low.maker(next))?.lane
  const from = temporary === undefined ? low.buffer[next]! : low.operations.get(temporary)!.writes[0]!
  const id = low.operation(
    { ...delay, op: 'store', name: `store(${delay.name})`, lane },
    temporary === undefined ? [next] : [],
    [state],
    {
      kind: 'store',
      kernel: { kind: 'copy', bytes },
      movedBytes: 2 * bytes,
      reads: [from],
    },
  )
  low.operations.delay(id, temporary === undefined ? after : [temporary, ...after])
}

/** Stores of the states that are not made in their memory, after all that reads their values before. */
const stores = (low: Lowering, pending: readonly GraphNode[]): void => {
  const temporaries = pending.map(delay => {
    const next = delay.inputs[0]!
    if (low.buffers[low.buffers[low.buffer[next]!]!.root]!.life !== 'state') return undefined
    low.begin(delay.id)
    const target = low.fresh(`next(${delay.name})`, low.spec(next), 'tick', 'device')
    return low.copy(delay, [next], target, 'compute', { op: 'copy', name: `next(${delay.name})` })
  })
  const touching = new Map<number, number[]>()
  for (let id = 0; id < low.operations.length; id++)
    for (const buffer of [...low.operations.reads(id), ...low.operations.writes(id)]) {
      const { life, root: of } = low.buffers[buffer]!
      if (life !== 'state') continue
      const others = touching.get(of)
      if (others === undefined) touching.set(of, [id])
      else others.push(id)
    }
  pending.forEach((delay, i) => {
    store(low, delay, temporaries[i], touching.get(low.buffer[delay.id]!) ?? [])
  })
}

/** Lowers the states, and yields what was decided for each. */
export const states = (low: Lowering): readonly Change[] => {
  const delays = low.ir.nodes.filter(node => node.op === 'delay')
  if (delays.length === 0) return []
  // The next value may be in the state's memory already, as that of a kernel which changes the state is.
  const pending = delays.filter(delay => {
    const from = low.buffers[low.buffer[delay.inputs[0]!]!]!
    return !(from.root === low.buffer[delay.id] && from.offset === 0)
  })
  const made = new States(low, delays)
  const decided = pending.map(delay => {
    const each = made.decide(delay)
    if ('maker' in each) made.place(delay, each.maker)
    return each
  })
  made.finish()
  stores(
    low,
    pending.filter((_, i) => 'copied' in decided[i]!),
  )
  return pending.map((delay, i): Change => {
    const each = decided[i]!
    const name = low.ir.nodes[delay.inputs[0]!]!.name
    const change = { name, of: delay.name, at: delay.at, state: true } as const
    if (!('copied' in each)) return change
    const reader = each.reader === undefined ? undefined : low.operations.get(each.reader)!.name
    return { ...change, copied: each.copied, ...(reader === undefined ? {} : { reader }) }
  })
}
