// Pooling is one map over the places of its kernel: an operand for each element of the kernel, all of which
// read x. What lies around x is a `pad` before it.

import * as E from 'fp-ts/lib/Either.js'
import { convOutput, type MapInstruction, type MapSpec, mostSpatial } from '../../ir/kernel-spec.js'
import { show } from '../../ir/show.js'
import {
  type BoundSpec,
  type Dim,
  type DType,
  elements,
  showSpec,
  type TensorSpec,
  tensorBytes,
} from '../../ir/tensor.js'
import { badAttribute, shapeMismatch, type UnplacedError } from '../messages.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { composed, ofFloats } from './composition.js'
import { mapFlops } from './elementwise.js'
import { runMap } from './map-reference.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import { padOperator } from './pad.js'
import { coalesce, denseStrides } from './shapes.js'
import {
  badChannels,
  type ChannelsAt,
  type ChannelsFirst,
  type ChannelsLast,
  channelsFirst,
  channelsLast,
  type Each,
  eachOf,
  type Fits,
  type HasNever,
  isChannelsAt,
  type SpatialSizes,
} from './spatial.js'
import type { Device, Floats, Invalid, Shape } from './types.js'

export interface PoolOptions {
  /** Elements along each spatial dimension that become one, at most 64 in all. */
  readonly kernel: Each
  /** From one place of the kernel to the next, from 1; the kernel's own sizes where it is left out. */
  readonly stride?: Each
  /**
   * How many elements come before and after each spatial dimension, at most half of the kernel; none where
   * left out.
   */
  readonly padding?: Each
  /** Which dimension has the channels: the second one, which is the default, or the last one. */
  readonly channels?: ChannelsAt
}

interface PoolAttrs {
  readonly how: 'max' | 'mean'
  readonly kernel: readonly number[]
  readonly stride: readonly number[]
  readonly channels?: 'last'
}

/** The first spatial dimension. */
const firstOf = ({ channels }: Pick<PoolAttrs, 'channels'>): number => (channels === 'last' ? 1 : 2)

const attrsFrom = (attrs: Attrs): PoolAttrs => attrs as unknown as PoolAttrs

/** Operands of one kernel. */
const most = 64

const placesOf = ({ kernel, stride }: PoolAttrs, d: number, input: number): number =>
  convOutput({ input, kernel: kernel[d]!, stride: stride[d]!, dilation: 1, before: 0, after: 0 })

const infer = ([x]: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> => {
  const { dtype, shape } = x!
  const given = attrsFrom(attrs)
  const places: Dim[] = []
  const isLast = given.channels === 'last'
  const [batch, channels, ...spatial] = channelsFirst(shape, isLast) as readonly [Dim, Dim, ...Dim[]]
  for (const [d, size] of spatial.entries()) {
    const kernel = given.kernel[d]!
    if (typeof size === 'string' && !(kernel === 1 && given.stride[d] === 1))
      return E.left(
        shapeMismatch('spatial sizes that are numbers', `the symbol ${size}`, 'give the input a size'),
      )
    if (typeof size === 'number' && kernel > size)
      return E.left(
        shapeMismatch(
          `a kernel of at most the ${size} elements of the padded input`,
          `${kernel} along dimension ${d + firstOf(given)} of ${showSpec(x!)}`,
          'take a smaller kernel',
        ),
      )
    places.push(typeof size === 'number' ? placesOf(given, d, size) : size)
  }
  const pooled = [batch, channels, ...places]
  return E.right({ dtype, shape: isLast ? channelsLast(pooled) : pooled })
}

/** The offsets of a kernel's elements in x, the last dimension fastest. */
const offsetsOf = (kernel: readonly number[], strides: readonly number[]): readonly number[] =>
  kernel.reduce<readonly number[]>(
    (offsets, size, d) => offsets.flatMap(at => Array.from({ length: size }, (_, i) => at + i * strides[d]!)),
    [0],
  )

const codeOf = (how: PoolAttrs['how'], count: number): readonly MapInstruction[] => {
  const code: MapInstruction[] = [['operand', 0]]
  for (let i = 1; i < count; i++)
    code.push(['operand', i], [how === 'max' ? 'max' : 'add', code.length - 1, code.length])
  if (how === 'mean') code.push(['const', count], ['div', code.length - 1, code.length])
  return code
}

const poolSpec = (x: BoundSpec, output: BoundSpec, attrs: Attrs): MapSpec => {
  const given = attrsFrom(attrs)
  const { how, kernel, stride } = given
  const [strides, first] = [denseStrides(x.shape), firstOf(given)]
  const steps = strides.map((step, d) => step * (stride[d - first] ?? 1))
  const merged = coalesce(output.shape, [steps, denseStrides(output.shape)])
  const offsets = offsetsOf(kernel, strides.slice(first, first + kernel.length))
  const code = codeOf(how, offsets.length)
  return {
    kind: 'map',
    shape: merged.shape,
    compute: 'f32',
    operands: offsets.map(offset => ({ dtype: x.dtype, offset, strides: merged.strides[0]! })),
    code,
    results: [{ value: code.length - 1, dtype: output.dtype }],
  }
}

/**
 * The largest element, or the mean, of the kernel at each place. It reads x once for each element of the
 * kernel.
 */
export const poolOperator: Operator = {
  name: 'pool',
  infer,
  lower: ([x], output, attrs) => {
    const kernel = poolSpec(x!, output, attrs)
    return {
      as: 'run',
      kernel,
      flops: mapFlops(kernel.code, elements(output.shape)),
      movedBytes: tensorBytes(x!) + tensorBytes(output),
      workspace: 0,
    }
  },
  reference: (inputs, [x], output, attrs) => runMap(poolSpec(x!, output, attrs), inputs)[0]!,
  // Each step is rounded as the reference rounds it.
  tolerance: () => 0,
}

interface Given {
  readonly kernel: readonly number[]
  readonly stride: readonly number[]
  readonly padding: readonly number[]
  readonly channels?: 'last'
}

const attrsOf =
  (options: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, Given> => {
    const n = x.shape.length - 2
    const floats = ofFloats(x)
    if (E.isLeft(floats)) return floats
    const { kernel, stride = kernel, padding = 0, channels = 'first' } = named(options)
    if (!isChannelsAt(channels))
      return E.left(badChannels(channels, "maxPool({ kernel: 2, channels: 'last' })"))
    if (n < 1 || n > mostSpatial)
      return E.left(
        shapeMismatch(
          `${channels === 'last' ? '[batch, ...spatial, channels]' : '[batch, channels, ...spatial]'} of one to three spatial dimensions`,
          showSpec(x),
          'reshape the value: one image is a batch of 1',
        ),
      )
    const [kernels, strides, paddings] = [eachOf(kernel, n, 1), eachOf(stride, n, 1), eachOf(padding, n, 0)]
    const count = elements(kernels ?? [])
    if (kernels === undefined || strides === undefined || paddings === undefined || count > most)
      return E.left(
        badAttribute(
          `a kernel of at most ${most} elements, a stride and a padding: each a whole number, or a list of ${n}`,
          show(options),
          'as in { kernel: 3, stride: 2, padding: 1 }; over whole dimensions reduce: mean({ axis: [2, 3] })',
        ),
      )
    return paddings.every((size, d) => 2 * size <= kernels[d]!)
      ? E.right({
          ...{ kernel: kernels, stride: strides, padding: paddings },
          ...(channels === 'last' ? { channels } : {}),
        })
      : E.left(badAttribute('padding of at most half of the kernel', show(options), 'pad less'))
  }

const pooled = (name: string, how: PoolAttrs['how'], options: unknown) => {
  const at = here()
  const value = how === 'max' ? Number.NEGATIVE_INFINITY : 0
  return composed(
    name,
    at,
    withOptions(options, ['kernel', 'stride', 'padding', 'channels'], attrsOf(options)),
    (_, x, { padding, ...given }) => {
      const first = firstOf(given)
      const padded = padding.reduce(
        (flow, size, d) =>
          size === 0
            ? flow
            : apply(padOperator, at, flow, [], { axis: d + first, before: size, after: size, value }),
        x,
      )
      // A run reads its input once for each operand of its kernel.
      const others = new Array(elements(given.kernel) - 1).fill(['the value', padded] as const)
      return apply(poolOperator, at, padded, others, { how, ...given })
    },
  )
}

type Kernel<O> = O extends { readonly kernel: infer K } ? K : number
type Option<O, K extends 'stride' | 'padding', Default> = K extends keyof O
  ? Exclude<O[K], undefined>
  : Default

type Pooled<S extends Shape, O> = number extends S['length']
  ? Shape
  : S extends readonly [infer B extends Dim, infer C extends Dim, ...infer I extends Shape]
    ? SpatialSizes<
        I,
        Kernel<O>,
        Option<O, 'stride', Kernel<O>>,
        1,
        Option<O, 'padding', 0>
      > extends infer N extends Shape
      ? readonly [B, C, ...N]
      : Shape
    : Shape

type PoolFits<S extends Shape, O> = number extends S['length']
  ? unknown
  : S extends readonly [Dim, Dim, Dim, ...infer R extends Shape]
    ? R['length'] extends 0 | 1 | 2
      ? [
          Fits<Kernel<O>, 1, readonly [1, ...R]>,
          Fits<Option<O, 'stride', 1>, 1, readonly [1, ...R]>,
          Fits<Option<O, 'padding', 0>, 0, readonly [1, ...R]>,
        ] extends [true, true, true]
        ? HasNever<Pooled<S, O>> extends true
          ? Invalid<'the kernel is larger than the padded input', readonly [S, Kernel<O>]>
          : unknown
        : Invalid<'options are a whole number, or a list with one for each spatial dimension', O>
      : Invalid<'pooling wants [batch, channels, ...spatial], of one to three spatial dimensions', S>
    : Invalid<'pooling wants [batch, channels, ...spatial], of one to three spatial dimensions', S>

type Pooling<O> = <D extends DType, S extends Shape>(
  x: Device<D, S> & Floats<D> & PoolFits<ChannelsFirst<S, O>, O>,
) => Device<D, ChannelsLast<Pooled<ChannelsFirst<S, O>, O>, O>>

/**
 * The largest element of each kernel: x is [batch, channels, ...spatial] of floats, of one to three spatial
 * dimensions (torch.nn.functional.max_pool2d). What is padded never wins; a NaN does.
 */
export const maxPool = <const O extends PoolOptions>(options: O) =>
  pooled('maxPool', 'max', options) as unknown as Pooling<O>

/**
 * The mean of each kernel: x is [batch, channels, ...spatial] of floats, of one to three spatial dimensions
 * (torch.nn.functional.avg_pool2d). Zeros that are padded count.
 */
export const avgPool = <const O extends PoolOptions>(options: O) =>
  pooled('avgPool', 'mean', options) as unknown as Pooling<O>
