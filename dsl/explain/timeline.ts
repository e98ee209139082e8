import type { Plan } from '../ir/plan.js'
import type { Resource } from '../machine/cost.js'
import type { Cause } from '../machine/simulate/simulate.js'

/** One run of one tick as a machine is predicted to do it: microseconds from the moment when the first tick is begun. */
export interface Span {
  readonly index: number
  readonly tick: number
  /** Its place among the runs of a tick, in issue order. */
  readonly run: number
  readonly node: number
  readonly lane: number
  readonly start: number
  readonly end: number
  /** What it keeps busy: arithmetic, device memory, a direction of copying, a link, the host. */
  readonly resource: Resource
  /** What it waited for last, and which span that was: its index; none where it was no run. */
  readonly cause: Cause
  readonly after: number | undefined
}

/** What a machine is predicted to do with a plan, tick after tick, until every tick is like the one before. */
export interface Timeline {
  readonly plan: Plan
  readonly machine: string
  /** The tick that is told of, and how long a tick takes once the pace is steady. */
  readonly tick: number
  readonly tickUs: number
  /** Ticks after which everything repeats itself: ticks in flight may end in groups. */
  readonly over: number
  /** Whether it does, in the ticks that were predicted. */
  readonly steady: boolean
  /** Every run of every tick that was predicted, by index: tick by tick, in issue order. */
  readonly spans: readonly Span[]
}

/** From the first start to the last end of the tick that is told of: longer than `tickUs` where ticks overlap. */
export const extentOf = ({ spans, tick }: Timeline): { readonly from: number; readonly to: number } => {
  let from = Number.POSITIVE_INFINITY
  let to = Number.NEGATIVE_INFINITY
  for (const span of spans) {
    if (span.tick !== tick) continue
    from = Math.min(from, span.start)
    to = Math.max(to, span.end)
  }
  return from <= to ? { from, to } : { from: 0, to: 0 }
}

/** Intervals joined where they meet, in order. */
export const union = (
  spans: readonly { readonly start: number; readonly end: number }[],
): { start: number; end: number }[] => {
  const joined: { start: number; end: number }[] = []
  for (const { start, end } of [...spans].sort((a, b) => a.start - b.start)) {
    const last = joined[joined.length - 1]
    if (last !== undefined && start <= last.end) last.end = Math.max(last.end, end)
    else joined.push({ start, end })
  }
  return joined
}

/** How much of [from, to) the intervals cover; they are in order and apart. */
export const coveredBy = (
  joined: readonly { readonly start: number; readonly end: number }[],
  from: number,
  to: number,
): number => {
  let low = 0
  let high = joined.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (joined[middle]!.end <= from) low = middle + 1
    else high = middle
  }
  let covered = 0
  for (; low < joined.length && joined[low]!.start < to; low++)
    covered += Math.max(0, Math.min(to, joined[low]!.end) - Math.max(from, joined[low]!.start))
  return covered
}
