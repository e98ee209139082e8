import type { Flow } from '../flow.js'
import type { AnyTensor } from '../tensor.js'
import { here } from '../where.js'
import { apply } from './apply.js'
import { reshapeOperator } from './reshape.js'

/**
 * The value itself, which `gradients` takes for a constant (torch.Tensor.detach, jax.lax.stop_gradient). A
 * view: nothing is copied.
 */
export const stopGradient = () => {
  const at = here()
  const stopped = (x: unknown): unknown => {
    const value = apply(reshapeOperator, at, x, [], ({ shape }) => ({
      _tag: 'Right',
      right: { shape: shape.map((_, axis) => ({ axis })) },
    }))
    value.builder.constants.add(value.id)
    return value
  }
  return stopped as unknown as <A extends AnyTensor>(x: Flow<'device', A>) => Flow<'device', A>
}
