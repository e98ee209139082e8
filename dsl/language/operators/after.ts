import * as E from 'fp-ts/lib/Either.js'
import type { Place } from '../../ir/graph.js'
import { show } from '../../ir/show.js'
import { builderOf } from '../builder.js'
import type { Flow } from '../flow.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import type { Operator } from './operator.js'

/** Its first input, whatever comes before. */
export const afterOperator: Operator = {
  name: 'after',
  infer: ([x]) => E.right(x!),
  lower: () => ({ as: 'view', offsetBytes: 0 }),
  reference: ([x]) => x!.slice(),
  tolerance: () => 0,
}

/** When an operation may begin, of one that it has no data of: once that has finished, or once that has started. */
export type When = 'finish' | 'start'

/**
 * What reads this value is ordered after the operation that makes `flow`, though it needs no data of it. The value is the same.
 *
 * With `finish` (the default) it begins when that operation is done. With `start` it begins when the lane of that operation has come to it: all that it waits for is
 * done, and it is next. So a collective, say, is not kept from the device by a kernel that would fill it (CUDA starts what is ready, in no order between streams),
 * and the two still run side by side. XLA tells the two apart as execution and scheduling edges.
 *
 * What no operation of the tick makes (an input, a parameter, a state) has started and finished before it. A value that has been downloaded already is read by nobody
 * on the device, so it cannot be ordered. An upload that comes after something has no window: this says when.
 */
export const after = (flow: Flow<'device', AnyTensor>, when: When = 'finish') => {
  const at = here()
  const ordered = (x: unknown): unknown => {
    const builder = builderOf(x)
    const place: Place = (x as { readonly place?: unknown } | null)?.place === 'host' ? 'host' : 'device'
    const value = builder.take(x, place, at, 'after', 'the piped value', { dtype: 'f32', shape: [] })
    const whom = builder.take(flow, 'device', at, 'after', 'what comes before', { dtype: 'f32', shape: [] })
    if (when !== 'finish' && when !== 'start')
      builder.problem(at, 'after', {
        _tag: 'BadAttribute',
        wanted: "'finish' or 'start'",
        found: show(when),
        next: 'say whether it waits for the end of the other operation or for its start',
      })
    if (builder.nodes[value.id]?.op === 'download')
      builder.problem(at, 'after', {
        _tag: 'PlaceMismatch',
        wanted: 'a value that the device still reads',
        found: 'one that is downloaded',
        next: 'put it before the download: pipe(after(flow), download(lane))',
      })
    const { spec } = value
    return builder.flow(
      {
        op: 'after',
        name: builder.nodes[value.id]?.name ?? 'after',
        inputs: [value.id, whom.id],
        attrs: { when: when === 'start' ? when : 'finish' },
        spec,
        place,
        at,
      },
      value.hint,
    )
  }
  return ordered as <P extends Place, A extends AnyTensor>(x: Flow<P, A>) => Flow<P, A>
}
