import type { Ordered, Synchronized } from '../../analysis/ir.js'

/** Bytes of each place in an arena are a multiple of this, and so is each offset: what every kernel and copy is content with. */
export const alignment = 512

export const aligned = (bytes: number): number => Math.ceil(bytes / alignment) * alignment

/** Buffers of a tick (roots alone: a view's accesses are its root's), with the operations that touch them first and last. */
export interface Tenants {
  /** By tenant, in order of their first access: its buffer. */
  readonly buffer: Int32Array
  /** The first access, and the last in issue order. */
  readonly first: Int32Array
  readonly last: Int32Array
  /** The last access of each lane that touches tenant k: operations `lastOn[start[k] .. start[k + 1]]`. */
  readonly start: Int32Array
  readonly lastOn: Int32Array
}

/** All roots that live for a tick and are touched in it, in device memory or not. */
export const tenantsOf = ({ operations, buffers, laneOf }: Ordered): Tenants => {
  const first = new Int32Array(buffers.length).fill(-1)
  const last = new Int32Array(buffers.length).fill(-1)
  // The last access of each lane, as a list by root.
  const head = new Int32Array(buffers.length).fill(-1)
  const next: number[] = []
  const lane: number[] = []
  const on: number[] = []
  const found: number[] = []
  const touch = (id: number, i: number): void => {
    const { root } = buffers[id]!
    if (buffers[root]!.life !== 'tick') return
    if (first[root] === -1) {
      first[root] = i
      found.push(root)
    }
    last[root] = i
    let at = head[root]!
    while (at >= 0 && lane[at] !== laneOf[i]) at = next[at]!
    if (at >= 0) on[at] = i
    else {
      next.push(head[root]!)
      lane.push(laneOf[i]!)
      head[root] = on.push(i) - 1
    }
  }
  for (let i = 0; i < operations.length; i++) {
    const { reads, writes } = operations[i]!
    for (const id of writes) touch(id, i)
    for (const id of reads) touch(id, i)
  }
  const start = new Int32Array(found.length + 1)
  const lastOn = new Int32Array(on.length)
  let length = 0
  found.forEach((root, k) => {
    for (let at = head[root]!; at >= 0; at = next[at]!) lastOn[length++] = on[at]!
    start[k + 1] = length
  })
  return {
    buffer: Int32Array.from(found),
    first: Int32Array.from(found, root => first[root]!),
    last: Int32Array.from(found, root => last[root]!),
    start,
    lastOn,
  }
}

/** Some of the tenants, numbered anew in the same order. */
export const only = (tenants: Tenants, members: Int32Array): Tenants => {
  const { buffer, first, last, start, lastOn } = tenants
  if (members.length === buffer.length) return tenants
  const begin = new Int32Array(members.length + 1)
  const on: number[] = []
  members.forEach((k, i) => {
    for (let a = start[k]!; a < start[k + 1]!; a++) on.push(lastOn[a]!)
    begin[i + 1] = on.length
  })
  return {
    buffer: members.map(k => buffer[k]!),
    first: members.map(k => first[k]!),
    last: members.map(k => last[k]!),
    start: begin,
    lastOn: Int32Array.from(on),
  }
}

/**
 * Who may have whose bytes: one tenant may follow another where every last access of that one is before its own first access, in the order that
 * clocks say (never because it was issued earlier), and where it is itself done before the other comes again, a tick later.
 */
export class Succession {
  readonly lanes: number
  readonly operations: number
  private readonly lengths: Int32Array
  /** Operations of lane m: `onLane[laneStart[m] .. laneStart[m + 1]]`. */
  private readonly laneStart: Int32Array
  private readonly onLane: Int32Array
  private readonly counts: Int32Array

  constructor(
    private readonly ir: Synchronized,
    private readonly tenants: Tenants,
  ) {
    this.lanes = ir.lanes.length
    this.operations = ir.operations.length
    this.lengths = new Int32Array(this.lanes)
    for (const lane of ir.laneOf) this.lengths[lane]!++
    this.laneStart = new Int32Array(this.lanes + 1)
    for (let m = 0; m < this.lanes; m++) this.laneStart[m + 1] = this.laneStart[m]! + this.lengths[m]!
    this.onLane = new Int32Array(this.operations)
    ir.laneOf.forEach((lane, i) => {
      this.onLane[this.laneStart[lane]! + ir.position[i]!] = i
    })
    this.counts = new Int32Array(this.lanes)
  }

  /** The earliest operation of the tick that is not known to be done before operation i begins; at the latest i itself. */
  openSince(i: number): number {
    this.before(i, this.counts)
    return this.earliest(i)
  }

  /** The same of the tick before; the number of operations where all of them are known to be done. */
  openSinceLast(i: number): number {
    this.beforeInLast(i, this.counts)
    return this.earliest(this.operations)
  }

  private earliest(atMost: number): number {
    let least = atMost
    for (let m = 0; m < this.lanes; m++)
      if (this.counts[m]! < this.lengths[m]!)
        least = Math.min(least, this.onLane[this.laneStart[m]! + this.counts[m]!]!)
    return least
  }

  /** How many operations of each lane are done before operation i begins, itself not among them. */
  before(i: number, into: Int32Array): void {
    const { clocks, laneOf, position } = this.ir
    const at = i * this.lanes
    for (let m = 0; m < this.lanes; m++) into[m] = Math.max(0, clocks[at + m]!)
    into[laneOf[i]!] = position[i]!
  }

  /** The same of the tick before: how many of each lane's operations there are done before operation i of this tick begins. */
  beforeInLast(i: number, into: Int32Array): void {
    const { clocks, laneOf, settings } = this.ir
    const at = i * this.lanes
    for (let m = 0; m < this.lanes; m++)
      into[m] = settings.inFlight === 1 ? this.lengths[m]! : Math.max(0, clocks[at + m]! + this.lengths[m]!)
    into[laneOf[i]!] = this.lengths[laneOf[i]!]!
  }

  /** How many operations of each lane must be done until tenant k is through. */
  end(k: number, into: Int32Array): void {
    const { laneOf, position } = this.ir
    const { start, lastOn } = this.tenants
    into.fill(0)
    for (let a = start[k]!; a < start[k + 1]!; a++) into[laneOf[lastOn[a]!]!] = position[lastOn[a]!]! + 1
  }

  /** Whether a and b may share bytes: one follows the other, and a tick later the other the one. */
  agree(a: number, b: number): boolean {
    const { first, last } = this.tenants
    if (last[a]! < first[b]!) return this.follows(a, b) && this.followsAgain(b, a)
    return last[b]! < first[a]! && this.follows(b, a) && this.followsAgain(a, b)
  }

  private follows(a: number, b: number): boolean {
    const { clocks, laneOf, position } = this.ir
    const { start, lastOn, first } = this.tenants
    const at = first[b]! * this.lanes
    for (let i = start[a]!; i < start[a + 1]!; i++)
      if (clocks[at + laneOf[lastOn[i]!]!]! <= position[lastOn[i]!]!) return false
    return true
  }

  /** Whether b's first access of the next tick is after all of a's of this one. */
  private followsAgain(a: number, b: number): boolean {
    const { clocks, laneOf, position, settings } = this.ir
    if (settings.inFlight === 1) return true
    const { start, lastOn, first } = this.tenants
    const at = first[b]! * this.lanes
    for (let i = start[a]!; i < start[a + 1]!; i++) {
      const lane = laneOf[lastOn[i]!]!
      if (lane !== laneOf[first[b]!] && clocks[at + lane]! + this.lengths[lane]! <= position[lastOn[i]!]!)
        return false
    }
    return true
  }
}
