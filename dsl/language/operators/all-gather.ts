import * as E from 'fp-ts/lib/Either.js'
import { type DType, showSpec } from '../../ir/tensor.js'
import type { Communicator } from '../communicator.js'
import type { Lane } from '../lane.js'
import { shapeMismatch } from '../messages.js'
import { maxRank } from '../tensor.js'
import { here } from '../where.js'
import { aheadOf } from './ahead.js'
import { collective, collectiveOperator } from './collective.js'
import { type GatherGradient, gatherGradientOf } from './gather-gradient.js'
import type { Device, Led, Shape } from './types.js'
import { windowReference } from './window.js'

export const allGatherOperator = collectiveOperator({
  name: 'allGather',
  infer: (x, size) =>
    x.shape.length < maxRank
      ? E.right({ dtype: x.dtype, shape: [size, ...x.shape] })
      : E.left(
          shapeMismatch(
            `at most ${maxRank - 1} dimensions, and one more for the ranks`,
            showSpec(x),
            'reshape it first',
          ),
        ),
  exchange: given => {
    const all = windowReference(given)
    return given.map(() => all)
  },
})

export interface AllGatherOptions {
  /** How many gathers of its window may be issued before their reader; at most `ahead + 1` are in memory. */
  readonly ahead?: number
  /** How its way back adds up what the ranks have. */
  readonly gradient?: GatherGradient
}

/**
 * The values of all ranks of the group, in order of their places, along a new leading dimension: `[…shape]`
 * becomes `[size, …shape]`, the same on every rank. Of any element type. `ncclAllGather`. The lane is the
 * collective's alone: compute that follows it runs where `on` decides. Gathers with one `ahead` on one lane
 * form a window, as uploads do: the weights of the next layer arrive while this layer computes. `ahead` is a
 * whole number from 0, else a `BadAttribute`.
 *
 * Its gradient is what all ranks have, reduced and scattered: `gradient: { how: 'mean', dtype: 'f32', communicator,
 * lane }` says how.
 */
export const allGather = <const N extends number>(
  world: Communicator<N>,
  lane?: Lane,
  options?: AllGatherOptions,
) => {
  const at = here()
  const operator = (x: unknown): unknown =>
    collective(allGatherOperator, at, x, world, lane, call => ({
      ...aheadOf(call.source, at, 'allGather', options, ['gradient']),
      ...gatherGradientOf(call, world, options),
    }))
  return operator as unknown as <D extends DType, S extends Shape>(x: Device<D, S>) => Device<D, Led<N, S>>
}
