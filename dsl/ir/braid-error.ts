import { type Either, isLeft } from 'fp-ts/lib/Either.js'
import type { Fault } from './fault.js'
import { FaultError } from './fault-error.js'
import { renderAll } from './messages.js'

const noFault: Fault = { _tag: '', at: '', subject: '', wanted: '', found: '', next: '' }

/**
 * What `orThrow` throws, and calls whose argument cannot be reported later: every fault in its message, and
 * as data. The fields of the first one are its own too.
 */
export class BraidError extends FaultError {
  override readonly name = 'BraidError'

  constructor(readonly faults: readonly Fault[]) {
    super(renderAll(faults), faults[0] ?? noFault)
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
