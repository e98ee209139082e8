import * as E from 'fp-ts/lib/Either.js'
import type { MapInstruction } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import { elements, tensorBytes } from '../../ir/tensor.js'
import type { Communicator } from '../communicator.js'
import type { Flow } from '../flow.js'
import type { Lane } from '../lane.js'
import type { AnyTensor } from '../tensor.js'
import { hostArray } from '../values.js'
import { here } from '../where.js'
import { type Call, collective, collectiveOperator, isPlace, mistaken } from './collective.js'
import { mapSpec } from './elementwise.js'
import type { Attrs } from './operator.js'

/** Who sends to whom: places in the group. */
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
  // A rank that nobody sends to gets zeros; and a rank alone may leave out that it sends to itself.
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
    const wanted = `pairs [from, to] of places from 0 to ${call.size - 1} in the group, at most one to each`
    const next = `say who sends to whom, as in permute(world, [[0, 1], [1, 0]])`
    if (!Array.isArray(pairs)) {
      mistaken(call, wanted, pairs, next)
      return { pairs: [] }
    }
    const received = new Set<unknown>()
    const sound = pairs.every((pair: unknown) => {
      const known = Array.isArray(pair) && pair.length === 2 && pair.every(place => isPlace(place, call))
      const twice = known && received.has(pair[1])
      if (known && !twice) return received.add(pair[1])
      call.builder.problem(call.at, call.subject, {
        _tag: 'BadAttribute',
        wanted,
        found: twice ? `two that send to place ${pair[1]}` : show(pair),
        next,
      })
      return false
    })
    return {
      pairs: sound ? Object.freeze(pairs.map(([from, to]) => Object.freeze([from, to] as const))) : [],
    }
  }

/**
 * Ranks of the group send their values to each other: for each pair `[from, to]` of places, the rank at `to` gets the value of the rank at `from`, and who is sent to
 * by nobody gets zeros. One may send to several, but gets from one at most: two senders to one place, or a place outside of the group, is a `BadAttribute`. Of
 * any shape and element type, which stay. `ncclSend` and `ncclRecv` in one group. The lane is the collective's alone: compute that follows goes where `on` says.
 */
export const permute = (world: Communicator, pairs: Pairs, lane?: Lane) => {
  const at = here()
  const send = (x: unknown): unknown => collective(permuteOperator, at, x, world, lane, soundPairs(pairs))
  return send as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
}
