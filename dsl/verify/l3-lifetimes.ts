import { commandText, quotedBuffer, quotedLane } from '../ir/names.js'
import { type CommandTable, Kind, Op } from '../order/command-table.js'
import type { Replay } from '../order/replay.js'
import type { Sink } from './report.js'

/**
 * Of a buffer in a tick: `never` before its alloc, `freed` after its free, and in between 1 + its home's
 * point at the alloc.
 */
const state = { never: 0, freed: -1 } as const

/** The command that allocates b first. */
const allocOf = ({ op, named }: CommandTable, b: number): number =>
  named.findIndex((id, c) => id === b && op[c] === Op.alloc)

/**
 * L3, pooled: a tick buffer is allocated once, on its home lane, before its first access, and freed once,
 * after its last; nothing else is allocated or freed. An alloc is *before* the first access in issue order
 * and in the order of lanes: the block may have had another owner until the home lane's point at the alloc,
 * so a foreign lane's first access must be after that point (the accesses that follow are, by L1 and L2).
 * That point may be of the tick before.
 */
export class Lifetimes {
  private readonly states: Int32Array
  /** By byte interval, whether it has been accessed in the tick. */
  private readonly accessed: Uint8Array
  /**
   * Whether a later tick may break the law where the first one keeps it: an access relies on there being no
   * tick before.
   */
  looksBack = false

  constructor(
    private readonly replay: Replay,
    private readonly sink: Sink,
  ) {
    const { buffers, intervals, allocator } = replay.table
    this.states = allocator.int32(buffers)
    this.accessed = allocator.uint8(intervals.count)
  }

  begin(): void {
    this.states.fill(state.never)
    this.accessed.fill(0)
  }

  /** Judges an alloc, and below any command, just before it is issued. */
  alloc(c: number): void {
    const { replay, states, sink } = this
    const { table } = replay
    const { plan } = table
    const b = table.named[c]!
    const l = table.lane[c]!
    const home = table.home[b]!
    if (!this.owns(c, 'allocated')) return
    if (states[b] !== state.never) {
      sink.add(
        'L3',
        c,
        { buffer: b, lane: l },
        () => `${quotedBuffer(plan, b)} is allocated a second time, first at commands[${allocOf(table, b)}]`,
      )
      return
    }
    if (l !== home)
      sink.add(
        'L3',
        c,
        { buffer: b, lane: l },
        () =>
          `${quotedBuffer(plan, b)} is allocated on ${quotedLane(plan, l)}, ` +
          `but its home is ${quotedLane(plan, home)}`,
      )
    states[b] = 1 + replay.now(home)
  }

  /** Only tick buffers that are no views have a lifetime of their own. */
  private owns(c: number, verb: string): boolean {
    const { plan, named, root, kind } = this.replay.table
    const b = named[c]!
    if (root[b] === b && kind[b] === Kind.tick) return true
    this.sink.add('L3', c, { buffer: b }, () => {
      const why =
        root[b] === b
          ? `its life is ${plan.buffers[b]!.life}`
          : `it is a view of ${quotedBuffer(plan, root[b]!)}`
      return `${quotedBuffer(plan, b)} is ${verb}, but ${why}`
    })
    return false
  }

  run(c: number): void {
    const { replay, states, accessed } = this
    const { lane, kind, home, intervals } = replay.table
    const { start, root, interval } = intervals
    const l = lane[c]!
    for (let a = start[c]!, end = start[c + 1]!; a < end; a++) {
      const b = root[a]!
      if (kind[b] !== Kind.tick) continue
      const isFirst = accessed[interval[a]!] === 0
      accessed[interval[a]!] = 1
      if (states[b]! <= 0) this.accessedOutside(c, a)
      else if (isFirst && l !== home[b]) {
        if (!replay.isBefore(l, home[b]!, states[b]! - 1)) this.accessedTooEarly(c, a)
        else if (!replay.isBefore(l, home[b]!, replay.base[home[b]!]! + 1)) this.looksBack = true
      }
    }
  }

  private accessedOutside(c: number, a: number): void {
    const { plan, lane, intervals } = this.replay.table
    const b = intervals.named[a]!
    const when = this.states[intervals.root[a]!] === state.never ? 'before its alloc' : 'after its free'
    this.sink.add(
      'L3',
      c,
      { buffer: b, lane: lane[c]! },
      () => `it accesses ${quotedBuffer(plan, b)} ${when}`,
    )
  }

  private accessedTooEarly(c: number, a: number): void {
    const { table } = this.replay
    const { plan, home, lane, intervals } = table
    const b = intervals.named[a]!
    const root = intervals.root[a]!
    this.sink.add('L3', c, { buffer: b, lane: lane[c]! }, () => {
      const at = allocOf(table, root)
      return [
        `it is the first access of ${quotedBuffer(plan, b)}, but is not after the point of `,
        `its home ${quotedLane(plan, home[root]!)} at commands[${at}] (${commandText(plan, at)}): `,
        'the buffer that held these bytes before may still be in use',
      ].join('')
    })
  }

  use(c: number): void {
    const { plan, named, subject, kind, lane } = this.replay.table
    const b = named[c]!
    const root = subject[c]!
    if (kind[b] !== Kind.tick || this.states[root]! > 0) return
    const when =
      this.states[root] === state.freed
        ? 'after its free, which it can no longer hold back'
        : 'before its alloc'
    this.sink.add('L3', c, { buffer: b, lane: lane[c]! }, () => `it marks ${quotedBuffer(plan, b)} ${when}`)
  }

  /** Whether it frees a buffer that is allocated. */
  free(c: number): boolean {
    const { states, sink } = this
    const { plan, named } = this.replay.table
    const b = named[c]!
    if (!this.owns(c, 'freed')) return false
    const before = states[b]!
    states[b] = before > 0 ? state.freed : before
    if (before > 0) return true
    sink.add(
      'L3',
      c,
      { buffer: b },
      () =>
        `${quotedBuffer(plan, b)} is freed ${before === state.freed ? 'a second time' : 'before its alloc'}`,
    )
    return false
  }

  /** At the end of a tick: a buffer that is still allocated leaks, once a tick. */
  end(): void {
    const { table } = this.replay
    const { plan } = table
    for (let b = 0; b < table.buffers; b++) {
      if (this.states[b]! <= 0) continue
      this.sink.add(
        'L3',
        allocOf(table, b),
        { buffer: b },
        () => `${quotedBuffer(plan, b)} is never freed: every tick leaks ${plan.buffers[b]!.bytes} bytes`,
      )
    }
  }
}
