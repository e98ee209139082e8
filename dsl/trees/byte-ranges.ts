/** Bytes of an arena: from `from` up to, but not including, `to`. */
export interface ByteRange {
  readonly from: number
  readonly to: number
}

export const overlap = (a: ByteRange, b: ByteRange): boolean => a.from < b.to && b.from < a.to

/** The same bytes as ranges in order that neither overlap nor touch. */
export const merged = (ranges: readonly ByteRange[]): readonly ByteRange[] => {
  const found: { from: number; to: number }[] = []
  for (const { from, to } of [...ranges]
    .filter(({ from, to }) => from < to)
    .sort((a, b) => a.from - b.from)) {
    const last = found.at(-1)
    if (last !== undefined && from <= last.to) last.to = Math.max(last.to, to)
    else found.push({ from, to })
  }
  return found
}

/** The bytes of `ranges` that are in none of `holes`. */
export const without = (ranges: readonly ByteRange[], holes: readonly ByteRange[]): readonly ByteRange[] =>
  holes.reduce<readonly ByteRange[]>(
    (left, hole) =>
      left.flatMap(range => {
        if (!overlap(range, hole)) return [range]
        const parts = [
          { from: range.from, to: hole.from },
          { from: hole.to, to: range.to },
        ]
        return parts.filter(({ from, to }) => from < to)
      }),
    ranges,
  )

/** The lowest place for so many bytes that lies in none of these ranges, which `merged` made. */
export const lowestGap = (taken: readonly ByteRange[], bytes: number): number => {
  let at = 0
  for (const { from, to } of taken) {
    if (from - at >= bytes) return at
    at = to
  }
  return at
}

/**
 * The low end of the shortest gap that so many bytes fit in, between ranges that `merged` made; else the end
 * of the last of them.
 */
export const shortestGap = (taken: readonly ByteRange[], bytes: number): number => {
  let at = 0
  let best = -1
  let bestGap = Number.POSITIVE_INFINITY
  for (const { from, to } of taken) {
    const gap = from - at
    if (gap >= bytes && gap < bestGap) {
      best = at
      bestGap = gap
    }
    at = to
  }
  return best >= 0 ? best : at
}
