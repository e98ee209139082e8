// Arithmetic of sizes at the level of types, by the lengths of tuples. Where a number is open, or too large
// to be counted, the answer is `number`.

type Units = readonly 0[]
type Digits = {
  '0': readonly []
  '1': readonly [0]
  '2': readonly [0, 0]
  '3': readonly [0, 0, 0]
  '4': readonly [0, 0, 0, 0]
  '5': readonly [0, 0, 0, 0, 0]
  '6': readonly [0, 0, 0, 0, 0, 0]
  '7': readonly [0, 0, 0, 0, 0, 0, 0]
  '8': readonly [0, 0, 0, 0, 0, 0, 0, 0]
  '9': readonly [0, 0, 0, 0, 0, 0, 0, 0, 0]
}
type Digit = keyof Digits
type Tens<T extends Units> = readonly [...T, ...T, ...T, ...T, ...T, ...T, ...T, ...T, ...T, ...T]

/** Whether a text is a whole number from 0 of at most so many digits as `Each` has elements. */
type HasDigits<S extends string, Each extends Units> = S extends ''
  ? true
  : Each extends readonly [0, ...infer R extends Units]
    ? S extends `${infer D}${infer Rest}`
      ? D extends Digit
        ? HasDigits<Rest, R>
        : false
      : false
    : false

/**
 * A tuple may have 10,000 elements: numbers below 5000 can be counted, and added to others of three digits.
 */
type CanCount<N, Each extends Units = readonly [0, 0, 0]> = number extends N
  ? false
  : N extends number
    ? HasDigits<`${N}`, Each> extends true
      ? true
      : `${N}` extends `${'1' | '2' | '3' | '4'}${infer R}`
        ? Each['length'] extends 3
          ? HasDigits<R, Each>
          : false
        : false
    : false

type Counted<S extends string, T extends Units = readonly []> = S extends `${infer D extends Digit}${infer R}`
  ? Counted<R, readonly [...Tens<T>, ...Digits[D]]>
  : T
type Count<N extends number> = Counted<`${N}`>

/** `Times` copies of a tuple. */
type Copies<T extends Units, Times extends Units, Made extends Units = readonly []> = Times extends readonly [
  0,
  ...infer R extends Units,
]
  ? Copies<T, R, readonly [...Made, ...T]>
  : Made

/** How many times a tuple holds another, and what is left. */
type Parts<T extends Units, By extends Units, Held extends Units = readonly []> = T extends readonly [
  ...By,
  ...infer R extends Units,
]
  ? Parts<R, By, readonly [...Held, 0]>
  : readonly [Held['length'], T]

/** Long division, digit by digit: no number on the way is larger than ten times the divisor. */
type Divide<
  S extends string,
  By extends Units,
  Quotient extends string = '',
  Left extends Units = readonly [],
> = S extends `${infer D extends Digit}${infer R}`
  ? Parts<readonly [...Tens<Left>, ...Digits[D]], By> extends readonly [
      infer Q extends number,
      infer L extends Units,
    ]
    ? Divide<R, By, Quotient extends '' | '0' ? `${Q}` : `${Quotient}${Q}`, L>
    : never
  : readonly [Quotient extends `${infer N extends number}` ? N : number, Left['length']]

/** Whether a number may be a whole one from `Least` on, 0 or 1. */
export type IsWhole<N, Least extends 0 | 1> = N extends number
  ? number extends N
    ? true
    : `${N}` extends `-${string}` | `${string}.${string}` | `${string}e-${string}`
      ? false
      : N extends 0
        ? Least extends 0
          ? true
          : false
        : true
  : true

/** The sum of sizes. */
export type Total<N extends readonly unknown[], Sum extends Units = readonly []> = N extends readonly [
  infer First,
  ...infer R,
]
  ? CanCount<First> extends true
    ? HasDigits<`${Sum['length']}`, readonly [0, 0, 0]> extends true
      ? Total<R, readonly [...Sum, ...Count<First & number>]>
      : number
    : number
  : Sum['length']

/** A size less another one, which is not larger: the size itself less 0, even where that is a symbol. */
export type Difference<A, B> = B extends 0
  ? A extends number | string
    ? A
    : number
  : [CanCount<A>, CanCount<B>] extends [true, true]
    ? Count<A & number> extends readonly [...Count<B & number>, ...infer R extends Units]
      ? R['length']
      : number
    : number

/** The quotient of two whole numbers, and the remainder. */
export type Quotient<N, By> = By extends 1
  ? readonly [N, 0]
  : N extends number
    ? By extends number
      ? QuotientOf<N, By>
      : readonly [number, number]
    : readonly [number, number]

type QuotientOf<N extends number, By extends number> = number extends N | By
  ? readonly [number, number]
  : N extends By
    ? readonly [1, 0]
    : By extends 0
      ? readonly [number, number]
      : [CanCount<By, readonly [0, 0]>, HasDigits<`${N}`, readonly [0, 0, 0, 0, 0, 0, 0, 0]>] extends [
            true,
            true,
          ]
        ? Divide<`${N}`, Count<By>>
        : readonly [number, number]

/**
 * The elements that a kernel spans, less one: `Dilation · (Kernel − 1)`. Undefined where it is not known.
 */
type Span<Kernel, Dilation> = [
  CanCount<Kernel, readonly [0, 0]>,
  CanCount<Dilation, readonly [0, 0]>,
] extends [true, true]
  ? Count<Kernel & number> extends readonly [0, ...infer R extends Units]
    ? Copies<R, Count<Dilation & number>>
    : undefined
  : undefined

/**
 * Places of a kernel along a dimension; `never` where it is larger than the padded input. The size of the
 * input where it stays as it is, even where that is a symbol.
 */
export type Places<Input, Kernel, Stride, Dilation, Padding> = Padding extends 'same'
  ? Input
  : Span<Kernel, Dilation> extends infer Spanned extends Units
    ? CanCount<Padding> extends true
      ? PlacesOf<Input, Spanned, Stride, Count<Padding & number>>
      : number
    : number

type PlacesOf<Input, Span extends Units, Stride, Padding extends Units> = [
  (readonly [...Padding, ...Padding])['length'],
  Stride,
] extends [Span['length'], 1]
  ? Input
  : [CanCount<Input>, IsWhole<Stride, 1>] extends [true, true]
    ? readonly [...Count<Input & number>, ...Padding, ...Padding] extends readonly [
        ...Span,
        0,
        ...infer R extends Units,
      ]
      ? Quotient<R['length'], Stride> extends readonly [infer Q extends number, unknown]
        ? number extends Q
          ? number
          : (readonly [...Count<Q>, 0])['length']
        : number
      : never
    : number

/** The product of sizes: of those that are not 1, where there is one, the size itself, even if it is a symbol. */
export type Product<N extends readonly unknown[], Made = 1> = N extends readonly [infer First, ...infer R]
  ? Product<R, Times<Made, First>>
  : Made

type Times<A, B> = A extends 1
  ? B
  : B extends 1
    ? A
    : [CanCount<A>, CanCount<B>] extends [true, true]
      ? HasDigits<`${A & number}${B & number}`, readonly [0, 0, 0, 0]> extends true
        ? HasDigits<`${A & number}`, readonly [0, 0]> extends true
          ? Copies<Count<B & number>, Count<A & number>>['length']
          : Copies<Count<A & number>, Count<B & number>>['length']
        : number
      : number

/**
 * The product of sizes divided by that of others, each of which is one of the sizes, divides one of them, or is
 * divided by some: where the one left is a symbol, that.
 */
export type ProductOver<S extends readonly unknown[], By extends readonly unknown[]> = By extends readonly [
  infer First,
  ...infer R,
]
  ? Without<S, First> extends infer Left extends readonly unknown[]
    ? ProductOver<Left, R>
    : Divided<S, First> extends readonly [
          infer Left extends readonly unknown[],
          infer Rest extends readonly unknown[],
        ]
      ? ProductOver<Left, readonly [...Rest, ...R]>
      : number
  : Product<S>

type Without<
  S extends readonly unknown[],
  N,
  Before extends readonly unknown[] = readonly [],
> = S extends readonly [infer First, ...infer R]
  ? [First, N] extends [N, First]
    ? readonly [...Before, ...R]
    : Without<R, N, readonly [...Before, First]>
  : undefined

/** The sizes with one divided by N; or without one that divides N, and what is left of N. */
type Divided<
  S extends readonly unknown[],
  N,
  Before extends readonly unknown[] = readonly [],
> = S extends readonly [infer First, ...infer R]
  ? Quotient<First, N> extends readonly [infer Q extends number, 0]
    ? readonly [readonly [...Before, Q, ...R], readonly []]
    : Quotient<N, First> extends readonly [infer Q extends number, 0]
      ? readonly [readonly [...Before, ...R], readonly [Q]]
      : Divided<R, N, readonly [...Before, First]>
  : undefined
