// Shapes at the level of types. An error becomes a type whose one property is a sentence about the error, so
// that the compiler's message contains it: "Property ''the inner dimensions of matmul differ'' is missing".

import type { Dim, DType, FloatType } from '../../ir/tensor.js'
import type { Flow } from '../flow.js'
import type { Tensor } from '../tensor.js'

export type Shape = readonly Dim[]
export type Device<D extends DType, S extends Shape> = Flow<'device', Tensor<D, S>>

/**
 * A property that no flow has. Its name is a sentence for the reader of the error, its type names the types
 * at fault.
 */
export type Invalid<Message extends string, Found = unknown> = { readonly [K in Message]: Found }

/**
 * Types that are not definite: an array of unknown length, `number`, `string`. `compile` checks their values.
 */
type IsOpenDim<A> = number extends A ? true : string extends A ? true : false
export type IsOpenShape<S extends Shape> = number extends S['length'] ? true : false

export type SameDim<A, B> =
  IsOpenDim<A> extends true ? true : IsOpenDim<B> extends true ? true : [A] extends [B] ? true : false

/** One element: every size that is known is 1. */
export type OneElement<S extends Shape> =
  IsOpenShape<S> extends true
    ? unknown
    : { [I in keyof S]: IsOpenDim<S[I]> extends true ? 1 : S[I] }[number] extends 1
      ? unknown
      : Invalid<'the loss is one float: reduce it first, as by mean()', S>

/** A size that is not known here is that of the other one, which is not 1, or is 1. */
type BroadcastDim<A extends Dim, B extends Dim> = A extends 1 ? B : B extends 1 ? A : number extends A ? B : A

/** A shape of any rank; without symbols where neither shape has one. */
type OpenShape<A extends Shape, B extends Shape> = A extends readonly number[]
  ? B extends readonly number[]
    ? readonly number[]
    : Shape
  : Shape

/** The shape that two shapes broadcast to, trailing dimensions aligned. */
export type Broadcast<A extends Shape, B extends Shape> =
  IsOpenShape<A> extends true
    ? OpenShape<A, B>
    : IsOpenShape<B> extends true
      ? OpenShape<A, B>
      : A extends B
        ? A
        : A extends readonly [...infer A1 extends Shape, infer X extends Dim]
          ? B extends readonly [...infer B1 extends Shape, infer Y extends Dim]
            ? readonly [...Broadcast<A1, B1>, BroadcastDim<X, Y>]
            : A
          : B

type Broadcastable<A extends Shape, B extends Shape> =
  IsOpenShape<A> extends true
    ? true
    : IsOpenShape<B> extends true
      ? true
      : A extends readonly [...infer A1 extends Shape, infer X extends Dim]
        ? B extends readonly [...infer B1 extends Shape, infer Y extends Dim]
          ? X extends 1
            ? Broadcastable<A1, B1>
            : Y extends 1
              ? Broadcastable<A1, B1>
              : SameDim<X, Y> extends true
                ? Broadcastable<A1, B1>
                : false
          : true
        : true

export type Broadcasts<A extends Shape, B extends Shape> =
  Broadcastable<A, B> extends true ? unknown : Invalid<'these shapes do not broadcast', readonly [A, B]>

export type SameDType<A extends DType, B extends DType> = [A] extends [B]
  ? unknown
  : Invalid<'the element types differ: cast one of them', readonly [A, B]>

export type Floats<D extends DType> = [D] extends [FloatType]
  ? unknown
  : Invalid<"this operator computes with floats: cast('f32') first", D>

/** Axes as a union of numbers, from one or from several. */
type AxisOf<A> = A extends readonly number[] ? A[number] : A & number

/** The length of a shape without its last dimensions, of which there are `Last`. */
type Before<
  S extends Shape,
  Last extends number,
  Seen extends readonly unknown[] = [0],
> = S extends readonly [...infer R extends Shape, Dim]
  ? Seen['length'] extends Last
    ? R['length']
    : Before<R, Last, [...Seen, 0]>
  : never

/**
 * Axes of a shape of known length, each counted from 0; `number` where one is not a literal. One that the shape does
 * not have is left out: `compile` reports it.
 */
export type AxesFrom0<S extends Shape, A extends number> = number extends A
  ? number
  : A extends unknown
    ? `${A}` extends `-${infer Last extends number}`
      ? Before<S, Last>
      : A
    : never

/** The shape with one axis of another size. Where the axis is not a literal only the element type is known. */
export type Resized<S extends Shape, A extends number, Size> =
  IsOpenShape<S> extends true
    ? Shape
    : number extends A
      ? Shape
      : Replaced<S, AxesFrom0<S, A>, Size extends Dim ? Size : number>

/** The size of an axis. */
export type SizeOf<S extends Shape, A extends number> =
  IsOpenShape<S> extends true ? Dim : number extends A ? Dim : S[AxesFrom0<S, A>]

/**
 * The shape with one axis or several removed, or of size 1. Where an axis is not a literal only the element
 * type is known.
 */
export type Reduced<S extends Shape, A extends number | readonly number[], Keep extends boolean> =
  IsOpenShape<S> extends true
    ? Shape
    : number extends AxisOf<A>
      ? Shape
      : boolean extends Keep
        ? Shape
        : Keep extends true
          ? Replaced<S, AxesFrom0<S, AxisOf<A>>, 1>
          : Removed<S, AxesFrom0<S, AxisOf<A>>>

/** The shape with all axes removed, or of size 1. */
export type ReducedWhole<S extends Shape, Keep extends boolean> = boolean extends Keep
  ? Shape
  : Keep extends false
    ? readonly []
    : IsOpenShape<S> extends true
      ? Shape
      : { readonly [I in keyof S]: 1 }

type Removed<S extends Shape, A extends number, Seen extends readonly unknown[] = []> = S extends readonly [
  infer X extends Dim,
  ...infer R extends Shape,
]
  ? Seen['length'] extends A
    ? Removed<R, A, [...Seen, 0]>
    : readonly [X, ...Removed<R, A, [...Seen, 0]>]
  : readonly []

/** The shape with an axis, or a union of axes, of another size. */
export type Replaced<
  S extends Shape,
  A extends number,
  Size extends Dim,
  Seen extends readonly unknown[] = [],
> =
  IsOpenShape<S> extends true
    ? Shape
    : S extends readonly [infer X extends Dim, ...infer R extends Shape]
      ? readonly [Seen['length'] extends A ? Size : X, ...Replaced<R, A, Size, [...Seen, 0]>]
      : readonly []

/** The shape with a further leading dimension. */
export type Led<N extends number, S extends Shape> = IsOpenShape<S> extends true ? Shape : readonly [N, ...S]

/** The shape without its leading dimension. */
export type Unled<S extends Shape> =
  IsOpenShape<S> extends true
    ? Shape
    : S extends readonly [Dim, ...infer R extends Shape]
      ? readonly [...R]
      : readonly []

/** Whether the leading dimension is the number of ranks. */
export type LedBy<N extends number, S extends Shape> =
  IsOpenShape<S> extends true
    ? unknown
    : S extends readonly [infer X, ...Shape]
      ? SameDim<X, N> extends true
        ? unknown
        : Invalid<"the leading dimension must be the communicator's size", readonly [X, N]>
      : Invalid<"a scalar has no leading dimension of the communicator's size", N>
