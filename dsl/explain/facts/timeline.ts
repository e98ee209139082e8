import type { Plan } from '../../ir/plan.js'
import type { Resource } from '../../machine/cost.js'
import type { Cause } from '../../machine/simulate/simulate.js'

/** One predicted run of one tick, in microseconds after the first tick was begun. */
export interface Span {
  readonly index: number
  readonly tick: number
  /** Its place among the runs of a tick, in issue order. */
  readonly run: number
  readonly node: number
  readonly lane: number
  readonly start: number
  readonly end: number
  /** The resource that bounds it. */
  readonly resource: Resource
  /**
   * What it waited for last, and the index of the span that it waited for; undefined where that was not a
   * run.
   */
  readonly cause: Cause
  readonly after: number | undefined
}

/** A predicted timeline, tick after tick, until the pace is steady. */
export interface Timeline {
  readonly plan: Plan
  readonly machine: string
  /** The tick that the explanation shows, and the time of a tick at a steady pace. */
  readonly tick: number
  readonly tickUs: number
  /** Ticks after which the timeline repeats: ticks in flight may end in groups. */
  readonly over: number
  /** Whether it repeats within the predicted ticks. */
  readonly steady: boolean
  /** Every predicted run by index: tick by tick, in issue order. */
  readonly spans: readonly Span[]
}

/** From the first start to the last end of the tick shown; longer than `tickUs` where ticks overlap. */
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

/** The union of intervals, in order and disjoint. */
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

/** How much of [from, to) lies in the intervals, which are in order and disjoint. */
export const overlapWith = (
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
  let sum = 0
  for (; low < joined.length && joined[low]!.start < to; low++)
    sum += Math.max(0, Math.min(to, joined[low]!.end) - Math.max(from, joined[low]!.start))
  return sum
}
