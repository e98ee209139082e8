import type { Span, Timeline } from './timeline.js'

/** The chain that sets a tick's time, first to last. `ticks`: it comes round again after so many, and takes as long as they do; 0: it does not come round. */
export interface CriticalPath {
  readonly spans: readonly Span[]
  readonly ticks: number
  /** Microseconds from the start of the first to the start of the same a turn later, or to the end of the last. */
  readonly us: number
}

/** A chain that comes round, told from its first operation in issue order: what stood before that is the same so many ticks later. */
const turned = (path: readonly Span[], spans: readonly Span[], ticks: number): readonly Span[] => {
  const perTick = (spans[spans.length - 1]!.index + 1) / (spans[spans.length - 1]!.tick + 1)
  const pivot = path.reduce((least, span, i) => (span.run < path[least]!.run ? i : least), 0)
  const round = [
    ...path.slice(pivot),
    ...path.slice(0, pivot).flatMap(({ index }) => spans[index + ticks * perTick] ?? []),
  ]
  const follows = round.every((span, i) => i === 0 || span.after === round[i - 1]!.index)
  return follows && round.length === path.length ? round : path
}

/** Times that differ by less than this part of them are the same. */
const alike = 1e-5

/**
 * Walks back from the end of the tick, each time to what was waited for last, until an operation comes round again as long ago as so many ticks take: then the chain
 * between is what they take; about so, where the pace is not steady. A plan whose ticks do not lean on each other yields the chain from the tick's begin.
 */
export const criticalPath = ({ spans, tick, tickUs, steady }: Timeline): CriticalPath => {
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
      return takes > 0 && (!steady || Math.abs(path[i]!.start - start - takes) <= alike * takes)
    })
    if (since !== undefined) {
      const first = path[since]!
      const ticks = first.tick - tick
      return { spans: turned(path.slice(since).reverse(), spans, ticks), ticks, us: first.start - start }
    }
    met.set(run, [...again, path.length])
    path.push(span)
    span = span.after === undefined ? undefined : spans[span.after]
  }
  // Of a chain that does not come round only the last tick's part is told, back to where it leaves that tick: it may come into it again from another one's copies.
  const left = path.findIndex(each => each.tick !== tick)
  const own = path.slice(0, left < 0 ? path.length : left).reverse()
  return { spans: own, ticks: 0, us: end - (own[0]?.start ?? 0) }
}
