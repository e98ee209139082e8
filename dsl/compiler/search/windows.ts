import type { Ordering } from '../passes/order.js'
import type { Candidate, Evaluator } from './candidates.js'

// Windows hold uploads back so that a plan needs less memory: the search tries several widths.

/** A candidate, and the memory that waits are to make it fit; undefined: no such waits. */
export interface BoundedCandidate {
  readonly candidate: Candidate
  readonly memory: number | undefined
}

/** In a wider window no upload waits for another. */
export const widestWindow = ({ unwindowed, ir }: Evaluator): number =>
  Math.max(0, ...unwindowed.values()) * ir.settings.inFlight - 1

/** One window for all uploads without one of the user's, as wide as each lane has uploads at most. */
export const windowed = ({ unwindowed, ir }: Evaluator, by: Ordering['by'], width: number): Candidate => ({
  by,
  ahead: Number.POSITIVE_INFINITY,
  window: new Map(
    Array.from(unwindowed, ([lane, count]) => [lane, Math.min(width, count * ir.settings.inFlight - 1)]),
  ),
})

/** Widths, the widest first: every narrow one, then each half as wide again as the one before. */
const widthsOf = (evaluator: Evaluator): readonly number[] => {
  const widest = widestWindow(evaluator)
  const widths: number[] = []
  for (let width = 0; width <= widest; width += Math.max(1, widths.length > 4 ? width >> 1 : 1))
    widths.push(width)
  return widths.reverse()
}

/** Windows of several widths, the widest first. */
export const allWindows = (evaluator: Evaluator, by: Ordering['by']): readonly Candidate[] =>
  evaluator.unwindowed.size === 0 ? [] : widthsOf(evaluator).map(width => windowed(evaluator, by, width))

/** The user's own windows, halved again and again down to 0, in the program's order. */
export const narrowed = (evaluator: Evaluator): readonly Candidate[] => {
  const asked = evaluator.ir.operations.reduce((widest, { ahead }) => Math.max(widest, ahead ?? 0), 0)
  const candidates: Candidate[] = []
  const plain = windowed(evaluator, 'program', 0)
  for (let ahead = asked; ahead > 0; ahead >>= 1) candidates.push({ ...plain, ahead })
  return asked > 0 ? [...candidates, { ...plain, ahead: 0 }] : candidates
}

const isSame = (a: BoundedCandidate, b: BoundedCandidate): boolean => {
  const [x, y] = [a.candidate, b.candidate]
  const windows = JSON.stringify([...x.window]) === JSON.stringify([...y.window])
  return a.memory === b.memory && x.by === y.by && x.ahead === y.ahead && windows
}

/**
 * Candidates that hold less than `unlimited`, which holds `held` bytes; the widest windows first: each with no
 * bound, then with the bytes that it holds at the least. They do not depend on the memory that there is.
 */
export const holdingLess = (
  evaluator: Evaluator,
  unlimited: Candidate,
  held: number,
): readonly BoundedCandidate[] => {
  const candidates = allWindows(evaluator, unlimited.by)
  const inProgramOrder = { ...unlimited, by: 'program' } as const
  const least = evaluator.live(unlimited)
  const all: BoundedCandidate[] = [
    { candidate: unlimited, memory: Math.floor((least + held) / 2) },
    ...candidates.flatMap(candidate => [
      { candidate, memory: undefined },
      { candidate, memory: evaluator.live(candidate) },
    ]),
    // Uploads right before their readers, held back by waits alone, in as much memory as each window needs.
    ...candidates.map(window => ({
      candidate: unlimited,
      memory: Math.max(least, evaluator.live(window)),
    })),
    { candidate: unlimited, memory: least },
    { candidate: inProgramOrder, memory: evaluator.live(inProgramOrder) },
    ...narrowed(evaluator).map(candidate => ({ candidate, memory: evaluator.live(candidate) })),
  ]
  return all.filter((one, i) => all.findIndex(other => isSame(other, one)) === i)
}
