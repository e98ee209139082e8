import { LeastKey } from '../../../collections/least-key.js'
import { PriorityQueue } from '../../../collections/priority-queue.js'
import { poolsPerDevice } from '../../../machine/usage.js'
import type { Costs } from '../../analysis/costs.js'
import type { Dependencies } from '../../analysis/dependencies.js'
import type { Operation } from '../../analysis/ir.js'

/**
 * Lanes below `fixed` are given; the others are assigned to whole chains, each when its first operation is
 * due.
 */
export interface Work {
  readonly operations: readonly Operation[]
  readonly dependencies: Dependencies
  readonly costs: Costs
  /** Of operations that could begin at the same time, the most urgent goes first. */
  readonly urgency: Float64Array
  readonly lanes: number
  readonly fixed: number
  /** -1: the lane that its chain is assigned to. */
  readonly laneOf: Int32Array
  readonly chainOf: Int32Array
  readonly chains: number
  /** By operation: its predecessors that need only have started. */
  readonly starts?: ReadonlyMap<number, readonly number[]> | undefined
}

/** Operations in the order in which they begin, and the lane of each. */
export interface Scheduled {
  readonly order: Int32Array
  readonly laneOf: Int32Array
}

/**
 * List scheduling: whenever a lane is free, the most urgent ready operation begins on it. An operation takes
 * its time alone, or longer where a shared resource is oversubscribed. The order is by start time, so no
 * lane's backlog is issued before another lane's first operation.
 */
export const listSchedule = (work: Work): Scheduled => new Schedule(work).run()

class Schedule {
  private readonly laneOf: Int32Array
  private readonly laneOfChain: Int32Array
  private readonly free: Float64Array
  private readonly ends: Float64Array
  /** Kept only where some operation waits for a start. */
  private readonly begins: Float64Array | undefined
  private readonly readyAt: Float64Array
  private readonly left: Int32Array
  /** When each shared resource has finished the work assigned so far. */
  private readonly busy: Float64Array
  /**
   * By lane, and last for chains without a lane: operations that become ready at `readyAt`, and ready ones by
   * urgency.
   */
  private readonly coming: PriorityQueue[]
  private readonly ready: PriorityQueue[]
  /** Operations left of each chain; by lane, chains that have any left. */
  private readonly rest: Int32Array
  private readonly unfinished: Int32Array
  /** By queue, when its next operation could begin. */
  private readonly next: LeastKey
  private host = 0

  constructor(private readonly work: Work) {
    const { laneOf, chains, lanes, dependencies, urgency } = work
    const count = laneOf.length
    this.busy = new Float64Array(work.costs.pools)
    this.laneOf = laneOf.slice()
    this.laneOfChain = new Int32Array(chains).fill(-1)
    this.rest = new Int32Array(chains)
    for (const chain of work.chainOf) if (chain >= 0) this.rest[chain]!++
    this.unfinished = new Int32Array(lanes)
    this.free = new Float64Array(lanes)
    this.ends = new Float64Array(count)
    this.begins = work.starts === undefined ? undefined : new Float64Array(count)
    this.readyAt = new Float64Array(count)
    this.left = dependencies.degree.slice()
    const first = urgency.map(value => -value)
    this.next = new LeastKey(lanes + 1)
    this.coming = Array.from({ length: lanes + 1 }, () => new PriorityQueue(this.readyAt))
    this.ready = Array.from({ length: lanes + 1 }, () => new PriorityQueue(first))
  }

  run(): Scheduled {
    const { work, left } = this
    const { lanes, dependencies } = work
    const { start, to } = dependencies
    const order = new Int32Array(left.length)
    let length = 0
    for (let i = 0; i < left.length; i++) if (left[i] === 0) this.arrive(i)
    for (let on = this.next.first; on !== -1; on = this.next.first) {
      const at = this.next.least
      const i = this.take(on, at)
      order[length++] = i
      this.begin(i, at)
      this.look(on)
      this.look(this.laneOf[i]!)
      for (let e = start[i]!; e < start[i + 1]!; e++) if (--left[to[e]!]! === 0) this.arrive(to[e]!)
      // Work without a lane waits for any lane that is not given.
      if (work.fixed < lanes) this.look(lanes)
    }
    return { order: order.subarray(0, length), laneOf: this.laneOf }
  }

  private arrive(i: number): void {
    const { work, laneOf, laneOfChain, readyAt, ends, begins } = this
    const started = begins === undefined ? undefined : work.starts?.get(i)
    const chain = work.chainOf[i]!
    if (laneOf[i] === -1 && laneOfChain[chain] !== -1) laneOf[i] = laneOfChain[chain]!
    let at = 0
    for (const before of work.operations[i]!.after) {
      const crosses = laneOf[before] !== laneOf[i] ? work.costs.waitLatency : 0
      const done = started?.includes(before) === true ? begins![before]! : ends[before]!
      at = Math.max(at, done + crosses)
    }
    readyAt[i] = at
    const q = laneOf[i] === -1 ? work.lanes : laneOf[i]!
    this.coming[q]!.push(i)
    this.look(q)
  }

  /** A queue, or when its lane is free, has changed. */
  private look(q: number): void {
    this.next.set(q, this.earliest(q))
  }

  /** When the next operation of a queue could begin. */
  private earliest(q: number): number {
    const { work, coming, ready, free } = this
    if (coming[q]!.size === 0 && ready[q]!.size === 0) return Number.POSITIVE_INFINITY
    let idle = q < work.lanes ? free[q]! : Number.POSITIVE_INFINITY
    if (q === work.lanes)
      for (let lane = work.fixed; lane < work.lanes; lane++) idle = Math.min(idle, free[lane]!)
    if (ready[q]!.size > 0) return idle
    return Math.max(idle, this.readyAt[coming[q]!.head]!)
  }

  /** The most urgent operation that could begin now: of this lane, or of a chain that may take the lane. */
  private take(q: number, now: number): number {
    const { work, laneOf } = this
    this.makeReady(q, now)
    if (q === work.lanes) {
      const i = this.ready[q]!.pop()
      laneOf[i] = this.laneFor(i, now)
      this.laneOfChain[work.chainOf[i]!] = laneOf[i]!
      this.unfinished[laneOf[i]!]!++
      return i
    }
    if (q >= work.fixed) {
      this.makeReady(work.lanes, now)
      const floating = this.ready[work.lanes]!
      if (floating.size > 0 && work.urgency[floating.head]! > work.urgency[this.ready[q]!.head]!) {
        const idle = this.laneFor(floating.head, now)
        if (idle !== -1) return this.take(work.lanes, now)
      }
    }
    return this.ready[q]!.pop()
  }

  private makeReady(q: number, now: number): void {
    const coming = this.coming[q]!
    while (coming.size > 0 && this.readyAt[coming.head]! <= now) this.ready[q]!.push(coming.pop())
  }

  /**
   * An idle lane for the start of a chain: the one with the fewest unfinished chains; of several, the lane of
   * one of its predecessors, else the first. -1 where no lane is idle.
   */
  private laneFor(i: number, now: number): number {
    const { work, free, laneOf, unfinished } = this
    let best = -1
    for (let lane = work.fixed; lane < work.lanes; lane++)
      if (free[lane]! <= now && (best === -1 || unfinished[lane]! < unfinished[best]!)) best = lane
    if (best === -1) return -1
    for (const before of work.operations[i]!.after) {
      const lane = laneOf[before]!
      if (lane >= work.fixed && free[lane]! <= now && unfinished[lane]! === unfinished[best]!) return lane
    }
    return best
  }

  private begin(i: number, now: number): void {
    const { work, busy, ends, free, laneOf, rest, unfinished } = this
    const chain = work.chainOf[i]!
    if (chain >= 0 && --rest[chain]! === 0) unfinished[laneOf[i]!]!--
    const { alone, work: own, demand, firstPool, issue } = work.costs
    this.host += issue[i]!
    const start = Math.max(now, this.host)
    let end = start + alone[i]!
    for (let r = 0; r < poolsPerDevice; r++) {
      const asked = demand[poolsPerDevice * i + r]! * own[i]!
      if (asked === 0) continue
      const at = firstPool[i]! + r
      busy[at] = Math.max(busy[at]!, start) + asked
      end = Math.max(end, busy[at]!)
    }
    if (this.begins !== undefined) this.begins[i] = start
    ends[i] = end
    free[laneOf[i]!] = end
  }
}
