// Longer names than any that is known are compared by their beginning: what is given may be of any length.
const compared = 64

/** The name that takes the fewest changed, added or removed characters to get to, where that is less than half of it. */
export const nearest = (given: string, known: readonly string[]): string | undefined => {
  const word = given.slice(0, compared)
  const ranked = known
    .map(name => ({ name, steps: distance(word.toLowerCase(), name.toLowerCase()) }))
    .sort((a, b) => a.steps - b.steps)
  const best = ranked[0]
  return best !== undefined && best.steps <= Math.max(1, best.name.length / 2) ? best.name : undefined
}

// Levenshtein's distance, a row at a time.
const distance = (from: string, to: string): number => {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column)
  for (let i = 1; i <= from.length; i++) {
    const next = [i]
    for (let j = 1; j <= to.length; j++)
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1)))
    row = next
  }
  return row[to.length]!
}
