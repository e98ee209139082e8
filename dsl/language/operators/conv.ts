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
import { composed, named, ofFloats } from './composition.js'
import { workspaceBytes } from './matmul.js'
import type { Attrs, Operator } from './operator.js'
import { reshapeOperator } from './reshape.js'
import type { IsWhole, Quotient } from './sizes.js'
import { type Each, eachOf, type Fits, type HasNever, isWhole, type SpatialSizes } from './spatial.js'
import type { Device, Floats, Invalid, SameDim, SameDType, Shape } from './types.js'

export interface ConvOptions {
  /** From one place of the kernel to the next, from 1; 1 where it is left out. */
  readonly stride?: Each
  /**
   * Zeros before and after each spatial dimension. 'valid', which is the default: none. 'same': as many in all as keep
   * the sizes, with a stride of 1; where their number is odd, one more comes after.
   */
  readonly padding?: Each | 'same' | 'valid'
  /** From one element of the kernel to the next, from 1; 1 where it is left out. */
  readonly dilation?: Each
  /** Parts of the channels, each of which has filters of its own; 1 where it is left out. */
  readonly groups?: number
  /** Of the element type of x, one for each channel of the result: it is added to each. */
  readonly bias?: Device<DType, Shape>
}

interface ConvAttrs {
  readonly stride: readonly number[]
  readonly padding: readonly number[] | 'same'
  readonly dilation: readonly number[]
  readonly groups: number
}

const attrsFrom = (attrs: Attrs): ConvAttrs => attrs as unknown as ConvAttrs

const attrsOf =
  (options: unknown) =>
  ({ shape }: TensorSpec): E.Either<UnplacedError, Attrs> => {
    const n = shape.length - 2
    const { stride = 1, padding = 'valid', dilation = 1, groups = 1 } = named(options)
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
    return E.right({ stride: strides ?? [], padding: paddings ?? [], dilation: dilations ?? [], groups })
  }

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
  return places >= 1
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
        '[batch, channels, ...spatial] of one to three spatial dimensions',
        showSpec(x),
        'reshape the value: one image is a batch of 1',
      ),
    )
  if (w.shape.length !== x.shape.length)
    return E.left(
      shapeMismatch(
        `a weight of ${x.shape.length} dimensions: [outChannels, channels / groups, ...kernel]`,
        found,
        'reshape the weight',
      ),
    )
  const [batch, channels, ...spatial] = x.shape as readonly [Dim, Dim, ...Dim[]]
  const [filters, own, ...kernel] = w.shape as readonly [Dim, Dim, ...Dim[]]
  // With symbols among them, parts are compared once these have sizes.
  const fits =
    groups === 1
      ? channels === own
      : typeof channels === 'string' || typeof own === 'string' || channels === own * groups
  if (!fits)
    return E.left(
      shapeMismatch(
        `a weight of channels / groups = ${channels} / ${groups} in its second dimension`,
        found,
        'change the weight, or the groups: [outChannels, channels / groups, ...kernel]',
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
    ? E.right({ dtype: x.dtype, shape })
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
  const [filters, channels, ...kernel] = w.shape as readonly [number, number, ...number[]]
  return {
    kind: 'conv',
    batch: x.shape[0]!,
    groups,
    channels,
    filters: filters / groups,
    dtype: x.dtype as ConvSpec['dtype'],
    spatial: kernel.map((size, d) => dimOf(given, d, x.shape[d + 2]!, size)),
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
    const workspace = flops >= wantsWorkspace ? workspaceOf(x.dtype, movedBytes) : 0
    return {
      as: 'run',
      kernel: workspace > 0 ? { ...kernel, workspace } : kernel,
      flops,
      movedBytes,
      workspace,
    }
  },
  reference,
  // As of a matmul: the terms are added in f32 in any order.
  tolerance: (output, [, w]) =>
    termsOf(w) * roundoff.f32 + (output.dtype === 'f32' ? 0 : 2 * roundoff[output.dtype]),
  scale: ([x, w]) => (x ?? 0) * (w ?? 0),
}

// The workspace that a large convolution offers to the library. Kernels for tensor cores copy the operands there in
// another order; f32 does not use tensor cores.
const wantsWorkspace = 2 ** 30
const workspaceOf = (dtype: DType, movedBytes: number): number =>
  Math.min((dtype === 'f32' ? 0 : movedBytes) + 4096, workspaceBytes)

const sum = attrsOfCode([
  ['operand', 0],
  ['operand', 1],
  ['add', 0, 1],
])

/** The result with a number added to each channel. */
const biased = (y: FlowValue, at: ReturnType<typeof here>, bias: unknown): FlowValue => {
  const { builder, spec, hint } = y
  const value = builder.take(bias, 'device', at, 'conv', 'the bias', spec)
  const channels = spec.shape[1] ?? 1
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
    const shape = [{ axis: 0 }, ...spec.shape.slice(2).map(() => 1)]
    const flow = new FlowValue(builder, value.id, value.spec, value.place, hint)
    const beside = apply(reshapeOperator, at, flow, [], { shape })
    return apply(addOperator, at, y, [['the bias', beside]], sum)
  }
  return y
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
 * The convolution (cross-correlation) of floats, accumulated in f32: x is [batch, channels, ...spatial] of one to three
 * spatial dimensions, the weight [outChannels, channels / groups, ...kernel], and the result [batch, outChannels,
 * ...places], where there are ⌊(size + padding − dilation · (kernel − 1) − 1) / stride⌋ + 1 places along a dimension,
 * the padding being that of both sides (torch.nn.functional.conv1d, conv2d and conv3d). A spatial size may be a symbol
 * where it stays as it is.
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
  const { bias } = named(options)
  const one = (x: unknown) => apply(convOperator, at, x, [['the weight', weight]], attrsOf(options))
  const convolved =
    bias === undefined
      ? (x: unknown): unknown => one(piped(x, 'device', at, 'conv'))
      : composed('conv', at, E.right, (_, x) => biased(one(x), at, bias))
  return convolved as unknown as <D extends DType, S extends Shape>(
    x: Device<D, S> & Floats<D> & SameDType<D, E> & ConvFits<S, W, O> & BiasFits<W, O, D>,
  ) => Device<D, Convolved<S, W, O>>
}
