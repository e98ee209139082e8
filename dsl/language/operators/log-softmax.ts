import { here } from '../where.js'
import { composed, floatAxes } from './composition.js'
import { withOptions } from './options.js'
import type { SameShape, SoftmaxOptions } from './softmax.js'

/**
 * The logarithm of `softmax` along the axes, of floats, computed in f32 without taking the logarithm of a
 * small number (torch.log_softmax). The default is the last axis.
 */
export const logSoftmax = (options?: SoftmaxOptions) =>
  composed('logSoftmax', here(), withOptions(options, ['axis'], floatAxes(options)), (parts, given, axes) =>
    parts.inFloat(given, x => {
      const most = parts.largest(x, axes)
      const total = parts.reduce(
        'sum',
        parts.map((a, m) => a.sub(m).exp(), x, most),
        axes,
      )
      const rest = parts.map(t => t.log(), total)
      const value = parts.map((a, m, r) => a.sub(m).sub(r), x, most, rest)
      return parts.composite('logSoftmax', value, [x], { axes })
    }),
  ) as unknown as SameShape
