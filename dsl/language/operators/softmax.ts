import type { DType } from '../../ir/tensor.js'
import { here } from '../where.js'
import { composed, floatAxes } from './composition.js'
import { withOptions } from './options.js'
import type { Axes } from './reduce.js'
import type { Device, Floats, Shape } from './types.js'

export interface SoftmaxOptions {
  /** Along which the elements add up to 1; the last one where it is left out. */
  readonly axis?: Axes
}

/** An operator of floats that keeps the shape. */
export type SameShape = <D extends DType, S extends Shape>(x: Device<D, S> & Floats<D>) => Device<D, S>

/**
 * exp(x) divided by its sum along the axes, of floats, computed in f32; the largest element is taken away
 * first, so that nothing overflows (torch.softmax). Of -Infinity alone it is NaN. The default is the last
 * axis.
 */
export const softmax = (options?: SoftmaxOptions) =>
  composed('softmax', here(), withOptions(options, ['axis'], floatAxes(options)), (parts, given, axes) =>
    parts.inFloat(given, x => parts.softmax(x, axes)),
  ) as unknown as SameShape
