/** Lines of one section at most; the JSON form has them all. */
const most = 400
/**
 * The widest column of sentences: a longer sentence does not move the source positions of the other lines.
 */
const widest = 124

/** A line, and the user's source position that it is about. */
export interface Line {
  readonly says: string
  readonly at?: string
}

export const section = (title: string, says: string, lines: readonly Line[]): string[] => {
  if (lines.length === 0) return ['', `${title}: none`]
  return ['', `${title}: ${says}`, ...placed(lines, '  ')]
}

/** The lines, with the source positions in a column of their own. */
const placed = (lines: readonly Line[], indent: string): string[] => {
  const shown = lines.slice(0, most)
  const column = Math.min(
    widest,
    shown.reduce((longest, { says, at }) => (at ? Math.max(longest, says.length) : longest), 0),
  )
  const rest = lines.length - shown.length
  return [
    ...shown.map(({ says, at }) => `${indent}${at ? `${says.padEnd(column)}  ${at}` : says}`),
    ...(rest > 0 ? [`${indent}and ${rest} more: as json all are there`] : []),
  ]
}
