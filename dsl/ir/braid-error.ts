import { type Either, isLeft } from 'fp-ts/lib/Either.js'
import type { Fault } from './fault.js'
import { renderAll } from './messages.js'

/** The error of `orThrow`: every fault in its message, and as data. */
export class BraidError extends Error {
  override readonly name = 'BraidError'

  constructor(readonly faults: readonly Fault[]) {
    super(renderAll(faults))
  }
}

const faultsOf = (left: Fault | readonly Fault[]): readonly Fault[] => ('_tag' in left ? [left] : left)

/**
 * The value of a right; for programs that catch errors rather than match: `orThrow(compile(graph))`. Throws a
 * `BraidError` for a left.
 */
export const orThrow = <A>(either: Either<Fault | readonly Fault[], A>): A => {
  if (isLeft(either)) throw new BraidError(faultsOf(either.left))
  return either.right
}
