import { bufferName, communicatorName, joinNames, nodeName } from '../../ir/names.js'
import type { Plan } from '../../ir/plan.js'
import { conflictsOf } from '../../order/conflicting-communicators.js'
import { type Access, overlap, type Run } from './runs.js'

/**
 * The purpose of a wait. `data`: one operation reads or overwrites what another one of the tick wrote or
 * reads. `state`: the same across ticks. `control`: the user asked for the order (`after`). `ranks`: two
 * collectives of conflicting communicators, which must be in one order on all ranks. `memory`: an operation
 * reuses the bytes of another buffer. `order`: none of these; such a wait breaks law L6.
 */
export type WaitFor = 'data' | 'state' | 'control' | 'ranks' | 'memory' | 'order'

export interface WhyWait {
  readonly for: WaitFor
  readonly because: string
  /** Of `control`: the node that is waited for, and whether for its start. */
  readonly node?: number
  readonly start?: boolean
}

/** Operations of each lane around a wait that are searched for the pair that it orders. */
const reach = 32

/** Finds the purpose of waits from the operations around them; made once for a plan. */
export class Waits {
  private readonly byLane: readonly (readonly Run[])[]
  /** By lane: the commands of its allocs, in order. */
  private readonly allocs: readonly number[][]
  private readonly freedAt = new Map<number, number>()
  /** By communicator, those that conflict with it. */
  private readonly conflicting: ReturnType<typeof conflictsOf>

  constructor(
    private readonly plan: Plan,
    runs: readonly Run[],
  ) {
    this.conflicting = conflictsOf(plan.communicators ?? [])
    this.byLane = plan.lanes.map(() => [])
    for (const run of runs) (this.byLane[run.lane] as Run[]).push(run)
    this.allocs = plan.lanes.map(() => [])
    plan.commands.forEach((command, at) => {
      if (command[0] === 'alloc') this.allocs[command[2]]?.push(at)
      else if (command[0] === 'free') this.freedAt.set(command[1], at)
    })
  }

  /**
   * Why wait `at` is there. `before`: the run before the event's record, `next`: the run after it; `after`:
   * the run that the wait delays; `seen`: how many runs of the other lane already happened before the wait;
   * `ticks`: whether the wait is for the previous tick.
   */
  why(
    at: number,
    before: Run | undefined,
    next: Run | undefined,
    after: Run | undefined,
    seen: number,
    ticks: boolean,
  ): WhyWait {
    const kind: WaitFor = ticks ? 'state' : 'data'
    const direct = before && after && this.conflict(before, after, ticks)
    if (direct !== undefined) return { for: kind, because: direct }
    const asked =
      after && this.asked(before, ticks ? before && this.byLane[before.lane]![0] : next, after, seen, ticks)
    if (asked !== undefined) return asked
    const ranks = before && after && this.conflictOfRanks(before, after, seen)
    if (ranks !== undefined) return { for: 'ranks', because: ranks }
    const takers = this.takers(at, after)
    const left = before === undefined ? [] : this.givers(before, at, takers, ticks)
    if (left.length > 0)
      return {
        for: 'memory',
        because: `${this.names(takers)} takes the bytes that ${this.names(left)} leaves`,
      }
    const bytes = before && after && this.arena(before, after, seen)
    if (bytes !== undefined) return { for: 'memory', because: bytes }
    const far = before && after && this.farther(before, after, seen, ticks)
    if (far !== undefined) return { for: kind, because: far }
    if (takers.length > 0)
      return { for: 'memory', because: `${this.names(takers)} takes bytes that were in use until then` }
    return { for: 'order', because: 'no data and no memory that is known here' }
  }

  /**
   * The order from `after` that a wait keeps: after the start of the run that follows the record, or after
   * the end of a run since the last order between the lanes.
   */
  private asked(
    before: Run | undefined,
    next: Run | undefined,
    after: Run,
    seen: number,
    ticks: boolean,
  ): WhyWait | undefined {
    for (const [node, when] of this.plan.nodes[after.node]?.after ?? []) {
      const name = nodeName(this.plan, node)
      if (when === 'start' && next?.node === node)
        return { for: 'control', because: `it starts after ${name} has started`, node, start: true }
      const done = before && !ticks ? this.byLane[before.lane]!.slice(seen, before.place) : []
      if (when === 'finish' && done.some(run => run.node === node))
        return { for: 'control', because: `it starts after ${name} has finished`, node, start: false }
    }
    return undefined
  }

  private communicatorOf({ node }: Run): number | undefined {
    return this.plan.nodes[node]!.collective?.communicator
  }

  /** Two collectives of conflicting communicators that the wait orders. */
  private conflictOfRanks(before: Run, after: Run, seen: number): string | undefined {
    if (this.conflicting.size === 0) return undefined
    for (const [earlier, later] of this.around(before, after, seen)) {
      const [one, other] = [this.communicatorOf(earlier), this.communicatorOf(later)]
      if (one === undefined || other === undefined || this.conflicting.get(one)?.has(other) !== true) continue
      const [first, second] = [one, other].map(id => communicatorName(this.plan, id))
      const whose = later === after ? 'it' : nodeName(this.plan, later.node)
      const call = nodeName(this.plan, earlier.node)
      return `${first} and ${second} share ranks, on all of which ${whose} comes after ${call}`
    }
    return undefined
  }

  private names(buffers: readonly number[]): string {
    return joinNames(buffers.map(b => bufferName(this.plan, b)))
  }

  /**
   * Why `after` must come after `before`: the memory that both access, in one tick, or across ticks where it
   * lives on.
   */
  private conflict(before: Run, after: Run, ticks: boolean): string | undefined {
    const { plan } = this
    const lives = ({ root }: Access): boolean =>
      !ticks || plan.buffers[root]!.life === 'state' || plan.storage === 'planned'
    const shared = (mine: readonly Access[], theirs: readonly Access[]) =>
      mine.find(b => lives(b) && theirs.some(other => overlap(b, other)))
    const read = shared(after.reads, before.writes)
    if (read !== undefined) return `it reads ${bufferName(plan, read.buffer)}`
    const overwritten = shared(after.writes, before.reads)
    if (overwritten !== undefined)
      return `it overwrites ${bufferName(plan, overwritten.buffer)}, which the other reads`
    const again = shared(after.writes, before.writes)
    return again === undefined ? undefined : `it overwrites ${bufferName(plan, again.buffer)}`
  }

  /** The data that a wait orders between other runs of the two lanes than those on its ends. */
  private farther(before: Run, after: Run, seen: number, ticks: boolean): string | undefined {
    for (const [earlier, later] of this.around(before, after, seen)) {
      const why = this.conflict(earlier, later, ticks)
      if (why === undefined) continue
      const [first, second] = [earlier, later].map(({ node }) => nodeName(this.plan, node))
      return `${second} comes after ${first}, since ${why}`
    }
    return undefined
  }

  private *around(before: Run, after: Run, seen: number): Generator<readonly [Run, Run]> {
    for (let b = before.place; b > Math.max(seen, before.place - reach); b--)
      for (let a = after.place; a < after.place + reach; a++) {
        const earlier = this.byLane[before.lane]![b - 1]
        const later = this.byLane[after.lane]![a - 1]
        if (earlier !== undefined && later !== undefined) yield [earlier, later]
      }
  }

  /**
   * Planned storage: a buffer of a later operation has bytes of an earlier operation's buffer. It has the
   * whole buffer's bytes for as long as any part of it is read, so what the two operations touch need not
   * overlap.
   */
  private arena(before: Run, after: Run, seen: number): string | undefined {
    const { plan } = this
    if (plan.storage !== 'planned') return undefined
    const lies = ({ root }: Access) => {
      const { offset = 0, bytes, space, device } = plan.buffers[root]!
      return { memory: `${space} ${device}`, from: offset, to: offset + bytes }
    }
    for (const [earlier, later] of this.around(before, after, seen)) {
      const theirs = [...earlier.reads, ...earlier.writes]
      for (const mine of [...later.writes, ...later.reads]) {
        const place = lies(mine)
        const left = theirs.find(other => {
          const its = lies(other)
          return (
            other.root !== mine.root &&
            its.memory === place.memory &&
            its.from < place.to &&
            place.from < its.to
          )
        })
        if (left !== undefined)
          return `${this.names([mine.root])} takes the bytes that ${this.names([left.root])} leaves`
      }
    }
    return undefined
  }

  /**
   * The buffers that a lane allocates between a wait and the run that it delays: the freed bytes are for
   * them.
   */
  private takers(wait: number, after: Run | undefined): readonly number[] {
    if (after === undefined) return []
    const own = this.allocs[after.lane]!
    let low = 0
    let high = own.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (own[middle]! < wait) low = middle + 1
      else high = middle
    }
    const takers: number[] = []
    for (; low < own.length && own[low]! < after.command; low++)
      takers.push((this.plan.commands[own[low]!] as readonly ['alloc', number, number])[1])
    return takers
  }

  /**
   * The buffers that `before` accesses and that are freed before the wait; where there are several, those of
   * the same home lane and size as the new buffers.
   */
  private givers(before: Run, wait: number, takers: readonly number[], ticks: boolean): readonly number[] {
    const { buffers } = this.plan
    const alike = takers.map(t => buffers[t]!)
    const near = (b: number): number => {
      const { home, bytes } = buffers[b]!
      return (alike.some(t => t.home === home) ? 2 : 0) + (alike.some(t => t.bytes === bytes) ? 1 : 0)
    }
    const memory = (b: number) => `${buffers[b]!.space} ${buffers[b]!.device}`
    const all = [...new Set([...before.reads, ...before.writes].map(({ root }) => root))].filter(b => {
      const freed = this.freedAt.get(b)
      return freed !== undefined && (ticks || freed < wait) && takers.some(t => memory(t) === memory(b))
    })
    const best = all.reduce((most, b) => Math.max(most, near(b)), 0)
    return all.filter(b => near(b) === best)
  }
}
