import type { Span, Timeline } from './timeline.js'

/** The chain that sets a tick's time, first to last. `ticks`: it comes round again after so many, and takes as long as they do; 0: it does not come round. */
export interface CriticalPath {
  readonly spans: readonly Span[]
  readonly ticks: number
  /** Microseconds from the start of the first to the start of the same a turn later, or to the end of the last. */
  readonly us: number
}

/**
 * Walks back from the end of the tick, each time to what was waited for last, until an operation comes round again at the same place of the pace: then the chain between is what
 * so many ticks take. A plan whose ticks do not lean on each other yields the chain from the tick's begin.
 */
export const criticalPath = ({ spans, tick, over }: Timeline): CriticalPath => {
  let span = spans.reduce<Span | undefined>(
    (last, each) => (each.tick === tick && (last === undefined || each.end > last.end) ? each : last),
    undefined,
  )
  const end = span?.end ?? 0
  const path: Span[] = []
  const met = new Map<string, number>()
  while (span !== undefined) {
    const key = `${span.run} ${span.tick % over}`
    const again = met.get(key)
    if (again !== undefined) {
      const first = path[again]!
      return { spans: path.slice(again).reverse(), ticks: first.tick - span.tick, us: first.start - span.start }
    }
    met.set(key, path.length)
    path.push(span)
    span = span.after === undefined ? undefined : spans[span.after]
  }
  path.reverse()
  return { spans: path, ticks: 0, us: end - (path[0]?.start ?? 0) }
}
