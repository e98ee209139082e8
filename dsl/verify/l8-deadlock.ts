import { Replay } from '../order/replay.js'
import { type Blame, type Call, callText, type Match, type World } from './l8-matching.js'

interface Wait {
  readonly call: Call
  readonly earlier: Call
}

/**
 * L8 of several ranks, with no buffering assumed: matching calls begin when each of them has come to the head
 * of its lane, and end together. A rank's calls over one communicator begin in issue order, whatever their
 * lanes (NCCL's rule). So the ranks deadlock exactly where matches wait for each other in a cycle, which
 * remains after repeatedly removing the matches that wait for none. The waits inside a tick are the same in
 * every tick, and none is for a later one, so one tick decides.
 */
export const checkDeadlock = (world: World, matches: readonly Match[], blame: Blame): void => {
  const matchOf = new Map<Call, number>()
  matches.forEach((calls, match) => {
    for (const call of calls) matchOf.set(call, match)
  })
  /**
   * By match, why it waits: the match of `earlier` is to end before `call` begins; and the matches that wait
   * for it.
   */
  const waits: Wait[][] = matches.map(() => [])
  const waiting: number[][] = matches.map(() => [])
  for (const calls of world.calls)
    precedence(calls, (call, earlier) => {
      const later = matchOf.get(call)!
      waits[later]!.push({ call, earlier })
      waiting[matchOf.get(earlier)!]!.push(later)
    })
  const left = waits.map(list => list.length)
  const open = left.flatMap((count, match) => (count === 0 ? [match] : []))
  const done = new Uint8Array(matches.length)
  for (let match = open.pop(); match !== undefined; match = open.pop()) {
    done[match] = 1
    for (const later of waiting[match]!) if (--left[later]! === 0) open.push(later)
  }
  const start = done.indexOf(0)
  if (start < 0) return
  const circle = circleFrom(
    start,
    match => waits[match]!.find(({ earlier }) => done[matchOf.get(earlier)!] === 0)!,
    call => matchOf.get(call)!,
  )
  blame(circle[0]!.call, () => {
    const steps = circle.map(
      ({ call, earlier }) =>
        `${callText(call)} comes after ${callText(earlier)}, which begins only with its other ranks`,
    )
    return `deadlock, nothing buffered: ${steps.join('; ')}; and so round to the first`
  })
}

/** A cycle of waits among the remaining matches, each of which waits for another one of them. */
const circleFrom = (start: number, why: (match: number) => Wait, matchOf: (call: Call) => number): Wait[] => {
  const seenAt = new Map<number, number>()
  const path: Wait[] = []
  for (let match = start; ; ) {
    const before = seenAt.get(match)
    if (before !== undefined) return path.slice(before)
    seenAt.set(match, path.length)
    const wait = why(match)
    path.push(wait)
    match = matchOf(wait.earlier)
  }
}

/**
 * Of one rank: each call with the maximal calls before it, which are the last one of each lane that is before
 * it, and the one before it over its communicator.
 */
const precedence = (calls: readonly Call[], put: (call: Call, earlier: Call) => void): void => {
  if (calls.length === 0) return
  const { table } = calls[0]!.rank
  const { lanes } = table
  const replay = new Replay(table)
  const issued: { readonly call: Call; readonly point: number }[][] = Array.from({ length: lanes }, () => [])
  /** By lane and other lane: how many of that lane's calls are known to be before it. */
  const reached = new Int32Array(lanes * lanes)
  const latest = new Map<object, Call>()
  replay.begin()
  let next = 0
  for (let c = 0; c < table.commands && next < calls.length; c++) {
    const call = calls[next]!
    const here = call.command === c
    if (here) {
      next++
      const l = table.lane[c]!
      for (let m = 0; m < lanes; m++) {
        const others = issued[m]!
        const at = l * lanes + m
        while (reached[at]! < others.length && others[reached[at]!]!.point <= replay.known[at]!)
          reached[at]!++
        if (reached[at]! > 0) put(call, others[reached[at]! - 1]!.call)
      }
      const before = latest.get(call.group)
      if (before !== undefined) put(call, before)
      latest.set(call.group, call)
    }
    replay.step(c)
    if (here) issued[table.lane[c]!]!.push({ call, point: replay.now(table.lane[c]!) })
  }
}
