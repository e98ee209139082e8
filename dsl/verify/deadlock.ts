import { Frontiers } from '../order/frontiers.js'
import type { Blame } from './matching.js'
import { type Call, callText, type World } from './ranks.js'

/**
 * L8, nothing buffered: a meeting begins when all of its calls have come to the head of their lanes, and each call ends with it. A rank's calls over one
 * communicator begin in issue order, whatever their lanes (NCCL's rule). So a plan of ranks stops for ever exactly where meetings wait for each other in a circle:
 * which is decided by leaving out, again and again, what waits for nothing. What waits for what inside a tick is the same in every tick, and
 * nothing waits for a later one, so one tick decides.
 */
export const checkDeadlock = (world: World, meetings: readonly Call[][], blame: Blame): void => {
  const meetingOf = new Map<Call, number>()
  meetings.forEach((calls, meeting) => {
    for (const call of calls) meetingOf.set(call, meeting)
  })
  /** By meeting, why it waits: that of `earlier` is to end before `call` begins. */
  const waits: { readonly call: Call; readonly earlier: Call }[][] = meetings.map(() => [])
  const freed: number[][] = meetings.map(() => [])
  for (const calls of world.calls)
    precedence(calls, (call, earlier) => {
      const later = meetingOf.get(call)!
      waits[later]!.push({ call, earlier })
      freed[meetingOf.get(earlier)!]!.push(later)
    })
  const left = waits.map(list => list.length)
  const open = left.flatMap((count, meeting) => (count === 0 ? [meeting] : []))
  const done = new Uint8Array(meetings.length)
  for (let meeting = open.pop(); meeting !== undefined; meeting = open.pop()) {
    done[meeting] = 1
    for (const later of freed[meeting]!) if (--left[later]! === 0) open.push(later)
  }
  const circle = circleOf(
    meetings.length,
    done,
    meeting => waits[meeting]!.find(({ earlier }) => done[meetingOf.get(earlier)!] === 0)!,
    earlier => meetingOf.get(earlier)!,
  )
  if (circle.length === 0) return
  blame(circle[0]!.call, () => {
    const steps = circle.map(
      ({ call, earlier }) =>
        `${callText(call)} comes after ${callText(earlier)}, which begins only with its other ranks`,
    )
    return `deadlock, nothing buffered: ${steps.join('; ')}; and so round to the first`
  })
}

type Wait = { readonly call: Call; readonly earlier: Call }

/** Some circle among the meetings that are left; empty if there is none. */
const circleOf = (
  count: number,
  done: Uint8Array,
  why: (meeting: number) => Wait,
  meetingOf: (call: Call) => number,
): Wait[] => {
  const start = done.indexOf(0)
  if (start < 0 || count === 0) return []
  const seenAt = new Map<number, number>()
  const path: Wait[] = []
  for (let meeting = start; ; ) {
    const before = seenAt.get(meeting)
    if (before !== undefined) return path.slice(before)
    seenAt.set(meeting, path.length)
    const wait = why(meeting)
    path.push(wait)
    meeting = meetingOf(wait.earlier)
  }
}

/** Of one rank: each call, with the calls that are before it and before no other such: the last known of each lane, and the one before it over its communicator. */
const precedence = (calls: readonly Call[], put: (call: Call, earlier: Call) => void): void => {
  if (calls.length === 0) return
  const { tables } = calls[0]!.rank
  const { lanes } = tables
  const clock = new Frontiers(tables)
  const issued: { readonly call: Call; readonly point: number }[][] = Array.from({ length: lanes }, () => [])
  /** By lane and other lane: how many of that lane's calls are known to be before it. */
  const reached = new Int32Array(lanes * lanes)
  const latest = new Map<object, Call>()
  clock.begin()
  let next = 0
  for (let c = 0; c < tables.commands && next < calls.length; c++) {
    const call = calls[next]!
    const here = call.command === c
    if (here) {
      next++
      const l = tables.lane[c]!
      for (let m = 0; m < lanes; m++) {
        const others = issued[m]!
        const at = l * lanes + m
        while (reached[at]! < others.length && others[reached[at]!]!.point <= clock.known[at]!) reached[at]!++
        if (reached[at]! > 0) put(call, others[reached[at]! - 1]!.call)
      }
      const before = latest.get(call.group)
      if (before !== undefined) put(call, before)
      latest.set(call.group, call)
    }
    clock.step(c)
    if (here) issued[tables.lane[c]!]!.push({ call, point: clock.known[tables.lane[c]! * (lanes + 1)]! })
  }
}
