import type { Span, Timeline } from './timeline.js'

/**
 * The chain of runs that sets a tick's time, first to last. It repeats every `ticks` ticks and takes as long
 * as they do; `ticks` is 0 where it does not repeat.
 */
export interface CriticalPath {
  readonly spans: readonly Span[]
  readonly ticks: number
  /**
   * Microseconds from the start of the first run to the start of its next repetition, or to the end of the
   * last run where the chain does not repeat.
   */
  readonly us: number
}

/**
 * The same repeating chain, rotated to begin with its first operation in issue order. Runs that move behind
 * the end are those of `ticks` ticks later.
 */
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

/** Relative difference below which two times count as equal. */
const alike = 1e-5

/**
 * Goes back from the last run of the tick, each time to the run that it waited for last, until the same
 * operation of an earlier tick is reached at a distance that equals the time of the ticks between them
 * (without a steady pace, at any distance). The runs between the two are the chain. Where no operation
 * repeats, the chain starts with the tick.
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
    // Ticks in flight may come in groups: the interval between two ticks of different place in their groups
    // is not the pace.
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
  // Only the last tick's part of a chain that does not repeat, back to where the chain leaves that tick.
  const left = path.findIndex(each => each.tick !== tick)
  const own = path.slice(0, left < 0 ? path.length : left).reverse()
  return { spans: own, ticks: 0, us: end - (own[0]?.start ?? 0) }
}
