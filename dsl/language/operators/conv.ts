import * as E from 'fp-ts/lib/Either.js'
import { type ConvDim, type ConvSpec, convOutput, mostSpatial, paddedOf } from '../../ir/kernel-spec.js'
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
import { FlowValue, piped } from '../builder.js'
import { badAttribute, dtypeMismatch, shapeMismatch, type UnplacedError } from '../messages.js'
import { type HostArray, hostArray, numbers, roundoff, writer } from '../values.js'
import { here } from '../where.js'
import { addOperator } from './add.js'
import { apply } from './apply.js'
import { attrsOfCode } from './code.js'
import { composed, ofFloats } from './composition.js'
import { matmulOperator, workspaceBytes } from './matmul.js'
import type { Attrs, Operator } from './operator.js'
import { named, withOptions } from './options.js'
import { reshapeOperator } from './reshape.js'
import type { IsWhole, Quotient } from './sizes.js'
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
  isWhole,
  type SpatialSizes,
} from './spatial.js'
import type { Device, Floats, Invalid, SameDim, SameDType, Shape } from './types.js'

export interface ConvOptions {
  /** From one place of the kernel to the next, from 1; 1 where it is left out. */
  readonly stride?: Each
  /**
   * Zeros before and after each spatial dimension. 'valid', which is the default: none. 'same': as many in
   * all as keep the sizes, with a stride of 1; where their number is odd, one more comes after.
   */
  readonly padding?: Each | 'same' | 'valid'
  /** From one element of the kernel to the next, from 1; 1 where it is left out. */
  readonly dilation?: Each
  /** Parts of the channels, each of which has filters of its own; 1 where it is left out. */
  readonly groups?: number
  /** Of the element type of x, one for each channel of the result: it is added to each. */
  readonly bias?: Device<DType, Shape>
  /**
   * Which dimension of the value, the weight and the result has the channels: the second one, which is the
   * default, or the last one, in which cuDNN computes convolutions of f16 and bf16 faster.
   */
  readonly channels?: ChannelsAt
}

interface ConvAttrs {
  readonly stride: readonly number[]
  readonly padding: readonly number[] | 'same'
  readonly dilation: readonly number[]
  readonly groups: number
  readonly channels?: 'last'
}

const attrsFrom = (attrs: Attrs): ConvAttrs => attrs as unknown as ConvAttrs

const attrsOf =
  (options: unknown) =>
  ({ shape }: TensorSpec): E.Either<UnplacedError, Attrs> => {
    const n = shape.length - 2
    const { stride = 1, padding = 'valid', dilation = 1, groups = 1, channels = 'first' } = named(options)
    const [strides, dilations] = [eachOf(stride, n, 1), eachOf(dilation, n, 1)]
    const paddings = padding === 'same' ? padding : eachOf(padding === 'valid' ? 0 : padding, n, 0)
    const dims = n === 1 ? 'a list of one' : `a list of ${n}, one for each spatial dimension`
    const wrong = (wanted: string, found: unknown, next: string) =>
      E.left(badAttribute(wanted, show(found), next))
    // A value without spatial dimensions is reported by `infer`.
    if (n >= 1 && strides === undefined)
      return wrong(`stride: a whole number from 1, or ${dims}`, stride, 'as in conv(w, { stride: 2 })')
    if (n >= 1 && dilations === undefined)
      return wrong(`dilation: a whole number from 1, or ${dims}`, dilation, 'as in conv(w, { dilation: 2 })')
    if (n >= 1 && paddings === undefined)
      return wrong(
        `padding: 'same', 'valid', a whole number from 0, or ${dims}`,
        padding,
        "as in conv(w, { padding: 1 }); the operator 'pad' pads one side alone",
      )
    if (padding === 'same' && strides?.some(step => step !== 1))
      return wrong("a stride of 1 with padding: 'same'", stride, 'say how many zeros: padding: 1')
    if (!isWhole(groups, 1))
      return wrong('groups: a whole number from 1', groups, 'as in conv(w, { groups: 2 })')
    if (!isChannelsAt(channels)) return E.left(badChannels(channels, "conv(w, { channels: 'last' })"))
    const given = { stride: strides ?? [], padding: paddings ?? [], dilation: dilations ?? [], groups }
    return E.right(channels === 'last' ? { ...given, channels } : given)
  }

const optionNames = ['stride', 'padding', 'dilation', 'groups', 'bias', 'channels']
const readOptions = (options: unknown) => withOptions(options, optionNames, attrsOf(options))

/** One spatial dimension, of an input of this size. */
const dimOf = (attrs: ConvAttrs, d: number, input: number, kernel: number): ConvDim => {
  const [stride, dilation] = [attrs.stride[d]!, attrs.dilation[d]!]
  const both = attrs.padding === 'same' ? dilation * (kernel - 1) : 2 * attrs.padding[d]!
  const before = Math.floor(both / 2)
  return { input, kernel, stride, dilation, before, after: both - before }
}

/** The places of the kernel along a dimension. A size that is a symbol is known where it stays as it is. */
const placesOf = (attrs: ConvAttrs, d: number, input: Dim, kernel: Dim): E.Either<UnplacedError, Dim> => {
  if (typeof kernel === 'string')
    return E.left(
      shapeMismatch(
        'a kernel whose sizes are numbers',
        `the symbol ${kernel}`,
        'give the weight a shape of numbers',
      ),
    )
  if (kernel === 0)
    return E.left(
      shapeMismatch('a kernel with elements', 'a size of 0', 'give the weight a shape of numbers from 1'),
    )
  if (typeof input === 'string') {
    const { stride, dilation, before, after } = dimOf(attrs, d, 1, kernel)
    return stride === 1 && before + after === dilation * (kernel - 1)
      ? E.right(input)
      : E.left(
          shapeMismatch(
            'spatial sizes that are numbers, or stay as they are',
            `the symbol ${input}`,
            "give the input a size, or say { padding: 'same' } with a stride of 1",
          ),
        )
  }
  const dim = dimOf(attrs, d, input, kernel)
  const places = convOutput(dim)
  if (input === 0 && places > 0)
    return E.left(
      shapeMismatch(
        'an input with elements, or padding that leaves one without elements as it is',
        `no elements, and padding for ${places} places of the kernel`,
        'pad less, or leave such an input out',
      ),
    )
  // Where the input has no elements the kernel has no places.
  return places >= 1 || places === input
    ? E.right(places)
    : E.left(
        shapeMismatch(
          `a kernel that spans at most the ${dim.before + input + dim.after} elements of the padded input`,
          `${kernel} elements at a dilation of ${dim.dilation}: ${dim.dilation * (kernel - 1) + 1}`,
          'pad more, or take a smaller kernel or dilation',
        ),
      )
}

/** A symbol counts once its size is known. */
const sizeOf = (size: Dim | undefined): number => (typeof size === 'number' ? size : 1)

const infer = (inputs: readonly TensorSpec[], attrs: Attrs): E.Either<UnplacedError, TensorSpec> => {
  const [x, w] = inputs as readonly [TensorSpec, TensorSpec]
  const given = attrsFrom(attrs)
  const { groups } = given
  const isLast = given.channels === 'last'
  const order = isLast
    ? { value: '[batch, ...spatial, channels]', weight: '[outChannels, ...kernel, channels / groups]' }
    : { value: '[batch, channels, ...spatial]', weight: '[outChannels, channels / groups, ...kernel]' }
  const floats = ofFloats(x)
  if (E.isLeft(floats)) return floats
  const found = `${showSpec(x)} and ${showSpec(w)}`
  if (x.dtype !== w.dtype)
    return E.left(
      dtypeMismatch(
        'values and a weight of one element type',
        found,
        `cast one of them, as in pipe(cast('${x.dtype}'))`,
      ),
    )
  if (x.shape.length < 3 || x.shape.length > 2 + mostSpatial)
    return E.left(
      shapeMismatch(
        `${order.value} of one to three spatial dimensions`,
        showSpec(x),
        'reshape the value: one image is a batch of 1',
      ),
    )
  if (w.shape.length !== x.shape.length)
    return E.left(
      shapeMismatch(`a weight of ${x.shape.length} dimensions: ${order.weight}`, found, 'reshape the weight'),
    )
  const [batch, channels, ...spatial] = channelsFirst(x.shape, isLast) as readonly [Dim, Dim, ...Dim[]]
  const [filters, own, ...kernel] = channelsFirst(w.shape, isLast) as readonly [Dim, Dim, ...Dim[]]
  // With symbols among them, parts are compared once these have sizes.
  const fits =
    groups === 1
      ? channels === own
      : typeof channels === 'string' || typeof own === 'string' || channels === own * groups
  if (!fits)
    return E.left(
      shapeMismatch(
        `a weight of channels / groups = ${channels} / ${groups} in its ${isLast ? 'last' : 'second'} dimension`,
        found,
        `change the weight, or the groups: ${order.weight}`,
      ),
    )
  if (typeof filters === 'number' && filters % groups !== 0)
    return E.left(
      shapeMismatch(
        `channels of the result that ${groups} groups divide`,
        `${filters} in the first dimension of ${showSpec(w)}`,
        'change the weight, or the groups',
      ),
    )
  const shape: Dim[] = [batch, filters]
  for (const [d, input] of spatial.entries()) {
    const places = placesOf(given, d, input, kernel[d]!)
    if (E.isLeft(places)) return places
    shape.push(places.right)
  }
  const dims = spatial.map((input, d) => dimOf(given, d, sizeOf(input), sizeOf(kernel[d])))
  const padded = paddedOf(sizeOf(own), dims)
  return padded <= Number.MAX_SAFE_INTEGER
    ? E.right({ dtype: x.dtype, shape: isLast ? channelsLast(shape) : shape })
    : E.left(
        shapeMismatch(
          `at most ${Number.MAX_SAFE_INTEGER} elements of a group with their padding`,
          `${padded}`,
          'pad less',
        ),
      )
}

export const convSpec = (x: BoundSpec, w: BoundSpec, attrs: Attrs): ConvSpec => {
  const given = attrsFrom(attrs)
  const { groups } = given
  const isLast = given.channels === 'last'
  const [batch, , ...inputs] = channelsFirst(x.shape, isLast) as readonly [number, number, ...number[]]
  const [filters, channels, ...kernel] = channelsFirst(w.shape, isLast) as readonly [
    number,
    number,
    ...number[],
  ]
  return {
    kind: 'conv',
    batch,
    groups,
    channels,
    filters: filters / groups,
    dtype: x.dtype as ConvSpec['dtype'],
    spatial: kernel.map((size, d) => dimOf(given, d, inputs[d]!, size)),
    ...(isLast ? { channelsLast: true as const } : {}),
  }
}

/** The terms of a sum: elements of a filter. */
const termsOf = (w: BoundSpec | undefined): number => elements(w?.shape.slice(1) ?? [])

/** The places [from, to) at which an element of the kernel meets the input. */
const met = (
  { input, stride, dilation, before }: ConvDim,
  place: number,
  places: number,
): [number, number] => {
  const shift = place * dilation - before
  const from = Math.min(places, Math.max(0, Math.ceil(-shift / stride)))
  return [from, Math.max(from, Math.min(places, Math.floor((input - 1 - shift) / stride) + 1))]
}

const reference = (
  inputs: readonly HostArray[],
  specs: readonly BoundSpec[],
  output: BoundSpec,
  attrs: Attrs,
): HostArray => {
  const spec = convSpec(specs[0]!, specs[1]!, attrs)
  if (!spec.channelsLast) return ofChannelsFirst(inputs, spec, output)
  const first = inputs.map((input, i) => moved(input, specs[i]!, 'first'))
  const other = { ...output, shape: channelsFirst(output.shape, true) }
  return moved(ofChannelsFirst(first, spec, other), other, 'last')
}

/** The elements in another order, in which the channels of that shape come after the batch or last. */
const moved = (array: HostArray, { dtype, shape }: BoundSpec, to: ChannelsAt): HostArray => {
  const result = hostArray(dtype, array.length)
  const channels = to === 'first' ? shape.at(-1)! : shape[1]!
  const places = elements(shape) / shape[0]! / channels
  for (let image = 0, at = 0; image < shape[0]!; image++)
    for (let channel = 0; channel < channels; channel++)
      for (let place = 0; place < places; place++, at++) {
        const other = (image * places + place) * channels + channel
        if (to === 'first') result[at] = array[other]!
        else result[other] = array[at]!
      }
  return result
}

const ofChannelsFirst = (inputs: readonly HostArray[], spec: ConvSpec, output: BoundSpec): HostArray => {
  const { batch, groups, channels, filters, dtype } = spec
  const none: ConvDim = { input: 1, kernel: 1, stride: 1, dilation: 1, before: 0, after: 0 }
  const [a, b, c] = [none, none, ...spec.spatial].slice(-3) as [ConvDim, ConvDim, ConvDim]
  const [depth, height, width] = [a, b, c].map(convOutput) as [number, number, number]
  const [x, w] = [numbers(inputs[0]!, dtype), numbers(inputs[1]!, dtype)]
  const result = hostArray(output.dtype, elements(output.shape))
  const write = writer(output.dtype)
  // Sums in f64, rounded once: every order of f32 additions is close to that.
  const row = new Float64Array(width)
  const add = (from: number | undefined, at: number, place: number) => {
    const weight = w[at]!
    const [first, last] = from === undefined ? [0, 0] : met(c, place, width)
    // Zeros count too: with an infinite weight they make a NaN.
    for (let o = 0; o < first; o++) row[o]! += 0 * weight
    for (let o = first; o < last; o++) row[o]! += weight * x[from! + o * c.stride]!
    for (let o = last; o < width; o++) row[o]! += 0 * weight
  }
  const inside = (dim: ConvDim, place: number, step: number): number | undefined => {
    const i = place * dim.stride + step * dim.dilation - dim.before
    return i >= 0 && i < dim.input ? i : undefined
  }
  let at = 0
  for (let image = 0; image < batch; image++)
    for (let filter = 0; filter < groups * filters; filter++)
      for (let z = 0; z < depth; z++)
        for (let y = 0; y < height; y++) {
          row.fill(0)
          let weight = filter * channels * a.kernel * b.kernel * c.kernel
          for (let channel = 0; channel < channels; channel++) {
            const plane = (image * groups + Math.floor(filter / filters)) * channels + channel
            for (let p = 0; p < a.kernel; p++)
              for (let q = 0; q < b.kernel; q++) {
                const [i, j] = [inside(a, z, p), inside(b, y, q)]
                const line =
                  i === undefined || j === undefined ? undefined : (plane * a.input + i) * b.input + j
                for (let r = 0; r < c.kernel; r++) {
                  const from = line === undefined ? undefined : line * c.input + r * c.dilation - c.before
                  add(from, weight++, r)
                }
              }
          }
          for (let o = 0; o < width; o++) result[at++] = write(Math.fround(row[o]!))
        }
  return result
}

/** A convolution as one node; see `conv`. */
export const convOperator: Operator = {
  name: 'conv',
  infer,
  lower: (inputs, output, attrs) => {
    const [x, w] = inputs as readonly [BoundSpec, BoundSpec]
    const kernel = convSpec(x, w, attrs)
    const flops = 2 * elements(output.shape) * termsOf(w)
    const movedBytes = tensorBytes(x) + tensorBytes(w) + tensorBytes(output)
    const workspace = flops >= wantsWorkspace ? workspaceOf(kernel, movedBytes) : 0
    return {
      as: 'run',
      kernel: workspace > 0 ? { ...kernel, workspace } : kernel,
      flops,
      movedBytes,
      workspace,
    }
  },
  withEmpty: () => 0,
  reference,
  // As of a matmul: the terms are added in f32 in any order.
  tolerance: (output, [, w]) =>
    termsOf(w) * roundoff.f32 + (output.dtype === 'f32' ? 0 : 2 * roundoff[output.dtype]),
  scale: ([x, w]) => (x ?? 0) * (w ?? 0),
}

// The workspace that a large convolution offers to the library. Kernels for tensor cores want the channels
// last, and copy operands there whose channels are not; f32 does not use tensor cores, and wants them first.
const wantsWorkspace = 2 ** 30
const workspaceOf = ({ dtype, channelsLast }: ConvSpec, movedBytes: number): number =>
  Math.min(((channelsLast === true) === (dtype === 'f32') ? movedBytes : 0) + 4096, workspaceBytes)

const sum = attrsOfCode([
  ['operand', 0],
  ['operand', 1],
  ['add', 0, 1],
])

/** The result with a number added to each channel. */
const biased = (y: FlowValue, at: ReturnType<typeof here>, bias: unknown, isLast: boolean): FlowValue => {
  const { builder, spec, hint } = y
  const value = builder.take(bias, 'device', at, 'conv', 'the bias', spec)
  const channels = (isLast ? spec.shape.at(-1) : spec.shape[1]) ?? 1
  const found = `${showSpec(value.spec)}, of ${showSpec(spec)}`
  if (value.spec.dtype !== spec.dtype)
    builder.report(at, 'conv', dtypeMismatch('a bias of the same element type', found, 'cast one of them'))
  else if (value.spec.shape.length !== 1 || value.spec.shape[0] !== channels)
    builder.report(
      at,
      'conv',
      shapeMismatch(`a bias of [${channels}], one number a channel`, found, 'reshape it'),
    )
  else {
    const shape = [{ axis: 0 }, ...(isLast ? [] : spec.shape.slice(2).map(() => 1))]
    const flow = new FlowValue(builder, value.id, value.spec, value.place, hint)
    const beside = apply(reshapeOperator, at, flow, [], { shape })
    return apply(addOperator, at, y, [['the bias', beside]], sum)
  }
  return y
}

/** Whether each element of the result is made of one place, whose channels lie side by side. */
const isProduct = ({ stride, padding, groups, channels }: ConvAttrs, { shape }: TensorSpec): boolean =>
  channels === 'last' &&
  groups === 1 &&
  stride.every(step => step === 1) &&
  (padding === 'same' || padding.every(size => size === 0)) &&
  shape.slice(1, -1).every(size => size === 1)

/** The convolution as a product of the places by the filters, where it is one. */
const asProduct = (
  x: FlowValue,
  at: ReturnType<typeof here>,
  w: FlowValue,
  options: unknown,
): FlowValue | undefined => {
  const attrs = readOptions(options)(x.spec)
  if (E.isLeft(attrs) || !isProduct(attrsFrom(attrs.right), w.spec)) return undefined
  if (E.isLeft(infer([x.spec, w.spec], attrs.right))) return undefined
  const shape = [{ axis: 0 }, { axis: w.spec.shape.length - 1 }]
  const filters = apply(reshapeOperator, at, w, [], { shape })
  return apply(matmulOperator, at, x, [['the weight', filters]], { transpose: true })
}

/** An option: what was given, or the default. Of options whose type is not known, anything. */
type Option<O, K extends keyof ConvOptions, Default> = K extends keyof O ? Exclude<O[K], undefined> : Default
/** The shape of a convolution: the sizes that are literals, else `number`. */
export type Convolved<S extends Shape, W extends Shape, O> = number extends S['length']
  ? Shape
  : S extends readonly [infer B extends Dim, Dim, ...infer I extends Shape]
    ? W extends readonly [infer F extends Dim, Dim, ...infer K extends Shape]
      ? SpatialSizes<
          I,
          K,
          Option<O, 'stride', 1>,
          Option<O, 'dilation', 1>,
          Option<O, 'padding', 0>
        > extends infer N extends Shape
        ? readonly [B, F, ...N]
        : Shape
      : Shape
    : Shape

type ChannelsFit<C, F, Own, G> =
  IsWhole<G, 1> extends false
    ? Invalid<'groups are a whole number from 1', G>
    : Quotient<C, G> extends readonly [infer Q, infer R]
      ? [R, Quotient<F, G>] extends [0 | number, readonly [unknown, infer T]]
        ? SameDim<R, 0> extends false
          ? Invalid<'the groups do not divide the channels', readonly [C, G]>
          : SameDim<T, 0> extends false
            ? Invalid<'the groups do not divide the channels of the result', readonly [F, G]>
            : SameDim<Q, Own> extends true
              ? unknown
              : Invalid<
                  'the channels, divided by the groups, differ from those of the weight',
                  readonly [Q, Own]
                >
        : unknown
      : unknown

/** Whether a value, a weight and options make a convolution. */
export type ConvFits<S extends Shape, W extends Shape, O> = number extends S['length'] | W['length']
  ? unknown
  : S extends readonly [Dim, infer C extends Dim, Dim, ...infer R extends Shape]
    ? R['length'] extends 0 | 1 | 2
      ? W extends readonly [infer F extends Dim, infer Own extends Dim, ...infer K extends Shape]
        ? K['length'] extends [0, ...R]['length']
          ? OptionsFit<O, K> & ChannelsFit<C, F, Own, Option<O, 'groups', 1>> & KernelFits<S, W, O>
          : Invalid<'the weight of a convolution is [outChannels, channels / groups, ...kernel]', W>
        : Invalid<'the weight of a convolution is [outChannels, channels / groups, ...kernel]', W>
      : Invalid<'a convolution wants [batch, channels, ...spatial], of one to three spatial dimensions', S>
    : Invalid<'a convolution wants [batch, channels, ...spatial], of one to three spatial dimensions', S>

type OptionsFit<O, K extends Shape> =
  Fits<Option<O, 'stride', 1>, 1, K> extends false
    ? Invalid<
        'stride: a whole number from 1, or a list with one for each spatial dimension',
        Option<O, 'stride', 1>
      >
    : Fits<Option<O, 'dilation', 1>, 1, K> extends false
      ? Invalid<
          'dilation: a whole number from 1, or a list with one for each spatial dimension',
          Option<O, 'dilation', 1>
        >
      : Fits<Option<O, 'padding', 0>, 0, K> extends false
        ? Invalid<
            "padding: 'same', 'valid', a whole number from 0, or a list with one for each spatial dimension",
            Option<O, 'padding', 0>
          >
        : Option<O, 'padding', 0> extends 'same'
          ? SameStride<Option<O, 'stride', 1>>
          : unknown

type SameStride<V> = (V extends readonly unknown[] ? V[number] : V) extends infer N
  ? [N] extends [1]
    ? unknown
    : number extends N
      ? unknown
      : Invalid<"padding 'same' wants a stride of 1", V>
  : unknown

type KernelFits<S extends Shape, W extends Shape, O> =
  HasNever<Convolved<S, W, O>> extends true
    ? Invalid<'the kernel is larger than the padded input', readonly [S, W]>
    : unknown

/** Whether a bias has one number for each channel. */
type BiasFits<W extends Shape, O, D> = O extends { readonly bias: Device<infer E, infer B> }
  ? SameDType<E, D & DType> &
      (B extends readonly [infer N]
        ? W extends readonly [infer F, ...Shape]
          ? SameDim<N, F> extends true
            ? unknown
            : Invalid<'the bias of a convolution has one number for each channel', readonly [N, F]>
          : unknown
        : number extends B['length']
          ? unknown
          : Invalid<'the bias of a convolution has one number for each channel', B>)
  : unknown

/**
 * The convolution (cross-correlation) of floats, accumulated in f32: x is [batch, channels, ...spatial] of
 * one to three spatial dimensions, the weight [outChannels, channels / groups, ...kernel], and the result
 * [batch, outChannels, ...places], where there are ⌊(size + padding − dilation · (kernel − 1) − 1) / stride⌋
 * + 1 places along a dimension, the padding being that of both sides (torch.nn.functional.conv1d, conv2d and
 * conv3d). A spatial size may be a symbol where it stays as it is. With `channels: 'last'` x is [batch,
 * ...spatial, channels], the weight [outChannels, ...kernel, channels / groups] and the result [batch,
 * ...places, outChannels].
 */
export const conv = <
  E extends DType,
  W extends Shape,
  const O extends ConvOptions = Readonly<Record<never, never>>,
>(
  weight: Device<E, W>,
  options?: O,
) => {
  const at = here()
  const { bias, channels } = named(options)
  const one = (x: FlowValue): FlowValue => {
    const { id, spec, place } = x.builder.take(weight, 'device', at, 'conv', 'the weight', x.spec)
    const w = new FlowValue(x.builder, id, spec, place, x.hint)
    return (
      asProduct(x, at, w, options) ?? apply(convOperator, at, x, [['the weight', w]], readOptions(options))
    )
  }
  const convolved =
    bias === undefined
      ? (x: unknown): unknown => one(piped(x, 'device', at, 'conv'))
      : composed('conv', at, E.right, (_, x) => biased(one(x), at, bias, channels === 'last'))
  return convolved as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S> &
      Floats<D> &
      SameDType<D, E> &
      ConvFits<ChannelsFirst<S, O>, ChannelsFirst<W, O>, O> &
      BiasFits<W, O, D>,
  ) => Device<D, ChannelsLast<Convolved<ChannelsFirst<S, O>, ChannelsFirst<W, O>, O>, O>>
}
