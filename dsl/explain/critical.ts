import type { Span, Timeline } from './timeline.js'

/** The chain that sets a tick's time, first to last. `ticks`: it comes round again after so many, and takes as long as they do; 0: it does not come round. */
export interface CriticalPath {
  readonly spans: readonly Span[]
  readonly ticks: number
  /** Microseconds from the start of the first to the start of the same a turn later, or to the end of the last. */
  readonly us: number
}

/** Times that differ by less than this part of them are the same. */
const alike = 1e-5

/**
 * Walks back from the end of the tick, each time to what was waited for last, until an operation comes round again as long ago as so many ticks take: then the chain
 * between is what they take. A plan whose ticks do not lean on each other yields the chain from the tick's begin.
 */
export const criticalPath = ({ spans, tick, tickUs }: Timeline): CriticalPath => {
  let span = spans.reduce<Span | undefined>(
    (last, each) => (each.tick === tick && (last === undefined || each.end > last.end) ? each : last),
    undefined,
  )
  const end = span?.end ?? 0
  const path: Span[] = []
  const met = new Map<number, number[]>()
  while (span !== undefined) {
    const { run, start, tick }: Span = span
    const again = met.get(run) ?? []
    // Ticks in flight may come in groups, unlike each other: what lies between two of them is not the pace.
    const since = again.find(i => {
      const takes = (path[i]!.tick - tick) * tickUs
      return takes > 0 && Math.abs(path[i]!.start - start - takes) <= alike * takes
    })
    if (since !== undefined) {
      const first = path[since]!
      return { spans: path.slice(since).reverse(), ticks: first.tick - tick, us: first.start - start }
    }
    met.set(run, [...again, path.length])
    path.push(span)
    span = span.after === undefined ? undefined : spans[span.after]
  }
  // Of a chain that does not come round only the last tick's part is told.
  const own = path.filter(each => each.tick === tick).reverse()
  return { spans: own, ticks: 0, us: end - (own[0]?.start ?? 0) }
}
