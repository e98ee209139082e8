import { show } from '../../ir/show.js'
import { builderOf, piped, placeOf } from '../builder.js'
import { badAttribute } from '../messages.js'
import { here } from '../where.js'

/**
 * The value of the operator, which `gradients` does not keep for the way back: it is made again there, from
 * what the operator read, right before it is needed (torch.utils.checkpoint, jax.checkpoint). `operator` is any
 * function of a flow, such as a layer. The nodes that it made are made once more, and the function is not called
 * again; draws of random numbers are the same. So the values between are in memory in the forward pass and in
 * the backward pass, but not from one to the other.
 *
 * Of a layer it is activation checkpointing, of an `allGather` FSDP's resharding, of an `upload` it streams
 * weights both ways. The value itself is unchanged, and without `gradients` there is no effect.
 */
export const recompute = <X, Y>(operator: (x: X) => Y): ((x: X) => Y) => {
  const at = here()
  const again = (x: unknown): unknown => {
    const builder = builderOf(x)
    if (typeof operator === 'function') return builder.recomputed(() => operator(x as X))
    builder.report(
      at,
      'recompute',
      badAttribute(
        'an operator, such as relu(), or a function of a flow',
        show(operator),
        'as in recompute(layer)',
      ),
    )
    return piped(x, placeOf(x), at, 'recompute')
  }
  return again as (x: X) => Y
}
