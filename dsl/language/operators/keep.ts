import * as E from 'fp-ts/lib/Either.js'
import type { Flow } from '../flow.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import type { Operator } from './operator.js'

/** The value itself: a view, which the pass `fuse` does not read through. */
export const keepOperator: Operator = {
  name: 'keep',
  infer: ([x]) => E.right(x!),
  lower: () => ({ as: 'view', offsetBytes: 0 }),
  mayBeView: true,
  reference: ([x]) => x!.slice(),
  tolerance: () => 0,
}

/**
 * The value is stored in memory, so no kernel joins what makes it with what reads it. For measurements and
 * traces: the value, and each operation before and after it, can be seen. The value is unchanged;
 * with `fuse: false` the operation has no effect.
 */
export const keep = () => {
  const at = here()
  const kept = (x: unknown): unknown => apply(keepOperator, at, x, [], {})
  return kept as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
}
