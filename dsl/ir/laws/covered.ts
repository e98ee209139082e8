import { Clock } from './clock.js'
import { Op, type Tables } from './tables.js'

/** Ticks that are looked at: a wait may add nothing in the first tick, and something in those that have others before them. */
const ticks = 3

/**
 * The linear test of L6: by command, 1 for each wait that adds nothing in any tick, since the lane's frontier covers it, or
 * would with the other waits before the lane's next run. A record, alloc or free of the lane between two waits sees the
 * first one alone, so they are not counted together.
 */
export const coveredWaits = (tables: Tables): Uint8Array => {
  const { op, lane, lanes, recordOf, subject } = tables
  const clock = new Clock(tables)
  const covered = new Uint8Array(tables.commands)
  for (let c = 0; c < tables.commands; c++) {
    const record = recordOf[subject[c]!] ?? -1
    if (op[c] === Op.previous) covered[c] = record >= 0 ? 1 : 0
    else if (op[c] === Op.wait) covered[c] = record >= 0 && record < c ? 1 : 0
  }

  /** Of each lane: its waits since its last other command, and its frontier before them. */
  const groups: number[][] = Array.from({ length: lanes }, () => [])
  const before = new Int32Array(lanes * lanes)
  const nothing = new Int32Array(lanes)

  const decide = (l: number): void => {
    const waits = groups[l]!
    if (waits.length === 0) return
    if (waits.length === 1) {
      // One wait alone adds what its mark is beyond the frontier.
      const c = waits.pop()!
      const first = subject[c]! * lanes
      const table = covered[c] === 1 ? clock.markOf(subject[c]!, op[c] === Op.previous ? 1 : 0) : undefined
      if (table === undefined) return
      for (let m = 0; m < lanes; m++) if (table[first + m]! > before[l * lanes + m]!) covered[c] = 0
      return
    }
    groups[l] = []
    // after[w] is the join of the waits that follow w; `known` grows to that of the frontier and the waits that precede it.
    const after = new Int32Array((waits.length + 1) * lanes)
    const markOf = (w: number) => {
      const event = subject[waits[w]!]!
      const table = clock.markOf(event, op[waits[w]!] === Op.previous ? 1 : 0)
      return table === undefined ? nothing : table.subarray(event * lanes, event * lanes + lanes)
    }
    for (let w = waits.length - 1; w >= 0; w--) {
      const mark = markOf(w)
      for (let m = 0; m < lanes; m++) after[w * lanes + m] = Math.max(mark[m]!, after[(w + 1) * lanes + m]!)
    }
    for (let w = 0; w < waits.length; w++) {
      const mark = markOf(w)
      for (let m = 0; m < lanes; m++) {
        const point = mark[m]!
        if (point > before[l * lanes + m]! && point > after[(w + 1) * lanes + m]!) covered[waits[w]!] = 0
      }
      for (let m = 0; m < lanes; m++) before[l * lanes + m] = Math.max(before[l * lanes + m]!, mark[m]!)
    }
  }

  for (let tick = 0; tick < ticks; tick++) {
    clock.begin()
    for (let c = 0; c < tables.commands; c++) {
      const code = op[c]
      if (code === Op.broken || code === Op.use) continue
      const l = lane[c]!
      if (code === Op.wait || code === Op.previous) {
        if (groups[l]!.length === 0) for (let m = 0; m < lanes; m++) before[l * lanes + m] = clock.known[l * lanes + m]!
        groups[l]!.push(c)
      } else decide(l)
      clock.step(c)
    }
    for (let l = 0; l < lanes; l++) decide(l)
  }
  return covered
}
