import * as E from 'fp-ts/lib/Either.js'
import type { MapInstruction } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import { elements, tensorBytes } from '../../ir/tensor.js'
import type { Communicator } from '../communicator.js'
import type { Flow } from '../flow.js'
import type { Lane } from '../lane.js'
import { badAttribute } from '../messages.js'
import type { AnyTensor } from '../tensor.js'
import { hostArray } from '../values.js'
import { here } from '../where.js'
import { type Call, collective, collectiveOperator, isPlace } from './collective.js'
import { mapSpec } from './elementwise.js'
import type { Attrs } from './operator.js'

/** The place that sends and the place that receives. */
export type Pairs = readonly (readonly [from: number, to: number])[]

const pairsOf = (attrs: Attrs): Pairs => attrs['pairs'] as Pairs

const zero: readonly MapInstruction[] = Object.freeze([Object.freeze(['const', 0] as const)])

export const permuteOperator = collectiveOperator({
  name: 'permute',
  infer: x => E.right(x),
  exchange: (given, { dtype }, { shape }, attrs) => {
    const sender = new Map(pairsOf(attrs).map(([from, to]) => [to, from]))
    return given.map((_, place) => {
      const from = sender.get(place)
      return from === undefined ? hostArray(dtype, elements(shape)) : given[from]!
    })
  },
  // A rank that receives nothing gets zeros; so does a single rank whose pairs do not list itself.
  alone: {
    lower: (inputs, output, attrs) =>
      pairsOf(attrs).length > 0
        ? { as: 'view', offsetBytes: 0 }
        : {
            as: 'run',
            kernel: mapSpec(inputs, output, zero),
            flops: 0,
            movedBytes: tensorBytes(output),
            workspace: 0,
          },
    reference: ([x], _specs, { dtype, shape }, attrs) =>
      pairsOf(attrs).length > 0 ? x!.slice() : hostArray(dtype, elements(shape)),
  },
})

const soundPairs =
  (pairs: unknown) =>
  (call: Call): { readonly pairs: Pairs } => {
    const report = (found: string): { readonly pairs: Pairs } => {
      call.source.builder.report(
        call.at,
        call.name,
        badAttribute(
          `pairs [from, to] of places from 0 to ${call.size - 1} in the group, at most one to each`,
          found,
          'say who sends to whom, as in permute(world, [[0, 1], [1, 0]])',
        ),
      )
      return { pairs: [] }
    }
    if (!Array.isArray(pairs)) return report(show(pairs))
    const received = new Set<unknown>()
    for (const pair of pairs as readonly unknown[]) {
      if (!Array.isArray(pair) || pair.length !== 2 || !pair.every(place => isPlace(place, call)))
        return report(show(pair))
      if (received.has(pair[1])) return report(`two that send to place ${pair[1]}`)
      received.add(pair[1])
    }
    return { pairs: Object.freeze(pairs.map(([from, to]) => Object.freeze([from, to] as const))) }
  }

/**
 * Ranks of the group send their values to each other: for each pair `[from, to]` of places, the rank at `to`
 * gets the value of the rank at `from`. A rank that no pair sends to gets zeros. A rank may send to several
 * ranks and receives from at most one: two senders to one place, or a place outside of the group, is a
 * `BadAttribute`. Takes any shape and element type and keeps both. `ncclSend` and `ncclRecv` in one group.
 * The lane is the collective's alone: compute that follows it runs where `on` decides.
 */
export const permute = (world: Communicator, pairs: Pairs, lane?: Lane) => {
  const at = here()
  const send = (x: unknown): unknown => collective(permuteOperator, at, x, world, lane, soundPairs(pairs))
  return send as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
}
