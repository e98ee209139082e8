// What operators over spatial dimensions have in common: options of one number for all of them or one for
// each.

import { show } from '../../ir/show.js'
import type { Dim } from '../../ir/tensor.js'
import { badAttribute, type UnplacedError } from '../messages.js'
import type { IsWhole, Places } from './sizes.js'
import type { Shape } from './types.js'

/** One number for every spatial dimension, or a list with one for each. */
export type Each = number | readonly number[]

export const isWhole = (value: unknown, least: number): value is number =>
  Number.isSafeInteger(value) && (value as number) >= least && (value as number) < 2 ** 31

/** A number for each of n dimensions; undefined where it is none. */
export const eachOf = (value: unknown, n: number, least: number): readonly number[] | undefined => {
  const list: readonly unknown[] = Array.isArray(value) ? value : new Array(Math.max(n, 0)).fill(value)
  return list.length === n && list.every(one => isWhole(one, least)) ? list : undefined
}

/** Which dimension has the channels: the second, or the last. */
export type ChannelsAt = 'first' | 'last'

export const isChannelsAt = (value: unknown): value is ChannelsAt => value === 'first' || value === 'last'

export const badChannels = (value: unknown, example: string): UnplacedError =>
  badAttribute("channels: 'first' or 'last'", show(value), `as in ${example}`)

/** [batch, channels, ...spatial] of a shape whose channels are last; each other shape as it is. */
export const channelsFirst = <D>(shape: readonly D[], areLast: boolean): readonly D[] =>
  areLast ? [shape[0]!, shape.at(-1)!, ...shape.slice(1, -1)] : shape

/** [batch, ...spatial, channels] of one whose channels are second. */
export const channelsLast = <D>([batch, channels, ...spatial]: readonly D[]): readonly D[] => [
  batch!,
  ...spatial,
  channels!,
]

type OptionOf<O> = 'channels' extends keyof O ? Exclude<O['channels'], undefined> : 'first'

/** Sizes of which none is known but the first. */
type Unknown<S extends Shape> = S extends readonly [infer B extends Dim, ...infer R extends Shape]
  ? readonly [B, ...{ [K in keyof R]: number }]
  : S

/** `channelsFirst` and, of a result, `channelsLast` as types, by the option `channels` of O. */
export type ChannelsFirst<S extends Shape, O> = [OptionOf<O>] extends ['first']
  ? S
  : [OptionOf<O>] extends ['last']
    ? S extends readonly [infer B extends Dim, ...infer I extends Shape, infer C extends Dim]
      ? readonly [B, C, ...I]
      : S
    : Unknown<S>

export type ChannelsLast<S extends Shape, O> = [OptionOf<O>] extends ['first']
  ? S
  : [OptionOf<O>] extends ['last']
    ? S extends readonly [infer B extends Dim, infer C extends Dim, ...infer I extends Shape]
      ? readonly [B, ...I, C]
      : S
    : Unknown<S>

/** Of one dimension. */
type OfDim<V, At extends number> = V extends readonly unknown[] ? V[At] : V
type PaddingOf<V, At extends number> = V extends 'valid' ? 0 : OfDim<V, At>

/** Places of a kernel along each dimension; `never` where it is larger than the padded input. */
export type SpatialSizes<
  I extends Shape,
  Kernel,
  Stride,
  Dilation,
  Padding,
  At extends readonly 0[] = [],
> = I extends readonly [infer N extends Dim, ...infer R extends Shape]
  ? readonly [
      Places<
        N,
        OfDim<Kernel, At['length']>,
        OfDim<Stride, At['length']>,
        OfDim<Dilation, At['length']>,
        PaddingOf<Padding, At['length']>
      >,
      ...SpatialSizes<R, Kernel, Stride, Dilation, Padding, [...At, 0]>,
    ]
  : readonly []

/** Whether a list has one number for each spatial dimension, all whole and from `Least` on. */
export type Fits<V, Least extends 0 | 1, I extends Shape> = V extends readonly unknown[]
  ? number extends V['length']
    ? true
    : V['length'] extends I['length']
      ? false extends { [K in keyof V]: IsWhole<V[K], Least> }[number]
        ? false
        : true
      : false
  : IsWhole<V, Least>

type IsNever<A> = [A] extends [never] ? true : false
/** Whether a size is none. */
export type HasNever<T extends Shape> = T extends readonly [infer A, ...infer R extends Shape]
  ? IsNever<A> extends true
    ? true
    : HasNever<R>
  : false
