import { Op } from '../order/command-table.js'
import type { Replay } from '../order/replay.js'

/** Ticks that are replayed: a wait may be redundant in the first tick, and not in ticks with predecessors. */
const ticks = 3

/**
 * The linear test of L6: by command, 1 for each wait that is redundant in every tick; undefined: there is
 * none. A wait is redundant where its event's frontier is dominated by the lane's own, or by that joined with
 * the other waits before the lane's next run. A record, alloc or free of the lane between two waits separates
 * them, since it happens after the first one alone.
 */
export const dominatedWaits = (replay: Replay): Uint8Array | undefined => {
  const { table } = replay
  const { op, recordOf, subject, commands, allocator } = table
  const dominated = allocator.uint8(commands)
  let left = 0
  for (let c = 0; c < commands; c++) {
    if (op[c] !== Op.wait && op[c] !== Op.previous) continue
    const record = recordOf[subject[c]!]!
    if (record < 0 || (op[c] === Op.wait && record > c)) continue // L7 reports it
    dominated[c] = 1
    left++
  }
  replay.restart()
  const groups = new WaitGroups(replay, dominated)
  for (let tick = 0; tick < ticks && groups.added < left; tick++) {
    replay.begin()
    for (let c = 0; c < commands; c++) {
      const code = op[c]!
      if (code === Op.wait || code === Op.previous) groups.put(c)
      else if (code !== Op.use && code !== Op.broken) groups.end(replay.laneOf(c))
      replay.step(c)
    }
    for (let l = 0; l < replay.lanes; l++) groups.end(l)
  }
  return groups.added < left ? dominated : undefined
}

/**
 * Limit of the waits of a group times the lanes, beyond which another group begins: it bounds the memory of
 * the test. A wait that only a wait of another group dominates is not found.
 */
const mostNumbers = 2 ** 22

/** By lane: its waits since its last other command, and its frontier before them. */
class WaitGroups {
  private readonly waits: number[][]
  private readonly before: Int32Array
  private after = new Int32Array(0)
  /** The number of waits that are not redundant in some tick. */
  added = 0

  constructor(
    private readonly replay: Replay,
    /** By command, 1 for each wait that has been redundant so far. */
    private readonly dominated: Uint8Array,
  ) {
    const { lanes, table } = replay
    this.waits = Array.from({ length: lanes }, () => [])
    this.before = table.allocator.int32(lanes * lanes)
  }

  /** Called for wait c, just before it is issued. */
  put(c: number): void {
    const { known, lanes } = this.replay
    const l = this.replay.laneOf(c)
    if (this.waits[l]!.length * lanes >= mostNumbers) this.end(l)
    if (this.waits[l]!.length === 0)
      for (let at = l * lanes; at < (l + 1) * lanes; at++) this.before[at] = known[at]!
    this.waits[l]!.push(c)
  }

  /**
   * Lane l issues another command. `after[w]` is the join of the waits that follow wait w; `before` grows to
   * the join of the frontier and the waits that precede it.
   */
  end(l: number): void {
    const waits = this.waits[l]!
    const size = waits.length
    if (size === 0) return
    const { before, dominated } = this
    const { lanes, table } = this.replay
    if (this.after.length < (size + 1) * lanes) this.after = new Int32Array(2 * (size + 1) * lanes)
    const { after } = this
    after.fill(0, size * lanes, (size + 1) * lanes)
    for (let w = size - 1; w > 0; w--) {
      const marks = this.marksOf(waits[w]!)
      const from = table.subject[waits[w]!]! * lanes
      for (let m = 0; m < lanes; m++) {
        const later = after[(w + 1) * lanes + m]!
        const point = marks === undefined ? 0 : marks[from + m]!
        after[w * lanes + m] = point > later ? point : later
      }
    }
    for (let w = 0; w < size; w++) {
      const c = waits[w]!
      const marks = this.marksOf(c)
      if (marks === undefined) continue
      const from = table.subject[c]! * lanes
      let adds = false
      for (let m = 0; m < lanes; m++) {
        const point = marks[from + m]!
        if (point <= before[l * lanes + m]!) continue
        if (point > after[(w + 1) * lanes + m]!) adds = true
        before[l * lanes + m] = point
      }
      if (!adds || dominated[c] === 0) continue
      dominated[c] = 0
      this.added++
    }
    waits.length = 0
  }

  private marksOf(c: number): Int32Array | undefined {
    const { op, subject } = this.replay.table
    return this.replay.marksOf(subject[c]!, op[c] === Op.previous ? 1 : 0)
  }
}
