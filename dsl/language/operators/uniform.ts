import type { DType, FloatType } from '../../ir/tensor.js'
import { here } from '../where.js'
import { composed } from './composition.js'
import { withOptions } from './options.js'
import { drawn, drawnBefore, type RandomOptions, randomOf, randomOptions } from './random.js'
import type { Device, Shape } from './types.js'

/**
 * Random numbers of [0, 1), all equally likely, in the shape of the piped value: `x.pipe(uniform({ seed: 7
 * }))` (torch.rand_like). Others in each tick, and the same on every device and in every run: their counter
 * is state of the plan.
 */
export const uniform = <E extends FloatType = 'f32'>(options: RandomOptions<E>) => {
  const at = here()
  return composed(
    'uniform',
    at,
    withOptions(options, randomOptions, () => randomOf(options)),
    (parts, x, draw) => drawn(at, x, drawnBefore(parts, x, draw), { ...draw.attrs, stream: 0 }),
  ) as unknown as <S extends Shape>(x: Device<DType, S>) => Device<E, S>
}
