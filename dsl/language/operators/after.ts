import * as E from 'fp-ts/lib/Either.js'
import type { Place } from '../../ir/graph.js'
import { show } from '../../ir/show.js'
import { piped, placeOf } from '../builder.js'
import type { Flow } from '../flow.js'
import { afterDownload, badAttribute } from '../messages.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import type { Operator } from './operator.js'

/** The value of its first input; the second input only orders it. */
export const afterOperator: Operator = {
  name: 'after',
  infer: ([x]) => E.right(x!),
  lower: () => ({ as: 'view', offsetBytes: 0 }),
  mayBeView: true,
  reference: ([x]) => x!.slice(),
  tolerance: () => 0,
}

/** When an operation may begin: once the other operation has finished, or once it has started. */
export type When = 'finish' | 'start'

/**
 * Orders every reader of this value after the operation that makes `flow`, though the readers need no data of
 * `flow`. The value is unchanged.
 *
 * With `finish` (the default) a reader begins when that operation is done. With `start` a reader begins when
 * the lane of that operation has reached it: everything the operation waits for is done, and it is next in
 * its stream. This keeps a large kernel from delaying a collective (CUDA starts ready work of several streams
 * in any order), while both may run concurrently. XLA calls the two scheduling and execution edges.
 *
 * An input, a parameter or a state, which no operation of the tick makes, has started and finished before it.
 * A value that is downloaded already has no reader on the device, so it cannot be ordered. An upload that is
 * ordered by `after` has no window: this operator decides when it is issued.
 */
export const after = (flow: Flow<'device', AnyTensor>, when: When = 'finish') => {
  const at = here()
  const ordered = (x: unknown): unknown => {
    const place = placeOf(x)
    const { builder, id, spec, hint } = piped(x, place, at, 'after')
    const first = builder.take(flow, 'device', at, 'after', 'what comes before')
    if (when !== 'finish' && when !== 'start')
      builder.report(
        at,
        'after',
        badAttribute(
          "'finish' or 'start'",
          show(when),
          'say whether it waits for the end of the other operation or for its start',
        ),
      )
    const source = builder.nodes[id]
    if (source?.op === 'download') builder.report(at, 'after', afterDownload)
    return builder.flow(
      {
        op: 'after',
        name: source?.name ?? 'after',
        inputs: [id, first.id],
        attrs: { when: when === 'start' ? when : 'finish' },
        spec,
        place,
        at,
      },
      hint,
    )
  }
  return ordered as <P extends Place, A extends AnyTensor>(x: Flow<P, A>) => Flow<P, A>
}
