import * as E from 'fp-ts/lib/Either.js'
import type { DType, TensorSpec } from '../../ir/tensor.js'
import type { FlowValue } from '../builder.js'
import type { UnplacedError } from '../messages.js'
import { here } from '../where.js'
import { castTo } from './cast.js'
import { beside, composed, epsilonOf, floatAxes, type Parts } from './composition.js'
import { named, withOptions } from './options.js'
import type { Axes } from './reduce.js'
import type { Broadcasts, Device, Floats, SameDType, Shape } from './types.js'

export interface NormOptions<D extends DType = DType, S extends Shape = Shape> {
  /** The axes of one group that is normalised; the last one where it is left out. */
  readonly axis?: Axes
  /** Added to the mean square; 1e-5 where it is left out. */
  readonly epsilon?: number
  /** Multiplies the result: of the same element type, of a shape that broadcasts to that of the value. */
  readonly scale?: Device<D, S>
}

export interface LayerNormOptions<D extends DType = DType, S extends Shape = Shape>
  extends NormOptions<D, S> {
  /** Is added to the result: as `scale`. */
  readonly shift?: Device<D, S>
}

/** A norm, whose scale and shift fit what it normalises. */
export type Norm<D extends DType, R extends Shape> = <E extends DType, S extends Shape>(
  x: Device<E, S> & Floats<E> & SameDType<E, D> & Broadcasts<S, R>,
) => Device<E, S>

export interface NormSettings {
  readonly axes: readonly number[]
  readonly epsilon: number
}

export const normOf =
  (options: unknown) =>
  (x: TensorSpec): E.Either<UnplacedError, NormSettings> =>
    E.chain((axes: readonly number[]) => E.map((epsilon: number) => ({ axes, epsilon }))(epsilonOf(options)))(
      floatAxes(options)(x),
    )

/** d · 1/√(mean(d²) + epsilon) · scale + shift, in f32, where d is x, or x less its mean. */
export const normalised = (
  parts: Parts,
  x: FlowValue,
  mean: FlowValue | undefined,
  { axes, epsilon }: NormSettings,
  scale: FlowValue | undefined,
  shift: FlowValue | undefined,
): FlowValue => {
  const distance = mean === undefined ? x : parts.map((a, m) => a.sub(m), x, mean)
  const square = parts.reduce(
    'mean',
    parts.map(a => a.mul(a), distance),
    axes,
  )
  const factor = parts.map(v => v.add(epsilon).rsqrt(), square)
  const value = scaled(parts, distance, factor, scale, shift)
  return parts.composite('norm', value, [x, ...(scale ? [scale] : []), ...(shift ? [shift] : [])], {
    axes,
    factor: factor.id,
    ...(mean ? { mean: mean.id } : {}),
    ...(scale ? { scale: true } : {}),
  })
}

const scaled = (
  parts: Parts,
  x: FlowValue,
  factor: FlowValue,
  scale: FlowValue | undefined,
  shift: FlowValue | undefined,
): FlowValue => {
  if (scale && shift) return parts.map((a, f, s, t) => a.mul(f).mul(s).add(t), x, factor, scale, shift)
  if (scale) return parts.map((a, f, s) => a.mul(f).mul(s), x, factor, scale)
  if (shift) return parts.map((a, f, t) => a.mul(f).add(t), x, factor, shift)
  return parts.map((a, f) => a.mul(f), x, factor)
}

/** The user's scale or shift in f32; undefined where there is none. */
export const wideOption = (
  parts: Parts,
  x: FlowValue,
  operator: string,
  options: unknown,
  role: 'scale' | 'shift',
): FlowValue | undefined => {
  const flow = named(options)[role]
  if (flow === undefined) return undefined
  return castTo('f32', parts.at, beside(x, parts.at, operator, `the ${role}`, flow))
}

/**
 * (x − mean) / √(variance + epsilon) · scale + shift, the mean and the variance along the axes, of floats,
 * computed in f32 (torch.nn.functional.layer_norm). The default is the last axis.
 */
export const layerNorm = <D extends DType = DType, R extends Shape = []>(options?: LayerNormOptions<D, R>) =>
  composed(
    'layerNorm',
    here(),
    withOptions(options, ['axis', 'epsilon', 'scale', 'shift'], normOf(options)),
    (parts, given, settings) => {
      const scale = wideOption(parts, given, 'layerNorm', options, 'scale')
      const shift = wideOption(parts, given, 'layerNorm', options, 'shift')
      return parts.inFloat(given, x =>
        normalised(parts, x, parts.reduce('mean', x, settings.axes), settings, scale, shift),
      )
    },
  ) as unknown as Norm<D, R>
