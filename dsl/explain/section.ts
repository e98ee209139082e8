/** Lines of one section at most: a plan of a million commands is read as JSON. */
const most = 400
/** A sentence longer than this does not push the places of all others to the right. */
const widest = 124

/** A line and where in the user's program it belongs. */
export interface Line {
  readonly says: string
  readonly at?: string
}

export const section = (title: string, says: string, lines: readonly Line[]): string[] => {
  if (lines.length === 0) return ['', `${title}: none`]
  return ['', `${title}: ${says}`, ...placed(lines, '  ')]
}

/** Lines with the user's places in a column of their own. */
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
