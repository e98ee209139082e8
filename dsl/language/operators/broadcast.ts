import * as E from 'fp-ts/lib/Either.js'
import type { Communicator } from '../communicator.js'
import type { Flow } from '../flow.js'
import type { Lane } from '../lane.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { type Call, collective, collectiveOperator, isPlace, reportAttribute } from './collective.js'

export const broadcastOperator = collectiveOperator({
  name: 'broadcast',
  infer: x => E.right(x),
  exchange: (given, _spec, _output, attrs) => given.map(() => given[attrs['root'] as number]!),
})

const rootOf =
  (root: unknown) =>
  (call: Call): { readonly root: number } => {
    if (isPlace(root, call)) return { root }
    reportAttribute(
      call,
      `a root from 0 to ${call.size - 1}: a place in the group`,
      root,
      'say whose value all ranks of the group get',
    )
    return { root: 0 }
  }

/**
 * The value of the rank at place `root` of the group, on every rank of it. Takes any shape and element type
 * and keeps both. A root outside of the group is a `BadAttribute`. `ncclBroadcast`. The lane is the
 * collective's alone: compute that follows it runs where `on` decides.
 */
export const broadcast = (world: Communicator, root: number, lane?: Lane) => {
  const at = here()
  const give = (x: unknown): unknown => collective(broadcastOperator, at, x, world, lane, rootOf(root))
  return give as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
}
