import { commandText, quotedBuffer, quotedLane } from '../ir/names.js'
import type { LastAccesses } from '../order/last-accesses.js'
import type { Replay } from '../order/replay.js'
import type { Sink } from './report.js'

/**
 * L4, pooled: at a free, each foreign lane's last access is marked by a `use`, or before the event of another
 * use of that buffer, or before some command already issued on the home lane. It is a matter of one tick,
 * since all accesses of a tick buffer and its free are of one.
 */
export class Uses {
  /** Uses so far in the tick; by use, 1 + the use of its buffer before it; by buffer, 1 + its last use. */
  private count = 0
  private readonly before: Int32Array
  private readonly lastOf: Int32Array

  constructor(
    private readonly replay: Replay,
    /**
     * The maximal accesses of each interval: whatever holds back one of them holds back the accesses before
     * it too.
     */
    private readonly last: LastAccesses,
    /** By use, 1 where it alone marks some access: for L6. */
    private readonly needed: Uint8Array,
    private readonly sink: Sink,
  ) {
    const { buffers, uses, allocator } = replay.table
    this.before = allocator.int32(uses)
    this.lastOf = allocator.int32(buffers)
  }

  begin(): void {
    this.count = 0
    this.lastOf.fill(0)
  }

  /** Judges use c, just before it is issued. */
  use(c: number): void {
    const { recordOf, useEvent, lane, subject } = this.replay.table
    const u = this.count++
    const record = recordOf[useEvent[u]!]!
    // A use marks a point where its event is recorded earlier in the tick, on the lane that the use names.
    if (record < 0 || record >= c || lane[record] !== lane[c]) {
      this.marksNothing(c, u)
      return
    }
    const b = subject[c]!
    this.before[u] = this.lastOf[b]!
    this.lastOf[b] = u + 1
  }

  /** Judges free c, which frees an allocated buffer, just before it is issued. */
  free(c: number): void {
    const { replay, last } = this
    const { named, home, intervals } = replay.table
    const b = named[c]!
    const l = home[b]!
    for (let i = intervals.first[b]!; i < intervals.first[b + 1]!; i++) {
      for (let e = last.first(i); e !== 0; e = last.next(e)) {
        const m = last.laneOf(e)
        const point = last.pointOf(e)
        if (m !== l && point > replay.base[m]! && !replay.isBefore(l, m, point)) this.hold(c, b, m, point)
      }
    }
  }

  /** Some use of b has point p of lane m before its event. */
  private hold(c: number, b: number, m: number, p: number): void {
    const { replay, before } = this
    const { useEvent } = replay.table
    let [marks, only] = [0, -1]
    for (let u = this.lastOf[b]! - 1; u >= 0 && marks < 2; u = before[u]! - 1) {
      const event = useEvent[u]!
      const frontiers = replay.marksOf(event, 0)
      if (frontiers === undefined || frontiers[event * replay.lanes + m]! < p) continue
      only = u
      marks++
    }
    if (marks === 1) this.needed[only] = 1
    else if (marks === 0) this.freedTooEarly(c, b, m, p)
  }

  private marksNothing(c: number, u: number): void {
    const { plan, named, lane, useEvent, eventId, recordOf } = this.replay.table
    const b = named[c]!
    const event = useEvent[u]!
    this.sink.add('L4', c, { buffer: b, lane: lane[c]!, event: eventId[event]! }, () => {
      const record = recordOf[event]!
      const found =
        record < 0
          ? 'which is never recorded'
          : record > c
            ? `which is recorded only later, at commands[${record}]`
            : `which is recorded on ${quotedLane(plan, lane[record]!)}`
      const access = `the last access of ${quotedBuffer(plan, b)} on ${quotedLane(plan, lane[c]!)}`
      return `it marks ${access} by e${eventId[event]}, ${found}`
    })
  }

  private freedTooEarly(c: number, b: number, m: number, point: number): void {
    const { replay } = this
    const { plan, home } = replay.table
    this.sink.add('L4', c, { buffer: b, lane: m }, () => {
      const access = replay.commandAt(m, point)
      return [
        `${quotedLane(plan, m)} last accesses ${quotedBuffer(plan, b)} `,
        `at commands[${access}] (${commandText(plan, access)}), which no use marks `,
        `and no command already issued on its home ${quotedLane(plan, home[b]!)} is after`,
      ].join('')
    })
  }
}
