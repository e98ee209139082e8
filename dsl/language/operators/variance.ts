import { here } from '../where.js'
import { composed } from './composition.js'
import { alongFloats, type FloatReduction } from './log-sum-exp.js'
import type { Along } from './reduce.js'

/**
 * The mean of the squared distances from the mean along the axes, of floats, computed in f32 (numpy.var;
 * torch.var with correction 0).
 */
export const variance = ((options: unknown) =>
  composed('variance', here(), alongFloats(options), (parts, given, { axes, keepDims }: Along) =>
    parts.inFloat(given, x => {
      const distance = parts.map((a, m) => a.sub(m), x, parts.reduce('mean', x, axes))
      return parts.reduce(
        'mean',
        parts.map(d => d.mul(d), distance),
        axes,
        keepDims,
      )
    }),
  )) as unknown as FloatReduction
