import type { DType } from '../../ir/tensor.js'
import { here } from '../where.js'
import { composed } from './composition.js'
import { type Norm, type NormOptions, normalised, normOf, wideOption } from './layer-norm.js'
import { withOptions } from './options.js'
import type { Shape } from './types.js'

/**
 * x / √(mean(x²) + epsilon) · scale, the mean along the axes, of floats, computed in f32
 * (torch.nn.functional.rms_norm). The default is the last axis.
 */
export const rmsNorm = <D extends DType = DType, R extends Shape = []>(options?: NormOptions<D, R>) =>
  composed(
    'rmsNorm',
    here(),
    withOptions(options, ['axis', 'epsilon', 'scale'], normOf(options)),
    (parts, given, settings) => {
      const scale = wideOption(parts, given, 'rmsNorm', options, 'scale')
      return parts.inFloat(given, x => normalised(parts, x, undefined, settings, scale, undefined))
    },
  ) as unknown as Norm<D, R>
