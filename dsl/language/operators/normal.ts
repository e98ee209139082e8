import type { DType } from '../../ir/tensor.js'
import { here } from '../where.js'
import { castTo } from './cast.js'
import { composed } from './composition.js'
import { withOptions } from './options.js'
import { drawn, drawnBefore, type RandomOptions, randomOf } from './random.js'
import type { Device, Shape } from './types.js'

/**
 * Random numbers of the normal distribution with mean 0 and variance 1, in the shape of the piped value
 * (torch.randn_like), from two uniform ones each (Box and Muller, 1958). Others in each tick, and up to
 * rounding the same on every device: their counter is state of the plan.
 */
export const normal = <E extends 'f32' | 'f16' | 'bf16' = 'f32'>(options: RandomOptions<E>) => {
  const at = here()
  return composed(
    'normal',
    at,
    withOptions(options, ['seed', 'dtype'], () => randomOf(options)),
    (parts, x, { seed, to }) => {
      const counter = drawnBefore(parts, x)
      // 1 - u is never 0.
      const [radius, turn] = [0, 1].map(stream => drawn(at, x, counter, { seed, to: 'f32', stream }))
      const made = parts.map(
        (u, v) =>
          u
            .neg()
            .add(1)
            .log()
            .mul(-2)
            .sqrt()
            .mul(v.mul(2 * Math.PI).cos()),
        radius!,
        turn!,
      )
      return castTo(to, at, made)
    },
  ) as unknown as <S extends Shape>(x: Device<DType, S>) => Device<E, S>
}
