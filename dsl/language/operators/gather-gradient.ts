// How the way back of a gather adds up what the ranks have.
import * as E from 'fp-ts/lib/Either.js'
import { show } from '../../ir/show.js'
import { type FloatType, isFloat } from '../../ir/tensor.js'
import { type Communicator, sameGroups, showCommunicator } from '../communicator.js'
import type { Lane } from '../lane.js'
import { badAttribute } from '../messages.js'
import type { Call } from './collective.js'
import { named, withOptions } from './options.js'

/** How the gradient of a gather is reduced and scattered. What is left out is as the gather has it. */
export interface GatherGradient {
  /** `'sum'`, the default, or `'mean'`: the gradient of the mean of all ranks' losses. */
  readonly how?: 'sum' | 'mean'
  /** The type that is sent and added up. The gradient itself is of the type of the shard. */
  readonly dtype?: FloatType
  /** One of the same groups: NCCL runs the calls of two communicators beside each other. */
  readonly communicator?: Communicator
  /** The lane of the collective. */
  readonly lane?: Lane
}

const names = ['how', 'dtype', 'communicator', 'lane'] as const

/** The attribute `gradient` of a gather: `{ gradient }`, or nothing. */
export const gatherGradientOf = (
  call: Call,
  world: unknown,
  options: unknown,
): { readonly gradient?: GatherGradient } => {
  const { builder, spec } = call.source
  const given = named(options)['gradient']
  if (given === undefined) return {}
  const read = withOptions(given, names, () => E.right(named(given)))(spec)
  if (E.isLeft(read)) {
    builder.report(call.at, call.name, read.left)
    return {}
  }
  const { how, dtype, communicator, lane } = read.right
  const wrong = (wanted: string, found: string, next: string): void =>
    builder.report(call.at, call.name, badAttribute(`gradient.${wanted}`, found, next))
  if (how !== undefined && how !== 'sum' && how !== 'mean')
    wrong("how: 'sum' or 'mean'", show(how), 'say how the gradients of the ranks are joined')
  if (dtype !== undefined && !(typeof dtype === 'string' && isFloat(dtype as FloatType)))
    wrong("dtype: 'f32', 'f16' or 'bf16'", show(dtype), 'leave it out for that of the shard')
  const scatters =
    communicator === undefined ? undefined : builder.communicator(communicator, call.at, call.name)
  const gathers = builder.communicator(world, call.at, call.name)
  if (scatters !== undefined && gathers !== undefined && !sameGroups(scatters, gathers))
    wrong(
      `communicator: one of the groups of ${showCommunicator(gathers)}`,
      showCommunicator(scatters),
      'give it the same groups under another name',
    )
  return {
    gradient: {
      ...(how === 'mean' ? { how } : {}),
      ...(dtype === undefined ? {} : { dtype: dtype as FloatType }),
      ...(scatters === undefined ? {} : { communicator: scatters }),
      ...(lane === undefined ? {} : { lane: builder.lane(lane, call.at, call.name) as Lane }),
    },
  }
}
